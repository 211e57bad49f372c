"""Measures the points of device memory: kernels, copies, launches, and messages of the packed bytes.

On rank 0 alone, tempi's kernels pack and unpack strided memory, to device memory and to mapped host memory, and
the driver copies between the two; each is timed from the call to its completion. Between the ranks, messages of
pinned memory are timed, and if the library accepts device addresses also messages of device memory, packed and with
the datatype. Every result is checked before it is timed. On the emulated device the grid is tiny, and the device's
name marks all results.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from ctypes import addressof, c_double
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tempi import _engine
from tempi.calibration import adaptive, shapes
from tempi.measure import _native, cuda_driver, device_work, sampling, worker
from tempi.measure.cuda_driver import Driver
from tempi.measure.records import Record, machine
from tempi.model import grid, store

TAG = 9
BENCH = "calibrate"
LONGEST = 0.9  # seconds of one group
SPAN = 1 << 30  # of device memory that one point may touch, at most
CHECKED = 16 << 20  # up to this size every byte of a point is compared
KERNELS = ("device_pack", "device_unpack", "mapped_pack", "mapped_unpack")
LIBRARY_PACKS = ("device_library_pack", "device_library_unpack", "mapped_library_pack", "mapped_library_unpack")
#: A library may copy run by run. A size that would take it longer than this, extrapolated in proportion from the
#: smaller sizes of its shape, is not measured: the tables extrapolate in proportion as well.
SLOW = 0.02  # seconds


def possible() -> bool:
    """Whether there can be a GPU. Loads no CUDA, which would disturb the host times."""
    return os.environ.get("TEMPI_CUDA_DRIVER") != "none" and bool(_engine.lib.tempi_gpu_possible())


@dataclass(frozen=True, slots=True)
class Job:
    """One group: kernels of a shape, in one kind of memory; copies of plain bytes; messages with a peer."""

    column: grid.Column
    size: int
    peer: str | None
    memory: str = "device"


def jobs(quick: bool, peers: Sequence[str], emulated: bool, cuda_aware: bool) -> list[list[Job]]:
    """Columns of jobs, the coarse grid first. Managed memory and messages to itself are measured coarsely. Datatypes
    are sent only if the library accepts them."""
    made: list[list[Job]] = []
    for coarse in (True,) if quick or emulated else (True, False):
        kinds = [peer for peer in peers if coarse or peer != "self" or len(peers) == 1]
        shaped: list[str | None] = [None, *(kinds if cuda_aware else [])]
        plain = grid.device_sizes(grid.PLAIN, coarse, emulated=emulated)
        made.append([Job(grid.PLAIN, size, peer) for size in plain for peer in (None, *kinds)])
        first = grid.device_columns(True, emulated=emulated)
        for column in (*first, *([] if coarse else grid.device_columns(False, emulated=emulated))):
            sizes = grid.device_sizes(column, coarse, emulated=emulated)
            made.append([Job(column, size, peer) for size in sizes for peer in shaped])
            if coarse and column.family == "regular":
                made.append([Job(column, size, None, "managed") for size in sizes])
    return [column for column in made if column]


# -- this process ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ends:
    """Device and memory of this rank; `host` is its part from points.py."""

    host: Any
    driver: Driver
    span: int
    strided: Mapping[str, int]  # by memory: the buffers of datatypes
    other: int  # device memory that receives datatypes
    packed: tuple[int, int]
    pinned: tuple[int, int]
    cuda_aware: bool
    spent: Any = field(default_factory=lambda: (c_double * 2)())
    #: By shape, quantity and peer: the largest size measured with the library, and its seconds.
    largest: dict[tuple[grid.Column, str, str | None], tuple[int, float]] = field(default_factory=dict)


def _strided(driver: Driver, span: int) -> dict[str, int]:
    found = {"device": driver.allocate(span)}
    with contextlib.suppress(worker.WorkerError):  # a device without managed memory is measured without it
        found["managed"] = driver.managed(span)
    return found


def ends(host: Any) -> Ends:
    """Raises `WorkerError` if there is no device that tempi can use."""
    driver = Driver(int(host.comm.rank))
    if store.gpu(driver.ordinal) is None:
        raise worker.WorkerError("the engine does not see the GPU")
    most = 64 << 10 if driver.small else 64 << 20
    span = (1 << 20) if driver.small else min(SPAN, driver.free_memory() // 8)
    cuda_aware = device_work.library_cuda_aware()
    made = Ends(
        host, driver, span, _strided(driver, span), driver.allocate(span),
        (driver.allocate(most), driver.allocate(most)), (driver.pinned(most), driver.pinned(most)), cuda_aware,
    )  # fmt: skip
    probe = device_work.work("pack", [(_small(), made.strided["device"], made.packed[0])], driver.ordinal)
    probe.run()  # checks that there are kernels for it
    return made


def _small() -> Any:
    from tempi.expression import parse

    return parse("hvector(2,1,16,DOUBLE)").canonical()


def close(ends: Ends) -> None:
    for address in (*ends.strided.values(), ends.other, *ends.packed):
        ends.driver.free(address)
    for address in ends.pinned:
        ends.driver.free_pinned(address)


# -- subjects -------------------------------------------------------------------------------------------------


def _calls(*calls: tuple[int, tuple[int, ...]]) -> adaptive.Run:
    return adaptive.timed(_native.timer(_native.load(), "bench_calls_in_turn", _native.sequence(*calls)))


def _kernels(ends: Ends, job: Job, layout: int, count: int) -> dict[str, adaptive.Run]:
    memory = ends.strided[job.memory] + (grid.SHIFT if job.column.family == grid.SHIFTED else 0)
    found = {}
    for name in KERNELS:
        packed = ends.packed[0] if name.startswith("device") else ends.pinned[0]
        op = name.partition("_")[2]
        work = device_work.counted(op, layout, count, memory, packed, ends.driver.ordinal)
        found[name] = _owning(_calls(work.call()), work)
    return found


def _library_packs(ends: Ends, job: Job, handle: int, layout: int, count: int) -> dict[str, adaptive.Run]:
    """The library's own MPI_Pack and MPI_Unpack of device memory."""
    mpi, memory = ends.host.mpi, ends.strided[job.memory] + (grid.SHIFT if job.column.family == grid.SHIFTED else 0)
    found = {}
    for name in LIBRARY_PACKS:
        op = name.rpartition("_")[2]
        transfer = _native.Transfer(
            function=ends.host.functions[op.capitalize()], layout=layout, type=handle,
            comm=worker.handle(mpi, mpi.COMM_SELF), memory=memory,
            packed=ends.packed[0] if name.startswith("device") else ends.pinned[0], bytes=job.size, count=count,
        )  # fmt: skip
        found[name] = adaptive.timed(_native.timer(ends.host.library, f"bench_mpi_{op}", transfer))
    return found


