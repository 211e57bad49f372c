"""Overlap of an exchange with an interior kernel, between two ranks: ``mpirun -n 2 python -m
tempi.bench.workers.gpu_overlap``.

Each rank exchanges the two faces of axis x and the two of axis y of a cube of doubles with the other. The interior
kernel copies memory within the card for about as long as the exchange takes. Subjects: the exchange alone; the
interior kernel alone and waited for; the kernel launched first, then the exchange; the messages posted, then the
kernel launched, then both waited for. If nothing overlaps, the last two take the sum of the first two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempi.bench.cases import MIB
from tempi.bench.gpu import probes as gpu_probes
from tempi.bench.options import OverlapOptions, parse_overlap
from tempi.measure import _native, sampling, worker
from tempi.measure.cuda_driver import Driver, flat_copy_call, wait_call
from tempi.measure.records import Record

STATUS_ROOM = 256  # larger than the MPI_Status of any ABI
FACES = [(axis, side) for axis in (1, 2) for side in (0, 1)]
ROW = 4096  # bytes of a run of the interior kernel
MOST = 64  # launches of the interior kernel
Call = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Cube:
    """`points` doubles an axis, and one ghost cell on every side."""

    points: int

    @property
    def edge(self) -> int:
        return self.points + 2

    def sizes(self, axis: int) -> tuple[int, ...]:
        return tuple(1 if each == axis else self.points for each in range(3))

    def starts(self, axis: int, side: int, ghost: bool) -> tuple[int, ...]:
        at = (0 if ghost else 1) if side == 0 else self.points + (1 if ghost else 0)
        return tuple(at if each == axis else 1 for each in range(3))

    def face(self, cells: Any, axis: int, side: int, ghost: bool) -> Any:
        boxes = zip(self.starts(axis, side, ghost), self.sizes(axis), strict=True)
        return cells[tuple(slice(start, start + size) for start, size in boxes)]


def cells_of(rank: int, cube: Cube) -> Any:
    return np.arange(cube.edge**3, dtype=float).reshape((cube.edge,) * 3) + 1e9 * (rank + 1)


def _function(name: str) -> int:
    return worker.tempi_function(name) or worker.library_function(f"P{name}")


class Exchange:
    """The calls of this rank, and what they refer to."""

    def __init__(self, mpi: Any, driver: Driver, cube: Cube, field: int) -> None:
        self.mpi, self.driver, self.cube, self.field = mpi, driver, cube, field
        self.comm = mpi.COMM_WORLD
        self._handle_bytes = mpi._sizeof(mpi.REQUEST_NULL)
        self._requests = np.zeros(8 * 2 * len(FACES), np.uint8)
        self._statuses = np.zeros(STATUS_ROOM * 2 * len(FACES), np.uint8)
        self._types = {key: self._type(*key) for key in ((a, s, g) for a, s in FACES for g in (True, False))}

    def _type(self, axis: int, side: int, ghost: bool) -> Any:
        cube = self.cube
        shape = (cube.edge,) * 3
        return self.mpi.DOUBLE.Create_subarray(shape, cube.sizes(axis), cube.starts(axis, side, ghost)).Commit()

    def _message(self, function: str, number: int, axis: int, side: int, ghost: bool) -> Call:
        handle, comm = worker.handle(self.mpi, self._types[axis, side, ghost]), worker.handle(self.mpi, self.comm)
        tag = 2 * axis + (1 - side if ghost else side)  # a low face arrives at the other's high ghost cells
        request = self._requests.ctypes.data + number * self._handle_bytes
        return _function(function), (self.field, 1, handle, 1 - self.comm.rank, tag, comm, request)

    def posts(self) -> list[Call]:
        """Receives, then sends."""
        receives = [self._message("MPI_Irecv", i, axis, side, True) for i, (axis, side) in enumerate(FACES)]
        n = len(FACES)
        return receives + [self._message("MPI_Isend", n + i, axis, side, False) for i, (axis, side) in enumerate(FACES)]

    def wait(self) -> Call:
        at = (2 * len(FACES), self._requests.ctypes.data, self._statuses.ctypes.data)
        return _function("MPI_Waitall"), at

    def wrong(self, timer: _native.Timer) -> str | None:
        """The error in the ghost cells of any rank after one exchange, or None."""
        mine, theirs = (cells_of(rank, self.cube) for rank in (self.comm.rank, 1 - self.comm.rank))
        self.driver.write(self.field, mine.reshape(-1).view(np.uint8))
        self.comm.Barrier()
        timer(1)
        found = self.driver.read(self.field, mine.nbytes).view(float).reshape(mine.shape)
        for axis, side in FACES:
            self.cube.face(mine, axis, side, True)[...] = self.cube.face(theirs, axis, 1 - side, False)
        wrong = int((found != mine).sum())
        text = f"rank {self.comm.rank} has {wrong} wrong cells" if wrong else None
        return next((answer for answer in self.comm.allgather(text) if answer), None)

    def free(self) -> None:
        for datatype in self._types.values():
            datatype.Free()


def _timer(*calls: Call) -> _native.Timer:
    return _native.timer(_native.load(), "bench_calls_in_turn", _native.sequence(*calls))


def _timers(exchange: Exchange, driver: Driver, interior: list[Call], wait: Call) -> dict[str, _native.Timer]:
    posts, last = exchange.posts(), exchange.wait()
    return {
        "exchange": _timer(*posts, last),
        "interior": _timer(*interior, wait),
        "interior first": _timer(*interior, *posts, last, wait),
        "interior within": _timer(*posts, *interior, last, wait),
    }


def _launches(comm: Any, one: _native.Timer, exchange: _native.Timer) -> int:
    """How many launches of the interior kernel take about as long as the exchange; the same on both ranks."""
    one(1)
    seconds = min(one(1) for _ in range(5)), min(exchange(1) for _ in range(5))
    return int(comm.bcast(max(1, min(MOST, math.ceil(seconds[1] / max(seconds[0], 1e-7))))))


def run(options: OverlapOptions) -> Iterator[Record]:
    """All records, on both ranks."""
    from mpi4py import MPI

    worker.two_ranks(MPI)
    comm, driver = MPI.COMM_WORLD, Driver(MPI.COMM_WORLD.rank)
    cube, size = (Cube(8), 64 << 10) if driver.small else (Cube(256), 128 * MIB)
    stream = driver.new_stream(blocking=options.blocking)
    field, copied = driver.allocate(8 * cube.edge**3), (driver.allocate(size), driver.allocate(size))
    exchange = Exchange(MPI, driver, cube, field)
    probes = None if driver.emulated else gpu_probes.Probes.on(driver)  # it has no such kernel: a copy
    kernel = flat_copy_call(driver, copied[1], copied[0], size)
    if probes is not None:
        kernel = probes.call("pack", *copied, size // ROW, ROW, ROW, stream=stream)
    wait = wait_call(driver, stream)
    name = f"4 faces of {cube.points}^3 doubles, interior in a {'' if options.blocking else 'non-'}blocking stream"
    meta: dict[str, Any] = {**worker.describe(MPI), "part": "overlap", "device": driver.describe()}
    meta |= {"emulated": driver.emulated, "blocking": options.blocking}
    alone = _timer(*exchange.posts(), exchange.wait())
    refused = exchange.wrong(alone)
    if refused:
        yield Record("gpu", name, "overlap", "exchange", 0, (), {**meta, "refused": refused})
    else:
        n = _launches(comm, _timer(kernel, wait), alone)
        timers = _timers(exchange, driver, [kernel] * n, wait)
        bytes_ = 8 * cube.points**2 * len(FACES)
        for timer in timers.values():
            timer(1)
        taken = [] if driver.emulated else sampling.sample(list(timers.values()), options.seconds, comm.bcast)
        for subject, seconds in zip(timers, taken or [[] for _ in timers], strict=True):
            more = {"launches": n, "checked": True}
            yield Record("gpu", name, "overlap", subject, bytes_, tuple(seconds), {**meta, **more})
    exchange.free()
    for address in (field, *copied):
        driver.free(address)


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse_overlap()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
