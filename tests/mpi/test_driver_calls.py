"""Calls of the CUDA driver in the steady state of an exchange, counted by the emulated one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import oracle
import tempi
from devices import DEVICES, EMULATED, Calls, context, driver
from examples import strided
from pending import request_of
from world import MPI, Memory, committed, partners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

WARM_UP = 6  # exchanges until buffers and descriptors are there
SIDE = 8  # points of a field along each axis, without its halo
_double = oracle.Named("DOUBLE")


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Work runs when it is submitted, so that no count depends on a number of polls."""
    driver().tempi_emulator_streams(b"immediate")
    driver().cuCtxSetCurrent(context(0))  # as in a program that uses its device
    yield
    driver().cuCtxSetCurrent(None)
    driver().tempi_emulator_streams(b"random")


def regions(radius: int) -> list[tuple[oracle.Tree, oracle.Tree]]:
    """Inner region and halo of the 26 neighbours."""
    found: list[tuple[oracle.Tree, oracle.Tree]] = []
    for number in range(27):
        way = (number // 9 - 1, number // 3 % 3 - 1, number % 3 - 1)
        if way == (0, 0, 0):
            continue
        size = tuple(radius if w else SIDE for w in way)
        inner = tuple((SIDE if w > 0 else radius) for w in way)
        outer = tuple((SIDE + radius if w > 0 else 0 if w < 0 else radius) for w in way)
        whole = (SIDE + 2 * radius,) * 3
        found.append((oracle.Subarray(whole, size, inner, _double), oracle.Subarray(whole, size, outer, _double)))
    return found


def steady(comm: Any, exchange: Callable[[], None]) -> tuple[int, dict[str, int]]:
    """Calls of one exchange once buffers and descriptors are there: in all, and by function."""
    for _ in range(WARM_UP):
        exchange()
        comm.Barrier()
    before = Calls()
    exchange()
    return before.since()


class Halo:
    """Fields, each an allocation; 26 regions of each go to the right, and its halo comes from the left."""

    def __init__(self, comm: Any, radius: int, fields: int, where: str = "device") -> None:
        self.comm, (self.to, self.source) = comm, partners(comm)
        trees = regions(radius)
        whole = oracle.Contiguous((SIDE + 2 * radius) ** 3, _double)
        self.fields = [Memory(whole, 1, where=where).fill(10 * comm.rank + f) for f in range(fields)]
        self.types = [(oracle.as_mpi(i, MPI).Commit(), oracle.as_mpi(o, MPI).Commit()) for i, o in trees]

    def exchange(self) -> None:
        requests = []
        for f, field in enumerate(self.fields):
            for t, (_, outer) in enumerate(self.types):
                requests.append(self.comm.Irecv(field.message(outer), self.source, 26 * f + t))
        for f, field in enumerate(self.fields):
            for t, (inner, _) in enumerate(self.types):
                requests.append(self.comm.Isend(field.message(inner), self.to, 26 * f + t))
        MPI.Request.Waitall(requests)

    def calls(self) -> tuple[int, dict[str, int]]:
        """Of one exchange in the steady state."""
        return steady(self.comm, self.exchange)

    def free(self) -> None:
        for pair in self.types:
            for datatype in pair:
                datatype.Free()


@pytest.mark.parametrize("radius", [1, 2, 3])
@pytest.mark.parametrize("fields", [1, 8])
def test_26_and_208_messages_of_8_fields_are_at_most_fourteen_calls(comm: Any, radius: int, fields: int) -> None:
    halo = Halo(comm, radius, fields)
    made, each = halo.calls()
    halo.free()
    assert each["LaunchKernel"] == 2 or comm.size == 1  # to oneself strided memory is copied to strided memory
    assert made <= 14, str(each)


@pytest.mark.parametrize("fields", [1, 4])
def test_messages_of_arrays_with_a_stream_are_at_most_sixteen_calls(comm: Any, fields: int) -> None:
    """26 views of each array each way; the stream is waited for once each way, not for each message."""
    from tempi import MPI as dropin

    foreign = pytest.importorskip("foreign")
    ours, (to, source), stream = dropin.Intracomm(comm), partners(comm), foreign.Stream()
    arrays = [foreign.on_device(np.zeros(52 * 64, np.uint8)) for _ in range(fields)]
    views = [
        [foreign.Interface(array[64 * k : 64 * k + 64 : 2], stream=stream.ptr) for k in range(52)] for array in arrays
    ]

    def exchange() -> None:
        requests = [ours.Irecv(own[26 + k], source, 26 * f + k) for f, own in enumerate(views) for k in range(26)]
        requests += [ours.Isend(own[k], to, 26 * f + k) for f, own in enumerate(views) for k in range(26)]
        dropin.Request.Waitall(requests)

    made, each = steady(comm, exchange)
    assert each["LaunchKernel"] == 2 or comm.size == 1
    assert made <= 16, str(each)


@pytest.mark.parametrize("streams", [1, 2])
def test_messages_in_named_streams_are_at_most_sixteen_calls(comm: Any, streams: int) -> None:
    """Each distinct stream is waited for once each way; a single one has the kernels itself."""
    foreign = pytest.importorskip("foreign")
    own, made_streams = [comm.Dup() for _ in range(streams)], [foreign.Stream() for _ in range(streams)]
    for one, stream in zip(own, made_streams, strict=True):
        tempi.set_stream(one, stream.ptr)
    halo = Halo(comm, 1, 1)
    field = halo.fields[0]

    def exchange() -> None:
        requests = []
        for t, (_, outer) in enumerate(halo.types):
            requests.append(own[t % streams].Irecv(field.message(outer), halo.source, t))
        for t, (inner, _) in enumerate(halo.types):
            requests.append(own[t % streams].Isend(field.message(inner), halo.to, t))
        MPI.Request.Waitall(requests)

    made, each = steady(comm, exchange)
    for one in own:
        one.Free()
    halo.free()
    assert each["LaunchKernel"] == 2 or comm.size == 1
    assert made <= 16, str(each)


def test_bursts_in_turn_all_find_their_descriptors(comm: Any) -> None:
    """As of a program with several phases: each burst is what it was one cycle before."""
    halos = [Halo(comm, 1 + k % 3, 1 + k // 3) for k in range(8)]
    for _ in range(WARM_UP):
        for halo in halos:
            halo.exchange()
        comm.Barrier()
    for halo in halos:
        before = Calls()
        halo.exchange()
        made, each = before.since()
        assert "MemcpyAsync" not in each, str(each)
        assert made <= 16, str(each)
    for halo in halos:
        halo.free()


def test_staged_messages_are_copied_in_one_call(comm: Any) -> None:
    """Faces of more than 256 KiB go through device buffers: one launch, and one copy of them all, each way."""
    faces, points = 8, 40_000
    whole, (to, source) = oracle.Contiguous(4 * faces * points, _double), partners(comm)
    field = Memory(whole, 1, where="device").fill(comm.rank)
    vector = MPI.DOUBLE.Create_vector(points, 1, 2).Commit()
    start, address = 16 * points, field.address

    def exchange() -> None:
        sides = [MPI.buffer.fromaddress(address + k * start, start) for k in range(2 * faces)]
        requests = [comm.Irecv([sides[faces + k], 1, vector], source, k) for k in range(faces)]
        requests += [comm.Isend([sides[k], 1, vector], to, k) for k in range(faces)]
        MPI.Request.Waitall(requests)

    staged = tempi.stats()["method_staged"]
    made, each = steady(comm, exchange)
    used = tempi.stats()["method_staged"] - staged
    vector.Free()
    if comm.size > 1:
        assert used == 2 * faces * (WARM_UP + 1)
        assert (each["LaunchKernel"], each["MemcpyBatchAsync"]) == (2, 2)
        assert "MemcpyAsync" not in each
        assert made <= 16, str(each)


COLLECTIVE_FORMS = ["Neighbor_alltoallw", "Ineighbor_alltoallw", "Neighbor_alltoallw_init"]


def collective(graph: Any, form: str, halo: Halo) -> tuple[Callable[[], None], Callable[[], None]]:
    """Exchanges the regions of all fields, each an edge of the graph; and what frees its request."""
    blocks = len(halo.fields) * len(halo.types)
    address = [field.address for field in halo.fields for _ in halo.types]
    types = halo.types * len(halo.fields)
    sides = [[MPI.BOTTOM, [1] * blocks, address, [pair[side] for pair in types]] for side in (0, 1)]
    kept = request_of(graph, "Neighbor_alltoallw", *sides) if form.endswith("_init") else None

    def exchange() -> None:
        if kept is not None:
            kept.Start()
        request = kept or getattr(graph, form)(*sides)
        if request is not None:
            request.Wait()
        graph.Barrier()  # in which the processes agree on the nonblocking form

    return exchange, kept.Free if kept else lambda: None


@pytest.mark.parametrize("fields", [1, 3, 8])
@pytest.mark.parametrize("form", COLLECTIVE_FORMS)
def test_a_collective_of_26_blocks_a_field_is_one_launch(comm: Any, form: str, fields: int) -> None:
    """At most twenty calls, for any number of blocks and for up to eight allocations, each of which is asked for once:
    the receiver's device reads them in the sender's memory."""
    halo = Halo(comm, 2, fields)
    (right, left), blocks = partners(comm), fields * len(halo.types)
    graph = comm.Create_dist_graph_adjacent([left] * blocks, [right] * blocks)
    exchange, free = collective(graph, form, halo)
    for _ in range(WARM_UP):
        exchange()
    before = Calls()
    exchange()
    made, each = before.since()
    free()
    graph.Free()
    halo.free()
    assert each["LaunchKernel"] == 1
    assert "MemcpyAsync" not in each
    assert made <= 20, str(each)


def come_last(comm: Any, last: int) -> None:
    """The other ranks go on first: what that one sends is then found after what they send."""
    if comm.rank != last:
        comm.send(None, last, 27)
        return
    for source in range(comm.size):
        if source != last:
            comm.recv(None, source, 27)


@pytest.mark.parametrize("fields", [1, 8])
@pytest.mark.parametrize("form", COLLECTIVE_FORMS)
def test_a_collective_with_edges_to_all_ranks_is_one_launch(comm: Any, form: str, fields: int) -> None:
    """The 26 blocks of a field go to the ranks in turn, also to the process itself. Whichever rank comes last, their
    descriptors are those of the call before."""
    halo = Halo(comm, 2, fields)
    steps = [way * (1 + k) for way in (-1, 1) for _ in range(fields) for k in range(len(halo.types))]
    peers = [(comm.rank + step) % comm.size for step in steps]
    graph = comm.Create_dist_graph_adjacent(peers[: len(peers) // 2], peers[len(peers) // 2 :])
    exchange, free = collective(graph, form, halo)
    for _ in range(2):  # memory is opened in the second nonblocking call: the library does the first
        exchange()
    found = []
    for turn in range(30):
        come_last(comm, turn % comm.size)
        before = Calls()
        exchange()
        found.append(before.since())
    free()
    graph.Free()
    halo.free()
    assert [each["LaunchKernel"] for _, each in found] == [1] * len(found)
    assert not [each for _, each in found if "MemcpyAsync" in each]
    assert max(made for made, _ in found) <= 20, found


@pytest.mark.parametrize("fields", [12, 80])
def test_an_allocation_is_queried_once_for_all_its_messages(comm: Any, fields: int) -> None:
    halo = Halo(comm, 1, fields)
    made, each = halo.calls()
    halo.free()
    assert made <= fields + 6, str(each)


@pytest.mark.parametrize("fields", [12, 80])
def test_messages_of_registered_allocations_are_six_calls(comm: Any, fields: int) -> None:
    halo = Halo(comm, 1, fields)
    for field in halo.fields:
        tempi.register(field.address)
    made, each = halo.calls()
    for field in halo.fields:
        tempi.deregister(field.address)
    halo.free()
    assert made <= 6, str(each)


def test_messages_of_a_pools_memory_are_at_most_fourteen_calls(comm: Any) -> None:
    """It belongs to no context; the one to use is asked for once."""
    halo = Halo(comm, 1, 4, "pool")
    made, each = halo.calls()
    halo.free()
    assert made <= 14, str(each)


@pytest.mark.parametrize("where", ["device", "managed"])
def test_a_blocking_message_is_at_most_four_calls(comm: Any, where: str) -> None:
    to, source = partners(comm)
    if comm.size == 1:
        pytest.skip("a message to oneself is moved")
    tree = strided(8192)  # 64 KiB
    out, into = (Memory(tree, 1, where=where).fill(comm.rank) for _ in range(2))
    with committed(tree) as datatype:
        for _ in range(WARM_UP + 1):
            ready = comm.Irecv(into.message(datatype), source, 1)
            comm.Barrier()
            before = Calls()
            comm.Send(out.message(datatype), to, 1)
            made, each = before.since()
            ready.Wait()
    assert made <= 4, str(each)
