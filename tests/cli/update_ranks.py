"""Two ranks that pack, unpack and exchange one type while made-up times correct the tables; prints how often tempi
acted, early and late. Started by test_update.py.

PRETENDED gives factors on the table's times by quantity: `own_pack=0.25,...`.
"""

from __future__ import annotations

import ctypes
import os
import sys

import numpy as np

import tempi
from tempi import MPI, _engine
from tempi.model import grid

BLOCKS, RUN, STRIDE = 4096, 8, 64
EARLY, LATE = 7, 512
COUNTERS = ("packs", "unpacks", "sends", "recvs")


def pretend() -> None:
    engine = ctypes.CDLL(_engine.library_path())
    engine.tempi_tuning_pretend.argtypes = (ctypes.c_int, ctypes.c_double)
    for pair in os.environ["PRETENDED"].split(","):
        name, _, factor = pair.partition("=")
        engine.tempi_tuning_pretend(grid.QUANTITIES.index(name), float(factor))


class Once:
    """One call of each kind, its bytes checked."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.type = MPI.BYTE.Create_vector(BLOCKS, RUN, STRIDE).Commit()
        self.inside = np.arange(BLOCKS * STRIDE) % STRIDE < RUN
        self.memory = np.random.default_rng(comm.rank).integers(0, 256, BLOCKS * STRIDE, np.uint8)
        self.expected = np.random.default_rng(1 - comm.rank).integers(0, 256, BLOCKS * STRIDE, np.uint8)
        self.target = np.zeros_like(self.memory)
        self.packed = np.zeros(BLOCKS * RUN, np.uint8)

    def __call__(self) -> None:
        self.target[:] = 0
        self.packed[:] = 0
        self.type.Pack(self.memory, self.packed, 0, self.comm)
        assert np.array_equal(self.packed, self.memory[self.inside])
        self.type.Unpack(self.packed, 0, self.target, self.comm)
        assert np.array_equal(self.target[self.inside], self.packed)
        request = self.comm.Irecv([self.target, 1, self.type], 1 - self.comm.rank)
        self.comm.Send([self.memory, 1, self.type], 1 - self.comm.rank)
        request.Wait()
        assert np.array_equal(self.target[self.inside], self.expected[self.inside])
        assert not self.target[~self.inside].any()


def counted(once: Once, n: int) -> list[int]:
    before = tempi.stats()
    for _ in range(n):
        once()
    after = tempi.stats()
    return [after[name] - before[name] for name in COUNTERS]


def main() -> None:
    comm = MPI.COMM_WORLD
    pretend()
    once = Once(comm)
    early = counted(once, EARLY)
    counted(once, LATE)
    late = counted(once, LATE)
    stats = tempi.stats()
    more = [stats[name] for name in ("model_samples", "model_changed", "model_tried")]
    lines = comm.gather(f"rank {comm.rank}: {' '.join(map(str, early + late + more))}\n")
    sys.stdout.write("".join(lines or ()))


main()
