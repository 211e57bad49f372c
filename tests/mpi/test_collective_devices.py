"""Collectives of blocks in device memory: their devices move them, also from memory of other processes."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import oracle
import tempi
from devices import DEVICES, EMULATED, Calls, call, failing, running_late
from pending import agree, request_of
from world import MPI, Memory, committed, outcome, partners, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

BYTE = oracle.Named("BYTE")
TURNS = 3
#: Layouts of 4,096 bytes, which kernels pair with each other.
NESTS = {
    "vector": oracle.Vector(256, 16, 40, BYTE),
    "plane": oracle.Subarray((8, 32, 64), (8, 16, 32), (0, 7, 16), BYTE),
    "contiguous": oracle.Contiguous(4096, BYTE),
}
IRREGULAR = oracle.IndexedBlock(16, tuple(20 * i + i * i % 3 for i in range(256)), BYTE)
#: Layouts of the same size that have no common blocks.
#: Both have twelve runs of 8 bytes: three times four, and four times three.
THREE_FOURS = oracle.Vector(3, 1, 2, oracle.Vector(4, 8, 16, BYTE))
FOUR_THREES = oracle.Vector(4, 1, 2, oracle.Vector(3, 8, 16, BYTE))


@pytest.fixture
def own(comm: Any) -> Iterator[Any]:
    """A communicator that was used before by nobody."""
    made = comm.Dup()
    agree(made)
    yield made
    made.Free()


forms = pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])


class Ring:
    """To the right-hand neighbour: on one rank to itself."""

    def __init__(
        self,
        comm: Any,
        sent: oracle.Tree,
        received: oracle.Tree,
        places: tuple[str, str] = ("device", "device"),
        form: str = "blocking",
    ) -> None:
        self.comm, (self.to, self.source) = comm, partners(comm)
        self.form = form
        self.request: Any = None
        self.out, self.into = Memory(sent, 1, where=places[0]), Memory(received, 1, where=places[1])
        self.types = [oracle.as_mpi(tree, MPI).Commit() for tree in (sent, received)]

    def fill(self, seed: int) -> None:
        self.out.fill(100 * seed + self.comm.rank)
        self.into._put(np.full_like(self.into._whole, 0xA5))

    def arguments(self) -> tuple[list[Any], list[Any]]:
        n, sides = self.comm.size, []
        for memory, peer, datatype in ((self.out, self.to, self.types[0]), (self.into, self.source, self.types[1])):
            counts, types = [0] * n, [datatype] * n
            counts[peer] = 1
            sides.append([memory.message(datatype)[0], counts, [0] * n, types])
        return sides[0], sides[1]

    def exchange(self) -> None:
        if self.form == "blocking":
            self.comm.Alltoallw(*self.arguments())
        elif self.form == "nonblocking":
            self.comm.Ialltoallw(*self.arguments()).Wait()
        else:
            self.request = self.request or request_of(self.comm, "Alltoallw", *self.arguments())
            self.request.Start()
            self.request.Wait()

    def check(self, seed: int) -> None:
        self.into.check(Memory(self.out.tree, 1, where="host").fill(100 * seed + self.source).packed)

    def free(self) -> None:
        if self.request:
            self.request.Free()
        for datatype in self.types:
            datatype.Free()


def moved(before: Any) -> int:
    """Blocks of others, and own ones, that devices moved."""
    now = snapshot()
    return int(now["peer_moves"] + now["self_moves"] - before["peer_moves"] - before["self_moves"])


def run(
    comm: Any,
    sent: oracle.Tree,
    received: oracle.Tree,
    places: tuple[str, str] = ("device", "device"),
    form: str = "blocking",
) -> int:
    """Exchanges several times; returns how many blocks a device moved in the last TURNS of them: after a refusal a
    sender, also of an earlier test, offers nothing in up to 16 exchanges."""
    ring = Ring(comm, sent, received, places, form)
    for turn in range(17 + TURNS):
        if turn == 17:
            before = snapshot()
        ring.fill(turn)
        ring.exchange()
        ring.check(turn)
    ring.free()
    return moved(before)


@forms
@pytest.mark.parametrize("received", NESTS)
@pytest.mark.parametrize("sent", NESTS)
def test_nests_are_moved_from_layout_to_layout(own: Any, sent: str, received: str, form: str) -> None:
    assert run(own, NESTS[sent], NESTS[received], form=form) == TURNS


@forms
def test_memory_of_another_device_is_read_too(own: Any, form: str) -> None:
    """Ranks that use a device each: it is opened on the receiver's."""
    where = f"device:{own.rank % 2}"
    assert run(own, NESTS["vector"], NESTS["plane"], (where, where), form=form) == TURNS


