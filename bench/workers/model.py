"""Measures each method on shapes that were not calibrated: ``mpirun -n 2 python -m tempi.bench.workers.model``.

Subjects: the library and tempi (which always acts here, by TEMPI_FORCE), in messages between the two
ranks and in MPI_Pack and MPI_Unpack on rank 0. The records include the model's prediction and choice, and the
built-in rule's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempi import _engine
from tempi.bench import cases
from tempi.bench.options import PackOptions, parse_pack
from tempi.bench.workers import pingpong as worker_pingpong
from tempi.calibration import adaptive
from tempi.calibration.points import staging
from tempi.measure import _native, locality, sampling, worker
from tempi.measure.records import Record
from tempi.model import grid, predict, store

VISITS, SAMPLES = 24, 4  # even, since half of each round's samples are scored
OPERATIONS = {"one way": "send", "pack": "pack", "unpack": "unpack"}


def tables(mpi: Any) -> tuple[predict.Model, str]:
    """The tables of this machine and MPI library, and their path. Raises `WorkerError` if there are none."""
    own = store.machine(mpi.Get_library_version())
    path = own.table
    if not path.is_file():
        raise worker.WorkerError(f"{own.mpi} is not calibrated on this machine: run `tempi calibrate` first")
    model = predict.Model(path)
    if why := model.mismatch(own):
        raise worker.WorkerError(f"{path}: {why}: run `tempi calibrate` again")
    return model, str(path)


def calibrated_peers(mpi: Any) -> list[str]:
    """The peer classes of the tables; empty if the tables came without their samples."""
    try:
        return store.read(store.machine(mpi.Get_library_version()).file).peers
    except store.StoreError:
        return []


class Judge:
    """The model's and the rule's answers for a message."""

    def __init__(self, mpi: Any) -> None:
        self._model, self.path = tables(mpi)
        self._version = mpi.Get_library_version().encode()

    def __call__(self, layout: int, size: int, operation: str, peer: str) -> dict[str, Any]:
        pointer = _engine.ffi.cast("tempi_layout const *", layout)
        prediction = self._model.predict(pointer, size, operation, peer)
        number = predict.OPERATIONS.index(operation)
        by_rule = bool(_engine.lib.tempi_rule_choice(self._version, pointer, size, number, grid.PEERS.index(peer)))
        acts = self._model.acts(pointer, size, operation, peer)
        predicted = None if prediction is None else {"library": prediction.library, "tempi": prediction.host}
        return {"predicted": predicted, "model": by_rule if acts is None else acts, "rule": by_rule}


def _transfer(bench: worker_pingpong.Bench, function: int | None, mpi: Any) -> _native.Transfer:
    return _native.Transfer(
        function=function, layout=bench.handles["layout"], type=bench.handles["type"],
        comm=worker.handle(mpi, mpi.COMM_SELF), memory=bench.source.ctypes.data, packed=bench.staging[0].ctypes.data,
        bytes=bench.case.nbytes, count=bench.case.count,
    )  # fmt: skip


def _timers(bench: worker_pingpong.Bench, op: str, mpi: Any) -> dict[str, _native.Timer]:
    library = _native.load()
    if op == "one way":
        side = "first" if bench.comm.rank == 0 else "second"
        table = worker_pingpong.subjects(acting=True, forced=True)
        functions = {"library": table["library"][1], "tempi": table["forced"][1]}
        return {
            name: _native.timer(library, f"bench_pingpong_{side}", bench.message(pair))
            for name, pair in functions.items()
        }
    name = op.capitalize()
    both = {"library": worker.library_function(f"PMPI_{name}"), "tempi": worker.tempi_function(f"MPI_{name}")}
    return {
        subject: _native.timer(library, f"bench_mpi_{op}", _transfer(bench, function, mpi))
        for subject, function in both.items()
    }


def _right(bench: worker_pingpong.Bench, timers: Mapping[str, _native.Timer]) -> bool:
    """Whether each subject's message arrives as NumPy computes it, on both ranks."""
    good = True
    for timer in timers.values():
        bench.target[:] = 0x5A
        bench.comm.Barrier()
        timer(1)
        good &= bool(np.array_equal(bench.case.gather(bench.target), ~bench.case.gather(bench.source)))
    return all(bench.comm.allgather(good))