def _owning(run: adaptive.Run, *things: Any) -> adaptive.Run:
    """Keeps the objects behind the calls' addresses alive as long as the subject."""

    def same(loops: int, _things: Any = things) -> tuple[float, ...]:
        return run(loops)

    return same


def _copies(ends: Ends, job: Job) -> dict[str, adaptive.Run]:
    driver = ends.driver
    copy, wait = driver.address("cuMemcpyAsync"), cuda_driver.wait_call(driver)
    there, here = ends.packed[0], ends.pinned[0]
    return {
        "copy_out": _calls((copy, (here, there, job.size, driver.stream)), wait),
        "copy_in": _calls((copy, (there, here, job.size, driver.stream)), wait),
    }


def _launch(ends: Ends) -> adaptive.Run:
    """Launch and completion of an empty kernel. The emulated device has only kernels translated in advance, so there
    it is the smallest pack."""
    driver = ends.driver
    if driver.emulated:
        work = device_work.work("pack", [(_small(), ends.strided["device"], ends.packed[0])], driver.ordinal)
        return _owning(_calls(work.call()), work)
    function = driver.function(device_work.EMPTY_PTX, "tempi_bench_empty")
    launch = driver.address("cuLaunchKernel"), (function, 1, 1, 1, 32, 1, 1, 0, driver.stream, 0, 0)
    return _calls(launch, cuda_driver.wait_call(driver))


def _parts(ends: Ends, job: Job, buffers: tuple[int, int], type_handle: int) -> _native.Parts:
    host, pair = ends.host, ends.host.pairs[str(job.peer)]
    functions = host.functions
    return _native.Parts(
        pack=None, unpack=None, send=functions["Send"], receive=functions["Recv"], irecv=functions["Irecv"],
        wait=functions["Wait"], layout=0, type=type_handle, comm=worker.handle(host.mpi, pair),
        source=ends.strided["device"], target=ends.other, send_packed=buffers[0], receive_packed=buffers[1],
        spent=addressof(ends.spent), bytes=job.size, count=0, peer=pair.size - 1 - pair.rank, tag=TAG,
    )  # fmt: skip


