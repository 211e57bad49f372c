"""Two ranks that exchange strided bytes of emulated device memory by four different calls, with tables from a
per-rank variable; each prints a line of counters. Started by test_calibrate_device.py.
"""

from __future__ import annotations

import os
import sys

RANK = next(int(os.environ[name]) for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
if f"MODEL_OF_{RANK}" in os.environ:
    os.environ["TEMPI_MODEL"] = os.environ[f"MODEL_OF_{RANK}"]

import numpy as np  # noqa: E402

import tempi  # noqa: E402
from tempi import MPI  # noqa: E402
from tempi.emulator.array import DeviceArray  # noqa: E402

RUN, STRIDE = 64, 128
COUNTERS = ("method_device", "method_oneshot", "method_staged", "method_pipelined", "fallback_rule", "model_choices")


def pattern(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def exchange(comm: MPI.Comm, size: int, nonblocking: bool) -> None:
    """Rank 0 sends, then rank 1: by Send and Irecv, or by Isend and Recv."""
    blocks = size // RUN
    datatype = MPI.BYTE.Create_vector(blocks, RUN, STRIDE).Commit()
    span = blocks * STRIDE
    for sender in (0, 1):
        if comm.rank == sender:
            buffer = DeviceArray.from_numpy(pattern(size, span))
            if nonblocking:
                comm.Isend([buffer, 1, datatype], 1 - sender).Wait()
            else:
                comm.Send([buffer, 1, datatype], 1 - sender)
            continue
        buffer = DeviceArray.from_numpy(np.zeros(span, np.uint8))
        if nonblocking:
            comm.Recv([buffer, 1, datatype], sender)
        else:
            comm.Irecv([buffer, 1, datatype], sender).Wait()
        got, expected = buffer.to_numpy(), pattern(size, span)
        expected[np.arange(span) % STRIDE >= RUN] = 0
        assert np.array_equal(got, expected)
    datatype.Free()


def main() -> None:
    comm = MPI.COMM_WORLD
    for size in (1024, 1 << 15, (1 << 20) + (1 << 18)):
        for nonblocking in (False, True):
            exchange(comm, size, nonblocking)
    line = f"rank {comm.rank}: {' '.join(str(tempi.stats()[name]) for name in COUNTERS)}\n"
    sys.stdout.write("".join(comm.allgather(line)) if comm.rank == 0 else "" * len(comm.allgather(line)))


main()
