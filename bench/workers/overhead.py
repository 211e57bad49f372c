"""Measures tempi's added time per call: ``python -m tempi.bench.workers.overhead OPTIONS``.

Everything stays in one process, on MPI_COMM_SELF. Subjects: the library's function and tempi's entry
for it, interleaved. With ``--tracked`` (and ``TEMPI_FORCE=1``, so that tempi acts whatever was calibrated) a
derived receive stays pending, so that every call has to search for it.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import tempi  # noqa: F401  (loads the engine before mpi4py loads an MPI)
from tempi import _engine
from tempi.bench.options import OverheadOptions, parse_overhead
from tempi.measure import _native, sampling, worker
from tempi.measure.records import Record

#: Samples of a call at most: differences of a few nanoseconds between calls of microseconds, while the clock changes.
SAMPLES = 401
WAITALL = (1, 4, 16, 64)
STATUS_ROOM = 256
PENDING_TAG = 4711
#: Blocks of a vector of 256 bytes, in 504 bytes of memory.
DOUBLES = 32
#: Targets in seconds: a call with nothing to do; a tracked one; Waitall: fixed and per request.
PASS, TRACKED, WAITALL_FIXED, WAITALL_EACH = 3e-9, 20e-9, 10e-9, 3e-9
FIRST_USE, MANY_BLOCKS, PRELOAD = 5e-6, 50e-3, 60e-6
#: MPI_Packs of a new type, of which a later one has it decoded.
FIRST_PACKS = 16
#: A collective that is not tempi's, beyond what a wrapper that does nothing takes.
COLLECTIVE = 5e-9
#: Types that are made, used once and freed: blocks of each, and tempi's allowed extra time: fixed, and as a share of
#: the library's.
ONCE_BLOCKS, ONCE_FIXED, ONCE_SHARE = (10, 100, 1000), 1e-6, 0.3
ONCE_USES = {"Pack": "packed once", "Sendrecv": "received and sent once"}

#: Arguments, in words of `_words`, of the collectives that tempi may carry and of one that it never does. The last one,
#: the communicator, is added.
_ONE, _MANY, _TYPED = "one int", "counts places int", "counts places types"
COLLECTIVES = {
    "Alltoall": f"source {_ONE} target {_ONE}",
    "Alltoallv": f"source {_MANY} target {_MANY}",
    "Alltoallw": f"source {_TYPED} target {_TYPED}",
    "Allgather": f"source {_ONE} target {_ONE}",
    "Allgatherv": f"source {_ONE} target {_MANY}",
    "Bcast": f"target {_ONE} root",
    "Gather": f"source {_ONE} target {_ONE} root",
    "Gatherv": f"source {_ONE} target {_MANY} root",
    "Scatter": f"source {_ONE} target {_ONE} root",
    "Scatterv": f"source {_MANY} target {_ONE} root",
    "Neighbor_alltoall": f"source {_ONE} target {_ONE}",
    "Neighbor_alltoallv": f"source {_MANY} target {_MANY}",
    "Neighbor_alltoallw": f"source {_TYPED} target {_TYPED}",
    "Neighbor_allgather": f"source {_ONE} target {_ONE}",
    "Neighbor_allgatherv": f"source {_ONE} target {_MANY}",
    "Allreduce": f"source target {_ONE} sum",
}
#: Measured in this form, too.
NONBLOCKING = ("Alltoall", "Alltoallw", "Neighbor_alltoallw", "Bcast", "Allreduce")


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the table: an op of the native library, its arguments and its target."""

    name: str
    op: str
    target: float
    calls: int
    peer: int
    n: int = 1
    derived: bool = False


def _entry(name: str, ours: bool) -> int:
    """tempi's function of that name; the library's for names that tempi does not define."""
    return (worker.tempi_function(f"MPI_{name}") if ours else None) or worker.library_function(f"PMPI_{name}")


