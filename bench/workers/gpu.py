"""Measures one GPU in one process, without MPI: ``python -m tempi.bench.workers.gpu OPTIONS``.

Part "rates": the memory's speed. Part "launches": the cost of a launch, of a wait and of other driver calls, by the
host's clock. Part "kernels": one-shot copies by number of blocks; packs and unpacks of many shapes, timed by CUDA
events. Every answer is checked first; a wrong one is refused and not timed. On the emulated device there are checks
and no times.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tempi import TempiError
from tempi.bench import sectors
from tempi.bench.cases import KIB, MIB, size_name
from tempi.bench.gpu import cases as gpu_cases
from tempi.bench.gpu import halo as gpu_halo
from tempi.bench.gpu import memory as gpu_memory
from tempi.bench.gpu import probes as gpu_probes
from tempi.bench.gpu import subjects as gpu_subjects
from tempi.bench.gpu.memory import Memory
from tempi.bench.options import GpuOptions, parse_gpu
from tempi.layout import from_engine
from tempi.measure import _native, device_work, sampling, worker
from tempi.measure.cuda_driver import Driver, flat_copy_call, wait_call
from tempi.measure.records import Record, machine

SECTORS = (32, 64)
#: A subject whose single run takes this many times the budget is not repeated.
SLOW = 2.0
#: Seconds and rows that a copy beside tempi's may take: beyond them it is left out.
CAP, CAP_ROWS = 1.0, 1 << 22
#: Calls to the driver between two waits, where a call queues work.
QUEUED = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurements: bytes of the copy and of the probes, runs of the gather probe, shapes, a halo; or checks
    only."""

    timed: bool
    copy: int
    probe: int
    cases: Sequence[gpu_cases.Case]
    halo: gpu_halo.Halo
    gather: int = 4 << 20
    oneshot: tuple[int, ...] = (64 * KIB, MIB, 16 * MIB)


