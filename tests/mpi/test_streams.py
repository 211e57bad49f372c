"""Messages of device memory come after the work of a stream: the default one, or the communicator's own."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
import oracle
import tempi
from devices import DEVICES, EMULATED, call, driver, running_late
from examples import strided
from world import MPI, Memory, committed, partners

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

N = 60
TREE = strided(N)
BLOCKING, NON_BLOCKING = 0, 1
UNORDERED = os.environ.get("TEMPI_STREAM_ORDER") == "none"


class Stream:
    """A stream; by default one that does not synchronize with the legacy default stream."""

    def __init__(self, device: int = 0, flags: int = NON_BLOCKING) -> None:
        made = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(made), flags, on=device)
        assert made.value is not None
        self.ptr, self.device = made.value, device

    def set_bytes(self, memory: Memory, value: int) -> None:
        """Enqueues a fill of all of it."""
        assert memory._device is not None
        where, size = ctypes.c_uint64(memory._device.address), ctypes.c_size_t(memory._device.size)
        call("cuMemsetD8Async", where, value, size, ctypes.c_void_p(self.ptr), on=self.device)

    def finish(self) -> None:
        call("cuStreamSynchronize", ctypes.c_void_p(self.ptr), on=self.device)

    def capture(self) -> None:
        call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.ptr), 0, on=self.device)

    def end_capture(self) -> int:
        """The number of the graph's nodes."""
        graph, n = ctypes.c_void_p(), ctypes.c_size_t()
        call("cuStreamEndCapture", ctypes.c_void_p(self.ptr), ctypes.byref(graph), on=self.device)
        call("cuGraphGetNodes", graph, None, ctypes.byref(n), on=self.device)
        call("cuGraphDestroy", graph, on=self.device)
        return n.value

    def close(self) -> None:
        self.finish()
        call("cuStreamDestroy_v2", ctypes.c_void_p(self.ptr), on=self.device)


@pytest.fixture
def late() -> Iterator[None]:
    with running_late():
        yield


@pytest.fixture
def own(comm: Any) -> Iterator[Any]:
    made = comm.Dup()
    yield made
    made.Free()


@pytest.fixture(params=[0, 1], ids=["device 0", "device 1"])
def stream(request: pytest.FixtureRequest) -> Iterator[Stream]:
    made = Stream(request.param)
    yield made
    made.close()


def on(stream: Stream) -> Memory:
    return Memory(TREE, 1, where=f"device:{stream.device}")


def sent(comm: Any, datatype: Any, how: str, memory: Memory) -> Any:
    """The bytes that arrive in host memory."""
    to, source = partners(comm)
    into = np.zeros(8 * N, np.uint8)
    if how == "Pack":
        at = np.zeros(1, "i")
        calls.call("MPI_Pack", memory, 1, datatype, into, into.size, at, comm)
        return into
    receive = comm.Irecv([into, MPI.PACKED], source, 1)
    if how == "Send_init":
        request = comm.Send_init(memory.message(datatype), to, 1)
        request.Start()
    else:
        request = getattr(comm, how)(memory.message(datatype), to, 1) or MPI.Request()
    MPI.Request.Waitall([receive, request])
    return into


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("how", ["Send", "Isend", "Bsend", "Send_init", "Pack"])
def test_packs_come_after_the_communicators_stream(own: Any, stream: Stream, buffered: None, how: str) -> None:
    memory = on(stream)
    with committed(TREE) as datatype:
        stream.set_bytes(memory, 0x11)
        assert not np.any(sent(own, datatype, how, memory) == 0x11), "no call waits for that stream yet"
        tempi.set_stream(own, stream)
        assert np.all(sent(own, datatype, how, memory) == 0x11)
        stream.set_bytes(memory, 0x22)
        tempi.set_stream(own, None)
        assert np.all(sent(own, datatype, how, memory) == 0x11), "it is the default one again"


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("how", ["Recv", "Irecv", "Recv_init", "Unpack"])
def test_unpacks_come_after_the_communicators_stream(own: Any, stream: Stream, how: str) -> None:
    to, source = partners(own)
    out = np.random.default_rng(3).integers(0, 256, 8 * N, np.uint8)
    tempi.set_stream(own, stream.ptr)
    with committed(TREE) as datatype:
        into = on(stream)
        before = into.copy()
        before[:] = 0x33
        send = own.Isend([out, MPI.PACKED], to, 1)
        stream.set_bytes(into, 0x33)
        if how == "Unpack":
            calls.call("MPI_Unpack", out, out.size, np.zeros(1, "i"), into, 1, datatype, own)
            own.Recv([np.zeros(8 * N, np.uint8), MPI.PACKED], source, 1)
        elif how == "Recv":
            own.Recv(into.message(datatype), source, 1)
        else:
            request = getattr(own, how)(into.message(datatype), source, 1)
            if how == "Recv_init":
                request.Start()
            request.Wait()
        send.Wait()
    stream.finish()
    into.check(out, before)