@dataclass(frozen=True, slots=True)
class World:
    """Handles and buffers of this process."""

    mpi: Any
    derived: Any
    buffers: tuple[worker.Bytes, worker.Bytes, worker.Bytes, worker.Bytes]
    acting: bool
    meta: dict[str, Any]

    def functions(self, ours: bool) -> dict[str, int]:
        """By the names of `_native.Calls`."""
        return {name.lower(): _entry(name, ours) for name in ("Barrier", "Send", "Irecv", "Wait", "Waitall")}

    def arguments(self, call: Call, ours: bool) -> _native.Calls:
        mpi = self.mpi
        plain = worker.handle(mpi, mpi.BYTE)
        kind = worker.handle(mpi, self.derived) if call.derived else plain
        source, target, requests, statuses = (buffer.ctypes.data for buffer in self.buffers)
        return _native.Calls(
            **self.functions(ours),
            type=kind,
            sent_type=kind,
            comm=worker.handle(mpi, mpi.COMM_SELF),
            source=source,
            target=target,
            requests=requests,
            statuses=statuses,
            request_size=mpi._sizeof(mpi.Request),
            count=1,
            peer=call.peer,
            n=call.n,
        )

    def record(self, name: str, subject: str, seconds: list[float], **more: Any) -> Record:
        return Record("overhead", name, "call", subject, 0, tuple(seconds), {**self.meta, **more})


def calls_of(mpi: Any, tracked: bool) -> list[Call]:
    """The calls to measure, with nothing tracked or with one pending derived receive."""
    null, suffix = mpi.PROC_NULL, ", one receive tracked" if tracked else ""
    one = TRACKED if tracked else PASS
    calls = [
        Call("Barrier on COMM_SELF" + suffix, "bench_barrier", one, 1, 0),
        Call("Send of bytes to PROC_NULL" + suffix, "bench_send", one, 1, null),
        Call("Irecv, Send, Wait of a byte" + suffix, "bench_exchange", 3 * one, 3, 0),
    ]
    if not tracked:
        calls.append(Call("Send of a vector to PROC_NULL", "bench_send", TRACKED, 1, null, derived=True))
    else:
        calls.append(Call("Irecv, Send, Wait of a vector", "bench_exchange", 3 * one, 3, 0, derived=True))
    for n in WAITALL:
        target = WAITALL_FIXED + n * WAITALL_EACH if tracked else PASS
        calls.append(Call(f"Waitall of {n} bytes" + suffix, "waitall", target, 1, 0, n))
    if tracked:
        # Measured as a whole: a library unpacks eager data in the send, tempi in the Waitall.
        for n in WAITALL:
            target = WAITALL_FIXED + n * (WAITALL_EACH + 2 * TRACKED)
            name = f"{n} x Irecv, {n} x Send, Waitall, of vectors"
            calls.append(Call(name, "bench_burst", target, 2 * n + 1, 0, n, derived=True))
    return calls


def timer(world: World, call: Call, ours: bool) -> _native.Timer:
    library, arguments = _native.load(), world.arguments(call, ours)
    if call.op == "waitall":
        return _native.waitall_timer(library, arguments)
    return _native.timer(library, call.op, arguments)


def _measure_calls(world: World, options: OverheadOptions) -> Iterator[Record]:
    for call in calls_of(world.mpi, options.tracked):
        names = ["library", "tempi"] if world.acting else ["library"]
        timers = [timer(world, call, name == "tempi") for name in names]
        for name, seconds in zip(names, sampling.sample(timers, options.seconds, most=SAMPLES), strict=True):
            yield world.record(call.name, name, seconds, target=call.target, calls=call.calls)


def _words(world: World) -> dict[str, int]:
    """Arguments for one int from the source to the target. The arrays are in the statuses' memory, which outlives the
    calls."""
    mpi, integer = world.mpi, worker.handle(world.mpi, world.mpi.INT)
    source, target, request, statuses = world.buffers
    counts, places, types, status = (statuses[STATUS_ROOM * i : STATUS_ROOM * (i + 1)] for i in range(4))
    counts.view(np.int32)[:] = 1
    places[:] = 0
    types.view(np.uint32 if mpi._sizeof(mpi.Datatype) == 4 else np.uint64)[:] = integer
    arrays = {
        "source": source,
        "target": target,
        "counts": counts,
        "places": places,
        "types": types,
        "request": request,
        "status": status,
    }
    found = {name: int(array.ctypes.data) for name, array in arrays.items()}
    return found | {"one": 1, "int": integer, "root": 0, "sum": worker.handle(mpi, mpi.SUM)}


