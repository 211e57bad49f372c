"""MPI_Pack and MPI_Unpack of device memory by every possible method, and by the engine's own choice.

The packed bytes lie in pinned memory, in memory of the same device, or in pageable host memory; also, the bytes of
one message lie half in host memory and half in the device's (MPI_BOTTOM). Only cases with a choice are measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tempi import _engine
from tempi.bench import cases
from tempi.measure import _native, sampling, worker
from tempi.measure.cuda_driver import Driver
from tempi.measure.records import Record
from tempi.model import predict

BENCH = "model"
BY_ITSELF = -1  # the engine's number for its own choice
POISON = 0x5A
EACH = 3  # every n-th shape is packed and unpacked
#: Counters that show which method the engine used.
COUNTERS = {name: (f"method_{name}",) for name in predict.METHODS} | {
    "library": ("fallback_rule", "fallback_cuda_aware")
}
#: Methods by the memory of the packed bytes. The library is one only if it is CUDA-aware.
METHODS = {
    "pinned": tuple(name for name in predict.METHODS if name != "device"),
    "device": ("library", "device"),
    "plain": ("library", "staged"),
}  # fmt: skip
CALLS = {"pack": "MPI_Pack", "unpack": "MPI_Unpack"}


def forced(timer: _native.Timer, method: str) -> _native.Timer:
    """The timer with that method forced in tempi."""

    def run(loops: int) -> float:
        _engine.lib.tempi_device_method_force(predict.NUMBERS[method])
        try:
            return timer(loops)
        finally:
            _engine.lib.tempi_device_method_force(BY_ITSELF)

    return run


def chosen(timer: _native.Timer) -> dict[str, int]:
    """How often each method is used in one run: for a round trip, by the send and by the receive."""

    def counted() -> dict[str, int]:
        return {name: sum(map(worker.counter, counters)) for name, counters in COUNTERS.items()}

    before = counted()
    timer(1)
    return {name: n - before[name] for name, n in counted().items() if n > before[name]}


@dataclass(frozen=True, slots=True)
class Job:
    """One call. With `halves`, `type` has absolute addresses of host memory and of device memory."""

    case: cases.Case
    op: str
    packed: str
    type: int
    count: int
    nbytes: int
    halves: bool

    @property
    def name(self) -> str:
        memory = "host and device memory" if self.halves else "device memory"
        return f"{CALLS[self.op]} of {memory}, packed bytes in {self.packed} memory"


@dataclass(slots=True)
class Packing:
    """Buffers of rank 0."""

    mpi: Any
    model: predict.Model
    driver: Driver
    cuda_aware: bool
    span: int
    size: int
    host: worker.Bytes = field(init=False)
    kept: worker.Bytes = field(init=False)
    plain: worker.Bytes = field(init=False)
    memory: int = field(init=False)
    places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.host, self.kept, self.plain = (worker.arena(n) for n in (self.span, self.span, self.size))
        self.memory = self.driver.allocate(self.span)
        pinned, device = self.driver.pinned(self.size), self.driver.allocate(self.size)
        self.places = {"pinned": pinned, "device": device, "plain": self.plain.ctypes.data}

    def close(self) -> None:
        self.driver.free_pinned(self.places["pinned"])
        self.driver.free(self.places["device"])
        self.driver.free(self.memory)

    # -- one call -----------------------------------------------------------------------------------------------

    def _methods(self, packed: str) -> list[str]:
        return [name for name in METHODS[packed] if self.cuda_aware or name != "library"]

    @contextmanager
    def _jobs(self, case: cases.Case, datatype: Any) -> Iterator[list[Job]]:
        """The calls that have a choice."""
        addresses = [self.host.ctypes.data, self.memory]
        apart = datatype.Create_contiguous(case.count)
        both = self.mpi.Datatype.Create_struct([1, 1], addresses, [apart, apart]).Commit()
        handles = [worker.handle(self.mpi, one) for one in (datatype, both)]
        made = []
        for packed in METHODS:
            if len(self._methods(packed)) > 1:
                made += [Job(case, op, packed, handles[0], case.count, case.nbytes, False) for op in CALLS]
        made += [Job(case, op, "pinned", handles[1], 1, 2 * case.nbytes, True) for op in CALLS]
        try:
            yield made
        finally:
            apart.Free()
            both.Free()

    def _timers(self, job: Job) -> dict[str, _native.Timer]:
        call = CALLS[job.op]
        theirs, own = worker.library_function(f"P{call}"), worker.tempi_function(call)

        def made(function: int | None) -> _native.Timer:
            transfer = _native.Transfer(
                function=function, type=job.type, comm=worker.handle(self.mpi, self.mpi.COMM_SELF),
                memory=0 if job.halves else self.memory, packed=self.places[job.packed], bytes=job.nbytes,
                count=job.count,
            )  # fmt: skip
            return _native.timer(_native.load(), f"bench_mpi_{job.op}", transfer)

        ways = [name for name in self._methods(job.packed) if not (job.halves and name == "library")]
        found = {name: made(theirs) if name == "library" else forced(made(own), name) for name in ways}
        return found | {"model": made(own)}

    # -- verification -------------------------------------------------------------------------------------------

    def _write(self, place: str, data: worker.Bytes) -> None:
        if place == "plain":
            self.plain[: data.size] = data
        else:
            self.driver.write(self.places[place], data)

    def _read(self, place: str, size: int) -> worker.Bytes:
        return self.plain[:size].copy() if place == "plain" else self.driver.read(self.places[place], size)

    def _wrong(self, job: Job, timer: _native.Timer) -> str | None:
        span = job.case.span
        source = self.kept[:span]
        packed = np.concatenate([job.case.gather(source)] * (2 if job.halves else 1))
        packs = job.op == "pack"
        start = source if packs else np.full(span, POISON, np.uint8)
        self.host[:span] = start
        self.driver.write(self.memory, start)
        self._write(job.packed, np.zeros_like(packed) if packs else packed)
        timer(1)
        if packs:
            wrong = np.flatnonzero(self._read(job.packed, job.nbytes) != packed).size
        else:
            there = [self.driver.read(self.memory, span), *([self.host[:span]] if job.halves else [])]
            expected = np.full(span, POISON, np.uint8)
            job.case.scatter(expected, job.case.gather(source))
            wrong = sum(np.flatnonzero(each != expected).size for each in there)
        return f"{wrong} wrong bytes" if wrong else None

    # -- records ------------------------------------------------------------------------------------------------

    def _meta(self, job: Job, common: dict[str, Any]) -> dict[str, Any]:
        """For halves only the device's part is predicted, so there is no total to compare."""
        rule = {"device": "device", "plain": "staged"}.get(
            job.packed, predict.rule_method(job.nbytes, cuda_aware=False)
        )
        prediction = None
        if not job.halves:
            layout = _engine.ffi.cast("tempi_layout const *", worker.layout(job.type))
            prediction = self.model.predict_device(
                layout, job.nbytes, job.op, packed=job.packed, cuda_aware=self.cuda_aware
            )
        return {**common, "predicted": prediction.seconds if prediction else None, "rule": rule}

    def _measure(self, job: Job, budget: float, common: dict[str, Any]) -> Iterator[Record]:
        meta = self._meta(job, common)

        def record(name: str, seconds: list[float], **more: Any) -> Record:
            return Record(BENCH, job.case.name, job.name, name, job.nbytes, tuple(seconds), {**meta, **more})

        right = {}
        for name, timer in self._timers(job).items():
            if wrong := self._wrong(job, timer):
                yield record(name, [], refused=wrong)
            else:
                right[name] = timer
        taken = chosen(right["model"]) if "model" in right else {}
        for name, seconds in zip(right, sampling.sample(list(right.values()), budget), strict=True):
            yield record(name, seconds, checked=True, **({"chosen": taken} if name == "model" else {}))

    def measure(self, case: cases.Case, datatype: Any, budget: float, common: dict[str, Any]) -> Iterator[Record]:
        """All records of that shape."""
        with self._jobs(case, datatype) as jobs:
            for job in jobs:
                yield from self._measure(job, budget, common)
