"""Measures round trips between two ranks: ``mpirun -n 2 python -m tempi.bench.workers.pingpong OPTIONS``.

Subjects: the library with the datatype, tempi with the datatype, and a programmer's loops around a
contiguous message ("hand"). With ``TEMPI_FORCE=1`` in the environment tempi's subject is called
"forced": it acts even if its rule would not. Seconds are one way.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tempi  # loads the engine before mpi4py loads an MPI
from tempi.bench import bars, cases
from tempi.bench.options import PackOptions, parse_pack
from tempi.measure import _native, sampling, worker
from tempi.measure.records import Record

TAG = 7
SETTLING, TOGETHER = 128, 8  # rounds
LONG = 5e-3  # seconds
SETTLED_LEAST, SETTLED_MOST = 16, 128  # rounds of all subjects, in each class of the peer


@dataclass(frozen=True, slots=True)
class Bench:
    """One case in the memory of this rank. Rank 1's bytes are the complement of rank 0's."""

    case: cases.Case
    comm: Any
    source: cases.Bytes
    target: cases.Bytes
    staging: tuple[cases.Bytes, cases.Bytes]
    handles: dict[str, int]

    def message(self, functions: tuple[int | None, int | None]) -> _native.Message:
        return _native.Message(
            send=functions[0],
            receive=functions[1],
            **self.handles,
            source=self.source.ctypes.data,
            target=self.target.ctypes.data,
            send_packed=self.staging[0].ctypes.data,
            receive_packed=self.staging[1].ctypes.data,
            bytes=self.case.nbytes,
            count=self.case.count,
            peer=1 - self.comm.rank,
            tag=TAG,
        )


def subjects(acting: bool, forced: bool, itself: bool = False) -> dict[str, tuple[str, tuple[int | None, int | None]]]:
    """Name of each subject, the ops that run it, and the send and receive functions that they call."""
    library = (worker.library_function("PMPI_Send"), worker.library_function("PMPI_Recv"))
    table: dict[str, tuple[str, tuple[int | None, int | None]]] = {
        "library": ("bench_pingpong", library),
        "hand": ("bench_hand", library),
    }
    if acting:
        own = (worker.tempi_function("MPI_Send"), worker.tempi_function("MPI_Recv"))
        table["forced" if forced else "tempi"] = ("bench_pingpong", own)
    if itself:
        table[bars.AGAIN] = table["library"]
    return table


def _wrong(bench: Bench, timer: _native.Timer) -> str | None:
    """The error in the bytes received on any rank, or None."""
    bench.target[:] = 0x5A
    bench.comm.Barrier()
    timer(1)
    expected = ~bench.case.gather(bench.source)
    wrong = np.flatnonzero(bench.case.gather(bench.target) != expected)
    text = f"rank {bench.comm.rank} received {wrong.size} wrong bytes" if wrong.size else None
    return next((answer for answer in bench.comm.allgather(text) if answer), None)


def _engaged(timer: _native.Timer) -> bool:
    before = worker.counter("sends") + worker.counter("recvs")
    timer(1)
    return worker.counter("sends") + worker.counter("recvs") > before


def _counted() -> dict[str, int]:
    """Of rank 0: what may explain times that vary."""
    return {name: worker.counter(name) for name in ("sends", "messages_tuned", "messages_changed", "locality_changes")}


class _Trials:
    """Whether the first trial of this message (csrc/choose/message_trials.h) may go on: a program has one in thousands.

    It sees messages that follow each other, as in a program, between rounds like those measured. Each class of the peer
    has one of its own, and ranks that migrate change it at any time.
    """

    def __init__(self, timer: _native.Timer, comm: Any) -> None:
        self.timer, self.comm = timer, comm
        self.tuned = self._tuned()
        self.rounds: collections.Counter[str] = collections.Counter()
        self.ended: set[str] = set()

    def _tuned(self) -> int:
        return int(self.comm.allreduce(worker.counter("messages_tuned")))

    def _has_one_ended(self) -> bool:
        self.timer(TOGETHER)
        before, self.tuned = self.tuned, self._tuned()
        return self.tuned > before

    def unsettled(self) -> bool:
        peer = self.comm.bcast(tempi.peer(self.comm, 1 - self.comm.rank))
        if self.rounds[peer] >= (SETTLED_LEAST if peer in self.ended else SETTLED_MOST):
            return False
        self.rounds[peer] += 1
        if self._has_one_ended():
            self.ended.add(peer)
        return True

    def settle(self) -> None:
        """Those of long messages end here: rounds of all subjects take too long, and no probe changes their class."""
        for _ in range(SETTLING // TOGETHER):
            if self._has_one_ended():
                break


def unsettled(timer: _native.Timer, comm: Any) -> Callable[[], bool]:
    """Tells before each sample whether it is to wait for a round of all subjects."""
    trials = _Trials(timer, comm)
    if comm.bcast(timer(1)) <= LONG:
        return trials.unsettled
    trials.settle()
    return sampling.settled


def _measure(bench: Bench, acting: bool, forced: bool, options: PackOptions, meta: dict[str, Any]) -> Iterator[Record]:
    library = _native.load()
    side = "first" if bench.comm.rank == 0 else "second"
    timers: dict[str, _native.Timer] = {}

    def record(subject: str, seconds: Sequence[float], **more: Any) -> Record:
        one_way = tuple(0.5 * value for value in seconds)
        return Record(
            "pingpong",
            bench.case.name,
            "one way",
            subject,
            bench.case.nbytes,
            one_way,
            {**meta, **more},
        )

    for name, (native, functions) in subjects(acting, forced, options.itself).items():
        timer = _native.timer(library, f"{native}_{side}", bench.message(functions))
        wrong = _wrong(bench, timer)
        if wrong:
            yield record(name, (), refused=wrong)
        else:
            timers[name] = timer
    ours = "forced" if forced else "tempi"
    before = _counted()
    wait = unsettled(timers[ours], bench.comm) if ours in timers else sampling.settled
    doubt = bars.doubt_of(timers, quick=options.quick)
    taken = sampling.sample(list(timers.values()), options.seconds, bench.comm.bcast, wait, doubt)
    counted = {name: value - before[name] for name, value in _counted().items()}
    engaged = ours in timers and _engaged(timers[ours])
    for name, seconds in zip(timers, taken, strict=True):
        yield record(name, seconds, **({"engaged": engaged, **counted} if name == ours else {}))


def _too_large(case: cases.Case, meta: dict[str, Any], limit: int) -> Record:
    text = f"needs {2 * case.span >> 20} MiB a rank, the limit is {limit >> 20} MiB"
    return Record("pingpong", case.name, "one way", "library", case.nbytes, (), {**meta, "refused": text})


def _handles(mpi: Any, comm: Any, datatype: Any) -> dict[str, int]:
    type_handle = worker.handle(mpi, datatype)
    return {
        "type": type_handle,
        "byte_type": worker.handle(mpi, mpi.BYTE),
        "comm": worker.handle(mpi, comm),
        "layout": worker.layout(type_handle),
    }


def run(options: PackOptions) -> Iterator[Record]:
    """All records, case by case, on both ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.size != 2:
        raise worker.WorkerError(
            f"ping-pong needs 2 ranks, not {comm.size}; with 1 each the mpirun is not that of mpi4py's "
            f"{worker.mpi_version(MPI).split(',')[0]}: give its own with --mpirun"
        )
    chosen = cases.messages(options.quick, options.cases)
    fitting = [case for case in chosen if 2 * case.span <= options.memory]
    span, size = max(case.span for case in fitting), max(case.nbytes for case in fitting)
    source, target = worker.arena(span), worker.arena(span)
    if comm.rank == 1:
        np.invert(source, out=source)
    staging = (worker.arena(size), worker.arena(size))
    acting = bool(comm.allreduce(worker.active(), MPI.LAND))
    forced = os.environ.get("TEMPI_FORCE", "0") not in ("", "0")
    common = worker.describe(MPI)
    for case in chosen:
        meta = {**common, "run": case.run, "family": type(case).__name__.lower(), "span": case.span}
        if case not in fitting:
            yield _too_large(case, meta, options.memory)
            continue
        datatype = case.datatype(MPI)
        handles = _handles(MPI, comm, datatype)
        bench = Bench(case, comm, source[: case.span], target[: case.span], staging, handles)
        yield from _measure(bench, acting, forced, options, meta)
        datatype.Free()


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse_pack()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