def _collective(world: World, name: str, nonblocking: bool, comm: int, subject: str) -> _native.Timer:
    """Raises `WorkerError` if it does not deliver the int, or more."""
    words = _words(world)
    arguments = *(words[word] for word in COLLECTIVES[name].split()), comm
    calls = [(name, arguments)]
    if nonblocking:
        calls = [(f"I{name.lower()}", (*arguments, words["request"])), ("Wait", (words["request"], words["status"]))]
    functions = [_entry(function, subject == "tempi") for function, _ in calls]
    if subject == "wrapper":
        functions = [
            _native.bare_wrapper(_native.load(), which, library, worker.tempi_function(f"MPI_{function}") or 0)
            for which, (library, (function, _)) in enumerate(zip(functions, calls, strict=True))
        ]
    sequence = _native.sequence(*((f, given) for f, (_, given) in zip(functions, calls, strict=True)))
    made = _native.timer(_native.load(), "bench_calls_in_turn", sequence)
    source, target = (buffer[:8].view(np.int32) for buffer in world.buffers[:2])
    target[:] = ~source
    made(1)
    delivered = source if "source" in COLLECTIVES[name] else ~source
    if target.tolist() != [delivered[0], ~source[1]]:
        raise worker.WorkerError(f"{name} delivers wrong bytes ({subject})")
    return made


def measure_collectives(world: World, seconds: float) -> Iterator[Record]:
    """Collectives of an int on communicators of this process; in a graph it is its own neighbour."""
    mpi = world.mpi
    graph = mpi.COMM_SELF.Create_dist_graph_adjacent([0], [0])
    for name, nonblocking in [*((name, False) for name in COLLECTIVES), *((name, True) for name in NONBLOCKING)]:
        comm = worker.handle(mpi, graph if name.startswith("Neighbor") else mpi.COMM_SELF)
        subjects = ["library", "wrapper", *(["tempi"] if world.acting else [])]
        timers = [_collective(world, name, nonblocking, comm, one) for one in subjects]
        case = f"I{name.lower()}, Wait of an int" if nonblocking else f"{name} of an int"
        more = {"target": COLLECTIVE + nonblocking * PASS, "calls": 1 + nonblocking}
        for one, taken in zip(subjects, sampling.sample(timers, seconds, most=SAMPLES), strict=True):
            yield world.record(case, one, taken, **more)
    graph.Free()


def _faces(mpi: Any, batch: int, each: int) -> list[Any]:
    """Subarray faces, all different, also between batches."""
    sizes = [[20 + batch, 300 + i, 40] for i in range(each)]
    return [mpi.DOUBLE.Create_subarray(s, [s[0] - 2, 1, s[2] - 2], [1, 1, 1]) for s in sizes]


def _equal_faces(mpi: Any, _batch: int, each: int) -> list[Any]:
    return [mpi.DOUBLE.Create_subarray([34, 34, 34], [32, 1, 32], [1, 1, 1]) for _ in range(each)]


def _indexed(mpi: Any, batch: int, blocks: int) -> list[Any]:
    random = np.random.default_rng(batch)
    places = np.cumsum(random.integers(3, 9, blocks)).astype(np.int32)
    return [mpi.DOUBLE.Create_indexed_block(2, places)]


def _measure_first_use(world: World, quick: bool) -> Iterator[Record]:
    mpi, library = world.mpi, _native.load()
    function = worker.engine_function("tempi_datatype_layout")
    table = [
        ("first use of a subarray face", _faces, 50, FIRST_USE),
        ("first use of a face like another", _equal_faces, 50, FIRST_USE),
        ("first use of 10^6 random blocks", _indexed, 10**6, MANY_BLOCKS),
    ]
    for name, make, size, target in table:
        taken = []
        for batch in range(5 if quick or make is _indexed else 21):
            types = [datatype.Commit() for datatype in make(mpi, batch, size)]
            handles = [worker.handle(mpi, datatype) for datatype in types]
            taken.append(_native.first_use(library, function, handles) / len(types))
            for datatype in types:
                datatype.Free()
        yield world.record(name, "tempi", taken, target=target, calls=1)


def _dearest_pack(world: World, datatype: Any) -> float:
    """Seconds of the dearest of the first MPI_Packs of a type: the one that decodes it, too."""
    mpi = world.mpi
    pointer, number = ctypes.c_void_p, ctypes.c_int
    pack = ctypes.CFUNCTYPE(number, pointer, number, pointer, pointer, number, pointer, pointer)(_entry("Pack", True))
    source, packed, position = worker.arena(datatype.extent), worker.arena(datatype.size), number()
    source[:] = packed[:] = 1  # the pages are there
    taken = []
    for _ in range(FIRST_PACKS):
        position.value = 0
        start = time.perf_counter()
        rc = pack(
            source.ctypes.data,
            1,
            worker.handle(mpi, datatype),
            packed.ctypes.data,
            datatype.size,
            ctypes.addressof(position),
            worker.handle(mpi, mpi.COMM_SELF),
        )
        taken.append(time.perf_counter() - start)
        if rc != mpi.SUCCESS or position.value != datatype.size:
            raise worker.WorkerError("MPI_Pack of a type of many blocks fails")
    return max(taken)


