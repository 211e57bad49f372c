"""Measures a calibration's points: ``mpirun -n 2 python -m tempi.calibration.points OPTIONS``.

One group of subjects at a time, interleaved. On rank 0 alone: MPI_Pack and MPI_Unpack by the library and by
tempi, and messages to itself. Between rank 0 and the nearest rank of each other peer class: messages with the
datatype, and the same packed by the engine, by parts. tempi always acts here (TEMPI_FORCE). The coarse grid
comes first, then the columns between; a column is reported when all its sizes are done.
"""

from __future__ import annotations

import argparse
import mmap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import addressof, c_double
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tempi  # noqa: F401  (loads the engine before mpi4py loads an MPI)
from tempi.calibration import adaptive, device_points, shapes
from tempi.measure import _native, cuda_driver, launch, locality, sampling, worker
from tempi.measure.records import Record, machine
from tempi.model import grid, samples

TAG = 9
SPAN = 512 << 20  # of memory that one point may touch, and the fraction of available memory:
SPAN_PART = 16
HUGE_PAGE = 2 << 20
# Neighbours on a machine change its speed within seconds, so each point is measured in many rounds over the whole
# time until it is settled. Samples of one round:
SAMPLES = 3
SLOW = 0.1  # seconds, after which a later round takes no more of them
DEVICE_SHARE = 0.4  # of all seconds, if there is a GPU
FIRST_SHARE = 0.5  # of the host's seconds, after which the first round skips the finer columns
PLAIN_VISITS = 3  # of the columns of packed bytes, in each locality class of this node's ranks that occurs
BENCH = "calibrate"


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """`seconds`: total budget. `most`: bytes of the largest message."""

    quick: bool
    seconds: float
    most: int = grid.MOST

    def arguments(self) -> list[str]:
        return [*(["--quick"] * self.quick), "--seconds", str(self.seconds), "--most", str(self.most)]


def parse(arguments: Sequence[str] | None = None) -> CalibrateOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--most", type=int, default=grid.MOST)
    return CalibrateOptions(**vars(parser.parse_args(arguments)))