@pytest.mark.usefixtures("late")
def test_several_communicators_in_one_waitall(comm: Any) -> None:
    """One launch that waits for both streams."""
    to, source = partners(comm)
    streams, comms = [Stream(), Stream()], [comm.Dup(), comm.Dup()]
    out = [Memory(TREE, 1, where="device") for _ in range(2)]
    into = [np.zeros(8 * N, np.uint8) for _ in range(2)]
    with committed(TREE) as datatype:
        receives = [c.Irecv([b, MPI.PACKED], source, 1) for c, b in zip(comms, into, strict=True)]
        for i in range(2):
            tempi.set_stream(comms[i], streams[i])
            streams[i].set_bytes(out[i], 0x40 + i)
        sends = [c.Isend(m.message(datatype), to, 1) for c, m in zip(comms, out, strict=True)]
        MPI.Request.Waitall([*receives, *sends])
    assert [set(b) for b in into] == [{0x40}, {0x41}]
    for made in comms:
        made.Free()
    for one in streams:
        one.close()


@pytest.mark.usefixtures("late")
def test_a_message_to_oneself_comes_after_it_too(stream: Stream) -> None:
    own = MPI.COMM_SELF.Dup()
    tempi.set_stream(own, stream)
    out, into = on(stream), on(stream)
    with committed(TREE) as datatype:
        stream.set_bytes(out, 0x55)
        own.Sendrecv(out.message(datatype), 0, 1, into.message(datatype), 0, 1)
    into.check(np.full(8 * N, 0x55, np.uint8))
    own.Free()


@pytest.mark.usefixtures("late")
def test_a_duplicate_does_not_inherit_it(own: Any) -> None:
    stream = Stream()
    tempi.set_stream(own, stream)
    other = own.Dup()
    memory = Memory(TREE, 1, where="device")
    with committed(TREE) as datatype:
        stream.set_bytes(memory, 0x11)
        assert not np.any(sent(other, datatype, "Send_init", memory) == 0x11)
    other.Free()
    stream.close()


def test_the_default_stream_is_waited_for(comm: Any) -> None:
    """A program that launches and sends without synchronising is right."""
    to, source = partners(comm)
    memory, tree = Memory(TREE, 1, where="device"), oracle.Contiguous(N, oracle.Named("DOUBLE"))
    into = Memory(tree, 1, where="host")
    assert memory._device is not None
    with committed(TREE) as datatype, committed(tree) as plain:
        receive = comm.Irecv(into.message(plain), source, 1)
        where, size = ctypes.c_uint64(memory._device.address), ctypes.c_size_t(memory._device.size)
        call("cuMemsetD8Async", where, 0x77, size, None, on=0)
        comm.Send(memory.message(datatype), to, 1)
        receive.Wait()
    if not UNORDERED:
        into.check(np.full(8 * N, 0x77, np.uint8))


@pytest.mark.usefixtures("late")
@pytest.mark.skipif(not UNORDERED, reason="TEMPI_STREAM_ORDER is not none")
def test_without_an_order_no_stream_is_waited_for(own: Any) -> None:
    memory = Memory(TREE, 1, where="device")
    with committed(TREE) as datatype:
        assert memory._device is not None
        where, size = ctypes.c_uint64(memory._device.address), ctypes.c_size_t(memory._device.size)
        call("cuMemsetD8Async", where, 0x77, size, None, on=0)
        assert not np.any(sent(own, datatype, "Isend", memory) == 0x77)
    call("cuCtxSynchronize", on=0)


# -- streams that the program did not name ----------------------------------------------------------------------


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("how", ["Send", "Isend", "Bsend", "Send_init", "Pack"])
def test_work_in_blocking_streams_delays_no_message(own: Any, buffered: None, how: str) -> None:
    """The interior kernel, while the boundary is sent."""
    stream, memory = Stream(flags=BLOCKING), Memory(TREE, 1, where="device")
    with committed(TREE) as datatype:
        stream.set_bytes(memory, 0x11)
        assert not np.any(sent(own, datatype, how, memory) == 0x11)
    stream.close()