@forms
@pytest.mark.parametrize("places", [("device:1", "device:0"), ("device:1", "device:1")], ids=["two", "one"])
def test_own_blocks_are_moved_within_a_device(places: tuple[str, str], form: str) -> None:
    """Between two devices they are staged."""
    own = MPI.COMM_SELF.Dup()
    assert run(own, NESTS["vector"], NESTS["plane"], places, form=form) == (TURNS if places[0] == places[1] else 0)
    own.Free()


@forms
def test_memory_of_a_device_is_read_by_the_receivers_other_device(own: Any, form: str) -> None:
    assert run(own, NESTS["vector"], NESTS["vector"], ("device:1", "device:0"), form=form) == (
        TURNS if own.size > 1 else 0
    )


@forms
@pytest.mark.parametrize(
    ("sent", "received", "places"),
    [
        (IRREGULAR, NESTS["vector"], ("device", "device")),
        (NESTS["vector"], NESTS["vector"], ("host", "device")),
        (NESTS["vector"], NESTS["vector"], ("device", "host")),
        (NESTS["vector"], NESTS["vector"], ("managed", "device")),
        (NESTS["vector"], NESTS["vector"], ("device", "pinned")),
    ],
    ids=["irregular", "from the host", "to the host", "managed", "pinned"],
)
def test_other_blocks_are_staged(
    own: Any, sent: oracle.Tree, received: oracle.Tree, places: tuple[str, str], form: str
) -> None:
    found = run(own, sent, received, places, form=form)
    assert found == 0 or (sent is IRREGULAR and own.size == 1)


@forms
@pytest.mark.parametrize("where", ["pool", "mapped"])
def test_memory_without_a_handle_is_staged(own: Any, where: str, form: str) -> None:
    found = run(own, NESTS["vector"], NESTS["plane"], (where, where), form=form)
    assert found == (TURNS if own.size == 1 and where == "pool" else 0)


@forms
def test_layouts_without_common_blocks_are_staged(own: Any, form: str) -> None:
    assert run(own, THREE_FOURS, FOUR_THREES, form=form) == 0


@forms
@pytest.mark.parametrize("name", ["cuIpcOpenMemHandle", "cuIpcGetMemHandle"])
def test_memory_that_cannot_be_opened_is_staged(own: Any, name: str, form: str) -> None:
    if own.size == 1:
        pytest.skip("needs another rank")
    with failing(name):
        assert run(own, NESTS["vector"], NESTS["vector"], form=form) == 0
    assert run(own, NESTS["vector"], NESTS["vector"], form=form) == TURNS


@forms
def test_memory_that_counts_as_mapped_already_is_opened_at_the_second_try(own: Any, form: str) -> None:
    if own.size == 1:
        pytest.skip("needs another rank")
    run(own, NESTS["vector"], NESTS["vector"], form=form)
    ring, before = Ring(own, NESTS["vector"], NESTS["vector"], form=form), snapshot()
    ring.fill(1)
    with failing("cuIpcOpenMemHandle", 1, "208"):
        ring.exchange()
    ring.check(1)
    ring.free()
    assert moved(before) == 1


@forms
def test_the_next_allocation_at_an_address_is_not_taken_for_the_last(own: Any, form: str) -> None:
    for turn in range(8):
        ring = Ring(own, NESTS["vector"], NESTS["plane"], form=form)
        ring.fill(turn)
        ring.exchange()
        ring.check(turn)
        ring.free()


@forms
def test_the_same_allocation_is_opened_once(own: Any, form: str) -> None:
    ring = Ring(own, NESTS["vector"], NESTS["plane"], form=form)
    before, then = Calls(), snapshot()
    for turn in range(20):
        ring.fill(turn)
        ring.exchange()
        ring.check(turn)
    _, each = before.since()
    ring.free()
    assert moved(then) > 2
    assert each.get("IpcOpenMemHandle", 0) == (1 if own.size > 1 else 0)
    assert each.get("IpcGetMemHandle", 0) <= 1


