"""Nonblocking receives from oneself and the sends that match them: copied directly from memory to memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import oracle
from devices import DEVICES, EMULATED
from examples import COUNTEREXAMPLES, strided
from mpi.test_self import BLOCKS, COLUMN, DENSE, PAIRS, UNLIKE, N
from world import MPI, Memory, acted, committed, outcome, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

TAG = 7
WAYS = ("Isend", "Issend", "Irsend", "Send", "Ssend", "Rsend")
MOVED = {"self_moves": 1, "sends": 1, "recvs": 1, "launches": 1, "device_packs": 0, "device_unpacks": 0}


def waitall(requests: list[Any]) -> Any:
    status = [MPI.Status() for _ in requests]
    MPI.Request.Waitall(requests, status)
    return status[0]


def one_by_one(requests: list[Any]) -> Any:
    """The receive first: any wait posts its message."""
    status = MPI.Status()
    requests[0].Wait(status)
    for request in requests[1:]:
        request.Wait()
    return status


def by_tests(requests: list[Any]) -> Any:
    status = MPI.Status()
    while not requests[0].Test(status):
        pass
    MPI.Request.Waitall(requests[1:])
    return status


def by_any(requests: list[Any]) -> Any:
    found = MPI.Status()
    for _ in requests:
        status = MPI.Status()
        if MPI.Request.Waitany(requests, status) == 0:
            found = status
    return found


COMPLETIONS = (waitall, one_by_one, by_tests, by_any)


class Post:
    """Posts loopback messages whose types live as long as this object."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.types: list[Any] = []

    def message(self, memory: Memory) -> Any:
        context = committed(memory.tree)
        self.types.append(context)
        return memory.message(context.__enter__())

    def recv(self, into: Memory, tag: int = TAG, source: int | None = None) -> Any:
        return self.comm.Irecv(self.message(into), self.comm.rank if source is None else source, tag)

    def send(self, out: Memory, tag: int = TAG, how: str = "Isend") -> list[Any]:
        request = getattr(self.comm, how)(self.message(out), self.comm.rank, tag)
        return [request] if request is not None else []

    def free(self) -> None:
        while self.types:
            self.types.pop().__exit__(None, None, None)


@pytest.fixture
def post(own: Any) -> Iterator[Post]:
    made = Post(own)
    yield made
    made.free()


def column(seed: int | None = None) -> Memory:
    memory = Memory(COLUMN, 1, where="device")
    return memory if seed is None else memory.fill(seed)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("how", ["Isend", "Send"])
@pytest.mark.parametrize("device", ["device:1", "managed"])
def test_one_launch_and_no_packed_buffer(post: Post, pair: Any, how: str, device: str) -> None:
    out, into = Memory(pair[0], 1, where=device).fill(5), Memory(pair[1], 1, where=device)
    with acted(**MOVED):
        status = waitall([post.recv(into), *post.send(out, how=how)])
    assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (0, TAG, N)
    assert not status.Is_cancelled()
    into.check(out.packed)


@pytest.mark.parametrize("complete", COMPLETIONS)
@pytest.mark.parametrize("how", WAYS)
def test_any_mode_and_any_completion(post: Post, how: str, complete: Callable[[list[Any]], Any]) -> None:
    out, into = column(5), Memory(BLOCKS, 1, where="device")
    with acted(**MOVED):
        status = complete([post.recv(into), *post.send(out, how=how)])
    assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (0, TAG, N)
    into.check(out.packed)


def test_on_a_communicator_of_all(comm: Any) -> None:
    post, out, into = Post(comm.Dup()), column(3), column()
    with acted(**MOVED):
        waitall([post.recv(into), *post.send(out)])
    into.check(out.packed)
    post.free()
    post.comm.Free()


@pytest.mark.usefixtures("unlike")
def test_a_burst_is_one_launch(post: Post) -> None:
    """Whatever order the sends are in."""
    outs, intos = [column(i) for i in range(6)], [column() for _ in range(6)]
    with acted(self_moves=6, launches=1, sends=6, recvs=6):
        receives = [post.recv(into, tag) for tag, into in enumerate(intos)]
        sends = [request for tag in (3, 0, 5, 1, 4, 2) for request in post.send(outs[tag], tag)]
        MPI.Request.Waitall(receives + sends)
    for out, into in zip(outs, intos, strict=True):
        into.check(out.packed)