def plan_of(options: GpuOptions, driver: Driver, memory: int) -> Plan:
    """The plan for a GPU; for the emulated device, which is checked and not timed; for a rehearsal."""
    cases = gpu_cases.chosen(options.quick, driver.small, options.cases)
    if driver.small:
        small = cases if driver.emulated else cases[::4]
        return Plan(
            not driver.emulated, 64 * KIB, 8 * KIB, small, gpu_halo.Halo(points=8, radius=2, fields=2), 64, (4 * KIB,)
        )
    copy = min(gpu_cases.GIB, memory // 3 // MIB * MIB)
    return Plan(True, copy, 64 * MIB, cases, gpu_halo.Halo(points=128, radius=3))


@dataclass(frozen=True, slots=True)
class Bench:
    """The device, the seconds per line, and the metadata of every record."""

    driver: Driver
    plan: Plan
    seconds: float
    memory: int
    meta: Mapping[str, Any]
    end: float = float("inf")  # time.monotonic() after which nothing new is begun
    #: By shape, operation and subject: rows and seconds of the largest size so far.
    taken: dict[tuple[Any, ...], tuple[int, float]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.end

    def record(
        self, part: str, case: str, op: str, subject: str, size: int, seconds: Sequence[float], **more: Any
    ) -> Record:
        meta = {**self.meta, "part": part, **more}
        return Record("gpu", case, op, subject, size, tuple(seconds), meta)

    def sample(self, timers: Sequence[_native.Timer], budget: float) -> list[list[float]]:
        """Interleaved seconds of each subject; empty if nothing is timed, and each then runs once."""
        if not self.plan.timed:
            for timer in timers:
                timer(1)
            return [[] for _ in timers]
        return sampling.sample(timers, budget)


#: The fused halo by the device's clock: without the host's part.
FUSED_ALONE = "fused, device alone"
Subject = tuple[_native.Timer, Callable[[], object]]


# -- rates of the memory -------------------------------------------------------------------------------


def rate_cases(size: int) -> list[tuple[str, str, gpu_cases.Vector, int]]:
    """Probes as (case, op, shape, shift): 32 bytes of every 128, which lie in one sector of 32 bytes, in two
    of the same 64, or in two of different 64; and sectors that are written wholly or by half."""
    pieces = gpu_cases.Vector(size, 32, 128)
    fetched = [(f"32 of 128 bytes, from {shift} on", "pack", pieces, shift) for shift in (0, 16, 48)]
    halves, wholes = gpu_cases.Vector(size, 16, 128), gpu_cases.Vector(size, 32, 128)
    written = [("16 of 128 bytes", "unpack", halves, 0), ("32 of 128 bytes", "unpack", wholes, 0)]
    return [*fetched, *written]


def rates(bench: Bench) -> Iterator[Record]:
    size = bench.plan.copy
    memory = Memory(bench.driver, size, size)
    target = memory.packed
    timer = bench.driver.device_timer(_native.sequence(flat_copy_call(bench.driver, target, memory.strided, size)))
    timer(1)
    shown = memory.driver.read(target, min(size, gpu_memory.PERIOD))
    right = bool((shown == memory.pattern[: shown.size]).all())
    verdict: dict[str, Any] = {"checked": True} if right else {"refused": "copied wrong bytes"}
    (seconds,) = bench.sample([timer], bench.seconds)
    yield bench.record("rates", f"copy of {size_name(size)}", "copy", "driver", 2 * size, seconds, **verdict)
    memory.close()
    yield from _probes(bench)
    yield from _gathers(bench)


def _probes(bench: Bench) -> Iterator[Record]:
    size = bench.plan.probe
    probes = rate_cases(size)
    memory = Memory(bench.driver, max(shape.span for _, _, shape, _ in probes) + 128, size)
    parts = [(gpu_cases.layout_of(shape), memory.strided + shift, memory.packed) for _, _, shape, shift in probes]
    ops = [op for _, op, _, _ in probes]
    works = [device_work.work(op, [part], bench.driver.ordinal) for op, part in zip(ops, parts, strict=True)]
    taken = bench.sample([work.time for work in works], bench.seconds * len(works))
    for (name, op, shape, _), seconds in zip(probes, taken, strict=True):
        yield bench.record("rates", name, op, "tempi", shape.nbytes, seconds)
    memory.close()


def gathers(bench: Bench) -> list[tuple[int, int, int]]:
    """(runs, run, stride) of the probes at the wide strides: as many runs as fit into the memory."""
    found = []
    for stride in gpu_cases.WIDE_STRIDES:
        runs = min(bench.plan.gather, bench.memory // 2 // stride)
        found += [(runs, run, stride) for run in gpu_cases.RUNS if gpu_probes.WORD <= run < stride]
    return found


def _gathers(bench: Bench) -> Iterator[Record]:
    """Runs that are only read, and only written, by kernels of the benchmark's own, which the emulated device lacks."""
    if bench.driver.emulated:
        return
    driver, probes = bench.driver, gpu_probes.Probes.on(bench.driver)
    chosen = gathers(bench)
    memory, packed = driver.allocate(max(runs * stride for runs, _, stride in chosen)), driver.allocate(64)
    for runs, run, stride in chosen:
        names = ("gather", "scatter")
        calls = [probes.call(name, memory, packed, runs, run, stride) for name in names]
        timers = [driver.device_timer(_native.sequence(call)) for call in calls]
        taken = bench.sample(timers, bench.seconds)
        for name, seconds in zip(names, taken, strict=True):
            meta = {"runs": runs, "run": run, "stride": stride}
            yield bench.record("rates", f"run {run} stride {stride}", name, "probe", runs * run, seconds, **meta)
    driver.free(memory)
    driver.free(packed)


# -- kernels -------------------------------------------------------------------------------------------


def _pinned_bytes(address: int, size: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size,))


def oneshot(bench: Bench) -> Iterator[Record]:
    """Strided device memory to and from mapped pinned memory by so many blocks, beside the driver's copy of packed
    bytes: how many blocks the bus needs. The emulated device lacks the kernels."""
    if bench.driver.emulated:
        return
    driver, probes = bench.driver, gpu_probes.Probes.on(bench.driver)
    run, stride = 64, 128
    for size in bench.plan.oneshot:
        case = gpu_cases.Vector(size, run, stride)
        memory, pinned = Memory(driver, case.span, case.nbytes), driver.pinned(size)
        packed, expected = _pinned_bytes(pinned, size), memory.at(case.places(np.arange(size)))
        blocks = [n for n in (8, 16, 32, 64) if n < gpu_probes.full(driver)]
        for op, copy in (("pack", "cuMemcpyDtoHAsync_v2"), ("unpack", "cuMemcpyHtoDAsync_v2")):
            timers: dict[str, _native.Timer] = {}
            ends = (pinned, memory.packed) if op == "pack" else (memory.packed, pinned)
            for n in (*blocks, gpu_probes.full(driver)):
                call = probes.call(op, memory.strided, pinned, size // run, run, stride, n)
                timers[f"{n} blocks"] = _host_timer(call, wait_call(driver))
                packed[:] = gpu_memory.POISON if op == "pack" else expected
                driver.fill(memory.strided, gpu_memory.POISON, case.span) if op == "unpack" else None
                timers[f"{n} blocks"](1)
                wrong = packed if op == "pack" else driver.read(memory.strided, case.span)[case.places(np.arange(size))]
                if (wrong != expected).any():
                    del timers[f"{n} blocks"]
                    refused = f"{(wrong != expected).sum()} wrong bytes"
                    yield bench.record("kernels", case.name, f"one-shot {op}", f"{n} blocks", size, (), refused=refused)
            flat = driver.address(copy), (*ends, size, driver.stream)
            timers["copy of packed bytes"] = _host_timer(flat, wait_call(driver))
            taken = bench.sample(list(timers.values()), bench.seconds * len(timers))
            for name, seconds in zip(timers, taken, strict=True):
                yield bench.record("kernels", case.name, f"one-shot {op}", name, size, seconds, checked=True)
        memory.close()
        driver.free_pinned(pinned)


def moved(op: str, case: gpu_cases.Case, memory: Memory, layout: Any) -> dict[str, list[int]]:
    """By sector size: the least bytes moved, and the bytes of partly written sectors."""
    shape = from_engine(layout)
    found = {}
    for sector in SECTORS:
        bound = sectors.bound(op, shape, 1, memory.strided + case.shift, memory.packed, sector)
        found[str(sector)] = [bound.bytes + sectors.table_bytes(shape), bound.filled]
    return found


def _subjects(memory: Memory, case: gpu_cases.Case, op: str, with_cupy: bool) -> dict[str, Subject]:
    own = gpu_subjects.tempi_work(memory, case, op)
    table: dict[str, Subject] = {"tempi": (own.time, own.run)}
    copies = gpu_subjects.driver_timer(memory, case, op)
    if copies is not None:
        table["memcpy"] = (copies, lambda: copies(1))
    other = gpu_subjects.cupy_subject(memory, case, op) if with_cupy else None
    if other is not None:
        table["cupy"] = (other.timer(), other.run)
    return table


def shape_key(case: gpu_cases.Case, op: str, subject: str) -> tuple[Any, ...]:
    """That of all sizes of a shape."""
    stride = case.stride if isinstance(case, gpu_cases.Vector) else 0
    return type(case).__name__, case.run, stride, case.shift, op, subject


def capped(bench: Bench, case: gpu_cases.Case, op: str, subject: str) -> str | None:
    """Why a subject beside tempi would take too long, by the smaller sizes of its shape or by its rows alone; or
    None. A pitched copy of 2^30 rows takes minutes."""
    rows = case.nbytes // case.run
    known = bench.taken.get(shape_key(case, op, subject))
    if known is not None:
        return f"longer than {CAP:g} s, by a smaller size" if known[1] * rows / known[0] > CAP else None
    return f"{rows} rows: more than {CAP_ROWS}" if rows > CAP_ROWS else None


def _measure(bench: Bench, memory: Memory, case: gpu_cases.Case, op: str, with_cupy: bool) -> Iterator[Record]:
    check = gpu_memory.wrong_pack if op == "pack" else gpu_memory.wrong_unpack
    meta: dict[str, Any] = {"run": case.run, "span": case.span, "family": type(case).__name__.lower()}
    meta["stride"] = case.stride if isinstance(case, gpu_cases.Vector) else None
    meta["moved"] = moved(op, case, memory, gpu_cases.layout_of(case))
    timers: dict[str, _native.Timer] = {}
    memory.restore(memory.strided, case.span)
    for name, (timer, run) in _subjects(memory, case, op, with_cupy).items():
        if name != "tempi" and (why := capped(bench, case, op, name)):
            yield bench.record("kernels", case.name, op, name, case.nbytes, (), left_out=why, **meta)
            continue
        try:
            wrong = check(memory, case, run)
        except Exception as error:  # CuPy has exceptions of its own
            if name == "tempi":
                raise
            yield bench.record("kernels", case.name, op, name, case.nbytes, (), left_out=str(error), **meta)
            continue
        if wrong:
            yield bench.record("kernels", case.name, op, name, case.nbytes, (), refused=wrong, **meta)
        elif not bench.plan.timed:
            yield bench.record("kernels", case.name, op, name, case.nbytes, (), checked=True, **meta)
        else:
            once = timer(1)
            bench.taken[shape_key(case, op, name)] = (case.nbytes // case.run, once)
            if once > SLOW * bench.seconds:
                yield bench.record("kernels", case.name, op, name, case.nbytes, (once,), slow=True, **meta)
            else:
                timers[name] = timer
    taken = bench.sample(list(timers.values()), bench.seconds) if timers else []
    for name, seconds in zip(timers, taken, strict=True):
        yield bench.record("kernels", case.name, op, name, case.nbytes, seconds, checked=True, **meta)


def kernels(bench: Bench) -> Iterator[Record]:
    if not bench.plan.cases:
        raise worker.WorkerError("--cases: no shape has such a name")
    yield from oneshot(bench)
    fitting = [case for case in bench.plan.cases if case.span + 2 * case.nbytes <= bench.memory]
    left = len(bench.plan.cases) - len(fitting)
    why = gpu_subjects.why_no_cupy(bench.driver)
    yield bench.record("kernels", "cases", "choose", "tempi", 0, (), not_fitting=left)
    if why:
        yield bench.record("kernels", "cases", "choose", "cupy", 0, (), left_out=why)
    memory = Memory(bench.driver, max(case.span for case in fitting), max(case.nbytes for case in fitting))
    for number, case in enumerate(fitting):
        if bench.is_over:
            over = f"{len(fitting) - number} shapes: the time was over"
            yield bench.record("kernels", "cases", "choose", "all", 0, (), left_out=over)
            break
        for op in device_work.OPS:
            yield from _measure(bench, memory, case, op, why is None)
    memory.close()


# -- launches ------------------------------------------------------------------------------------------


def _launch_call(driver: Driver, function: int) -> tuple[int, tuple[int, ...]]:
    return driver.address("cuLaunchKernel"), (function, 1, 1, 1, 32, 1, 1, 0, driver.stream, 0, 0)


def _host_timer(*calls: tuple[int, tuple[int, ...]]) -> _native.Timer:
    return _native.timer(_native.load(), "bench_calls_in_turn", _native.sequence(*calls))


def _empty_kernel(bench: Bench) -> int | None:
    """Only for timing: the emulated device has only the kernels translated when tempi was built."""
    return bench.driver.function(device_work.EMPTY_PTX, "tempi_bench_empty") if bench.plan.timed else None


def latencies(bench: Bench) -> Iterator[Record]:
    """An empty launch and a wait; 64 KiB packed, unpacked, and waited for."""
    driver = bench.driver
    case = gpu_cases.Vector(64 * KIB, 64, 128)
    memory = Memory(driver, case.span, case.nbytes)
    timers: dict[str, _native.Timer] = {}
    empty = _empty_kernel(bench)
    if empty is not None:
        timers["empty"] = _host_timer(_launch_call(driver, empty), wait_call(driver))
    works = {op: gpu_subjects.tempi_work(memory, case, op) for op in device_work.OPS}
    checks = {"pack": gpu_memory.wrong_pack, "unpack": gpu_memory.wrong_unpack}
    for op, work in works.items():
        wrong = checks[op](memory, case, work.run)
        if wrong:
            yield bench.record("launches", case.name, op, "tempi", case.nbytes, (), refused=wrong)
        else:
            timers[op] = _host_timer(work.call())
    taken = bench.sample(list(timers.values()), bench.seconds)
    for name, seconds in zip(timers, taken, strict=True):
        subject = "driver" if name == "empty" else "tempi"
        size = 0 if name == "empty" else case.nbytes
        title = "an empty kernel" if name == "empty" else case.name
        yield bench.record("launches", title, f"{name} and wait", subject, size, seconds, checked=True)
    memory.close()


def fused(bench: Bench) -> Iterator[Record]:
    """The 26 regions of 8 fields: as one unit of work, one by one, by the driver's copies, and the launches
    alone."""
    halo = bench.plan.halo
    bench_halo = gpu_halo.Bench(bench.driver, halo)
    empty = _empty_kernel(bench)
    for op in device_work.OPS:
        whole = bench_halo.work(op)
        meta = {"messages": halo.messages, "launches": whole.launches()}
        timers = {
            "fused": _host_timer(whole.call()),
            "one by one": _host_timer(*(part.call() for part in bench_halo.works(op))),
            "memcpy": _host_timer(*bench_halo.copies(op), wait_call(bench.driver)),
        }
        if bench.plan.timed:
            timers[FUSED_ALONE] = whole.time
        for name in list(timers):
            wrong = bench_halo.wrong(op, partial(timers[name], 1))
            if wrong:
                del timers[name]
                yield bench.record("launches", halo.name, op, name, halo.nbytes, (), refused=wrong, **meta)
        if empty is not None:
            launches = [_launch_call(bench.driver, empty)] * halo.messages
            timers["empty launches"] = _host_timer(*launches, wait_call(bench.driver))
        taken = bench.sample(list(timers.values()), bench.seconds * len(timers))
        for name, seconds in zip(timers, taken, strict=True):
            yield bench.record("launches", halo.name, op, name, halo.nbytes, seconds, checked=True, **meta)
    bench_halo.close()


def _attributes(address: int) -> tuple[Any, tuple[int, ...]]:
    """What keeps the arguments alive, and those of cuPointerGetAttributes: type, managed, device, context, start and
    size."""
    numbers = (ctypes.c_int * 6)(2, 8, 9, 1, 11, 12)
    values = (ctypes.c_uint64 * 6)()
    places = (ctypes.c_void_p * 6)(*(ctypes.addressof(values) + 8 * i for i in range(6)))
    return (numbers, values, places), (6, ctypes.addressof(numbers), ctypes.addressof(places), address)


def micro(bench: Bench) -> Iterator[Record]:
    """Single driver calls by the host's clock. Where a call queues work, there are QUEUED of them and a wait."""
    driver = bench.driver
    memory, pinned, event = driver.allocate(64), driver.pinned(64), driver.event()
    driver.record(event)
    driver.synchronize()
    host = np.zeros(64, np.uint8)
    kept = [_attributes(memory), _attributes(host.ctypes.data)]
    stream, one = driver.stream, ctypes.c_uint64()
    single = {
        "stream query, idle": ("cuStreamQuery", (stream,)),
        "event query, done": ("cuEventQuery", (event,)),
        "event synchronize, done": ("cuEventSynchronize", (event,)),
        "stream synchronize, idle": ("cuStreamSynchronize", (stream,)),
        "pointer attribute": ("cuPointerGetAttribute", (ctypes.addressof(one), 2, memory)),
        "6 pointer attributes": ("cuPointerGetAttributes", kept[0][1]),
        "6 pointer attributes of host memory": ("cuPointerGetAttributes", kept[1][1]),
    }
    queued = {
        "event record": ("cuEventRecord", (event, stream)),
        "stream wait": ("cuStreamWaitEvent", (stream, event, 0)),
        "8-byte copy to the device": ("cuMemcpyHtoDAsync_v2", (memory, pinned, 8, stream)),
        "8-byte copy from the device": ("cuMemcpyDtoHAsync_v2", (pinned, memory, 8, stream)),
        "8-byte copy within the device": ("cuMemcpyDtoDAsync_v2", (memory, memory + 32, 8, stream)),
    }
    timers = {name: (_host_timer((driver.address(f), args)), 1) for name, (f, args) in single.items()}
    calls = {name: (driver.address(f), args) for name, (f, args) in queued.items()}
    empty = _empty_kernel(bench)
    if empty is not None:
        calls["launch of an empty kernel"] = _launch_call(driver, empty)
    for name, call in calls.items():
        timers[name] = _host_timer(*[call] * QUEUED, wait_call(driver)), QUEUED
    taken = bench.sample([timer for timer, _ in timers.values()], bench.seconds)
    for (name, (_, times)), seconds in zip(timers.items(), taken, strict=True):
        each = [value / times for value in seconds]
        op = name if times == 1 else f"{name}, of {times} and a wait"
        yield bench.record("launches", "driver calls", op, "driver", 0, each, calls=times)
    driver.free(memory)
    driver.free_pinned(pinned)


def launches(bench: Bench) -> Iterator[Record]:
    yield from latencies(bench)
    yield from micro(bench)
    yield from fused(bench)


PARTS = {"rates": rates, "launches": launches, "kernels": kernels}


def run(options: GpuOptions) -> Iterator[Record]:
    """All records of the requested parts."""
    driver = Driver()
    free = driver.free_memory()
    memory = min(options.memory or free // 2, free)
    meta = {"device": driver.describe(), "emulated": driver.emulated, "machine": machine()}
    end = time.monotonic() + (options.limit or float("inf"))
    bench = Bench(driver, plan_of(options, driver, memory), options.seconds, memory, meta, end)
    for part in options.parts:
        yield from PARTS[part](bench)


def main() -> None:
    try:
        for record in run(parse_gpu()):
            sys.stdout.write(record.line() + "\n")
            sys.stdout.flush()
    except (worker.WorkerError, _native.NativeError, TempiError) as error:
        sys.exit(f"tempi bench gpu: {error}")


if __name__ == "__main__":
    main()
