"""Device arrays, and arrays of other libraries, as messages of the drop-in: on the emulated device, or on a GPU."""

from __future__ import annotations

import gc
import os
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tempi
from comms import COMMS, FORMS, collect, halves, make
from examples import examples
from tempi import MPI

if os.environ.get("MPITEST_MEMORY") != "device":
    pytest.skip("host memory in this run", allow_module_level=True)

from foreign import HostPack, Interface, Pack, Stream, on_device, overwrite, patient
from tempi.emulator.array import DeviceArray

SENDS = ["Send", "Ssend", "Bsend", "Rsend", "Isend", "Issend", "Ibsend", "Irsend"]
SEND_INITS = ["Send_init", "Ssend_init", "Bsend_init", "Rsend_init"]
KINDS = ["device", "managed", "pinned"]
#: An array of some other library, of the same elements as a DeviceArray.
OTHERS: dict[str, Any] = {
    "DeviceArray": lambda array: array,
    "interface 3": lambda array: Interface(array, stream=1),
    "interface 3, no stream": lambda array: Interface(array, stream=None),
    "interface 2": lambda array: Interface(array, version=2),
    "DLPack 0": lambda array: Pack(array, old=True),
    "DLPack 1": Pack,
}


@pytest.fixture
def ours(comm: Any) -> MPI.Intracomm:
    return MPI.Intracomm(comm)


@pytest.fixture(autouse=True)
def no_failures() -> Any:
    before = tempi.stats()["device_errors"]
    yield
    assert tempi.stats()["device_errors"] == before


def cube(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 40, (6, 7, 8))


def face(array: Any) -> Any:
    return array[::-1, 1:6:2, 3]


def neighbours(comm: MPI.Comm) -> tuple[int, int]:
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def wait(request: Any) -> None:
    if request is not None:
        request.Wait()


# ---- calls and communicators --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COMMS)
def test_device_views_go_through_every_kind_of_communicator(ours: MPI.Intracomm, kind: str) -> None:
    made = make(kind, ours)
    dest, source = neighbours(made)
    got = on_device(np.zeros((12, 5), np.int64))
    before = tempi.stats().counters
    request = made.Irecv(got[::2, 1:4], source)
    made.Send(face(on_device(cube(made.rank))), dest)
    request.Wait()
    how = {"self_moves": 1} if made.size == 1 else {"device_packs": 1, "device_unpacks": 1}
    assert {name: tempi.stats()[name] - before[name] for name in how} == how
    np.testing.assert_array_equal(got.to_numpy()[::2, 1:4], face(cube(source)))
    assert not got.to_numpy()[1::2].any()
    made.Free()


def test_device_views_go_through_an_intercommunicator(ours: MPI.Intracomm) -> None:
    if ours.size < 2:
        pytest.skip("needs 2 ranks")
    inter = halves(ours)
    got = on_device(np.zeros((6, 3, 2), np.int64))
    inter.Sendrecv(face(on_device(cube(ours.rank))), inter.rank, 0, got[..., 1], inter.rank)
    np.testing.assert_array_equal(got.to_numpy()[..., 1], face(cube(ours.rank ^ 1)))
    inter.Free()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", OTHERS)
def test_every_protocol_and_memory_goes_in_and_out(ours: MPI.Intracomm, other: str, kind: str) -> None:
    dest, source = neighbours(ours)
    got = on_device(np.zeros((6, 3, 2), np.int64), kind)
    request = ours.Irecv(OTHERS[other](got[..., 1]), source)
    ours.Send(OTHERS[other](face(on_device(cube(ours.rank), kind))), dest)
    request.Wait()
    np.testing.assert_array_equal(got.to_numpy()[..., 1], face(cube(source)))
    assert not got.to_numpy()[..., 0].any()


def test_strided_host_memory_of_other_libraries_goes_in_and_out(ours: MPI.Intracomm) -> None:
    dest, source = neighbours(ours)
    got = np.zeros((6, 3, 2), np.int64)
    ours.Sendrecv(HostPack(cube(ours.rank)[:, 1:6:2, 3]), dest, 0, HostPack(got[..., 1]), source)
    np.testing.assert_array_equal(got[..., 1], cube(source)[:, 1:6:2, 3])
    assert not got[..., 0].any()