def test_messages_do_not_overtake(post: Post) -> None:
    """Receives of one tag, of any tag, and of another: each gets the message that MPI's order assigns."""
    intos, outs = [column() for _ in range(4)], [column(i) for i in range(4)]
    tags = (TAG, MPI.ANY_TAG, 9, TAG)
    with acted(self_moves=4):
        receives = [post.recv(into, tag) for into, tag in zip(intos, tags, strict=True)]
        sends = [request for out, tag in zip(outs, (TAG, 9, TAG, 9), strict=True) for request in post.send(out, tag)]
        status = [MPI.Status() for _ in range(8)]
        MPI.Request.Waitall(receives + sends, status)
    assert [s.tag for s in status[:4]] == [TAG, 9, 9, TAG]
    for into, which in zip(intos, (0, 1, 3, 2), strict=True):
        into.check(outs[which].packed)


def test_the_buffer_is_the_senders_again_when_the_send_is_complete(post: Post) -> None:
    out, into = column(5), column()
    packed = out.packed
    receive = post.recv(into)
    MPI.Request.Waitall(post.send(out))
    out.fill(6)
    receive.Wait()
    into.check(packed)


def test_a_shorter_message_leaves_the_rest(post: Post) -> None:
    out, into = Memory(strided(40), 1, where="device").fill(5), column()
    with acted(self_moves=1):
        status = waitall([post.recv(into), *post.send(out)])
    assert status.Get_count(MPI.DOUBLE) == 40
    whole = np.full(8 * N, 0xA5, np.uint8)
    whole[:320] = out.packed
    into.check(whole)


def test_a_message_that_is_too_long_is_left_to_the_library(post: Post) -> None:
    """Open MPI does not report a contiguous message to oneself that does not fit."""
    out, into = column(5), Memory(strided(40), 1, where="device")
    with acted(self_moves=0):
        receive = post.recv(into)
        sends = post.send(out)
        result = outcome(receive.Wait)
        outcome(lambda: MPI.Request.Waitall(sends))
    assert not isinstance(result, str) or "truncate" in result
    into.check(out.packed[:320])


@pytest.mark.parametrize("pair", UNLIKE.values(), ids=UNLIKE)
def test_types_without_common_blocks_are_packed(post: Post, pair: Any) -> None:
    out, into = Memory(pair[0], 1, where="device").fill(5), Memory(pair[1], 1, where="device")
    with acted(self_moves=0, device_packs=1, device_unpacks=1):
        waitall([post.recv(into), *post.send(out)])
    into.check(out.packed)


@pytest.mark.parametrize(
    "places", [("device", "device:1"), ("host", "device"), ("device", "host"), ("pinned", "device")]
)
def test_different_memories_go_by_the_library(post: Post, places: tuple[str, str]) -> None:
    out, into = (Memory(COLUMN, 1, where=place) for place in places)
    for seed in (4, 5):  # and what comes after
        with acted(self_moves=0, sends=1, recvs=1):
            waitall([post.recv(into), *post.send(out.fill(seed))])
        into.check(out.packed)


@pytest.mark.parametrize("first", ["any source", "host", "persistent"])
def test_another_receive_that_could_have_it_makes_it_doubtful(post: Post, first: str) -> None:
    early, into, outs = column(), column(), [column(1), column(2)]
    if first == "host":
        early = Memory(DENSE, 1, where="host")
    with acted(self_moves=0):
        if first == "persistent":
            with committed(COLUMN) as datatype:
                receive = post.comm.Recv_init(early.message(datatype), 0, TAG)
                receive.Start()
        else:
            receive = post.recv(early, TAG, MPI.ANY_SOURCE if first == "any source" else None)
        requests = [receive, post.recv(into), *post.send(outs[0]), *post.send(outs[1])]
        MPI.Request.Waitall(requests)
    early.check(outs[0].packed)
    into.check(outs[1].packed)
    if first == "persistent":
        receive.Free()


def test_a_message_without_a_receive_makes_it_doubtful(post: Post) -> None:
    outs, intos = [column(1), column(2)], [column(), column()]
    with acted(self_moves=0):
        sends = post.send(outs[0])
        receives = [post.recv(into) for into in intos]
        MPI.Request.Waitall([*receives, *sends, *post.send(outs[1])])
    for out, into in zip(outs, intos, strict=True):
        into.check(out.packed)


