"""Measures each method on shapes that were not calibrated: ``mpirun -n 2 python -m tempi.bench.worker_model``.

Subjects: the library and tempi (which always acts here, by TEMPI_FORCE), in messages between the two
ranks and in MPI_Pack and MPI_Unpack on rank 0. What the model predicts and chooses, and what the built-in rule
would, is in the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tempi.bench import _native, cases, sampling, worker, worker_pingpong
from tempi.bench.records import Record
from tempi.bench.worker_calibrate import staging
from tempi.bench.worker_options import PackOptions, parse_pack

from tempi import _engine
from tempi.model import predict, store

OPERATIONS = {"one way": "send", "pack": "pack", "unpack": "unpack"}


def tables(mpi: Any) -> tuple[predict.Model, str]:
    """The tables of this machine and MPI, and where they are. Raises `WorkerError` where there are none."""
    own = store.machine(mpi.Get_library_version())
    path = own.table
    if not path.is_file():
        raise worker.WorkerError(f"{own.mpi} is not calibrated on this machine: run `tempi calibrate` first")
    model = predict.Model(path)
    if why := model.mismatch(own):
        raise worker.WorkerError(f"{path}: {why}: run `tempi calibrate` again")
    return model, str(path)


class Judge:
    """What model and rule say of a message."""

    def __init__(self, mpi: Any, peer: str) -> None:
        self._model, self.path = tables(mpi)
        self._version = mpi.Get_library_version().encode()
        self._peer = peer

    def __call__(self, layout: int, size: int, operation: str) -> dict[str, Any]:
        pointer = _engine.ffi.cast("tempi_layout const *", layout)
        told = self._model.predict(pointer, size, operation, self._peer)
        number = predict.OPERATIONS.index(operation)
        by_rule = bool(_engine.lib.tempi_rule_choice(self._version, pointer, size, number))
        acts = self._model.acts(pointer, size, operation, self._peer)
        predicted = None if told is None else {"library": told.library, "tempi": told.host}
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
    """Each subject's message arrives as NumPy has it, on both ranks."""
    good = True
    for timer in timers.values():
        bench.target[:] = 0x5A
        bench.comm.Barrier()
        timer(1)
        good &= bool(np.array_equal(bench.case.gather(bench.target), ~bench.case.gather(bench.source)))
    return all(bench.comm.allgather(good))


def _measure(
    bench: worker_pingpong.Bench, op: str, budget: float, meta: dict[str, Any], mpi: Any
) -> Iterator[Record]:
    timers = _timers(bench, op, mpi)
    if op == "one way":
        if not _right(bench, timers):
            raise worker.WorkerError(f"{bench.case.name}: a message arrived wrong")
        share, agree = 0.5, bench.comm.bcast
    elif bench.comm.rank == 0:
        share, agree = 1.0, sampling.alone
    else:
        return
    taken = sampling.sample(list(timers.values()), budget, agree)
    for name, seconds in zip(timers, taken, strict=True):
        one = tuple(share * value for value in seconds)
        yield Record("model", bench.case.name, op, name, bench.case.nbytes, one, meta)


def run(options: PackOptions) -> Iterator[Record]:
    """All records, case by case, on both ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    judge = Judge(MPI, worker.two_ranks(MPI))
    chosen = [case for case in cases.held_out(options.quick) if 2 * case.span <= options.memory]
    span, size = max(case.span for case in chosen), max(case.nbytes for case in chosen)
    source, target = worker.arena(span), worker.arena(span)
    if comm.rank == 1:
        np.invert(source, out=source)
    room = (staging(size), staging(size))
    common = worker.describe(MPI) | {"tables": judge.path}
    for case in chosen:
        datatype = case.datatype(MPI)
        handle = worker.handle(MPI, datatype)
        handles = {"type": handle, "byte_type": worker.handle(MPI, MPI.BYTE), "comm": worker.handle(MPI, comm)}
        handles["layout"] = worker.layout(handle)
        bench = worker_pingpong.Bench(case, comm, source[: case.span], target[: case.span], room, handles)
        for op, operation in OPERATIONS.items():
            meta = {**common, "run": case.run, **judge(handles["layout"], case.nbytes, operation)}
            yield from _measure(bench, op, options.seconds, meta, MPI)
        datatype.Free()


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse_pack()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