def _measure_first_packs(world: World) -> Iterator[Record]:
    taken = []
    for batch in range(5):
        (datatype,) = (one.Commit() for one in _indexed(world.mpi, batch, 10**6))
        taken.append(_dearest_pack(world, datatype))
        datatype.Free()
    name = f"10^6 random blocks: the dearest of {FIRST_PACKS} MPI_Packs"
    yield world.record(name, "tempi", taken, target=MANY_BLOCKS, calls=1)


def _once(world: World, places: Any, arrays: tuple[worker.Bytes, worker.Bytes], use: str, ours: bool) -> _native.Once:
    names = {"make": "Type_create_indexed_block", "commit": "Type_commit", use.lower(): use, "free": "Type_free"}
    functions = {slot: _entry(name, ours) for slot, name in names.items()}
    memory, packed = arrays
    return _native.Once(
        **functions,
        places=places.ctypes.data,
        inner=worker.handle(world.mpi, world.mpi.DOUBLE),
        comm=worker.handle(world.mpi, world.mpi.COMM_SELF),
        memory=memory.ctypes.data,
        packed=packed.ctypes.data,
        blocks=len(places),
        length=2,
        room=len(packed),
    )


def _measure_once(world: World, options: OverheadOptions) -> Iterator[Record]:
    """Types that are made, packed once or received and sent once, and freed."""
    library = _native.load()
    for blocks, (use, used) in product(ONCE_BLOCKS, ONCE_USES.items()):
        places = np.cumsum(np.random.default_rng(blocks).integers(3, 9, blocks)).astype(np.int32)
        arrays = worker.arena(8 * int(places[-1] + 2)), worker.arena(8 * int(places[-1] + 2))
        names = ["library", "tempi"] if world.acting else ["library"]
        timers = [
            _native.timer(library, "bench_used_once", _once(world, places, arrays, use, name == "tempi"))
            for name in names
        ]
        taken = sampling.sample(timers, options.seconds)
        target = ONCE_FIXED + ONCE_SHARE * statistics.median(taken[0])
        for name, seconds in zip(names, taken, strict=True):
            yield world.record(f"{blocks} random blocks: made, {used}, freed", name, seconds, target=target, calls=1)


def _measure_preload(world: World, seconds: float) -> Iterator[Record]:
    """A process that never uses MPI, with and without tempi preloaded."""
    library, plain = _native.load(), dict(os.environ)
    plain.pop("LD_PRELOAD", None)
    environments = {"library": plain, "tempi": {**plain, "LD_PRELOAD": _engine.library_path()}}
    timers = [_native.spawn_timer(library, "/bin/true", env) for env in environments.values()]
    for name, taken in zip(environments, sampling.sample(timers, seconds), strict=True):
        yield world.record("/bin/true preloaded", name, taken, target=PRELOAD, calls=1)


def make_world(mpi: Any) -> World:
    derived = mpi.DOUBLE.Create_vector(DOUBLES, 1, 2).Commit()
    room = max(WAITALL) + 1
    buffers = (
        worker.arena(derived.extent),
        worker.arena(derived.extent),
        worker.arena(room * mpi._sizeof(mpi.Request)),
        worker.arena(room * STATUS_ROOM),
    )
    return World(mpi, derived, buffers, worker.active(), worker.describe(mpi))


def run(options: OverheadOptions) -> Iterator[Record]:
    """All records of this process."""
    from mpi4py import MPI

    world = make_world(MPI)
    if not options.tracked:
        yield from _measure_calls(world, options)
        yield from measure_collectives(world, options.seconds)
        yield from _measure_once(world, options)
        if world.acting:
            yield from _measure_first_use(world, options.quick)
            yield from _measure_first_packs(world)
        yield from _measure_preload(world, 2 * options.seconds)
    elif world.acting:
        buffer = worker.arena(world.derived.extent)
        pending = MPI.COMM_SELF.Irecv([buffer, 1, world.derived], source=0, tag=PENDING_TAG)
        yield from _measure_calls(world, options)
        MPI.COMM_SELF.Send([buffer, 16, MPI.BYTE], dest=0, tag=PENDING_TAG)
        pending.Wait()
    world.derived.Free()


def main() -> None:
    worker.emit(run(parse_overhead()), 0)


if __name__ == "__main__":
    main()