@pytest.mark.parametrize("name", SENDS)
def test_every_send_takes_a_device_view(ours: MPI.Intracomm, name: str) -> None:
    dest, source = neighbours(ours)
    space = MPI.Alloc_mem(1 << 16)
    MPI.Attach_buffer(space)
    got = on_device(np.zeros((6, 3, 2), np.int64))
    request = ours.Irecv(got[..., 1], source)
    ours.Barrier()  # ready sends need their receive
    wait(getattr(ours, name)(face(on_device(cube(ours.rank))), dest))
    request.Wait()
    MPI.Detach_buffer()
    MPI.Free_mem(space)
    np.testing.assert_array_equal(got.to_numpy()[..., 1], face(cube(source)))


@pytest.mark.parametrize("name", SEND_INITS)
def test_persistent_requests_take_device_views(ours: MPI.Intracomm, name: str) -> None:
    dest, source = neighbours(ours)
    space = MPI.Alloc_mem(1 << 16)
    MPI.Attach_buffer(space)
    array, got = on_device(cube(ours.rank)), on_device(np.zeros((6, 3, 2), np.int64))
    receive = ours.Recv_init(got[..., 1], source)
    send = getattr(ours, name)(face(array), dest)
    for step in range(2):
        array.set(cube(ours.rank) + step)
        receive.Start()
        ours.Barrier()
        send.Start()
        MPI.Request.Waitall([send, receive])
        np.testing.assert_array_equal(got.to_numpy()[..., 1], face(cube(source)) + step)
    send.Free()
    receive.Free()
    MPI.Detach_buffer()
    MPI.Free_mem(space)


