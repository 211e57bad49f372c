"""Two ranks: three messages of runs of 4096 bytes and three of runs of 8, and how many tempi sent of each;
then how many choices were for messages larger than the tables."""

from __future__ import annotations

import numpy as np

import tempi
from tempi import MPI


def sent(blocks: int, run: int, stride: int) -> int:
    comm = MPI.COMM_WORLD
    memory = np.zeros(blocks * stride, np.uint8)
    datatype = MPI.BYTE.Create_vector(blocks, run, stride).Commit()
    before = tempi.stats().counters["sends"]
    for _ in range(3):
        if comm.rank == 0:
            comm.Send([memory, 1, datatype], 1, 5)
        else:
            comm.Recv([memory, 1, datatype], 0, 5)
    datatype.Free()
    return int(tempi.stats().counters["sends"] - before)


if __name__ == "__main__":
    found = sent(16, 4096, 8192), sent(4096, 8, 64)
    if MPI.COMM_WORLD.rank == 0:
        print("sent", *found, flush=True)
        print("outside", tempi.stats().counters["model_outside"], flush=True)
