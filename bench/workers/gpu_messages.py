"""Round trips between the device memories of two ranks: ``mpirun -n 2 python -m tempi.bench.workers.gpu_messages``.

Subjects: tempi with the method set in the environment (TEMPI_METHOD); the library if it is CUDA-aware; and
hand: the driver's pitched copy to pinned memory, a contiguous message, and a copy back. Seconds are one way.
On the emulated device every message is checked and none is timed.

With --alone rank 0 has the card for itself: rank 1 sends and receives the packed bytes in host memory, by the library.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tempi.bench import cases
from tempi.bench.cases import KIB, MIB
from tempi.bench.gpu import cases as gpu_cases
from tempi.bench.gpu import memory as gpu_memory
from tempi.bench.gpu.memory import POISON, Memory
from tempi.bench.options import MessageOptions, parse_messages
from tempi.measure import _native, cuda_driver, device_work, sampling, worker
from tempi.measure.cuda_driver import Driver
from tempi.measure.records import Record

TAG = 11
STATUS_ROOM = 256  # larger than the MPI_Status of any ABI

Shape = tuple[cases.Case, gpu_cases.Case]
Functions = tuple[int | None, int | None]


def shapes(quick: bool, emulated: bool) -> list[Shape]:
    """Pairs of a datatype and the GPU case with the same bytes."""
    sizes = (KIB, 64 * KIB) if emulated else (64 * KIB, MIB) if quick else (KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
    edge = 18 if emulated else 258
    found: list[Shape] = [
        (cases.Vector(size, run, 2 * run), gpu_cases.Vector(size, run, 2 * run)) for size in sizes for run in (8, 256)
    ]
    found += [(cases.Face(edge, axis), gpu_cases.Face(edge, axis)) for axis in range(3)]
    return [*found, (cases.Indexed(sizes[1]), gpu_cases.Indexed(sizes[1]))]


class Ends(abc.ABC):
    """This rank's buffers of the messages. The two ranks' bytes differ everywhere."""

    def __init__(self, comm: Any, driver: Driver) -> None:
        self.comm, self.driver = comm, driver

    @abc.abstractmethod
    def receive(self, shape: gpu_cases.Case, timer: _native.Timer) -> Any:
        """The target after one round trip into poisoned memory."""

    @abc.abstractmethod
    def expected(self, shape: gpu_cases.Case) -> Any:
        """The expected content of the target after the peer's message."""

    @abc.abstractmethod
    def timers(self, shape: Shape, handles: dict[str, int], method: str, cuda_aware: bool) -> dict[str, _native.Timer]:
        """This rank's half of each subject's round trips."""

    def wrong(self, shape: gpu_cases.Case, timer: _native.Timer) -> str | None:
        """The error in the bytes received on any rank, or None."""
        differing = np.flatnonzero(self.receive(shape, timer) != self.expected(shape))
        text = f"rank {self.comm.rank} received {differing.size} wrong bytes" if differing.size else None
        return next((answer for answer in self.comm.allgather(text) if answer), None)

    def pingpong(
        self, shape: Shape, handles: dict[str, int], own: Functions, ends: tuple[int, int], count: int
    ) -> _native.Timer:
        message = _native.Message(
            send=own[0], receive=own[1], **handles, layout=None, source=ends[0], target=ends[1], send_packed=None,
            receive_packed=None, bytes=shape[0].nbytes, count=count, peer=1 - self.comm.rank, tag=TAG,
        )  # fmt: skip
        side = "first" if self.comm.rank == 0 else "second"
        return _native.timer(_native.load(), f"bench_pingpong_{side}", message)


def _library() -> Functions:
    return worker.library_function("PMPI_Send"), worker.library_function("PMPI_Recv")


class OnCard(Ends):
    """In the memory of the card."""

    def __init__(self, comm: Any, driver: Driver, span: int, size: int) -> None:
        super().__init__(comm, driver)
        self.source, self.target = Memory(driver, span, 1), Memory(driver, span, 1)
        if comm.rank == 1:
            np.invert(self.source.pattern, out=self.source.pattern)
            self.source.restore(self.source.strided, span)
        self.pinned = driver.pinned(size), driver.pinned(size)
        self.status = np.zeros(STATUS_ROOM, np.uint8)

    def receive(self, shape: gpu_cases.Case, timer: _native.Timer) -> Any:
        self.driver.fill(self.target.strided, POISON, shape.span)
        self.comm.Barrier()
        timer(1)
        return self.driver.read(self.target.strided, shape.span)

    def expected(self, shape: gpu_cases.Case) -> Any:
        places = shape.places(np.arange(shape.nbytes))
        memory = np.full(shape.span, POISON, np.uint8)
        memory[places] = ~self.source.at(places)
        return memory

    def timers(self, shape: Shape, handles: dict[str, int], method: str, cuda_aware: bool) -> dict[str, _native.Timer]:
        ends, count = (self.source.strided, self.target.strided), shape[0].count
        own = (worker.tempi_function("MPI_Send"), worker.tempi_function("MPI_Recv"))
        found = {method: self.pingpong(shape, handles, own, ends, count)}
        hand = _hand(self, shape[1], handles)
        if hand is not None:
            found["hand"] = hand
        if cuda_aware:
            found["library"] = self.pingpong(shape, handles, _library(), ends, count)
        return found