def _side(ends: Ends, job: Job) -> str:
    return "self" if job.peer == "self" else "first" if ends.host.first else "second"


def _plain(ends: Ends, job: Job) -> dict[str, adaptive.Run]:
    """Messages of packed bytes, from the memory to which the methods pack."""
    packed = worker.handle(ends.host.mpi, ends.host.mpi.PACKED)
    buffers = {"pinned_message": ends.pinned} | ({"device_message": ends.packed} if ends.cuda_aware else {})
    op = f"bench_parts_{_side(ends, job)}"
    return {
        name: adaptive.timed(_native.timer(ends.host.library, op, _parts(ends, job, pair, packed)))
        for name, pair in buffers.items()
    }


def _typed(ends: Ends, job: Job, handle: int, layout: int, count: int) -> dict[str, adaptive.Run]:
    """The library's own messages of the datatype in device memory."""
    parts = _parts(ends, job, ends.packed, handle)
    if job.peer == "self":
        parts.count = count
        return {"device_library": adaptive.timed(_native.timer(ends.host.library, "bench_typed_self", parts))}
    message = _native.Message(
        send=parts.send, receive=parts.receive, type=handle, comm=parts.comm, layout=layout, source=parts.source,
        target=parts.target, bytes=job.size, count=count, peer=parts.peer, tag=TAG,
    )  # fmt: skip
    timer = _native.timer(ends.host.library, f"bench_pingpong_{_side(ends, job)}", message)
    return {"device_library": adaptive.timed(timer)}


# -- verification -----------------------------------------------------------------------------------------------


def _check(ends: Ends, job: Job, layout: int, count: int, subjects: Mapping[str, adaptive.Run]) -> None:
    """Compares the kernels' packs and unpacks with those of the host; on a difference nothing is timed."""
    shift = grid.SHIFT if job.column.family == grid.SHIFTED else 0
    span = shapes.Shape(job.column, job.size).span
    if span > CHECKED:
        return
    driver, memory = ends.driver, ends.strided[job.memory] + shift
    source = worker.arena(span)
    expected, packed = np.empty(job.size, np.uint8), worker.arena(job.size)
    spread = np.full(span, 0x5A, np.uint8)
    pointer = _engine.ffi.cast("tempi_layout const *", layout)
    arrays = {name: _engine.ffi.from_buffer(data) for name, data in (("s", source), ("e", expected), ("p", packed))}
    _engine.lib.tempi_pack(pointer, count, arrays["s"], 0, job.size, arrays["e"])
    _engine.lib.tempi_unpack(pointer, count, arrays["p"], 0, job.size, _engine.ffi.from_buffer(spread))
    for name, run in subjects.items():
        place = ends.packed[0] if name.startswith("device") else ends.pinned[0]
        packs = name.endswith("_pack")
        driver.write(memory, source if packs else np.full(span, 0x5A, np.uint8))
        driver.write(place, np.zeros(job.size, np.uint8) if packs else packed)
        run(1)
        right = np.array_equal(driver.read(place, job.size), expected) if packs else np.array_equal(
            driver.read(memory, span), spread
        )  # fmt: skip
        if not right:
            raise worker.WorkerError(f"{job.column.name}, {job.size} bytes of {job.memory} memory: {name} is wrong")


# -- records ----------------------------------------------------------------------------------------------------


def _record(job: Job, quantity: str, seconds: Sequence[float]) -> Record:
    column = job.column
    memory = job.memory if quantity in KERNELS or quantity in LIBRARY_PACKS else "device"
    meta = {"family": column.family, "run": column.run, "stride": column.stride, "peer": job.peer, "memory": memory}
    return Record(BENCH, column.name, quantity, job.peer or "here", job.size, tuple(seconds), meta)


def _subjects(ends: Ends, job: Job, datatype: Any) -> dict[str, adaptive.Run]:
    if job.column == grid.PLAIN:
        return _copies(ends, job) if job.peer is None else _plain(ends, job)
    handle = worker.handle(ends.host.mpi, datatype)
    layout, count = worker.layout(handle), shapes.Shape(job.column, job.size).count
    if job.peer is not None:
        return _typed(ends, job, handle, layout, count)
    found = _kernels(ends, job, layout, count)
    _check(ends, job, layout, count, found)
    if ends.cuda_aware and job.memory == "device":
        found |= _library_packs(ends, job, handle, layout, count)
    return found