@pytest.fixture
def late() -> Iterator[None]:
    with running_late():
        yield


@forms
@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("named", [False, True], ids=["default stream", "the communicator's"])
def test_others_read_after_the_programs_work(own: Any, named: bool, form: str) -> None:
    """The bytes are stored by work that has not run when the call is made."""
    made = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(made), 1, on=0)
    stream = made.value if named else None
    if named:
        tempi.set_stream(own, stream)
    ring = Ring(own, NESTS["vector"], NESTS["vector"], form=form)
    for turn in range(3):
        ring.fill(turn)
        device = ring.out._device
        assert device is not None
        address, size = ctypes.c_uint64(device.address), ctypes.c_size_t(device.size)
        call("cuMemsetD8Async", address, 16 * turn + ring.comm.rank + 1, size, ctypes.c_void_p(stream), on=0)
        ring.exchange()
        ring.into.check(np.full(4096, 16 * turn + ring.source + 1, np.uint8))
    ring.free()
    tempi.set_stream(own, None)
    call("cuStreamSynchronize", made, on=0)
    call("cuStreamDestroy_v2", made, on=0)


@forms
def test_a_device_that_fails_is_an_error(own: Any, form: str) -> None:
    own.Set_errhandler(MPI.ERRORS_RETURN)
    ring = Ring(own, NESTS["vector"], NESTS["plane"], form=form)
    ring.fill(1)
    ring.exchange()
    with failing("cuLaunchKernel"), pytest.raises(MPI.Exception):
        ring.exchange()
    ring.free()


@forms
@pytest.mark.parametrize("name", ["cuMemsetD8Async", "cuLaunchKernel"])
def test_an_error_of_one_rank_keeps_no_other_waiting(own: Any, name: str, form: str) -> None:
    """Before its header: others receive zeros, or an error if they need not wait. In the launch: they are read."""
    own.Set_errhandler(MPI.ERRORS_RETURN)
    ring = Ring(own, NESTS["vector"], NESTS["plane"], form=form)
    for turn in range(18):
        ring.fill(turn)
        ring.exchange()
    rules = failing(name) if own.rank == 0 else contextlib.nullcontext()
    with rules:
        said = outcome(ring.exchange)
    heard = own.rank == 0 or (form != "blocking" and name != "cuLaunchKernel")
    assert ("error" in str(said)) == heard or own.size == 1
    ring.fill(1)
    ring.exchange()
    ring.check(1)
    ring.free()


def described(ranks: int) -> int:
    """The most blocks that a quarter of a ring between these ranks describes, at 152 bytes each (csrc/exchange/rest.c,
    segment.c)."""
    ring = most = 4 << 20
    while ring > 256 << 10 and ring * (ranks - 1) > most:
        ring //= 2
    return ring // 4 // 152


@pytest.mark.parametrize("blocks", [1, 40, 300, None])
def test_any_number_of_blocks_to_one_process(own: Any, blocks: int | None) -> None:
    """More than an offer describes, None, are staged."""
    fits = blocks is not None or own.size == 1
    blocks = blocks or described(own.size) + 1
    tree = oracle.Vector(16, 8, 24, BYTE)
    spread = oracle.Contiguous(384 * blocks, BYTE)
    to, source = partners(own)
    out, into = (Memory(spread, 1, where="device") for _ in range(2))
    graph = own.Create_dist_graph_adjacent([source] * blocks, [to] * blocks)
    before = snapshot()
    with committed(tree) as datatype:
        places = [384 * i for i in range(blocks)]
        for turn in range(17 + TURNS):
            before = snapshot() if turn <= 17 else before
            out.fill(10 * turn + own.rank)
            into._put(np.full_like(into._whole, 0xA5))
            sides = [[m.message(datatype)[0], [1] * blocks, places, [datatype] * blocks] for m in (out, into)]
            graph.Neighbor_alltoallw(*sides)
            wanted = Memory(spread, 1, where="host").fill(10 * turn + source)
            got, whole = into.packed.reshape(blocks, 16, 24), wanted.packed.reshape(blocks, 16, 24)
            np.testing.assert_array_equal(got[:, :, :8], whole[:, :, :8])
            assert (got[:, :, 8:] == 0xA5).all()
    assert moved(before) == (TURNS * blocks if fits else 0)
    graph.Free()


