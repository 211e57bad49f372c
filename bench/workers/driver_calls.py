"""Counts calls of the CUDA driver: ``mpirun -n 2 python -m tempi.bench.workers.driver_calls``.

On the emulated driver, whose work runs when it is submitted, so that no count depends on how often a wait polls.
The counts are those of one rank in the steady state, for messages that repeat.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from tempi import _engine
from tempi.bench.cases import KIB
from tempi.measure import cuda_driver, worker
from tempi.measure.cuda_driver import Driver
from tempi.measure.records import Record

WARM_UP = 6  # exchanges until buffers and descriptors are there
SIDE, LONG_SIDE = 16, 128  # points of a field along each axis, without its halo
RADII, FIELDS = (1, 2, 3), (1, 8)
#: Functions of the driver, by the names that its counters have.
FUNCTIONS = ("CtxGetCurrent", "PointerGetAttribute", "PointerGetAttributes", "LaunchKernel", "MemcpyAsync",
             "MemcpyBatchAsync", "StreamWriteValue32", "StreamQuery", "StreamSynchronize", "StreamWaitEvent",
             "EventRecord", "EventQuery", "EventSynchronize")  # fmt: skip


class Counter:
    """The emulated driver's own counts."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(Path(_engine.library_path()).with_name("libtempi-cuda.so")))
        library.tempi_emulator_streams(b"immediate")
        self.count = library.tempi_emulator_count
        self.count.restype = ctypes.c_uint64

    def all(self) -> dict[str, int]:
        return {name: int(self.count(f"cu{name}".encode() if name else b"")) for name in ("", *FUNCTIONS)}

    def of(self, work: Callable[[], None]) -> tuple[int, dict[str, int]]:
        """Calls in all, and by function."""
        before = self.all()
        work()
        made = {name: n - before[name] for name, n in self.all().items()}
        return made.pop(""), {name: n for name, n in made.items() if n}


@dataclass(frozen=True, slots=True)
class Ends:
    """Two ranks, each with the other as its peer."""

    mpi: Any
    comm: Any
    driver: Driver

    @property
    def peer(self) -> int:
        return int(1 - self.comm.rank)

    def buffer(self, size: int) -> Any:
        return self.mpi.buffer.fromaddress(self.driver.allocate(size), size)


@dataclass(frozen=True, slots=True)
class Case:
    """Work to count, and what goes before: a request of the peer's side, in host memory, or None."""

    name: str
    op: str
    before: Callable[[], Any]
    work: Callable[[], None]


def blocking(ends: Ends, size: int) -> Iterator[Case]:
    mpi, n = ends.mpi, size // 8
    strided = mpi.DOUBLE.Create_vector(n, 1, 2).Commit()
    device, host = ends.buffer(2 * size), bytearray(size)
    name, plain = f"one message of {size // KIB} KiB", [host, n, mpi.DOUBLE]
    for op, call, peers in (("send", ends.comm.Send, ends.comm.Irecv), ("receive", ends.comm.Recv, ends.comm.Isend)):
        work = partial(call, [device, 1, strided], ends.peer, 1)
        yield Case(name, op, before=partial(peers, plain, ends.peer, 1), work=work)


def regions(mpi: Any, radius: int, side: int) -> list[tuple[Any, Any]]:
    """Datatypes of the 26 inner regions and of the halo regions that they go to."""
    whole, found = [side + 2 * radius] * 3, []
    for way in product((-1, 0, 1), repeat=3):
        if not any(way):
            continue
        size = [radius if w else side for w in way]
        inner = [side if w > 0 else radius for w in way]
        outer = [side + radius if w > 0 else 0 if w < 0 else radius for w in way]
        found.append(tuple(mpi.DOUBLE.Create_subarray(whole, size, start).Commit() for start in (inner, outer)))
    return found


def halo(ends: Ends, radius: int, fields: int, side: int = SIDE) -> Callable[[], None]:
    """All regions of all fields, each field an allocation."""
    types = regions(ends.mpi, radius, side)
    memory = [ends.buffer(8 * (side + 2 * radius) ** 3) for _ in range(fields)]
    messages = [(field, pair) for field in memory for pair in types]

    def exchange() -> None:
        requests = [ends.comm.Irecv([m, 1, pair[1]], ends.peer, tag) for tag, (m, pair) in enumerate(messages)]
        requests += [ends.comm.Isend([m, 1, pair[0]], ends.peer, tag) for tag, (m, pair) in enumerate(messages)]
        ends.mpi.Request.Waitall(requests)

    return exchange


def collective(ends: Ends, radius: int) -> Callable[[], None]:
    """All regions of one field, as the blocks of 26 edges between the two ranks."""
    types, field = regions(ends.mpi, radius, SIDE), ends.buffer(8 * (SIDE + 2 * radius) ** 3)
    n = len(types)
    graph = ends.comm.Create_dist_graph_adjacent([ends.peer] * n, [ends.peer] * n)
    out, into = ([field, [1] * n, [0] * n, [pair[side] for pair in types]] for side in (0, 1))
    return partial(graph.Neighbor_alltoallw, out, into)


def cases(ends: Ends) -> Iterator[Case]:
    yield from blocking(ends, 64 * KIB)
    for fields, radius in product(FIELDS, RADII):
        name = f"{26 * fields} messages, fields {fields}, radius {radius}"
        yield Case(name, "exchange", before=lambda: None, work=halo(ends, radius, fields))
    name = f"104 messages, fields 4, radius 3, {LONG_SIDE}^3 points"  # faces go through device buffers
    yield Case(name, "exchange", before=lambda: None, work=halo(ends, 3, 4, LONG_SIDE))
    yield Case("26 blocks, radius 2", "Neighbor_alltoallw", before=lambda: None, work=collective(ends, 2))


def counted(ends: Ends, counter: Counter, case: Case) -> tuple[int, dict[str, int]]:
    request = case.before()
    ends.comm.Barrier()
    found = counter.of(case.work)
    if request is not None:
        request.Wait()
    ends.comm.Barrier()
    return found


def run(mpi: Any) -> Iterator[Record]:
    if not cuda_driver.is_emulated() or mpi.COMM_WORLD.size != 2 or not worker.active():
        raise worker.WorkerError("driver calls are counted by two ranks with tempi and TEMPI_CUDA_DRIVER=emulated")
    ends, counter, meta = Ends(mpi, mpi.COMM_WORLD, Driver()), Counter(), worker.describe(mpi)
    for case in cases(ends):
        for _ in range(WARM_UP):
            counted(ends, counter, case)
        calls, each = counted(ends, counter, case)
        yield Record("driver_calls", case.name, case.op, "tempi", 0, (), {**meta, "calls": calls, "each": each})


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(MPI), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
