"""Measures the cost of a calibrated choice: ``TEMPI_MODEL=FILE python -m tempi.bench.workers.choice OPTIONS``.

With the tables of `made_up` the library is always faster, so a call only looks up its type and its choice, and
tempi's added time is the cost of these. Runs in one process, on MPI_COMM_SELF.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tempi import _engine
from tempi.bench.options import OverheadOptions, parse_overhead
from tempi.bench.workers import overhead as worker_overhead
from tempi.measure import _native, sampling, worker
from tempi.measure.records import Record
from tempi.model import grid, predict, store, tables

#: Targets in seconds.
KEPT, MADE = 50e-9, 1e-6
SIZES = (300, 5000, 70_000, 900_000)


def made_up(version: str) -> bytes:
    """Tables for everything that `tempi calibrate` measures; tempi takes twice as long as the library in them."""
    twice = ("own_pack", "own_unpack", "stage_pack", "stage_unpack", "contiguous")
    seconds = {}
    for column in (*grid.columns(True), *grid.columns(False)):
        sizes = {*grid.sizes(column, True), *grid.sizes(column, False)}
        for quantity in grid.QUANTITIES:
            for peer in grid.PEERS if quantity in grid.MESSAGES else (None,):
                for size in (grid.nominal(column, one) for one in sizes):
                    seconds[quantity, column, size, peer] = (2e-9 if quantity in twice else 1e-9) * size
    own = store.machine(version)
    no_gpu = ("", "", 0, False)
    return tables.encode(tables.build(seconds), 0.0, own.cores, (own.tempi, own.cpu, own.mpi), no_gpu)


def _pack(world: worker_overhead.World, function: int | None) -> _native.Timer:
    mpi, (source, target, *_) = world.mpi, world.buffers
    transfer = _native.Transfer(
        function=function, type=worker.handle(mpi, world.derived), comm=worker.handle(mpi, mpi.COMM_SELF),
        memory=source.ctypes.data, packed=target.ctypes.data, bytes=world.derived.size, count=1,
    )  # fmt: skip
    return _native.timer(_native.load(), "bench_mpi_pack", transfer)


def _left(timer: _native.Timer) -> bool:
    """Whether tempi finds the call and leaves it to the library, by a cached choice."""
    names = ("fallback_rule", "model_choices")
    timer(1)
    before = [worker.counter(name) for name in names]
    timer(3)
    found, made = (worker.counter(name) - old for name, old in zip(names, before, strict=True))
    return found >= 3 and made == 0


def _cached(world: worker_overhead.World, options: OverheadOptions) -> Iterator[Record]:
    call = worker_overhead.Call("", "bench_exchange", 0.0, 3, 0, derived=True)
    pack = (worker.library_function("PMPI_Pack"), worker.tempi_function("MPI_Pack"))
    table: dict[str, tuple[int, list[_native.Timer]]] = {
        "Pack of a vector, choice kept": (1, [_pack(world, function) for function in pack]),
        "Irecv, Send, Wait of a vector, choices kept": (
            2,
            [worker_overhead.timer(world, call, ours) for ours in (False, True)],
        ),
    }
    for name, (choices, timers) in table.items():
        if not _left(timers[1]):
            raise worker.WorkerError(f"{name}: tempi does not leave it to the library by a choice that is kept")
        for subject, seconds in zip(("library", "tempi"), sampling.sample(timers, options.seconds), strict=True):
            yield world.record(name, subject, seconds, target=choices * KEPT, calls=choices)


def _made(world: worker_overhead.World, path: str, options: OverheadOptions) -> Iterator[Record]:
    """New choices for messages of some sizes; predictions of messages have the most parts."""
    model = predict.Model(path)
    layout = worker.layout(worker.handle(world.mpi, world.derived))
    send, own = predict.OPERATIONS.index("send"), grid.PEERS.index("self")
    function, pointer = worker.engine_function("tempi_model_choice"), model.address
    calls = _native.sequence(*((function, (pointer, layout, size, send, own)) for size in SIZES))
    timer = _native.timer(_native.load(), "bench_calls_in_turn", calls)
    (taken,) = sampling.sample([timer], options.seconds)
    seconds = [value / len(SIZES) for value in taken]
    yield world.record("a choice made from the tables", "tempi", seconds, target=MADE, calls=1)


def run(options: OverheadOptions) -> Iterator[Record]:
    """All records of this process; none if tempi does not act in it."""
    from mpi4py import MPI

    path: Any = _engine.text(_engine.lib.tempi_model_in_use())
    if not worker.active():
        return
    if path is None:
        raise worker.WorkerError("no tables are in use")
    world = worker_overhead.make_world(MPI)
    yield from _cached(world, options)
    yield from _made(world, path, options)
    world.derived.Free()


def main() -> None:
    worker.emit(run(parse_overhead()), 0)


if __name__ == "__main__":
    main()
