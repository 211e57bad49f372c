"""Measures each method for device memory on shapes that were not calibrated: ``mpirun -n 2 python -m
tempi.bench.workers.model_device``.

Subjects: every possible method, forced in the engine of both ranks; and "model", the engine's own choice with the
tables in use. The records include the prediction, the engine's choice and the built-in rule's choice. Rank 0 also
packs and unpacks some of the shapes (model_packing.py). On the emulated device the shapes are small and few, and
every record is marked as emulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempi import _engine
from tempi.bench import cases
from tempi.bench.options import PackOptions, parse_pack
from tempi.bench.workers import model_packing as worker_model_packing
from tempi.measure import _native, device_work, sampling, worker
from tempi.measure.cuda_driver import Driver
from tempi.measure.records import Record
from tempi.model import predict, store

TAG = 7
BENCH = "model"


def tables(mpi: Any, driver: Driver) -> tuple[predict.Model, str, store.Gpu]:
    """The tables of this card and MPI library, and their path. Raises `WorkerError` if there are none."""
    gpu = store.gpu(driver.ordinal)
    if gpu is None:
        raise worker.WorkerError("the engine does not see the GPU")
    host = store.machine(mpi.Get_library_version())
    own = store.Machine(host.cpu, host.cores, host.mpi, host.tempi, gpu)
    if not own.table.is_file():
        raise worker.WorkerError(f"{own.mpi} is not calibrated on {gpu}: run `tempi calibrate` first")
    model = predict.Model(own.table)
    if why := model.mismatch(own):
        raise worker.WorkerError(f"{own.table}: {why}: run `tempi calibrate` again")
    return model, str(own.table), gpu


@dataclass(frozen=True, slots=True)
class Bench:
    """One case in device memory of this rank. Rank 1's bytes are the complement of rank 0's."""

    case: cases.Case
    comm: Any
    driver: Driver
    source: int
    target: int
    expected: cases.Bytes  # packed bytes that the peer sends
    handles: dict[str, int]

    def message(self, functions: tuple[int | None, int | None]) -> _native.Message:
        return _native.Message(
            send=functions[0], receive=functions[1], **self.handles, source=self.source, target=self.target,
            send_packed=None, receive_packed=None, bytes=self.case.nbytes, count=self.case.count,
            peer=1 - self.comm.rank, tag=TAG,
        )  # fmt: skip


def methods(case: cases.Case, cuda_aware: bool) -> list[str]:
    """The possible methods."""
    if isinstance(case, cases.Contiguous):
        return ["library", "staged"] if cuda_aware else ["staged"]
    return [name for name in predict.METHODS if cuda_aware or name not in ("library", "device")]


def _timers(bench: Bench, cuda_aware: bool) -> dict[str, _native.Timer]:
    library = _native.load()
    op = f"bench_pingpong_{'first' if bench.comm.rank == 0 else 'second'}"
    theirs = (worker.library_function("PMPI_Send"), worker.library_function("PMPI_Recv"))
    own = (worker.tempi_function("MPI_Send"), worker.tempi_function("MPI_Recv"))
    made = {}
    for name in methods(bench.case, cuda_aware):
        if name == "library":
            made[name] = _native.timer(library, op, bench.message(theirs))
        else:
            made[name] = worker_model_packing.forced(_native.timer(library, op, bench.message(own)), name)
    return made | {"model": _native.timer(library, op, bench.message(own))}


def _wrong(bench: Bench, timer: _native.Timer) -> str | None:
    """The error in the bytes received on any rank, or None."""
    bench.driver.fill(bench.target, 0x5A, bench.case.span)
    bench.comm.Barrier()
    timer(1)
    got = bench.case.gather(bench.driver.read(bench.target, bench.case.span))
    wrong = np.flatnonzero(got != bench.expected)
    text = f"rank {bench.comm.rank} received {wrong.size} wrong bytes" if wrong.size else None
    return next((answer for answer in bench.comm.allgather(text) if answer), None)


def _measure(bench: Bench, cuda_aware: bool, budget: float, meta: dict[str, Any]) -> Iterator[Record]:
    def record(name: str, seconds: list[float], **more: Any) -> Record:
        one_way = tuple(0.5 * value for value in seconds)
        return Record(BENCH, bench.case.name, "one way", name, bench.case.nbytes, one_way, {**meta, **more})

    right: dict[str, _native.Timer] = {}
    for name, timer in _timers(bench, cuda_aware).items():
        if wrong := _wrong(bench, timer):
            yield record(name, [], refused=wrong)
        else:
            right[name] = timer
    taken = worker_model_packing.chosen(right["model"]) if "model" in right else {}
    for name, seconds in zip(right, sampling.sample(list(right.values()), budget, bench.comm.bcast), strict=True):
        more = {"chosen": taken} if name == "model" else {}
        yield record(name, seconds, checked=True, **more)


def _predicted(model: predict.Model, layout: int, size: int, cuda_aware: bool, peer: str) -> dict[str, float] | None:
    pointer = _engine.ffi.cast("tempi_layout const *", layout)
    answer = model.predict_device(pointer, size, "send", peer, cuda_aware=cuda_aware)
    return None if answer is None else answer.seconds


def _packing(mpi: Any, model: predict.Model, driver: Driver, cuda_aware: bool, chosen: Sequence[cases.Case]) -> Any:
    span, size = max(case.span for case in chosen), max(case.nbytes for case in chosen)
    return worker_model_packing.Packing(mpi, model, driver, cuda_aware, span, 2 * size)


def run(options: PackOptions) -> Iterator[Record]:
    """All records, case by case, on both ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    peer = worker.two_ranks(MPI)
    driver, cuda_aware = Driver(comm.rank), device_work.library_cuda_aware()
    model, path, gpu = tables(MPI, driver)
    limit = min(comm.allgather(min(options.memory, driver.free_memory() // 3)))
    chosen = [c for c in cases.held_out_device(options.quick, emulated=driver.small) if 2 * c.span <= limit]
    span = max(case.span for case in chosen)
    bytes_ = worker.arena(span)
    if comm.rank == 1:
        np.invert(bytes_, out=bytes_)
    source, target = driver.allocate(span), driver.allocate(span)
    driver.write(source, bytes_)
    meta: dict[str, Any] = {**worker.describe(MPI), "tables": path, "aware": cuda_aware, "memory": "device"}
    meta |= {"device": driver.describe(), "emulated": driver.emulated, "driver": gpu.driver}
    packing = _packing(MPI, model, driver, cuda_aware, chosen) if comm.rank == 0 else None
    for number, case in enumerate(chosen):
        datatype = case.datatype(MPI)
        named = {"type": datatype, "byte_type": MPI.BYTE, "comm": comm}
        handles = {name: worker.handle(MPI, thing) for name, thing in named.items()}
        handles["layout"] = worker.layout(handles["type"])
        bench = Bench(case, comm, driver, source, target, ~case.gather(bytes_[: case.span]), handles)
        answer = _predicted(model, handles["layout"], case.nbytes, cuda_aware, peer)
        contiguous = isinstance(case, cases.Contiguous)
        rule = predict.rule_method(case.nbytes, cuda_aware=cuda_aware, contiguous=contiguous)
        own = {**meta, "run": case.run, "predicted": answer, "rule": rule}
        if len(methods(case, cuda_aware)) > 1:
            yield from _measure(bench, cuda_aware, options.seconds, own)
        if packing is not None and not contiguous and number % worker_model_packing.EACH == 0:
            yield from packing.measure(case, datatype, options.seconds, own)
        datatype.Free()
    if packing is not None:
        packing.close()
    driver.free(source)
    driver.free(target)


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse_pack()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