@dataclass(frozen=True, slots=True)
class Visited:
    """An operation of a case, and the metadata of its records. Keeps the memory and the datatype of its subjects
    alive."""

    bench: worker_pingpong.Bench
    datatype: Any
    op: str
    turns: adaptive.Turns
    meta: Mapping[str, Mapping[str, Any]]  # by peer class

    def visit(self, number: int, seconds: float, peer: str) -> Iterator[Record]:
        share = 0.5 if self.op == "one way" else 1.0
        op = f"{self.op}, far" if self.op == "one way" and peer == "far" else self.op
        meta = {**self.meta[peer], "visit": number}
        for name, found in self.turns.take(SAMPLES, seconds).items():
            one, case = tuple(share * sample[0] for sample in found), self.bench.case
            yield Record("model", case.name, op, name, case.nbytes, one, meta)


def _visited(
    bench: worker_pingpong.Bench, datatype: Any, op: str, meta: Mapping[str, Mapping[str, Any]], mpi: Any
) -> Visited | None:
    """None if this rank has no part in it."""
    if op != "one way" and bench.comm.rank != 0:
        return None
    timers = _timers(bench, op, mpi)
    if op == "one way" and not _right(bench, timers):
        raise worker.WorkerError(f"{bench.case.name}: a message arrived wrong")
    runs = {name: adaptive.timed(timer) for name, timer in timers.items()}
    agree = bench.comm.bcast if op == "one way" else sampling.alone
    return Visited(bench, datatype, op, adaptive.Turns(runs, agree), meta)


def _prepared(options: PackOptions, mpi: Any, peers: Sequence[str]) -> list[Visited]:
    """All operations of all cases in which this rank takes part."""
    comm = mpi.COMM_WORLD
    judge = Judge(mpi)
    chosen = [case for case in cases.held_out(options.quick) if 2 * case.span <= options.memory]
    span, size = max(case.span for case in chosen), max(case.nbytes for case in chosen)
    source, target = worker.arena(span), worker.arena(span)
    if comm.rank == 1:
        np.invert(source, out=source)
    room = (staging(size), staging(size))
    common = worker.describe(mpi) | {"tables": judge.path, "calibrated": calibrated_peers(mpi)}
    made = []
    for case in chosen:
        datatype = case.datatype(mpi)
        handle = worker.handle(mpi, datatype)
        handles = {"type": handle, "byte_type": worker.handle(mpi, mpi.BYTE), "comm": worker.handle(mpi, comm)}
        handles["layout"] = worker.layout(handle)
        bench = worker_pingpong.Bench(case, comm, source[: case.span], target[: case.span], room, handles)
        for op, operation in OPERATIONS.items():
            answers = {peer: judge(handles["layout"], case.nbytes, operation, peer) for peer in peers}
            meta = {peer: {**common, "run": case.run, "peer": peer, **answers[peer]} for peer in peers}
            made.append(_visited(bench, datatype, op, meta, mpi))
    return [one for one in made if one is not None]


def run(options: PackOptions) -> Iterator[Record]:
    """All records, round by round, on both ranks. The machine's speed changes within seconds, so each case is
    measured in several rounds over the whole time, like a calibration's points."""
    from mpi4py import MPI

    peer = worker.two_ranks(MPI)
    peers = ("node", "far") if peer == "node" else (peer,)
    prepared = _prepared(options, MPI, peers)
    for number in range(VISITS):
        for one in prepared:
            if peer in ("node", "far") and one.op == "one way":
                peer = locality.probe(MPI, MPI.COMM_WORLD)
            yield from one.visit(number, options.seconds / VISITS, peer)


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse_pack()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