def test_a_sender_does_not_wait_for_a_receiver_that_is_elsewhere(own: Any) -> None:
    """What is offered is packed after a while: rank 0 ends its call before another one begins with it."""
    if own.size == 1:
        pytest.skip("needs another rank")
    ring = Ring(own, NESTS["vector"], NESTS["plane"], form="nonblocking")
    empty = [np.zeros(1, np.uint8), [0] * own.size, [0] * own.size, [MPI.BYTE] * own.size]
    ring.fill(1)
    sent, received = ring.arguments()
    if own.rank == 0:
        own.Ialltoallw(sent, empty).Wait()
        own.send("done", ring.to)
    elif ring.source == 0:
        own.recv(source=0)
        own.Ialltoallw(empty, received).Wait()
        ring.check(1)
    else:
        own.Ialltoallw(empty, empty).Wait()
    ring.free()


def test_what_both_sides_cannot_open_is_packed_while_both_wait(own: Any) -> None:
    """Each has refused what the other one offers, and waits for it."""
    run(own, NESTS["vector"], NESTS["plane"], form="nonblocking")
    ring = Ring(own, NESTS["vector"], NESTS["plane"], form="nonblocking")
    with failing("cuIpcOpenMemHandle"):
        for turn in range(3):
            ring.fill(turn)
            ring.exchange()
            ring.check(turn)
    ring.free()


def test_types_may_be_freed_while_a_refused_call_runs(own: Any) -> None:
    run(own, NESTS["vector"], NESTS["plane"], form="nonblocking")
    ring = Ring(own, NESTS["vector"], NESTS["plane"], form="nonblocking")
    ring.fill(1)
    with failing("cuIpcOpenMemHandle"):
        request = own.Ialltoallw(*ring.arguments())
        ring.free()
        own.Barrier()
        request.Wait()
    ring.check(1)


def test_several_calls_are_under_way(own: Any) -> None:
    """Completed in another order than they were started in."""
    rings = [Ring(own, NESTS["vector"], NESTS["plane"], form="nonblocking") for _ in range(4)]
    for turn in range(6):
        requests = []
        for i, ring in enumerate(rings):
            ring.fill(10 * turn + i)
            requests.append(own.Ialltoallw(*ring.arguments()))
        for i in (2, 0, 3, 1):
            requests[i].Wait()
            rings[i].check(10 * turn + i)
    for ring in rings:
        ring.free()


@pytest.mark.parametrize("elsewhere", ["Recv", "Barrier", "Wait"])
@pytest.mark.parametrize("places", [("device", "device"), ("device", "host")], ids=["accepted", "refused"])
def test_nobody_waits_for_a_process_that_waits_in_the_library(
    own: Any, places: tuple[str, str], elsewhere: str
) -> None:
    """Rank 0 waits for a message, or a barrier, that comes when the others have completed their call."""
    if own.size == 1:
        pytest.skip("needs another rank")
    run(own, NESTS["vector"], NESTS["plane"], form="nonblocking")
    ring, token = Ring(own, NESTS["vector"], NESTS["plane"], places, form="nonblocking"), np.zeros(1)
    barrier = own.Dup()
    for turn in range(4):
        ring.fill(turn)
        request = own.Ialltoallw(*ring.arguments())
        if own.rank > 0:
            request.Wait()
        if elsewhere == "Barrier":
            barrier.Barrier()
        elif own.rank == 1:
            own.Send(token, 0)
        elif own.rank == 0 and elsewhere == "Recv":
            own.Recv(token, 1)
        elif own.rank == 0:
            own.Irecv(token, 1).Wait()
        if own.rank == 0:
            request.Wait()
        ring.check(turn)
    barrier.Free()
    ring.free()


@forms
@pytest.mark.parametrize("sent", [oracle.Contiguous(1 << 16, BYTE), oracle.Vector(64, 1024, 1500, BYTE)], ids=str)
def test_long_blocks_of_the_host_arrive_on_a_device(own: Any, sent: oracle.Tree, form: str) -> None:
    """The host's receiver might read them in the sender's memory; here they need other memory first."""
    ring = Ring(own, sent, oracle.Vector(4096, 16, 40, BYTE), ("host", "device"), form)
    for turn in range(24):
        ring.fill(turn)
        ring.exchange()
        ring.check(turn)
    ring.free()
