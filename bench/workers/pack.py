"""Measures MPI_Pack and MPI_Unpack in one process: ``python -m tempi.bench.workers.pack OPTIONS``.

Subjects: the library's function, tempi's entry for it, tempi's packing alone ("engine"), a programmer's loops
("hand"), the line-touch bound, and memcpy of the packed size. A subject with a wrong answer is recorded as
refused and not timed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tempi  # noqa: F401  (loads the engine before mpi4py loads an MPI)
from tempi.bench import bars, cases
from tempi.bench.options import PackOptions, parse_pack
from tempi.measure import _native, sampling, worker
from tempi.measure.records import Record

# Above this size the bytes between the runs are no longer compared: that would need a second copy of them.
GAPS_CHECKED = 256 * cases.MIB


@dataclass(frozen=True, slots=True)
class Bench:
    """One case in memory: its datatype, its buffers, and the subjects' argument blocks."""

    case: cases.Case
    memory: cases.Bytes
    packed: cases.Bytes
    type_handle: int
    comm_handle: int
    layout: int

    def transfer(self, function: int | None) -> _native.Transfer:
        return _native.Transfer(
            function=function,
            layout=self.layout,
            type=self.type_handle,
            comm=self.comm_handle,
            memory=self.memory.ctypes.data,
            packed=self.packed.ctypes.data,
            bytes=self.case.nbytes,
            count=self.case.count,
        )


def subjects(op: str, acting: bool, itself: bool = False) -> dict[str, tuple[str, int | None]]:
    """Name of each subject, the op that runs it, and the function that the op calls."""
    mpi_name = f"MPI_{op.capitalize()}"
    table: dict[str, tuple[str, int | None]] = {
        "library": (f"bench_mpi_{op}", worker.library_function("P" + mpi_name)),
        "engine": (f"bench_engine_{op}", worker.engine_function(f"tempi_{op}")),
        "hand": (f"bench_hand_{op}", None),
        "bound": (f"bench_bound_{op}", None),
        "memcpy": ("bench_memcpy", None),
    }
    if acting:
        table["tempi"] = (f"bench_mpi_{op}", worker.tempi_function(mpi_name))
    if itself:
        table[bars.AGAIN] = table["library"]
    return table


def _wrong_pack(bench: Bench, timer: _native.Timer) -> str | None:
    size = bench.case.nbytes
    bench.packed[:] = 0x5A
    timer(1)
    if (bench.packed[size:] != 0x5A).any():
        return "wrote past the packed bytes"
    wrong = np.flatnonzero(bench.packed[:size] != bench.case.gather(bench.memory))
    return f"{wrong.size} wrong packed bytes, the first at {wrong[0]}" if wrong.size else None


def _wrong_unpack(bench: Bench, timer: _native.Timer) -> str | None:
    size = bench.case.nbytes
    expected = bench.memory.copy() if bench.memory.size <= GAPS_CHECKED else None
    bench.packed[:size] = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    timer(1)
    if expected is not None:
        bench.case.scatter(expected, bench.packed[:size])
        wrong = np.flatnonzero(bench.memory != expected)
    else:
        wrong = np.flatnonzero(bench.packed[:size] != bench.case.gather(bench.memory))
    return f"{wrong.size} wrong bytes after unpacking, the first at {wrong[0]}" if wrong.size else None


SETTLED_LEAST = 16  # rounds


def _unsettled(budget: float) -> Callable[[], bool]:
    """Whether csrc/choose/autotune.c and csrc/pack/kernel_trials.c may still try methods and kernels, which they do in
    rounds of all subjects; a program has as many calls in a moment. For `budget` seconds at most."""
    before, begun = worker.counter("packs_tuned"), time.perf_counter()
    rounds = itertools.count()

    def unsettled() -> bool:
        trying = next(rounds) < SETTLED_LEAST or worker.counter("packs_tuned") == before
        return trying and time.perf_counter() - begun < budget

    return unsettled


def _engaged(op: str, timer: _native.Timer) -> bool:
    before = worker.counter(f"{op}s")
    timer(1)
    return worker.counter(f"{op}s") > before


def _measure(bench: Bench, op: str, acting: bool, options: PackOptions, meta: dict[str, Any]) -> Iterator[Record]:
    budget = options.seconds
    library = _native.load()
    check = _wrong_pack if op == "pack" else _wrong_unpack
    timers: dict[str, _native.Timer] = {}

    def record(subject: str, seconds: Sequence[float], **more: Any) -> Record:
        return Record(
            "pack",
            bench.case.name,
            op,
            subject,
            bench.case.nbytes,
            tuple(seconds),
            {**meta, **more},
        )

    for name, (native, function) in subjects(op, acting, options.itself).items():
        timer = _native.timer(library, native, bench.transfer(function))
        wrong = None if name in ("bound", "memcpy") else check(bench, timer)
        if wrong:
            yield record(name, (), refused=wrong)
        else:
            timers[name] = timer
    unsettled = _unsettled(budget if acting else 0.0)
    doubt = bars.doubt_of(timers, quick=options.quick)
    taken = sampling.sample(list(timers.values()), budget, unsettled=unsettled, in_doubt=doubt)
    engaged = "tempi" in timers and _engaged(op, timers["tempi"])
    for name, seconds in zip(timers, taken, strict=True):
        more = {"engaged": engaged} if name == "tempi" else {}
        yield record(name, seconds, **more)


def _too_large(case: cases.Case, op: str, meta: dict[str, Any], limit: int) -> Record:
    text = f"needs {case.span >> 20} MiB of memory, the limit is {limit >> 20} MiB"
    return Record("pack", case.name, op, "library", case.nbytes, (), {**meta, "refused": text})


def run(options: PackOptions) -> Iterator[Record]:
    """All records, case by case."""
    from mpi4py import MPI

    chosen = cases.chosen(options.quick, options.cases)
    fitting = [case for case in chosen if case.span <= options.memory]
    memory = worker.arena(max(case.span for case in fitting))
    packed = worker.arena(max(case.nbytes for case in fitting) + 64)
    acting = worker.active()
    common = worker.describe(MPI)
    for case in chosen:
        meta = {**common, "run": case.run, "family": type(case).__name__.lower(), "span": case.span}
        if case not in fitting:
            yield from (_too_large(case, op, meta, options.memory) for op in ("pack", "unpack"))
            continue
        datatype = case.datatype(MPI)
        type_handle = worker.handle(MPI, datatype)
        bench = Bench(
            case,
            memory[: case.span],
            packed[: case.nbytes + 64],
            type_handle,
            worker.handle(MPI, MPI.COMM_SELF),
            worker.layout(type_handle),
        )
        for op in ("pack", "unpack"):
            yield from _measure(bench, op, acting, options, meta)
        datatype.Free()


def main() -> None:
    worker.emit(run(parse_pack()), 0)


if __name__ == "__main__":
    main()
