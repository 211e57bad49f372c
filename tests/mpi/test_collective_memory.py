"""How collectives through shared memory copy long blocks, and use memory again."""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import oracle
import packing
from pending import FORMS, WAITS, Pending, agree, forms, request_of
from redistribution import NAMED, Block, Side, bytes_of
from world import HOSTS, MPI, carried, needs_host_memory, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VECTOR = oracle.Vector(40, 3, 5, NAMED[2])


def test_long_ones_use_their_memory_again(ready: Any) -> None:
    """Longer than a slab of shared memory, and together more than what is kept."""
    needs_host_memory()
    size, rank, rows, run, stride = ready.size, ready.rank, 3000, 8192, 9000
    datatype = MPI.BYTE.Create_vector(rows, run, stride).Commit()
    out, into = (np.zeros((size, rows, stride), np.uint8) for _ in range(2))
    places, types = [i * rows * stride for i in range(size)], [datatype] * size
    for turn in range(4):
        into[:] = 0xA5
        for to in range(size):
            out[to] = 16 * rank + 4 * to + turn
        with carried(ready, "Alltoallw"):
            ready.Ialltoallw([out, [1] * size, places, types], [into, [1] * size, places, types]).Wait()
        for source in range(size):
            assert (into[source, :, :run] == 16 * source + 4 * rank + turn).all()
        assert (into[:, :, run:] == 0xA5).all()
    datatype.Free()