def _is_too_slow(ends: Ends, job: Job, name: str) -> bool:
    size, seconds = ends.largest.get((job.column, name, job.peer), (job.size, 0.0))
    return seconds * job.size / size > SLOW and job.size > size


def _note(ends: Ends, job: Job, taken: Mapping[str, Sequence[tuple[float, ...]]], agree: sampling.Agree) -> None:
    """Records rank 0's times, so that both ranks skip the same sizes."""
    for name, found in taken.items():
        if "library" in name:
            seconds, key = agree(min(found)[0]), (job.column, name, job.peer)
            ends.largest[key] = max(ends.largest.get(key, (0, 0.0)), (job.size, seconds))


def _measure(ends: Ends, job: Job, budget: float) -> Iterator[Record]:
    shape = shapes.Shape(job.column, job.size)
    datatype = None if job.column == grid.PLAIN else shape.datatype(ends.host.mpi)
    pair = None if job.peer is None else ends.host.pairs[job.peer]
    agree = sampling.alone if pair is None else lambda value: pair.bcast(value, root=0)
    subjects = {name: run for name, run in _subjects(ends, job, datatype).items() if not _is_too_slow(ends, job, name)}
    taken = adaptive.measure(subjects, budget, agree) if subjects else {}
    _note(ends, job, taken, agree)
    if datatype is not None:
        datatype.Free()
    share = 1.0 if job.peer in (None, "self") else 0.5
    for name, found in taken.items():
        yield _record(job, name, [share * sample[0] for sample in found])


def _fits(ends: Ends, job: Job) -> bool:
    return job.column == grid.PLAIN or shapes.Shape(job.column, job.size).span + grid.SHIFT <= ends.span


def _takes_part(ends: Ends, job: Job) -> bool:
    if job.memory not in ends.strided:
        return False
    return bool(ends.host.first) if job.peer is None else job.peer in ends.host.pairs


def _first_record(ends: Ends, peers: Sequence[str], columns: int) -> Record:
    mpi, gpu = ends.host.mpi, store.gpu(ends.driver.ordinal)
    assert gpu is not None
    meta = {"version": mpi.Get_library_version(), "machine": machine(), "host": mpi.Get_processor_name()}
    meta |= {"peers": list(peers), "gpu": asdict(gpu), "emulated": gpu.emulated, "aware": ends.cuda_aware}
    return Record(BENCH, "device memory", "device", "here", 0, (), {**meta, "columns": columns})


def _tried(host: Any) -> tuple[Ends | None, str | None]:
    """This rank's ends, and the reason if any rank cannot take part. Spans are those of the smallest device."""
    own, why = None, None
    if host.pairs:
        try:
            own = ends(host)
        except Exception as error:  # after any error the host's tables remain valid
            why = str(error) or type(error).__name__
    reason = next((text for text in host.comm.allgather(why) if text), None)
    if own is not None and reason is not None:
        close(own)
    spans = host.comm.allgather(own.span if own else SPAN)
    if own is not None:
        own.span = min(spans)
    return (None if reason else own), reason


def run(host: Any, peers: Sequence[str], quick: bool, seconds: float) -> Iterator[Record]:
    """Yields all records column by column, on every rank; only rank 0's are valid. Without a working device, yields
    one record with the reason."""
    start = time.monotonic()
    own, why = _tried(host)
    if why is not None:
        yield Record(BENCH, "device memory", "no device", "here", 0, (), {"why": why})
        return
    small = any(host.comm.allgather(own is not None and own.driver.small))
    cuda_aware = all(host.comm.allgather(own is None or own.cuda_aware))
    plan = jobs(quick, peers, small, cuda_aware)
    left = sum(map(len, plan))
    if own is not None:
        yield _first_record(own, peers, len(plan))
        if own.host.first:
            budget = min(3 * seconds / left, LONGEST)
            taken = adaptive.measure({"launch": _launch(own)}, budget)
            yield _record(Job(grid.PLAIN, 1, None), "launch", [sample[0] for sample in taken["launch"]])
    for column in plan:
        for job in column:
            share = 3 * max(0.0, seconds - (time.monotonic() - start)) / left
            left -= 1
            if own is not None and _takes_part(own, job) and _fits(own, job):
                yield from _measure(own, job, min(share, LONGEST))
        yield Record(BENCH, column[0].column.name, "done", "device", 0, (), {})
    if own is not None:
        close(own)
