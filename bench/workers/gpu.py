"""Measures one GPU in one process, without MPI: ``python -m tempi.bench.workers.gpu OPTIONS``.

Part "rates": the memory's speed. Part "kernels": packs and unpacks of many shapes, timed by CUDA events.
Part "launches": the cost of a launch and of a wait, by the host's clock. Every answer is checked first; a
wrong one is refused and not timed. On the emulated device there are checks and no times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tempi import TempiError
from tempi.bench import sectors
from tempi.bench.cases import KIB, MIB, size_name
from tempi.bench.gpu import cases as gpu_cases
from tempi.bench.gpu import halo as gpu_halo
from tempi.bench.gpu import memory as gpu_memory
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


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurements: bytes of the copy and of the probes, shapes, a halo; or checks only."""

    timed: bool
    copy: int
    probe: int
    cases: Sequence[gpu_cases.Case]
    halo: gpu_halo.Halo


def plan_of(quick: bool, emulated: bool, memory: int) -> Plan:
    """The plan for a GPU, or for the emulated device, which is checked and not timed."""
    cases = gpu_cases.chosen(quick, emulated)
    if emulated:
        return Plan(False, 64 * KIB, 8 * KIB, cases, gpu_halo.Halo(points=10, radius=2))
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
    refused = {} if (shown == memory.pattern[: shown.size]).all() else {"refused": "copied wrong bytes"}
    (seconds,) = bench.sample([timer], bench.seconds)
    yield bench.record("rates", f"copy of {size_name(size)}", "copy", "driver", 2 * size, seconds, **refused)
    memory.close()
    yield from _probes(bench)


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


# -- kernels -------------------------------------------------------------------------------------------


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


def _measure(bench: Bench, memory: Memory, case: gpu_cases.Case, op: str, with_cupy: bool) -> Iterator[Record]:
    check = gpu_memory.wrong_pack if op == "pack" else gpu_memory.wrong_unpack
    meta: dict[str, Any] = {"run": case.run, "span": case.span, "family": type(case).__name__.lower()}
    meta["moved"] = moved(op, case, memory, gpu_cases.layout_of(case))
    timers: dict[str, _native.Timer] = {}
    memory.restore(memory.strided, case.span)
    for name, (timer, run) in _subjects(memory, case, op, with_cupy).items():
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
            if once > SLOW * bench.seconds:
                yield bench.record("kernels", case.name, op, name, case.nbytes, (once,), slow=True, **meta)
            else:
                timers[name] = timer
    taken = bench.sample(list(timers.values()), bench.seconds) if timers else []
    for name, seconds in zip(timers, taken, strict=True):
        yield bench.record("kernels", case.name, op, name, case.nbytes, seconds, checked=True, **meta)


def kernels(bench: Bench) -> Iterator[Record]:
    fitting = [case for case in bench.plan.cases if case.span + 2 * case.nbytes <= bench.memory]
    left = len(bench.plan.cases) - len(fitting)
    why = gpu_subjects.why_no_cupy(bench.driver)
    yield bench.record("kernels", "cases", "choose", "tempi", 0, (), not_fitting=left)
    if why:
        yield bench.record("kernels", "cases", "choose", "cupy", 0, (), left_out=why)
    memory = Memory(bench.driver, max(case.span for case in fitting), max(case.nbytes for case in fitting))
    for case in fitting:
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


def launches(bench: Bench) -> Iterator[Record]:
    yield from latencies(bench)
    yield from fused(bench)


PARTS = {"rates": rates, "kernels": kernels, "launches": launches}


def run(options: GpuOptions) -> Iterator[Record]:
    """All records of the requested parts."""
    driver = Driver()
    free = driver.free_memory()
    memory = min(options.memory or free // 2, free)
    meta = {"device": driver.describe(), "emulated": driver.emulated, "machine": machine()}
    bench = Bench(driver, plan_of(options.quick, driver.emulated, memory), options.seconds, memory, meta)
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