#: 160 KiB in runs of 4096 bytes, and layouts of the same bytes on the other side.
ROWS = oracle.Vector(40, 4096, 5000, NAMED[0])
OTHERS = {
    "rows": ROWS,
    "pairs": oracle.Vector(10240, 16, 17, NAMED[0]),
    "pieces": oracle.IndexedBlock(16, tuple(16 * i + i // 3 for i in range(10240)), NAMED[0]),
}
#: A way that was slow before, in memory that was kept, is tried again after 48 messages of a kind.
TURNS = 100


class LongRuns(Pending):
    """Blocks that the receiver may read in the sender's memory; others in each turn."""

    def __init__(self, comm: Any, other: str = "rows", senders: int | None = None) -> None:
        self.rank, self.size, self.other, self.senders = comm.rank, comm.size, OTHERS[other], senders or comm.size
        super().__init__(comm, 0)

    def blocks(self, comm: Any, seed: int) -> list[list[Block]]:
        ranks, counts = range(self.size), [int(i < self.senders) for i in range(self.size)]
        return [
            [Block((ROWS, counts[i]), (self.other, counts[i]), 100 * seed + 10 * i + j) for j in ranks] for i in ranks
        ]

    def next(self, turn: int) -> None:
        blocks = self.blocks(None, turn)
        self.out, self.into = blocks[self.rank], [row[self.rank] for row in blocks]
        self.fill()


@pytest.fixture(params=[0, 1 << 14], ids=["", "in parts"])
def room(request: pytest.FixtureRequest) -> Iterator[int]:
    """Bytes that long messages may have in shared memory; 0: as usual."""
    packing.lib.tempi_post_room_assume(request.param)
    yield request.param
    packing.lib.tempi_post_room_assume(0)


@contextlib.contextmanager
def forced(way: str) -> Iterator[None]:
    """Every long message goes that way, if the system lets it."""
    name = packing.lib.tempi_copy_way_name
    packing.lib.tempi_copy_way_force(next(one for one in range(7) if packing.ffi.string(name(one)) == way.encode()))
    yield
    packing.lib.tempi_copy_way_force(-1)


@pytest.fixture(params=[False, True], ids=["", "stored"])
def stored(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether each sender stores, if its receiver lets it."""
    with forced("stored") if request.param else contextlib.nullcontext():
        yield


@forms
@pytest.mark.parametrize("other", OTHERS)
def test_long_runs_arrive_whichever_way_they_take(ready: Any, form: str, other: str, room: int, stored: None) -> None:
    """All ways are tried in turn, or one is taken; some ranks are late, and what was sent is overwritten as soon as it
    may be."""
    needs_host_memory()
    e = LongRuns(ready, other)
    request = request_of(ready, "Alltoallw", *e.arguments) if form == "persistent" else None
    for turn in range(TURNS):
        e.next(turn)
        if turn % 5 == ready.rank:
            time.sleep(0.003)
        if request:
            request.Start()
        WAITS[turn % 2](request or ready.Ialltoallw(*e.arguments))
        e.sent.memory[:] = 0xEE
        e.check()
    if request:
        request.Free()
    e.free()


def test_long_runs_do_not_wait_for_the_receiver(ready: Any, room: int, stored: None) -> None:
    """Rank 0 waits, in a plain receive, for what the others send only after they have completed the exchange. For room
    in shared memory these wait a second."""
    needs_host_memory()
    e, token = LongRuns(ready, "pairs" if room else "rows"), np.zeros(1, np.uint8)
    for turn in range(2 if room else TURNS):
        e.next(turn)
        request = ready.Ialltoallw(*e.arguments)
        if ready.rank > 0:
            while turn % 2 and not request.Test():
                time.sleep(0.002)
            request.Wait()
            e.sent.memory[:] = 0xEE
            ready.Send(token, 0, 4)
        for source in range(1, ready.size if ready.rank == 0 else 1):
            ready.Recv(token, source, 4)
        if ready.rank == 0:
            request.Wait()
        e.check()
    e.free()


@forms
def test_long_runs_arrive_while_their_sender_computes(ready: Any, form: str, stored: None, tmp_path: Path) -> None:
    """Rank 0 calls nothing of MPI until the others have what it sends."""
    needs_host_memory()
    if len(set(HOSTS)) > 1:
        pytest.skip("the library makes no progress meanwhile")
    e, folder = LongRuns(ready, senders=1), Path(ready.bcast(str(tmp_path)))
    request = request_of(ready, "Alltoallw", *e.arguments) if form == "persistent" else None
    for turn in range(6):
        e.next(turn)
        ready.Barrier()
        if request:
            request.Start()
        own = request or ready.Ialltoallw(*e.arguments)
        if ready.rank > 0:
            own.Wait()
            (folder / f"{turn}-{ready.rank}").touch()
        elif not until(functools.partial(has_files, folder, f"{turn}-*", ready.size - 1)):
            pytest.fail("they wait for a call of rank 0")
        if ready.rank == 0:
            own.Wait()
        e.check()
    if request:
        request.Free()
    e.free()


def has_files(folder: Path, pattern: str, n: int) -> bool:
    return len(list(folder.glob(pattern))) == n


def until(condition: Callable[[], bool]) -> bool:
    """Whether it holds within 20 seconds."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


@pytest.fixture
def offered() -> Iterator[None]:
    """Every long message is, if the system lets the receiver read it."""
    with forced("once"):
        yield


@pytest.mark.parametrize("form", ["nonblocking", "persistent"])
def test_an_offer_to_a_late_root_is_withdrawn_in_parts(comm: Any, room: int, offered: None, form: str) -> None:
    """After another call with a root, whose blocks go elsewhere."""
    needs_host_memory()
    own, size = comm.Dup(), comm.size
    roots, datatype = (0, size - 1), oracle.as_mpi(ROWS, MPI).Commit()
    extent, bytes_in = ROWS.type_map.extent, len(oracle.element_offsets(ROWS, 1))
    out, into = np.zeros((2, extent), np.uint8), np.zeros((2, size, bytes_in), np.uint8)
    for i in range(2):
        oracle.unpack(ROWS, 1, bytes_of(100 * i + own.rank, bytes_in), out[i], 0)
    calls = [([out[i], 1, datatype], into[i] if own.rank == root else None, root) for i, root in enumerate(roots)]
    requests = [request_of(own, "Gather", *call) for call in calls] if form == "persistent" else []
    for _ in range(3):
        into[:] = 0
        own.Barrier()
        if own.rank == 0:
            time.sleep(0.02)
        for request in requests:
            request.Start()
        MPI.Request.Waitall(requests or [own.Igather(*call) for call in calls])
        for i, root in enumerate(roots):
            expected = [bytes_of(100 * i + rank, bytes_in) for rank in range(size)]
            assert own.rank != root or np.array_equal(into[i], expected)
    for request in requests:
        request.Free()
    datatype.Free()
    own.Free()


def test_long_runs_in_place_are_not_read_after_they_were_replaced(ready: Any, stored: None) -> None:
    needs_host_memory()
    e = LongRuns(ready)
    for turn in range(TURNS):
        e.next(turn)
        e.received.memory[:] = e.sent.memory
        e.into[ready.rank] = e.out[ready.rank]
        if turn % 3 == ready.rank:
            time.sleep(0.003)
        ready.Ialltoallw(MPI.IN_PLACE, e.received.message).Wait()
        e.check()
    e.free()


def memory_of_messages() -> int:
    """Bytes, of all processes."""
    links = {
        link.stat().st_ino: link for link in Path("/proc/self/fd").iterdir() if "tempi-messages" in target_of(link)
    }
    return sum(512 * link.stat().st_blocks for link in links.values())


def target_of(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # the descriptor of the folder itself
        return ""


FEW, MUCH = 1 << 18, 1 << 21  # bytes
SPARE = 2 << 12  # of the two parts that wait: a page each


class ToTheLast(Pending):
    """Each process has a long message in short runs for the last one, which is late; and that one for them, or none."""

    def __init__(self, comm: Any, *, answered: bool) -> None:
        self.answered = answered
        super().__init__(comm, 0)

    def blocks(self, comm: Any, seed: int) -> list[list[Block]]:
        tree, last = oracle.Vector(MUCH // 8, 8, 9, NAMED[0]), comm.size - 1
        answers = int(self.answered)
        counts = [
            [int(i < j == last) + answers * int(j < i == last) for j in range(comm.size)] for i in range(comm.size)
        ]
        return [[Block((tree, n), (tree, n), 10 * i + j) for j, n in enumerate(row)] for i, row in enumerate(counts)]


@pytest.fixture(params=[False, True], ids=["", "answered"])
def long_message(request: pytest.FixtureRequest, comm: Any) -> Iterator[tuple[Any, ToTheLast, int]]:
    """Its communicator, on which the memory of messages is made; with the number of those on the last one's host."""
    own, last = comm.Dup(), comm.size - 1
    agree(own)
    packing.lib.tempi_post_room_assume(FEW)
    e = ToTheLast(own, answered=request.param)
    comm.Barrier()
    yield own, e, HOSTS[:last].count(HOSTS[last])
    packing.lib.tempi_post_room_assume(0)
    e.check()
    e.free()
    own.Free()


def test_a_long_message_has_no_memory_of_its_size(long_message: tuple[Any, ToTheLast, int]) -> None:
    needs_host_memory()
    own, e, messages = long_message
    before = memory_of_messages()
    own.Barrier()
    if own.rank == own.size - 1:
        time.sleep(0.1)
        assert memory_of_messages() - before <= (FEW + SPARE) * messages
    own.Ialltoallw(*e.arguments).Wait()


def test_a_long_message_is_packed_before_its_sender_waits_for_anything_else(
    long_message: tuple[Any, ToTheLast, int],
) -> None:
    needs_host_memory()
    own, e, messages = long_message
    token, last = np.zeros(1, np.uint8), own.size - 1
    if own.rank < last:
        request = own.Ialltoallw(*e.arguments)
        own.Recv(token, last, 3)
    else:
        deadline = time.monotonic() + 10
        while memory_of_messages() < MUCH * messages and time.monotonic() < deadline:
            time.sleep(0.01)
        assert memory_of_messages() >= MUCH * messages
        for to in range(last):
            own.Send(token, to, 3)
        request = own.Ialltoallw(*e.arguments)
    request.Wait()


def mappings() -> set[str]:
    """Of shared memory of communicators: with their addresses."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {line.split()[0] + line.split()[-2] for line in lines if "/dev/shm/tempi-" in line}


@forms
def test_new_communicators_of_the_same_ranks_use_memory_of_freed_ones(comm: Any, form: str) -> None:
    seen = []
    for turn in range(6):
        own = comm.Dup()
        agree(own)
        e = Pending(own, 30)
        FORMS[form][0](own, "Alltoallw")(*e.arguments)
        e.check()
        e.fill()
        own.Alltoallw(*e.arguments)
        e.check()
        e.free()
        seen.append(mappings())
        own.Free()
        assert turn < 2 or seen[turn] == seen[1]


def test_calls_of_a_freed_communicator_are_not_taken_for_those_of_the_next(comm: Any) -> None:
    """Each communicator's only call has the same number there, and is copied in another way; some ranks are late."""
    needs_host_memory()
    for turn in range(16):
        own = comm.Dup()
        e = LongRuns(own, senders=1)
        e.next(turn)
        if comm.rank > 0:
            time.sleep(0.001)
        own.Alltoallw(*e.arguments)
        e.sent.memory[:] = 0xEE
        e.check()
        e.free()
        own.Free()


def test_memory_that_one_rank_still_uses_is_not_used_again(comm: Any) -> None:
    """The rank with the communicator's first one has given it back; it is asked for, and refused."""
    own, requests, exchanges = [comm.Dup()], [], []
    for turn in range(6):
        e = Pending(own[-1], turn)
        request = request_of(own[-1], "Alltoallw", *e.arguments)
        request.Start()
        request.Wait()
        e.check()
        requests.append(request)
        exchanges.append(e)
        if turn % 3 != comm.rank % 3:
            requests.pop().Free()
        own[-1].Free()
        own.append(comm.Dup())
    for request in requests:
        request.Free()
    for e in exchanges:
        e.free()
    own[-1].Free()


def test_memory_in_which_a_call_has_failed_is_not_used_again(comm: Any) -> None:
    for turn in range(3):
        own = comm.Dup()
        own.Set_errhandler(MPI.ERRORS_RETURN)
        sent, received = Side([(VECTOR, 1)] * comm.size), Side([(VECTOR if turn != 1 else NAMED[2], 1)] * comm.size)
        sent.put([bytes_of(1, sent.size(i)) for i in range(comm.size)])
        received.put([None] * comm.size)
        said = outcome(functools.partial(own.Alltoallw, sent.message, received.message))
        if comm.size > 1 or turn != 1:
            assert ("error" in str(said)) == (turn == 1)
        if turn != 1:
            received.check([bytes_of(1, sent.size(i)) for i in range(comm.size)])
        sent.free()
        received.free()
        own.Free()
