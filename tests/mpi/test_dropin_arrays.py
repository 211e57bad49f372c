"""Non-contiguous NumPy arrays as messages: every call, every communicator, every view."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tempi
from comms import COMMS, FORMS, collect, halves, make
from examples import examples
from tempi import MPI, _arrays, _strides

SENDS = ["Send", "Ssend", "Bsend", "Rsend", "Isend", "Issend", "Ibsend", "Irsend"]
SEND_INITS = ["Send_init", "Ssend_init", "Bsend_init", "Rsend_init"]


@pytest.fixture
def ours(comm: Any) -> MPI.Intracomm:
    return MPI.Intracomm(comm)


def cube(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 40, (6, 7, 8))


def face(array: Any) -> Any:
    return array[::-1, 1:6:2, 3]


def neighbours(comm: MPI.Comm) -> tuple[int, int]:
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


@pytest.mark.parametrize("kind", COMMS)
def test_views_go_through_every_kind_of_communicator(ours: MPI.Intracomm, kind: str) -> None:
    made = make(kind, ours)
    dest, source = neighbours(made)
    got = np.zeros((12, 5), np.int64)[::2, 1:4]
    before = tempi.stats()["calls_seen"]
    made.Sendrecv(face(cube(made.rank)), dest, 0, got, source)
    assert tempi.stats()["calls_seen"] > before
    np.testing.assert_array_equal(got, face(cube(source)))
    made.Free()


def test_views_go_through_an_intercommunicator(ours: MPI.Intracomm) -> None:
    if ours.size < 2:
        pytest.skip("needs 2 ranks")
    inter = halves(ours)
    partner = inter.rank  # 1, 2 and 4 ranks give groups of equal size
    got = np.zeros((6, 3, 2), np.int64)[..., 1]
    inter.Sendrecv(face(cube(ours.rank)), partner, 0, got, partner)
    np.testing.assert_array_equal(got, face(cube(ours.rank ^ 1)))
    inter.Free()


@pytest.mark.parametrize("name", SENDS)
def test_every_send_takes_a_view(ours: MPI.Intracomm, name: str) -> None:
    dest, source = neighbours(ours)
    space = MPI.Alloc_mem(1 << 16)
    MPI.Attach_buffer(space)
    got = np.zeros((6, 3, 2), np.int64)[..., 1]
    request = ours.Irecv(got, source)
    ours.Barrier()  # ready sends need their receive
    sent = getattr(ours, name)(face(cube(ours.rank)), dest)
    if sent is not None:
        sent.Wait()
    request.Wait()
    MPI.Detach_buffer()
    MPI.Free_mem(space)
    np.testing.assert_array_equal(got, face(cube(source)))


@pytest.mark.parametrize("name", SEND_INITS)
def test_persistent_requests_take_views_and_see_new_contents(ours: MPI.Intracomm, name: str) -> None:
    dest, source = neighbours(ours)
    space = MPI.Alloc_mem(1 << 16)
    MPI.Attach_buffer(space)
    array, room = cube(ours.rank), np.zeros((6, 3, 2), np.int64)
    receive = ours.Recv_init(room[..., 1], source)
    send = getattr(ours, name)(face(array), dest)
    for step in range(3):
        array += step
        receive.Start()
        ours.Barrier()
        send.Start()
        MPI.Request.Waitall([send, receive])
        np.testing.assert_array_equal(room[..., 1], face(cube(source)) + step * (step + 1) // 2)
    send.Free()
    receive.Free()
    MPI.Detach_buffer()
    MPI.Free_mem(space)


def test_a_replacing_exchange_takes_views(ours: MPI.Intracomm) -> None:
    dest, source = neighbours(ours)
    array = cube(ours.rank)
    rest = array.copy()
    ours.Sendrecv_replace(face(array), dest, 0, source)
    np.testing.assert_array_equal(face(array), face(cube(source)))
    face(rest)[...] = face(cube(source))
    np.testing.assert_array_equal(array, rest)


def test_the_nonblocking_replacing_exchange_refuses_views(ours: MPI.Intracomm) -> None:
    with pytest.raises((ValueError, BufferError)):
        ours.Isendrecv_replace(face(cube(0)), ours.rank, 0, ours.rank)


@pytest.mark.parametrize("name", ["Bcast", "Ibcast"])
def test_broadcasts_take_views_on_either_side(ours: MPI.Intracomm, name: str) -> None:
    root = ours.size - 1
    array = cube(7) if ours.rank == root else np.zeros((6, 7, 8), np.int64)
    array.flags.writeable = ours.rank != root
    request = getattr(ours, name)(face(array), root)
    if request is not None:
        request.Wait()
    np.testing.assert_array_equal(face(array), face(cube(7)))


@pytest.mark.skipif("MPICH Version:\t4.0" in MPI.Get_library_version(), reason="MPICH 4.0.2 itself corrupts memory")
def test_isendrecv_takes_views(ours: MPI.Intracomm) -> None:
    dest, source = neighbours(ours)
    got = np.zeros((6, 3, 2), np.int64)[..., 1]
    try:
        request = ours.Isendrecv(face(cube(ours.rank)), dest, 0, got, source)
    except NotImplementedError:
        pytest.skip("this MPI library has no MPI_Isendrecv")
    request.Wait()
    np.testing.assert_array_equal(got, face(cube(source)))


#: Views, of zeros, whose obvious datatypes Open MPI carries wrongly (csrc/shim/type/quirks.c).
AWKWARD = {
    "bytes backwards": lambda: np.zeros(4000, "u1")[3000:1000:-1],
    "an odd number of bytes": lambda: np.zeros(4000, "u1")[3000:999:-1],
    "rows of bytes backwards": lambda: np.zeros((64, 40), "u1")[:, 35:2:-1],
    "complex with gaps": lambda: np.zeros(1000, [("a", "c8"), ("b", "f4")])["a"],
    "complex astray": lambda: np.zeros(1000, [("a", "c16"), ("b", "u1")])["a"],
    "doubles astray": lambda: np.zeros(3000, [("a", "f8"), ("b", "u1")])["a"],
}


def exchange(comm: MPI.Intracomm, call: str, sent: Any, got: Any) -> None:
    """To the next rank, from the one before, by a call that tempi leaves to the library."""
    dest, source = neighbours(comm)
    if call == "Iallgather":  # the first one of a communicator
        parts = np.zeros((comm.size, *sent.shape), sent.dtype)
        comm.Iallgather(sent, parts).Wait()
        got[...] = parts[source]
    elif call == "Isendrecv":
        try:
            comm.Isendrecv(sent, dest, 0, got, source).Wait()
        except NotImplementedError:
            pytest.skip("this MPI library has no MPI_Isendrecv")
    else:
        with tempi.disabled():
            comm.Sendrecv(sent, dest, 0, got, source)


@pytest.mark.skipif("MPICH Version:\t4.0" in MPI.Get_library_version(), reason="MPICH 4.0.2 itself corrupts memory")
@pytest.mark.parametrize("call", ["Sendrecv", "Isendrecv", "Iallgather"])
@pytest.mark.parametrize("name", AWKWARD)
def test_views_that_are_left_to_the_library_arrive(ours: MPI.Intracomm, name: str, call: str) -> None:
    view, into = AWKWARD[name](), AWKWARD[name]()
    numbers = [np.random.default_rng(rank).integers(1, 200, view.shape).astype(view.dtype) for rank in range(ours.size)]
    view[...], want = numbers[ours.rank], numbers[neighbours(ours)[1]]
    made = ours.Dup()
    for got in (np.zeros_like(want), into):
        exchange(made, call, view, got)
        np.testing.assert_array_equal(got, want)
    assert into.base is not None
    assert np.count_nonzero(into.base) == into.size  # nothing beside it
    made.Free()


def test_a_view_pairs_with_a_contiguous_array_of_its_shape(ours: MPI.Intracomm) -> None:
    view, flat = face(cube(1)), np.zeros((6, 3), np.int64)
    ours.Sendrecv(view, ours.rank, 0, flat, ours.rank)
    np.testing.assert_array_equal(flat, view)
    back = np.zeros((6, 3, 2), np.int64)
    ours.Sendrecv(flat, ours.rank, 0, back[..., 0], ours.rank)
    np.testing.assert_array_equal(back[..., 0], view)
    assert not back[..., 1].any()


@st.composite
def views(draw: st.DrawFn) -> Any:
    """A view of any sign of steps and order of axes, with an axis broadcast now and then."""
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    dtype = draw(st.sampled_from(["u1", "i2", "f4", "c16", "?", "i4,f8", "S3"]))
    raw = np.random.default_rng(len(shape)).integers(0, 2, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array = raw.view(dtype)[..., 0]
    index = tuple(
        slice(
            *draw(
                st.sampled_from(
                    [
                        (None, None, 1),
                        (None, None, 2),
                        (None, None, -1),
                        (1, None, 1),
                        (None, 1, -3),
                    ]
                )
            )
        )
        for _ in shape
    )
    view = array[index].transpose(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        view = np.broadcast_to(view, (3, *view.shape))
    return view


@examples(150)
@given(views())
def test_any_view_arrives_in_the_order_of_its_indices(view: Any) -> None:
    width = view.dtype.itemsize
    expected = np.ascontiguousarray(view)
    if view.flags.forc:
        return
    got = np.zeros(expected.nbytes, np.uint8)
    kind = _arrays._datatype(view.dtype, view.shape, view.strides)
    assert kind.Get_size() == view.size * width
    MPI.COMM_SELF.Sendrecv(view, 0, 0, [got, MPI.BYTE] if _bytes(view) else got.view(view.dtype), 0)
    assert got.tobytes() == expected.tobytes()


def _bytes(view: Any) -> bool:
    named = MPI._typedict.get(view.dtype.char)
    return named is None or named.Get_size() != view.dtype.itemsize


@examples(100)
@given(views())
def test_any_view_that_does_not_overlap_receives(view: Any) -> None:
    if view.flags.forc or not view.flags.writeable:
        return
    base = view.base if view.base.dtype == np.uint8 else view.base.base
    sent = np.random.default_rng(3).integers(0, 2, view.size * view.dtype.itemsize, np.uint8)
    before = view.copy()
    MPI.COMM_SELF.Sendrecv([sent, MPI.BYTE], 0, 0, view, 0)
    assert np.ascontiguousarray(view).tobytes() == sent.tobytes()
    view[...] = before
    assert base is not None


def overlapping() -> Any:
    return np.lib.stride_tricks.as_strided(np.zeros(64), (4, 5), (8, 16))


REFUSED = {
    "broadcast": (
        lambda: np.lib.stride_tricks.as_strided(np.zeros(8), (3, 4), (0, 8)),
        "axis 0 .*0 bytes.*share",
    ),
    "overlap": (overlapping, "axis 0 .*share memory"),
    "window": (
        lambda: np.lib.stride_tricks.sliding_window_view(np.zeros(9), 3, writeable=True),
        "axis 0 .*share memory",
    ),
    "read-only": (lambda: np.broadcast_to(np.zeros((4, 1)), (4, 1))[::2], "read-only"),
    "byte order": (lambda: np.zeros((4, 4), ">f8")[:, 1], "byte order"),
    "objects": (lambda: np.zeros((4, 4), object)[:, 1], "Python objects"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("call", ["Recv", "Irecv", "Recv_init", "Sendrecv", "Bcast"])
def test_a_receive_is_refused_by_rule_and_axis_before_any_mpi_call(ours: MPI.Intracomm, call: str, name: str) -> None:
    array, rule = REFUSED[name][0](), REFUSED[name][1]
    before = tempi.stats().counters
    arguments = {
        "Sendrecv": (np.zeros(4), ours.rank, 0, array, ours.rank),
        "Bcast": (array, ours.rank + 1),
    }
    with pytest.raises(tempi.ArrayError, match=rule):
        getattr(ours, call)(*arguments.get(call, (array, ours.rank)))
    assert tempi.stats().counters == before
    assert not ours.Iprobe(ours.rank)


def test_axes_that_interleave_without_overlap_are_accepted(ours: MPI.Intracomm) -> None:
    view = np.lib.stride_tricks.as_strided(np.zeros(16), (3, 2), (16, 24))
    ours.Sendrecv(np.arange(6.0), ours.rank, 0, view, ours.rank)
    np.testing.assert_array_equal(view.ravel(), np.arange(6.0))


def test_an_array_for_proc_null_is_not_examined(ours: MPI.Intracomm) -> None:
    nowhere = MPI.PROC_NULL
    ours.Send(np.zeros((4, 4), object)[:, 1], nowhere)
    ours.Recv(overlapping(), nowhere)
    ours.Sendrecv(overlapping(), nowhere, 0, overlapping(), nowhere)


def test_contiguous_arrays_pass_as_mpi4py_takes_them(ours: MPI.Intracomm) -> None:
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    got = np.zeros(12)
    ours.Sendrecv(fortran, ours.rank, 0, got, ours.rank)
    np.testing.assert_array_equal(got, fortran.ravel(order="K"))
    for empty in (np.zeros((0, 4))[:, ::2], np.array(3.0)):
        ours.Sendrecv(empty, ours.rank, 0, np.zeros(empty.size), ours.rank)


def test_a_request_keeps_the_array_alive(ours: MPI.Intracomm) -> None:
    dest, source = neighbours(ours)
    array = np.zeros((6, 3, 2), np.int64)
    alive = weakref.ref(array)
    request = ours.Irecv(array[..., 1], source)
    del array
    gc.collect()
    assert alive() is not None
    ours.Barrier()
    ours.Send(face(cube(ours.rank)), dest)
    kept = alive()
    MPI.Request.Waitall([request])
    assert kept is not None
    np.testing.assert_array_equal(kept[..., 1], face(cube(source)))
    del kept
    gc.collect()
    assert alive() is None


def test_a_datatype_lives_while_a_request_uses_it_and_no_longer(ours: MPI.Intracomm) -> None:
    dest, source = neighbours(ours)
    got = np.zeros((6, 3, 2), np.int64)
    request = ours.Irecv(got[..., 1], source)
    datatype = weakref.ref(_arrays._views[(got.dtype, (6, 3), (48, 16), 0)].datatype)
    _arrays.clear()
    assert datatype() is not None
    ours.Barrier()
    ours.Send(face(cube(ours.rank)), dest)
    request.Wait()
    assert datatype() is None
    np.testing.assert_array_equal(got[..., 1], face(cube(source)))


def test_equal_views_share_a_datatype_and_the_cache_is_bounded(
    ours: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_arrays, "CACHE_SIZE", 4)
    _arrays.clear()
    for _ in range(3):
        assert _arrays.outgoing(np.zeros((4, 4))[:, 1])[2] is _arrays.outgoing(np.ones((4, 4))[:, 2])[2]
    assert len(_arrays._views) == 1
    for width in range(2, 20):
        got = np.zeros(5)
        ours.Sendrecv(np.arange(5.0 * width)[::width], ours.rank, 0, got, ours.rank)
        np.testing.assert_array_equal(got, np.arange(5.0) * width)
    assert len(_arrays._views) == 4


def test_a_dropped_datatype_is_freed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _arrays.clear()
    freed: list[int] = []

    def free(datatype: MPI.Datatype) -> None:
        freed.append(datatype.handle)
        MPI.Datatype.Free(datatype)

    monkeypatch.setattr(_arrays._ViewType, "Free", free, raising=False)
    handles = [_arrays.outgoing(np.zeros((9, width))[:, 0])[2].handle for width in (2, 3, 4)]
    assert freed == []
    _arrays.clear()
    assert sorted(freed) == sorted(handles)


def test_axes_that_step_as_one_are_one() -> None:
    assert _strides.fold((4, 5, 6), (240, 48, 8), 8) == [(120, 8)]
    assert _strides.fold((4, 1, 6), (96, 7, 8), 8) == [(6, 8), (4, 96)]
    assert _strides.fold((4, 5), (80, 16), 8) == [(1, 8), (20, 16)]
    assert _strides.fold((4, 5), (-80, -16), 8) == [(1, 8), (20, -16)]
    assert _strides.fold((4, 5), (80, -16), 8) == [(1, 8), (5, -16), (4, 80)]
    assert _strides.fold((), (), 8) == [(1, 8)]


def test_a_received_view_touches_nothing_else(ours: MPI.Intracomm) -> None:
    room = np.full((6, 7, 8), -1)
    ours.Sendrecv(np.zeros((6, 3), np.int64), ours.rank, 0, face(room), ours.rank)
    assert (face(room) == 0).all()
    assert (room == -1).sum() == room.size - 18


def test_views_of_many_shapes_leave_other_types_alone(ours: MPI.Intracomm) -> None:
    """MPICH 4.0.2 corrupts datatypes made while some 500 are alive."""
    for n in range(2, 400):
        array = np.zeros((n, 3))
        ours.Sendrecv(array[:, 1], ours.rank, 0, np.zeros(n), ours.rank)
    letter, out = MPI.CHAR.Dup().Commit(), bytearray(1)
    assert letter.Pack(b"x", out, 0, ours) == 1
    assert out == b"x"
    letter.Free()


def parts(rank: int, n: int, salt: int = 0) -> Any:
    """A view with 2 rows for each of n ranks, every second element of a longer array."""
    return (np.arange(2 * n * 3 * 4, dtype=np.int64).reshape(2 * n, 3, 4) + 1000 * rank + salt)[:, :, ::2]


def room(n: int) -> Any:
    return np.full((2 * n, 3, 5), -1, np.int64)


@pytest.mark.parametrize("form", FORMS)
def test_collectives_cut_views_along_the_first_axis(ours: Any, form: str) -> None:
    size, rank = ours.size, ours.rank
    mine, whole = parts(rank, size), room(size)
    collect(ours, form, "Alltoall", mine, whole[:, :, 1:4:2])
    for source in range(size):
        np.testing.assert_array_equal(whole[2 * source :][:2, :, 1:4:2], parts(source, size)[2 * rank :][:2])
    assert (whole[:, :, ::2] == -1).all()
    whole = room(size)
    collect(ours, form, "Allgather", parts(rank, 1), whole[:, :, 1:4:2])
    for source in range(size):
        np.testing.assert_array_equal(whole[2 * source :][:2, :, 1:4:2], parts(source, 1))
    assert (whole[:, :, ::2] == -1).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_root_gathers_and_scatters_views(ours: Any, form: str) -> None:
    size, rank, root = ours.size, ours.rank, ours.size - 1
    whole, own = room(size), room(1)
    collect(ours, form, "Gather", parts(rank, 1), whole[:, :, 1:4:2] if rank == root else None, root)
    if rank == root:
        for source in range(size):
            np.testing.assert_array_equal(whole[2 * source :][:2, :, 1:4:2], parts(source, 1))
    collect(ours, form, "Scatter", parts(7, size) if rank == root else None, own[:, :, 1:4:2], root)
    np.testing.assert_array_equal(own[:, :, 1:4:2], parts(7, size)[2 * rank :][:2])
    assert (own[:, :, ::2] == -1).all()


def test_neighbours_exchange_views(ours: Any) -> None:
    cart = ours.Create_cart([ours.size], [True])
    low, high = cart.Shift(0, 1)
    got = room(2)
    cart.Neighbor_alltoall(parts(cart.rank, 2), got[:, :, 1:4:2])
    np.testing.assert_array_equal(got[:2, :, 1:4:2], parts(low, 2)[2:])
    np.testing.assert_array_equal(got[2:, :, 1:4:2], parts(high, 2)[:2])
    cart.Neighbor_allgather(parts(cart.rank, 1), got[:, :, 1:4:2])
    np.testing.assert_array_equal(got[:2, :, 1:4:2], parts(low, 1))
    np.testing.assert_array_equal(got[2:, :, 1:4:2], parts(high, 1))
    cart.Free()


def test_views_without_a_part_for_each_rank_are_refused() -> None:
    own = MPI.COMM_SELF
    array = np.zeros((4, 6))
    graph = own.Create_dist_graph_adjacent([0, 0, 0], [0, 0, 0])
    with pytest.raises(tempi.ArrayError, match="no 3 equal parts"):
        graph.Neighbor_alltoall(array[:, ::2], np.zeros((3, 4)))
    with pytest.raises(tempi.ArrayError, match="negative step"):
        own.Alltoall(array[::-1, ::2], np.zeros((4, 3)))
    graph.Free()