def test_a_kernel_may_wait_for_a_message(own: Any) -> None:
    """In a blocking stream; a callback stands for it. It ends once the message has arrived."""
    stream, arrived, over = Stream(flags=BLOCKING), threading.Event(), threading.Event()
    memory = Memory(TREE, 1, where="device")

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def waits(_: object) -> None:
        if arrived.wait(timeout=20):
            over.set()

    driver().tempi_emulator_streams(b"immediate")
    call("cuLaunchHostFunc", ctypes.c_void_p(stream.ptr), waits, None, on=0)
    with committed(TREE) as datatype:
        sent(own, datatype, "Isend", memory)
    arrived.set()
    stream.close()
    driver().tempi_emulator_streams(b"random")
    assert over.is_set()


@pytest.mark.parametrize("named", [False, True], ids=["another stream", "the messages' stream"])
@pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("how", ["Send", "Isend", "Send_init", "Pack"])
def test_messages_while_a_graph_is_captured(own: Any, how: str, flags: int, named: bool) -> None:
    """They neither end the capture nor become part of the graph."""
    stream, memory, other = Stream(flags=flags), Memory(TREE, 1, where="device"), Memory(TREE, 1, where="device")
    memory.fill(own.rank)
    if named:
        tempi.set_stream(own, stream)
    with committed(TREE) as datatype:
        stream.capture()
        stream.set_bytes(other, 0x11)
        came = sent(own, datatype, how, memory)
        assert stream.end_capture() == 1
    source = own.rank if how == "Pack" else partners(own)[1]
    assert np.array_equal(came, Memory(TREE, 1).fill(source).packed)
    tempi.set_stream(own, None)
    stream.close()


@pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("how", ["Recv", "Irecv", "Bcast", "Alltoallw"])
def test_receives_and_collectives_while_a_graph_is_captured(own: Any, how: str, flags: int) -> None:
    stream, other = Stream(flags=flags), Memory(TREE, 1, where="device")
    out, into = (Memory(TREE, own.size if how == "Alltoallw" else 1, where="device") for _ in range(2))
    to, source = partners(own)
    with committed(TREE) as datatype:

        def exchange() -> None:
            if how == "Bcast":
                own.Bcast((out if own.rank == 0 else into).message(datatype), 0)
            elif how == "Alltoallw":
                n, places = own.size, [k * datatype.extent for k in range(own.size)]
                sides = [[m.message(datatype)[0], [1] * n, places, [datatype] * n] for m in (out, into)]
                own.Alltoallw(*sides)
            elif how == "Recv":
                own.Sendrecv(out.message(datatype), to, 1, into.message(datatype), source, 1)
            else:
                MPI.Request.Waitall(
                    [own.Irecv(into.message(datatype), source, 1), own.Isend(out.message(datatype), to, 1)]
                )

        exchange()  # loads what may not be loaded during a capture
        out.fill(own.rank)
        stream.capture()
        stream.set_bytes(other, 0x11)
        exchange()
        assert stream.end_capture() == 1
    if how == "Bcast" and own.rank > 0:
        into.check(Memory(TREE, 1).fill(0).packed)
    elif how in ("Recv", "Irecv"):
        into.check(Memory(TREE, 1).fill(source).packed)
    stream.close()


def test_a_pack_in_the_legacy_order_leaves_a_capture_alone(own: Any) -> None:
    """The legacy stream is asked about only, which ends no capture; any other use of it would."""
    DeviceArray = pytest.importorskip("tempi.emulator.array").DeviceArray
    array = DeviceArray.from_numpy(np.arange(64, dtype=np.uint8))
    out, other = DeviceArray.from_numpy(np.zeros(32, np.uint8)), Memory(TREE, 1, where="device")
    tempi.pack(array[::2], out)  # loads the kernels, which may not be done during a capture
    stream = Stream(flags=BLOCKING)
    stream.capture()
    stream.set_bytes(other, 0x11)
    tempi.pack(array[::2], out)
    assert stream.end_capture() == 1
    call("cuCtxSynchronize", on=0)
    assert np.array_equal(out.to_numpy(), np.arange(0, 64, 2))
    stream.close()


class Named:
    """As the CUDA stream protocol has it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.number


def test_streams_of_other_packages(own: Any) -> None:
    class Torch:
        cuda_stream = 2

    for stream in (Named(1), Torch(), 2, None):
        tempi.set_stream(own, stream)
    with pytest.raises((TypeError, ValueError)):
        tempi.set_stream(own, "none")