class OnHost(Ends):
    """Packed, in host memory: of rank 1, so that rank 0 has the card for itself."""

    def __init__(self, comm: Any, driver: Driver, size: int) -> None:
        super().__init__(comm, driver)
        self.pattern = worker.arena(gpu_memory.PERIOD)
        self.source, self.target = np.zeros(size, np.uint8), np.zeros(size, np.uint8)

    def receive(self, shape: gpu_cases.Case, timer: _native.Timer) -> Any:
        self.source[: shape.nbytes] = ~self.expected(shape)
        self.target[:] = POISON
        self.comm.Barrier()
        timer(1)
        return self.target[: shape.nbytes]

    def expected(self, shape: gpu_cases.Case) -> Any:
        return self.pattern[shape.places(np.arange(shape.nbytes)) % gpu_memory.PERIOD]

    def timers(self, shape: Shape, handles: dict[str, int], method: str, cuda_aware: bool) -> dict[str, _native.Timer]:
        ends = (self.source.ctypes.data, self.target.ctypes.data)
        bytes_ = {**handles, "type": handles["byte_type"]}
        made = self.pingpong(shape, bytes_, _library(), ends, shape[1].nbytes)
        names = [method, *["hand"] * (shape[1].pitched() is not None), *["library"] * cuda_aware]
        return dict.fromkeys(names, made)


def _hand(ends: OnCard, shape: gpu_cases.Case, handles: dict[str, int]) -> _native.Timer | None:
    """None for a shape that the driver's copies do not support."""
    pitched = shape.pitched()
    if pitched is None:
        return None
    driver, (outgoing, incoming) = ends.driver, ends.pinned
    pack = cuda_driver.pitched_copy(ends.source.strided, pitched, outgoing, pinned=True)
    unpack = cuda_driver.pitched_copy(ends.target.strided, pitched, incoming, unpack=True, pinned=True)
    common = (shape.nbytes, handles["byte_type"], 1 - ends.comm.rank, TAG, handles["comm"])
    wait = cuda_driver.wait_call(driver)
    send = worker.library_function("PMPI_Send"), (outgoing, *common)
    receive = worker.library_function("PMPI_Recv"), (incoming, *common, ends.status.ctypes.data)
    there = [cuda_driver.copy_call(driver, pack), wait, send]
    back = [receive, cuda_driver.copy_call(driver, unpack), wait]
    calls = [*there, *back] if ends.comm.rank == 0 else [*back, *there]
    timer = _native.timer(_native.load(), "bench_calls_in_turn", _native.sequence(*calls))

    def run(loops: int, _owner: Any = (pack, unpack)) -> float:
        return timer(loops)

    return run


Taken = tuple[str, Sequence[float], str | None]


def _measure(ends: Ends, shape: Shape, timers: dict[str, _native.Timer], budget: float) -> Iterator[Taken]:
    """Subject, one-way seconds, and the reason if it was refused."""
    right = {}
    for name, timer in timers.items():
        wrong = ends.wrong(shape[1], timer)
        if wrong or ends.driver.emulated:
            yield name, (), wrong
        else:
            right[name] = timer
    taken = sampling.sample(list(right.values()), budget, ends.comm.bcast)
    for name, seconds in zip(right, taken, strict=True):
        yield name, [0.5 * value for value in seconds], None


def _ends(comm: Any, driver: Driver, chosen: list[Shape], alone: bool) -> Ends:
    span, size = max(shape.span for _, shape in chosen), max(shape.nbytes for _, shape in chosen)
    return OnHost(comm, driver, size) if alone and comm.rank == 1 else OnCard(comm, driver, span, size)


def _handles(mpi: Any, comm: Any, datatype: Any) -> dict[str, int]:
    named = {"type": datatype, "byte_type": mpi.BYTE, "comm": comm}
    return {name: worker.handle(mpi, thing) for name, thing in named.items()}


def run(options: MessageOptions) -> Iterator[Record]:
    """All records, case by case, on both ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.size != 2:
        raise worker.WorkerError(f"the messages need 2 ranks, not {comm.size}")
    if not worker.active():
        raise worker.WorkerError("tempi does not act in this process: `tempi doctor`")
    driver, method, cuda_aware = Driver(comm.rank), options.method, device_work.library_cuda_aware()
    chosen = shapes(options.quick, driver.small)
    meta: dict[str, Any] = {**worker.describe(MPI), "part": "messages", "method": method, "aware": cuda_aware}
    meta |= {"device": driver.describe(), "emulated": driver.emulated, "alone": options.alone}
    if method == "device" and not cuda_aware:
        why = "the MPI library is not CUDA-aware"
        yield Record("gpu", "messages", "one way", method, 0, (), {**meta, "left_out": why})
        return
    ends = _ends(comm, driver, chosen, options.alone)
    for shape in chosen:
        datatype = shape[0].datatype(MPI)
        timers = ends.timers(shape, _handles(MPI, comm, datatype), method, cuda_aware)
        for subject, seconds, refused in _measure(ends, shape, timers, options.seconds):
            more = {"refused": refused} if refused else {"checked": True}
            name = subject if subject == method else f"{subject} beside {method}"
            size = shape[1].nbytes
            yield Record("gpu", shape[1].name, "one way", name, size, tuple(seconds), {**meta, **more})
        datatype.Free()


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse_messages()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