def test_matched_and_replacing_exchanges_take_device_views(ours: MPI.Intracomm) -> None:
    dest, source = neighbours(ours)
    array = on_device(cube(ours.rank))
    ours.Sendrecv_replace(face(array), dest, 0, source)
    np.testing.assert_array_equal(face(array).to_numpy(), face(cube(source)))
    for how in ("Recv", "Irecv"):
        request = ours.Isend(face(array), ours.rank)
        got = on_device(np.zeros((6, 3, 2), np.int64))
        wait(getattr(ours.Mprobe(ours.rank), how)(got[..., 0]))
        request.Wait()
        np.testing.assert_array_equal(got.to_numpy()[..., 0], face(cube(source)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["Bcast", "Ibcast"])
def test_broadcasts_take_views(ours: MPI.Intracomm, name: str, kind: str) -> None:
    if kind == "device" and "bounced" not in tempi.stats().counters:
        pytest.skip("collectives of device memory are the library's, which cannot reach it")
    root = ours.size - 1
    array = on_device(cube(7) if ours.rank == root else np.zeros((6, 7, 8), np.int64), kind)
    wait(getattr(ours, name)(face(array), root))
    np.testing.assert_array_equal(face(array).to_numpy(), face(cube(7)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", OTHERS)
def test_collectives_with_counts_receive_into_views(ours: MPI.Intracomm, other: str, kind: str) -> None:
    if kind == "device" and "bounced" not in tempi.stats().counters:
        pytest.skip("collectives of device memory are the library's, which cannot reach it")
    own, got = on_device(np.full((2, 6), ours.rank + 1), kind), on_device(np.zeros((3 * ours.size, 6), int), kind)
    ours.Allgatherv(OTHERS[other](own[:, ::2]), [OTHERS[other](got[:, ::2]), (2 * 3, 3 * 3)])
    want = np.zeros((ours.size, 3, 6), int)
    want[:, :2, ::2] = np.arange(1, ours.size + 1).reshape(-1, 1, 1)
    np.testing.assert_array_equal(got.to_numpy(), want.reshape(-1, 6))
    with pytest.raises(tempi.ArrayError, match="multiples of 3 elements"):
        ours.Allgatherv(own, [OTHERS[other](got[:, ::2]), 4])


def parts(rank: int, n: int) -> Any:
    """Two rows for each of n ranks."""
    return np.arange(2 * n * 12, dtype=np.int64).reshape(2 * n, 3, 4) + 1000 * rank


class Cut:
    """Views of device memory: `sent`, and one into which those parts of it come that a test expects."""

    def __init__(self, sent: Any, n: int, other: str) -> None:
        self.whole = on_device(np.full((2 * n, 3, 4), -1, np.int64))
        self.sent, self.received = (OTHERS[other](array[:, :, ::2]) for array in (on_device(sent), self.whole))

    def check(self, *expected: Any) -> None:
        wanted = np.full(self.whole.shape, -1, np.int64)
        for i, part in enumerate(expected):
            wanted[2 * i : 2 * i + 2, :, ::2] = part[:, :, ::2]
        np.testing.assert_array_equal(self.whole.to_numpy(), wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", OTHERS)
def test_collectives_cut_views_along_the_first_axis(ours: MPI.Intracomm, other: str, form: str) -> None:
    if "bounced" not in tempi.stats().counters:
        pytest.skip("collectives of device memory are the library's, which cannot reach it")
    size, rank, root = ours.size, ours.rank, ours.size - 1
    e = Cut(parts(rank, size), size, other)
    collect(ours, form, "Alltoall", e.sent, e.received)
    e.check(*(parts(source, size)[2 * rank :][:2] for source in range(size)))
    e = Cut(parts(rank, 1), size, other)
    collect(ours, form, "Allgather", e.sent, e.received)
    e.check(*(parts(source, 1) for source in range(size)))
    e = Cut(parts(rank, 1), size, other)
    collect(ours, form, "Gather", e.sent, e.received if rank == root else None, root)
    e.check(*(parts(source, 1) for source in range(size) if rank == root))
    e = Cut(parts(7, size), 1, other)
    collect(ours, form, "Scatter", e.sent if rank == root else None, e.received, root)
    e.check(parts(7, size)[2 * rank :][:2])


@pytest.mark.parametrize("form", FORMS)
def test_neighbours_exchange_views(ours: MPI.Intracomm, form: str) -> None:
    if "bounced" not in tempi.stats().counters:
        pytest.skip("collectives of device memory are the library's, which cannot reach it")
    cart = ours.Create_cart([ours.size], [True])
    low, high = cart.Shift(0, 1)
    e = Cut(parts(cart.rank, 2), 2, "DeviceArray")
    collect(cart, form, "Neighbor_alltoall", e.sent, e.received)
    e.check(parts(low, 2)[2:], parts(high, 2)[:2])
    e = Cut(parts(cart.rank, 1), 2, "DeviceArray")
    collect(cart, form, "Neighbor_allgather", e.sent, e.received)
    e.check(parts(low, 1), parts(high, 1))
    cart.Free()


def test_a_device_view_pairs_with_a_host_array_of_its_shape(ours: MPI.Intracomm) -> None:
    flat = np.zeros((6, 3), np.int64)
    ours.Sendrecv(face(on_device(cube(1))), ours.rank, 0, flat, ours.rank)
    np.testing.assert_array_equal(flat, face(cube(1)))
    back = on_device(np.zeros((6, 3, 2), np.int64))
    ours.Sendrecv(flat, ours.rank, 0, back[..., 0], ours.rank)
    np.testing.assert_array_equal(back.to_numpy()[..., 0], face(cube(1)))


INDICES = st.sampled_from([np.s_[:], np.s_[::2], np.s_[::-1], np.s_[1:], np.s_[:1:-3], np.s_[0], np.s_[None]])


@examples(60)
@given(st.data())
def test_any_device_view_arrives_in_the_order_of_its_indices(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    dtype = data.draw(st.sampled_from(["u1", "i2", "f4", "c16", "?", "S3"]))
    raw = np.random.default_rng(len(shape)).integers(0, 2, (*shape, np.dtype(dtype).itemsize), np.uint8)
    host = raw.view(dtype)[..., 0]
    index = tuple(data.draw(st.lists(INDICES, min_size=len(shape), max_size=len(shape))))
    expected = host[(*index, ...)]
    view = on_device(host)[index]
    got = np.zeros(expected.nbytes, np.uint8)
    message = [got, MPI.BYTE] if dtype == "S3" else got.view(dtype)
    if view.__cuda_array_interface__["strides"] == np.ascontiguousarray(expected).strides or expected.size == 0:
        return
    if expected.flags.forc:
        return
    MPI.COMM_SELF.Sendrecv(view, 0, 0, message, 0)
    assert got.tobytes() == np.ascontiguousarray(expected).tobytes()


# ---- what is passed on as it is, and what is refused --------------------------------------------------


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("make_array", [np.ascontiguousarray, np.asfortranarray])
def test_contiguous_device_arrays_pass_as_mpi4py_takes_them(ours: MPI.Intracomm, other: str, make_array: Any) -> None:
    host = make_array(np.arange(12.0).reshape(3, 4))
    array = DeviceArray.from_numpy(host.ravel(order="K"))
    array = DeviceArray(array.memory, 0, host.shape, host.strides, host.dtype)
    got = on_device(np.zeros(12))
    ours.Sendrecv(OTHERS[other](array), ours.rank, 0, OTHERS[other](got), ours.rank)
    np.testing.assert_array_equal(got.to_numpy(), host.ravel(order="K"))
    ours.Sendrecv([OTHERS[other](array), 5, MPI.DOUBLE], ours.rank, 0, (OTHERS[other](got[2:7]), MPI.DOUBLE), ours.rank)
    np.testing.assert_array_equal(got.to_numpy()[2:7], host.ravel(order="K")[:5])


def test_empty_and_zero_dimensional_device_arrays_pass(ours: MPI.Intracomm) -> None:
    ours.Sendrecv(on_device(np.zeros((0, 4)))[:, ::2], ours.rank, 0, on_device(np.zeros(0)), ours.rank)
    got = on_device(np.zeros(()))
    ours.Sendrecv(on_device(np.array(3.0)), ours.rank, 0, got, ours.rank)
    assert got.to_numpy() == 3


def strided(shape: tuple[int, ...], strides: tuple[int, ...], **changes: Any) -> Interface:
    return Interface(DeviceArray(on_device(np.zeros(64)).memory, 0, shape, strides, float), **changes)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "broadcast": (lambda: strided((3, 4), (0, 8)), tempi.ArrayError, "axis 0 .*0 bytes.*share"),
    "overlap": (lambda: strided((4, 5), (8, 16)), tempi.ArrayError, "axis 0 .*share memory"),
    "read-only": (lambda: strided((4,), (16,), data=(64, True)), tempi.ArrayError, "read-only"),
    "read-only DLPack": (lambda: Pack(on_device(np.zeros(8))[::2], readonly=True), tempi.ArrayError, "read-only"),
    "byte order": (lambda: strided((4,), (16,), typestr=">f8"), tempi.ArrayError, "byte order"),
    "mask": (lambda: strided((4,), (16,), mask=np.zeros(4)), BufferError, "masked"),
    "contiguous, read-only": (lambda: strided((4,), (8,), data=(64, True)), BufferError, "not writable"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("call", ["Recv", "Irecv", "Recv_init", "Sendrecv", "Bcast"])
def test_a_receive_is_refused_by_rule_and_axis_before_any_mpi_call(ours: MPI.Intracomm, call: str, name: str) -> None:
    array, error, rule = REFUSED[name][0](), *REFUSED[name][1:]
    before = dict(tempi.stats().counters)
    arguments = {"Sendrecv": (np.zeros(4), ours.rank, 0, array, ours.rank), "Bcast": (array, ours.rank + 1)}
    with pytest.raises(error, match=rule):
        getattr(ours, call)(*arguments.get(call, (array, ours.rank)))
    after = dict(tempi.stats().counters)
    assert {name for name in after if after[name] != before[name]} <= {"pointer_queries", "cuda_failures"}
    assert not ours.Iprobe(ours.rank)


class Broken:
    """Says that it has both protocols, and fails when asked."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("cannot say: it requires grad")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> object:
        raise BufferError("cannot export: it requires grad")


def test_an_array_that_cannot_be_described_is_refused_by_mpi4py(ours: MPI.Intracomm) -> None:
    for call in (ours.Send, ours.Isend, ours.Irecv):
        with pytest.raises((BufferError, RuntimeError), match="requires grad"):
            call(Broken(), ours.rank)
    with pytest.raises(TypeError):
        ours.Send(object(), ours.rank)


def test_an_array_for_proc_null_is_not_examined(ours: MPI.Intracomm) -> None:
    array = strided((3, 4), (0, 8))
    ours.Send(array, MPI.PROC_NULL)
    ours.Recv(array, MPI.PROC_NULL)
    ours.Sendrecv(array, MPI.PROC_NULL, 0, array, MPI.PROC_NULL)


def test_a_request_keeps_the_device_array_alive(ours: MPI.Intracomm) -> None:
    for wrap in (Interface, Pack):
        array = on_device(np.zeros((6, 3, 2), np.int64))
        alive = weakref.ref(array.memory)
        request = ours.Irecv(wrap(array[..., 1]), ours.rank)
        del array
        gc.collect()
        assert alive() is not None
        ours.Send(face(on_device(cube(1))), ours.rank)
        request.Wait()
        gc.collect()
        assert alive() is None


# ---- the order of streams -----------------------------------------------------------------------------

#: Arrays whose elements become ready in a stream of the program's.
STREAMED: dict[str, Any] = {
    "interface": lambda array, stream: Interface(array, stream=stream.ptr),
    "DLPack 0": lambda array, stream: Pack(array, old=True, stream=stream.ptr),
    "DLPack 1": lambda array, stream: Pack(array, stream=stream.ptr),
}
SHAPES = {"strided": np.s_[::2], "contiguous": np.s_[:]}


@pytest.mark.parametrize("how", STREAMED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["Send", "Isend", "list", "Send_init"])
def test_a_send_waits_for_the_arrays_stream(ours: MPI.Intracomm, name: str, kind: str, shape: str, how: str) -> None:
    array, stream = on_device(np.zeros(64, np.uint8), kind), Stream()
    got = np.zeros(64, np.uint8)[SHAPES[shape]].copy()
    with patient():
        request = ours.Irecv(got, ours.rank)
        source = overwrite(array, 7, stream.ptr)
        view = STREAMED[how](array[SHAPES[shape]], stream)
        match name:
            case "list" if shape == "contiguous":
                ours.Send([view, MPI.BYTE], ours.rank)
            case "list":
                ours.Send(view, ours.rank)
            case "Send_init":
                sending = ours.Send_init(view, ours.rank)
                sending.Start()
                sending.Wait()
                sending.Free()
            case _:
                wait(getattr(ours, name)(view, ours.rank))
        request.Wait()
    assert (got == 7).all()
    del source


def test_sendrecv_waits_for_the_arrays_stream(ours: MPI.Intracomm) -> None:
    array, stream, got = on_device(np.zeros(64, np.uint8)), Stream(), np.zeros(32, np.uint8)
    with patient():
        source = overwrite(array, 7, stream.ptr)
        ours.Sendrecv(Interface(array[::2], stream=stream.ptr), ours.rank, 0, got, ours.rank)
    assert (got == 7).all()
    del source


@pytest.mark.parametrize("how", STREAMED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["device", "managed"])
@pytest.mark.parametrize("name", ["Recv", "Irecv", "Sendrecv", "Recv_init", "Mprobe"])
def test_what_is_received_comes_after_the_arrays_stream(
    ours: MPI.Intracomm, name: str, kind: str, shape: str, how: str
) -> None:
    array, stream = on_device(np.zeros(64, np.uint8), kind), Stream()
    sent = np.full(64, 3, np.uint8)[SHAPES[shape]].copy()
    with patient():
        source = overwrite(array, 7, stream.ptr)
        view = STREAMED[how](array[SHAPES[shape]], stream)
        if name == "Sendrecv":
            ours.Sendrecv(sent, ours.rank, 0, view, ours.rank)
        else:
            sending = ours.Isend(sent, ours.rank) if name in ("Recv", "Mprobe") else None
            match name:
                case "Irecv":
                    request = ours.Irecv(view, ours.rank)
                    ours.Send(sent, ours.rank)
                    request.Wait()
                case "Recv_init":
                    request = ours.Recv_init(view, ours.rank)
                    request.Start()
                    ours.Send(sent, ours.rank)
                    request.Wait()
                    request.Free()
                case "Mprobe":
                    ours.Mprobe(ours.rank).Recv(view)
                case _:
                    ours.Recv(view, ours.rank)
            wait(sending)
        stream.synchronize()
    expected = np.full(64, 7)
    expected[SHAPES[shape]] = 3
    np.testing.assert_array_equal(array.to_numpy(), expected)
    del source


class Tensor(Pack):
    """PyTorch's tensor, as far as tempi reads it: by DLPack, in the current stream."""

    __module__ = "torch"
    device = types.SimpleNamespace(type="cuda")


@pytest.mark.parametrize("index", [np.s_[::2], np.s_[:]])
def test_pytorchs_tensors_are_ordered_by_its_current_stream(
    ours: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, index: Any
) -> None:
    array, stream, other = on_device(np.zeros(64, np.uint8)), Stream(), on_device(np.zeros(64, np.uint8))
    torch = types.ModuleType("torch")
    current = types.SimpleNamespace(cuda_stream=stream.ptr)
    torch.cuda = types.SimpleNamespace(current_stream=lambda device: current)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    got, idle = np.zeros(64, np.uint8)[index].copy(), Stream()
    with patient(0.04):
        kept = [overwrite(array, 7, stream.ptr), overwrite(other, 9, idle.ptr, later=20)]
        tensor = Tensor(array[index], stream=stream.ptr)
        request = ours.Irecv(got, ours.rank)
        ours.Send(tensor, ours.rank)
        request.Wait()
        assert idle.may_be_late()
    assert (got == 7).all()
    assert tensor.asked[0] == stream.ptr
    del kept


def test_the_order_ends_with_the_call(ours: MPI.Intracomm) -> None:
    """A later message of the same thread, of an array without a stream, does not wait for an earlier one's."""
    first, second, stream = on_device(np.zeros(64, np.uint8)), on_device(np.zeros(64, np.uint8)), Stream()
    got = np.zeros(32, np.uint8)
    ours.Sendrecv(Interface(first[::2], stream=stream.ptr), ours.rank, 0, got, ours.rank)
    request = ours.Isend(Interface(first[::2], stream=stream.ptr), ours.rank)
    ours.Recv(got, ours.rank)
    request.Wait()
    with patient(0.9):
        source = overwrite(first, 7, stream.ptr)
        request = ours.Irecv(got, ours.rank)
        ours.Send(Interface(second[::2], stream=None), ours.rank)
        request.Wait()
        assert stream.may_be_late()
        stream.synchronize()
    assert not got.any()
    assert (first.to_numpy() == 7).all()
    del source


def test_disabled_or_not_what_mpi_reads_itself_is_ready(ours: MPI.Intracomm) -> None:
    array, stream, got = on_device(np.zeros(64, np.uint8), "managed"), Stream(), np.zeros(32, np.uint8)
    with patient(), tempi.disabled():
        source = overwrite(array, 7, stream.ptr)
        request = ours.Irecv(got, ours.rank)
        ours.Send(Interface(array[::2], stream=stream.ptr), ours.rank)
        request.Wait()
    assert (got == 7).all()
    del source


# ---- docs/python.md -----------------------------------------------------------------------------------


def test_the_example_of_the_docs_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the emulated device's arrays for CuPy's."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    example = next(block for block in text.split("```python\n")[1:] if "import cupy" in block).split("```")[0]
    cupy = types.ModuleType("cupy")
    cupy.full = lambda shape, value: on_device(np.full(shape, value))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    names: dict[str, Any] = {}
    exec(compile(example, "python.md", "exec"), names)
    rank, left = names["comm"].rank, names["left"]
    expected = np.full((64, 64, 64), rank)
    expected[:, :, -1] = left
    expected[:, -1, :] = expected[:, 1, :]
    np.testing.assert_array_equal(names["field"].to_numpy(), expected)
