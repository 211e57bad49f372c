"""Loopback messages of device memory: from strided memory to strided memory, if no other message interferes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oracle
from devices import DEVICES, EMULATED
from examples import COUNTEREXAMPLES, strided
from world import MPI, Memory, acted, committed, outcome, snapshot

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

N = 96
_double = oracle.Named("DOUBLE")
DENSE = oracle.Contiguous(N, _double)
BLOCKS = oracle.Vector(N // 8, 8, 11, _double)
ROWS = oracle.Subarray((5, 9, 11), (2, 8, 6), (1, 0, 3), _double)
COLUMN = oracle.Subarray((N, 7), (N, 1), (0, 3), _double)
LIST = oracle.Hindexed((3, 1, N - 4), (4096, 64, 0), oracle.Resized(0, 16, _double))


def send_to_self(comm: Any, out: Memory, into: Memory, *, recvtag: int = 7, **expected: int) -> Any:
    status = MPI.Status()
    rank = comm.rank
    with committed(out.tree) as sent, committed(into.tree) as received, acted(**expected):
        comm.Sendrecv(out.message(sent), rank, 7, into.message(received), rank, recvtag, status)
    return status


ONE_LAUNCH = {"self_moves": 1, "sends": 1, "recvs": 1, "launches": 1, "device_packs": 0, "device_unpacks": 0}
PAIRS = {"blocks to column": (BLOCKS, COLUMN), "column to blocks": (COLUMN, BLOCKS), "rows to rows": (ROWS, ROWS),
         "list to itself": (LIST, LIST), "column to dense": (COLUMN, DENSE),
         "dense to column": (DENSE, COLUMN)}  # fmt: skip
UNLIKE = {"rows to blocks": (ROWS, BLOCKS), "list to column": (LIST, COLUMN)}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("device", ["device", "device:1", "managed"])
@pytest.mark.parametrize("whole", [True, False], ids=["own", "world"])
def test_one_launch_and_no_packed_buffer(comm: Any, own: Any, pair: Any, device: str, whole: bool) -> None:
    out, into = Memory(pair[0], 1, where=device).fill(5), Memory(pair[1], 1, where=device)
    used = own if whole else comm.Dup()
    status = send_to_self(used, out, into, **ONE_LAUNCH)
    assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (used.rank, 7, N)
    assert not status.Is_cancelled()
    into.check(out.packed)
    if not whole:
        used.Free()


@pytest.mark.parametrize("pair", UNLIKE.values(), ids=UNLIKE)
def test_types_without_common_blocks_are_packed(own: Any, pair: Any) -> None:
    out, into = Memory(pair[0], 1, where="device").fill(5), Memory(pair[1], 1, where="device")
    send_to_self(own, out, into, self_moves=0, device_packs=1, device_unpacks=1)
    into.check(out.packed)


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_any_type_arrives_as_its_type_map_says(own: Any, name: str) -> None:
    tree = COUNTEREXAMPLES[name]
    out, into = Memory(tree, 3, where="device").fill(2), Memory(tree, 3, where="device")
    before = into.copy()
    send_to_self(own, out, into, sends=1, recvs=1)
    oracle.unpack(tree, 3, out.packed, before, into.origin)
    np.testing.assert_array_equal(into.copy(), before)


def test_contiguous_is_one_copy(own: Any) -> None:
    out, into = Memory(DENSE, 1, where="device").fill(5), Memory(DENSE, 1, where="device")
    copies = {} if snapshot()["checks"] else {"device_copies": 1}  # a check copies as well
    send_to_self(own, out, into, self_moves=1, launches=0, **copies)
    into.check(out.packed)


@pytest.mark.parametrize(
    "places", [("device", "device:1"), ("host", "device"), ("device", "host"), ("pinned", "device"), ("host", "host")]
)
def test_different_memories_go_by_the_library(own: Any, places: tuple[str, str]) -> None:
    out, into = (Memory(COLUMN, 1, where=place) for place in places)
    send_to_self(own, out.fill(4), into, self_moves=0, sends=1, recvs=1)
    into.check(out.packed)


def test_a_shorter_message_leaves_the_rest(own: Any) -> None:
    out, into = Memory(strided(40), 1, where="device").fill(5), Memory(COLUMN, 1, where="device")
    status = send_to_self(own, out, into, self_moves=1)
    assert status.Get_count(MPI.DOUBLE) == 40
    whole = np.full(8 * N, 0xA5, np.uint8)
    whole[:320] = out.packed
    into.check(whole)


def test_a_message_that_is_too_long_is_left_to_the_library(own: Any) -> None:
    """MPICH's Sendrecv to oneself reports it, Open MPI's does so for derived types only."""
    out, into = Memory(COLUMN, 1, where="device").fill(5), Memory(strided(40), 1, where="device")
    result = outcome(lambda: send_to_self(own, out, into, self_moves=0))
    assert not isinstance(result, str) or "truncate" in result
    into.check(out.packed[:320])


def test_any_tag_is_answered_with_the_tag(own: Any) -> None:
    out, into = (Memory(COLUMN, 1, where="device") for _ in range(2))
    status = send_to_self(own, out.fill(1), into, recvtag=MPI.ANY_TAG, self_moves=1)
    assert (status.source, status.tag) == (0, 7)


def buffers(comm: Any) -> bool:
    """Whether a small message to oneself leaves the sender before it is received. With MPICH it does not."""
    request = comm.Isend(np.zeros(1), 0, 99)
    done = request.Test()
    comm.Recv(np.zeros(1), 0, 99)
    request.Wait()
    return bool(done)


def test_an_earlier_message_to_oneself_comes_first(own: Any) -> None:
    if not buffers(MPI.COMM_SELF):
        pytest.skip("the library's messages to oneself wait for their receive")
    first, second = (Memory(COLUMN, 1, where="device").fill(seed) for seed in (1, 2))
    into, later = (Memory(BLOCKS, 1, where="device") for _ in range(2))
    with committed(COLUMN) as datatype, committed(BLOCKS) as received:
        request = own.Isend(first.message(datatype), 0, 7)
        send_to_self(own, second, into, self_moves=0)
        into.check(first.packed)
        own.Recv(later.message(received), 0, 7)
        later.check(second.packed)
        request.Wait()


@pytest.mark.parametrize("source", [0, MPI.ANY_SOURCE])
def test_an_earlier_receive_gets_the_message(own: Any, source: int) -> None:
    other, sent = (Memory(COLUMN, 1, where="device").fill(seed) for seed in (1, 2))
    early, into = (Memory(BLOCKS, 1, where="device") for _ in range(2))
    with committed(COLUMN) as datatype, committed(BLOCKS) as received:
        receive = own.Irecv(early.message(received), source, 7)
        request = own.Isend(other.message(datatype), 0, 8)
        send_to_self(own, sent, into, recvtag=MPI.ANY_TAG, self_moves=0)
        MPI.Request.Waitall([receive, request])
    early.check(sent.packed)
    into.check(other.packed)


@pytest.mark.parametrize("how", ["Isend", "Bsend", "Ibsend", "Send_init", "Isendrecv"])
@pytest.mark.usefixtures("buffered")
def test_whatever_could_be_pending_makes_it_doubtful(own: Any, how: str) -> None:
    """Loopback messages of host memory count as well, by every call, permanently."""
    plain, got = np.arange(2.0), np.zeros(2)
    if how == "Send_init":
        request = own.Send_init(plain, 0, 7)
        request.Start()
    elif how == "Isendrecv":
        if MPI.VERSION < 4:
            pytest.skip("the library has no such function")
        request = own.Isendrecv(plain, 0, 7, None, MPI.PROC_NULL)
    else:
        request = getattr(own, how)(plain, 0, 7) or MPI.Request()
    own.Recv(got, 0, 7)
    request.Wait()
    if how == "Send_init":
        request.Free()
    np.testing.assert_array_equal(got, plain)
    out, into = (Memory(COLUMN, 1, where="device") for _ in range(2))
    send_to_self(own, out.fill(1), into, self_moves=0)
    into.check(out.packed)


def test_other_ranks_do_not_make_it_doubtful(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("needs another rank")
    clean = comm.Dup()
    peer = comm.rank ^ 1
    out, into = (Memory(COLUMN, 1, where="device") for _ in range(2))
    receive = clean.Irecv(np.zeros(3), peer, 7)
    send = clean.Isend(np.zeros(3), peer, 7)
    send_to_self(clean, out.fill(1), into, self_moves=1)
    into.check(out.packed)
    MPI.Request.Waitall([receive, send])
    clean.Free()


def test_a_shift_round_a_ring_of_one(comm: Any) -> None:
    ring = MPI.COMM_SELF.Create_cart([1], [True])
    source, dest = ring.Shift(0, 1)
    out, into = (Memory(ROWS, 1, where="device") for _ in range(2))
    out.fill(3)
    with committed(ROWS) as datatype, acted(self_moves=1):
        ring.Sendrecv(out.message(datatype), dest, 1, into.message(datatype), source, 1)
    into.check(out.packed)
    ring.Free()


@pytest.mark.parametrize("tree", [ROWS, DENSE, LIST], ids=["rows", "dense", "list"])
def test_replacing_by_itself_moves_nothing(own: Any, tree: oracle.Tree) -> None:
    memory = Memory(tree, 1, where="device").fill(6)
    before, status = memory.copy(), MPI.Status()
    with committed(tree) as datatype, acted(self_moves=1, launches=0, device_copies=0):
        own.Sendrecv_replace(memory.message(datatype), 0, 9, 0, 9, status)
    np.testing.assert_array_equal(memory.copy(), before)
    assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (0, 9, N)


def test_replacing_with_an_earlier_message_is_the_librarys(own: Any) -> None:
    if not buffers(MPI.COMM_SELF):
        pytest.skip("the library's messages to oneself wait for their receive")
    memory = Memory(COLUMN, 1, where="device").fill(6)
    before, plain = memory.copy(), Memory(DENSE, 1, where="host").fill(8)
    with committed(COLUMN) as datatype, acted(self_moves=0):
        request = own.Isend([plain.message(None)[0], N, MPI.DOUBLE], 0, 9)
        own.Sendrecv_replace(memory.message(datatype), 0, 9, 0, 9)
        last = np.zeros(N)
        own.Recv(last, 0, 9)
        request.Wait()
    memory.check(plain.packed, before)