def staging(size: int) -> worker.Bytes:
    """Memory like the engine's staging buffers: huge pages, if the kernel provides them."""
    whole = (size + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE
    block = mmap.mmap(-1, whole + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(block, np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE
    raw[start : start + whole] = 0x5A
    return raw[start : start + size]


# -- jobs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """One group: a shape (None: packed bytes) at one size, locally or with a peer."""

    column: grid.Column
    size: int
    peer: str | None

    @property
    def plain(self) -> bool:
        return self.column == grid.PLAIN


def _local_sizes(column: grid.Column, quick: bool, span: int) -> list[int]:
    sizes = grid.contiguous_sizes(quick) if column == grid.PLAIN else grid.sizes(column, quick)
    return [size for size in sizes if shapes.Shape(column, size).span <= span]


def jobs(quick: bool, peers: Sequence[str], most: int = grid.MOST, span: int = SPAN) -> list[list[Job]]:
    """Columns of jobs, in order. A rank sends little to itself: the coarse grid is enough."""
    made: list[list[Job]] = []
    for coarse in (True,) if quick else (True, False):
        kinds = [peer for peer in peers if coarse or peer != "self" or len(peers) == 1]
        for column in (grid.PLAIN, *grid.columns(True), *([] if coarse else grid.columns(False))):
            sizes = [size for size in _local_sizes(column, coarse, span) if size <= most]
            where = kinds if column == grid.PLAIN else [None, *kinds]
            if column.family in grid.CORRECTIONS and len(peers) > 1:
                where = [peer for peer in where if peer != "self"]
            made.append([Job(column, size, peer) for size in sizes for peer in where])
    return [column for column in made if column]


# -- this process ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Rank:
    """Memory, communicators and functions of this process."""

    mpi: Any
    comm: Any
    pairs: Mapping[str, Any]  # with rank 0 first; only those of this rank
    source: worker.Bytes
    target: worker.Bytes
    packed: tuple[worker.Bytes, worker.Bytes]
    library: Any
    functions: Mapping[str, int | None]
    node_class: str = "node"  # the locality class of the rank on this node at the last probe
    types: list[Any] = field(default_factory=list)
    spent: Any = field(default_factory=lambda: (c_double * 2)())

    @property
    def first(self) -> bool:
        return int(self.comm.rank) == 0

    def where(self, job: Job) -> str | None:
        """The job's peer class; for the rank on this node its current locality class."""
        return self.node_class if job.peer == "node" else job.peer


def _functions() -> dict[str, int | None]:
    names = ("Send", "Recv", "Irecv", "Wait", "Pack", "Unpack")
    found: dict[str, int | None] = {name: worker.library_function(f"PMPI_{name}") for name in names}
    found |= {"own Pack": worker.tempi_function("MPI_Pack"), "own Unpack": worker.tempi_function("MPI_Unpack")}
    for name in ("pack", "unpack"):
        found[name] = worker.engine_function(f"tempi_{name}")
    return found


def _classes(comm: Any, mpi: Any) -> dict[str, int]:
    """The rank that represents each peer class, by rank 0's view: ranks of its node are those that the library itself
    reaches through shared memory."""
    node = comm.Split_type(mpi.COMM_TYPE_SHARED, comm.rank)
    near, everybody = node.Get_group(), comm.Get_group()
    here = set(mpi.Group.Translate_ranks(near, range(near.size), everybody))
    for made in (near, everybody, node):
        made.Free()
    found = {"self": 0}
    for rank in range(1, comm.size):
        found.setdefault("node" if rank in here else "other", rank)
    return dict(comm.bcast(found, root=0))


def _rank(mpi: Any, size: int) -> tuple[Rank, list[str], int]:
    """This process, the peer classes, and the memory of one point on every rank (bytes)."""
    comm = mpi.COMM_WORLD
    classes = _classes(comm, mpi)
    pairs = {}
    for peer, other in classes.items():
        part = comm.Split(0 if comm.rank in (0, other) else mpi.UNDEFINED, comm.rank)
        if part != mpi.COMM_NULL:
            pairs[peer] = part
    takes_part = bool(pairs)
    most = int(comm.allreduce(min(SPAN, launch.available_memory() // SPAN_PART), mpi.MIN))
    span = most if takes_part else worker.ALIGNMENT
    room = size if takes_part else worker.ALIGNMENT
    rank = Rank(
        mpi, comm, pairs, worker.arena(span), worker.arena(span), (staging(room), staging(room)), _native.load(),
        _functions(),
    )  # fmt: skip
    return rank, list(classes), most


# -- subjects ---------------------------------------------------------------------------------------------------


def _by_parts(rank: Rank, timer: _native.Timer) -> adaptive.Run:
    def run(loops: int) -> tuple[float, ...]:
        rank.spent[0] = rank.spent[1] = 0.0
        total = timer(loops)
        return (total, rank.spent[0], rank.spent[1])

    return run


def _transfers(rank: Rank, job: Job, handle: int, layout: int, count: int) -> dict[str, adaptive.Run]:
    """MPI_Pack and MPI_Unpack on this rank alone."""

    def made(op: str, function: int | None) -> adaptive.Run:
        transfer = _native.Transfer(
            function=function, layout=layout, type=handle, comm=worker.handle(rank.mpi, rank.mpi.COMM_SELF),
            memory=rank.source.ctypes.data, packed=rank.packed[0].ctypes.data, bytes=job.size, count=count,
        )  # fmt: skip
        return adaptive.timed(_native.timer(rank.library, op, transfer))

    found = {
        "library_pack": made("bench_mpi_pack", rank.functions["Pack"]),
        "own_pack": made("bench_mpi_pack", rank.functions["own Pack"]),
        "library_unpack": made("bench_mpi_unpack", rank.functions["Unpack"]),
        "own_unpack": made("bench_mpi_unpack", rank.functions["own Unpack"]),
    }
    if job.size <= 256:
        found["engine_pack"] = made("bench_engine_pack", rank.functions["pack"])
    return found


def _parts(rank: Rank, job: Job, layout: int, count: int, packs: bool) -> _native.Parts:
    """The engine's method. The most recently freed staging buffer is taken first: a message is packed where the last
    one was received, in lines that this core has in its cache."""
    functions, pair = rank.functions, rank.pairs[str(job.peer)]
    return _native.Parts(
        pack=functions["pack"] if packs else None, unpack=functions["unpack"] if packs else None,
        send=functions["Send"], receive=functions["Recv"], irecv=functions["Irecv"], wait=functions["Wait"],
        layout=layout, type=worker.handle(rank.mpi, rank.mpi.PACKED), comm=worker.handle(rank.mpi, pair),
        source=rank.source.ctypes.data, target=rank.target.ctypes.data,
        send_packed=rank.packed[0].ctypes.data, receive_packed=rank.packed[1 if job.peer == "self" else 0].ctypes.data,
        spent=addressof(rank.spent), bytes=job.size, count=count, peer=pair.size - 1 - pair.rank,
        tag=TAG,
    )  # fmt: skip


def _messages(rank: Rank, job: Job, handle: int, layout: int, count: int) -> dict[str, adaptive.Run]:
    """Messages with the peer: the library's, and the same by parts."""
    parts = _parts(rank, job, layout, count, packs=True)
    alone = job.peer == "self"
    side = "self" if alone else "first" if rank.first else "second"
    host = _by_parts(rank, _native.timer(rank.library, f"bench_parts_{side}", parts))
    if alone:
        typed = _parts(rank, job, layout, count, packs=False)
        typed.type = handle
        return {"library": adaptive.timed(_native.timer(rank.library, "bench_typed_self", typed)), "host": host}
    message = _native.Message(
        send=rank.functions["Send"], receive=rank.functions["Recv"], type=handle, comm=parts.comm, layout=layout,
        source=parts.source, target=parts.target, bytes=job.size, count=count, peer=parts.peer, tag=TAG,
    )  # fmt: skip
    return {"library": adaptive.timed(_native.timer(rank.library, f"bench_pingpong_{side}", message)), "host": host}


def _plain(rank: Rank, job: Job) -> dict[str, adaptive.Run]:
    """Packed bytes alone."""
    side = "self" if job.peer == "self" else "first" if rank.first else "second"
    parts = _parts(rank, job, 0, 0, packs=False)
    return {"contiguous": adaptive.timed(_native.timer(rank.library, f"bench_parts_{side}", parts))}


#: A job and its subjects.
Visited = tuple[Job, adaptive.Turns]
Until = Callable[[float], bool]


# -- records ------------------------------------------------------------------------------------------------------


def _record(job: Job, peer: str | None, quantity: str, seconds: Sequence[float]) -> Record:
    column = job.column
    meta = {"family": column.family, "run": column.run, "stride": column.stride, "peer": peer}
    return Record(BENCH, column.name, quantity, peer or "here", job.size, tuple(seconds), meta)


def _message_records(rank: Rank, job: Job, taken: Mapping[str, Sequence[tuple[float, ...]]]) -> Iterator[Record]:
    """Records of one-way times, if a round trip was timed. Pack and unpack happen once a trip on this side, and are
    reported for one peer class only."""
    nearest = next(peer for peer in grid.NEAREST if peer in rank.pairs)
    share = 1.0 if job.peer in (None, "self") else 0.5
    peer = rank.where(job)
    for name, found in taken.items():
        whole = [share * sample[0] for sample in found]
        if name == "library":
            yield _record(job, peer, "library_message", whole)
            continue
        yield _record(job, peer, "host_message" if name == "host" else name, whole)
        if name == "host" and job.peer == nearest:
            yield _record(job, peer, "stage_pack", [sample[1] for sample in found])
            yield _record(job, peer, "stage_unpack", [sample[2] for sample in found])


def _agree(comm: Any) -> Any:
    return lambda value: comm.bcast(value, root=0)


def _check(rank: Rank, job: Job, subjects: Mapping[str, adaptive.Run]) -> None:
    """Compares the library's packed bytes with tempi's; on a difference nothing is timed."""
    subjects["library_pack"](1)
    expected = rank.packed[0][: job.size].copy()
    rank.packed[0][: job.size] = 0
    subjects["own_pack"](1)
    if not np.array_equal(expected, rank.packed[0][: job.size]):
        raise worker.WorkerError(f"{job.column.name}, {job.size} bytes: the library and tempi pack differently")


def _subjects(rank: Rank, job: Job, datatype: Any) -> dict[str, adaptive.Run]:
    if job.plain:
        return _plain(rank, job)
    handle = worker.handle(rank.mpi, datatype)
    layout, count = worker.layout(handle), shapes.Shape(job.column, job.size).count
    if job.peer is not None:
        return _messages(rank, job, handle, layout, count)
    found = _transfers(rank, job, handle, layout, count)
    _check(rank, job, found)
    return found


def _takes_part(rank: Rank, job: Job) -> bool:
    return rank.first if job.peer is None else job.peer in rank.pairs


def _prepared(rank: Rank, column: Sequence[Job]) -> list[Visited]:
    """The jobs of a column in which this rank takes part. Their datatypes live until the end."""
    types: dict[int, Any] = {}
    made = []
    for job in column:
        if not _takes_part(rank, job):
            continue
        if not job.plain and job.size not in types:
            types[job.size] = shapes.Shape(job.column, job.size).datatype(rank.mpi)
        agree = sampling.alone if job.peer is None else _agree(rank.pairs[job.peer])
        made.append((job, adaptive.Turns(_subjects(rank, job, types.get(job.size)), agree)))
    rank.types += types.values()
    return made


def _visit(rank: Rank, column: Sequence[Visited], first: bool) -> Iterator[Record]:
    for job, turns in column:
        if first or not turns.settled():
            if job.peer == "node":
                rank.node_class = locality.probe(rank.mpi, rank.pairs["node"])
            yield from _message_records(rank, job, turns.take(SAMPLES, SLOW))


def _first_record(mpi: Any, peers: Sequence[str], columns: int) -> Record:
    version = mpi.Get_library_version()
    meta = {"version": version, "machine": machine(), "host": mpi.Get_processor_name(), "peers": list(peers)}
    return Record(BENCH, "start", "machine", "here", 0, (), {**meta, "columns": columns})


class Plain:
    """The columns of packed bytes, on which all predictions of messages depend. When ranks have migrated they are
    measured at once, so that both locality classes have them."""

    def __init__(self, rank: Rank, plan: Sequence[Sequence[Job]]) -> None:
        self._rank = rank
        self._places = [place for place, column in enumerate(plan) if column[0].plain]
        self._visits = Counter[str]()

    def visit(self, columns: Sequence[Sequence[Visited]]) -> Iterator[Record]:
        """Collective."""
        before = self._rank.node_class
        if not self._rank.comm.bcast(self._visits[before] < PLAIN_VISITS):
            return
        for place in self._places:
            if place < len(columns):
                yield from _visit(self._rank, columns[place], True)
        self._visits[before] += before == self._rank.node_class


def _host(rank: Rank, plan: Sequence[Sequence[Job]], needed: int, until: Until) -> Iterator[Record]:
    """Repeats rounds over all columns until they are settled or the time is up; the first `needed` run in any case."""
    columns: list[list[Visited]] = []
    plain = Plain(rank, plan)
    for number in range(1 + samples.MOST // SAMPLES):
        produced = 0
        for place, jobs_of in enumerate(plan):
            if number == 0:
                if place >= needed and until(FIRST_SHARE):
                    break
                columns.append(_prepared(rank, jobs_of))
            elif place == len(columns) or until(1.0):
                break
            found = list(_visit(rank, columns[place], number == 0))
            yield from found
            yield from plain.visit(columns)
            yield Record(BENCH, jobs_of[0].column.name, "done", "here", 0, (), {"visit": number})
            produced += len(found)
        if not rank.comm.bcast(produced) or until(1.0):
            return


def run(options: CalibrateOptions) -> Iterator[Record]:
    """Yields all records column by column, on every rank; only rank 0's are valid."""
    from mpi4py import MPI

    start = time.monotonic()
    comm = MPI.COMM_WORLD
    if not comm.allreduce(worker.active(), MPI.LAND):
        raise worker.WorkerError("tempi does not act in this program, so there is nothing to calibrate")
    devices = comm.allreduce(device_points.possible(), MPI.LAND)
    host_seconds = options.seconds * (1 - DEVICE_SHARE if devices else 1)
    rank, peers, span = _rank(MPI, options.most)
    if len(peers) == 1 and comm.size > 1:
        raise worker.WorkerError("no peer was found")

    def until(share: float) -> bool:
        """Whether that fraction of the host's time is used up, by rank 0's clock."""
        return bool(comm.bcast(time.monotonic() - start > share * host_seconds))

    # With the emulator loaded, host times of this process are not valid: the host tables are not touched.
    known = [peer for peer in grid.PEERS if peer in peers]
    plan = [] if cuda_driver.is_emulated() else jobs(options.quick, known, options.most, span)
    yield _first_record(MPI, peers, len(plan))
    yield from _host(rank, plan, len(jobs(True, known, options.most, span)), until)
    for datatype in rank.types:
        datatype.Free()
    if devices:
        rest = max(1.0, options.seconds - (time.monotonic() - start))
        yield from device_points.run(rank, known, options.quick, rest)


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