def test_a_sendrecv_while_a_receive_waits_goes_by_the_library(post: Post) -> None:
    outs, intos = [column(1), column(2)], [column(), column()]
    with acted(self_moves=0):
        receive = post.recv(intos[0])
        sends = post.send(outs[0], 8)  # for the Sendrecv's receive
        post.comm.Sendrecv(post.message(outs[1]), 0, TAG, post.message(intos[1]), 0, 8)
        MPI.Request.Waitall([receive, *sends])
    intos[0].check(outs[1].packed)
    intos[1].check(outs[0].packed)


def test_a_cancelled_receive_has_nomessage(post: Post) -> None:
    out, gone, into = column(5), column(), column()
    status = MPI.Status()
    receive = post.recv(gone)
    receive.Cancel()
    receive.Wait(status)
    assert status.Is_cancelled()
    before = gone.copy()
    with acted(self_moves=0):
        waitall([post.recv(into), *post.send(out)])
    into.check(out.packed)
    np.testing.assert_array_equal(gone.copy(), before)


def test_a_receive_that_has_its_message_is_not_cancelled(post: Post) -> None:
    out, into = column(5), column()
    status = MPI.Status()
    receive = post.recv(into)
    sends = post.send(out)
    receive.Cancel()
    receive.Wait(status)
    MPI.Request.Waitall(sends)
    assert not status.Is_cancelled()
    into.check(out.packed)


def test_a_probe_does_not_see_it(post: Post) -> None:
    out, into = column(5), column()
    requests = [post.recv(into), *post.send(out)]
    assert not post.comm.Iprobe(0, TAG)
    waitall(requests)
    into.check(out.packed)


@pytest.mark.parametrize("which", [0, 1], ids=["receive", "send"])
def test_a_freed_request_goes_on(post: Post, which: int) -> None:
    out, into = column(5), column()
    requests = [post.recv(into), *post.send(out)]
    requests.pop(which).Free()
    waitall(requests)
    post.comm.Barrier()
    into.check(out.packed)


def test_a_communicator_that_is_freed_meanwhile(own: Any) -> None:
    out, into = column(5), column()
    post = Post(own.Dup())
    requests = [post.recv(into), *post.send(out)]
    post.comm.Free()
    waitall(requests)
    into.check(out.packed)
    post.free()
    waiting = Post(own.Dup())
    receive = waiting.recv(into)
    waiting.comm.Free()
    receive.Cancel()
    receive.Wait()
    waiting.free()


def test_threads_that_share_a_communicator_lose_nothing(own: Any) -> None:
    """All with one tag: the matching is arbitrary, but each message goes to one receive."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started without threads")
    rounds, count = 25, 3
    made = [Post(own) for _ in range(count)]
    outs = [[strided_memory(1000 * t + i) for i in range(rounds)] for t in range(count)]
    intos = [[strided_memory(None) for _ in range(rounds)] for _ in range(count)]
    before = snapshot()["self_moves"]

    def work(t: int) -> None:
        for out, into in zip(outs[t], intos[t], strict=True):
            waitall([made[t].recv(into), *made[t].send(out)])

    threads = [threading.Thread(target=work, args=(t,)) for t in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = sorted(bytes(memory.packed) for row in outs for memory in row)
    assert sorted(bytes(memory.packed) for row in intos for memory in row) == sent
    assert snapshot()["self_moves"] >= before
    for post in made:
        post.free()


def strided_memory(seed: int | None) -> Memory:
    memory = Memory(strided(40), 1, where="device")
    return memory if seed is None else memory.fill(seed)


def test_threads_on_communicators_of_their_own_move(own: Any) -> None:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was started without threads")
    comms = [own.Dup() for _ in range(3)]
    good = []

    def work(comm: Any) -> None:
        post = Post(comm)
        for i in range(20):
            out, into = column(i), column()
            waitall([post.recv(into), *post.send(out, how=("Isend", "Send")[i % 2])])
            good.append(np.array_equal(into.packed, out.packed))
        post.free()

    threads = [threading.Thread(target=work, args=(comm,)) for comm in comms]
    with acted(self_moves=60, device_packs=0, device_unpacks=0):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert good == [True] * 60
    for comm in comms:
        comm.Free()


def test_any_type_arrives_as_its_type_map_says(post: Post) -> None:
    for tree in COUNTEREXAMPLES.values():
        out, into = Memory(tree, 3, where="device").fill(2), Memory(tree, 3, where="device")
        before = into.copy()
        waitall([post.recv(into), *post.send(out)])
        oracle.unpack(tree, 3, out.packed, before, into.origin)
        np.testing.assert_array_equal(into.copy(), before)
