"""A burst of sends is one pack launch, a Waitall one unpack launch: counted by the driver."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import oracle
from devices import DEVICES, EMULATED, count
from examples import strided
from world import MPI, Memory, committed, partners, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

AT_ONCE = os.environ.get("TEMPI_LAUNCH_AT_ONCE") == "1"
gathers = pytest.mark.skipif(AT_ONCE, reason="TEMPI_LAUNCH_AT_ONCE is set")

_double = oracle.Named("DOUBLE")
TREES = (
    strided(33),
    oracle.Subarray((6, 7, 8), (2, 5, 3), (1, 0, 4), _double),
    oracle.Hindexed((3, 1, 2, 5, 1, 1, 4), (400, 0, 64, 208, 1000, 1032, 2048), _double),
    oracle.Hvector(20, 3, 17, oracle.Named("BYTE")),
    strided(40_000),  # staged by the usual rule; slow to check, so one of it
)


def kind_of(i: int) -> int:
    return 4 if i == 4 else i % 4


class Burst:
    """Messages of several types to the right, and the memory of those from the left."""

    def __init__(self, comm: Any, n: int, places: Sequence[str] = ("device",)) -> None:
        self.comm, self.n = comm, n
        self.to, self.source = partners(comm)
        where = [places[i % len(places)] for i in range(n)]
        tree = [TREES[kind_of(i)] for i in range(n)]
        self.out = [Memory(tree[i], 1, where=where[i]).fill(1000 * comm.rank + i) for i in range(n)]
        self.into = [Memory(tree[i], 1, where=where[i]) for i in range(n)]
        self.types = [oracle.as_mpi(t, MPI).Commit() for t in TREES]

    def type(self, i: int) -> Any:
        return self.types[kind_of(i)]

    def each(self, call: Callable[..., Any], memories: Sequence[Memory], peer: int) -> list[Any]:
        return [call(m.message(self.type(i)), peer, i) for i, m in enumerate(memories)]

    def send(self, call: str = "Isend") -> list[Any]:
        return self.each(getattr(self.comm, call), self.out, self.to)

    def receive(self, call: str = "Irecv") -> list[Any]:
        return self.each(getattr(self.comm, call), self.into, self.source)

    def check(self) -> None:
        for i, memory in enumerate(self.into):
            memory.check(Memory(memory.tree, 1).fill(1000 * self.source + i).packed)
        for datatype in self.types:
            datatype.Free()


def launches() -> int:
    return count("cuLaunchKernel")


def exchange(comm: Any, n: int) -> None:
    burst = Burst(comm, n)
    MPI.Request.Waitall([*burst.receive(), *burst.send()])
    burst.check()


@gathers
@pytest.mark.usefixtures("unlike")
def test_a_repeated_burst_starts_with_its_last_send(comm: Any) -> None:
    for _ in range(2):
        exchange(comm, 12)
    burst = Burst(comm, 12)
    receives = burst.receive()
    before = launches()
    sends = [comm.Isend(m.message(burst.type(i)), burst.to, i) for i, m in enumerate(burst.out[:11])]
    assert launches() == before
    sends.append(comm.Isend(burst.out[11].message(burst.type(11)), burst.to, 11))
    assert launches() == before + 1
    MPI.Request.Waitall([*receives, *sends])
    burst.check()


@gathers
@pytest.mark.usefixtures("unlike")
@pytest.mark.parametrize("n", [1, 2, 5, 63, 64, 65, 208])
def test_one_launch_each_way(comm: Any, n: int) -> None:
    burst = Burst(comm, n)
    receives = burst.receive()
    comm.Barrier()
    before = launches()
    sends = burst.send()
    assert launches() == before
    MPI.Request.Waitall(sends)
    assert launches() == before + 1
    comm.Barrier()
    MPI.Request.Waitall(receives)
    # To oneself: strided-to-strided copies have been done already.
    assert launches() - before in ((1, 2) if comm.size == 1 else (2,))
    burst.check()


@gathers
def test_all_in_one_waitall(comm: Any) -> None:
    burst = Burst(comm, 26)
    before = launches()
    MPI.Request.Waitall([*burst.receive(), *burst.send()])
    assert launches() == before + 2
    burst.check()


@gathers
def test_receives_posted_between_the_sends(comm: Any) -> None:
    """The order of most halo exchanges: neighbour by neighbour."""
    burst = Burst(comm, 26)
    before = launches()
    requests = []
    for i in range(26):
        requests.append(comm.Irecv(burst.into[i].message(burst.type(i)), burst.source, i))
        requests.append(comm.Isend(burst.out[i].message(burst.type(i)), burst.to, i))
    MPI.Request.Waitall(requests)
    assert launches() == before + 2
    burst.check()


@gathers
def test_receives_of_what_has_arrived(comm: Any) -> None:
    """They are complete when posted, and are still unpacked together."""
    burst = Burst(comm, 12)
    before = launches()
    sends = burst.send("Isend")
    comm.Barrier()  # posts them
    for _ in range(100):
        comm.Iprobe(burst.source, 11)
    receives = burst.receive()
    assert launches() == before + 1
    MPI.Request.Waitall([*receives, *sends])
    assert launches() == before + 2
    burst.check()


@gathers
def test_one_more_for_each_further_device(comm: Any) -> None:
    burst = Burst(comm, 24, ("device", "device:1", "managed", "pool", "mapped", "host"))
    receives = burst.receive()
    before = launches()
    sends = burst.send()
    comm.Barrier()
    assert launches() == before + 2
    MPI.Request.Waitall([*receives, *sends])
    assert launches() == before + 4
    burst.check()


def test_persistent_requests_are_packed_together(comm: Any) -> None:
    burst = Burst(comm, 70)
    requests = [*burst.receive("Recv_init"), *burst.send("Send_init")]
    for _ in range(2):
        comm.Barrier()
        before = launches()
        MPI.Prequest.Startall(requests)
        assert launches() == before + 1
        MPI.Request.Waitall(requests)
        assert launches() == before + 2
    for request in requests:
        request.Free()
    burst.check()


NEXT_CALLS = {
    "Test": lambda comm, request: request.Test(),
    "Iprobe": lambda comm, request: comm.Iprobe(comm.rank, 999),
    "Barrier": lambda comm, request: comm.Barrier(),
    "Get_status": lambda comm, request: request.Get_status(),
    "Ibarrier": lambda comm, request: comm.Ibarrier().Wait(),
}


@gathers
@pytest.mark.usefixtures("unlike")
@pytest.mark.parametrize("call", NEXT_CALLS)
def test_the_next_call_of_another_kind_starts_it(comm: Any, call: str) -> None:
    burst = Burst(comm, 1)
    receives = burst.receive()
    comm.Barrier()
    before = launches()
    sends = burst.send()
    assert launches() == before
    NEXT_CALLS[call](comm, sends[0])
    assert launches() == before + 1
    MPI.Request.Waitall([*receives, *sends])
    burst.check()


@gathers
@pytest.mark.parametrize(("n", "most"), [(1, 0), (2, 0), (8, 1), (70, 1)])
def test_contiguous_messages_are_copied_alone_and_launched_in_a_burst(comm: Any, n: int, most: int) -> None:
    to, source = partners(comm)
    tree = oracle.Contiguous(500, _double)
    outs = [Memory(tree, 1, where="device").fill(comm.rank + i) for i in range(n)]
    into = [Memory(tree, 1, where="device") for _ in range(n)]
    before = launches()
    with committed(tree) as datatype:
        requests = [comm.Irecv(m.message(datatype), source, i) for i, m in enumerate(into)]
        requests += [comm.Isend(m.message(datatype), to, i) for i, m in enumerate(outs)]
        MPI.Request.Waitall(requests)
    assert launches() - before <= 2 * most if comm.size == 1 else launches() - before == 2 * most
    for i, memory in enumerate(into):
        memory.check(Memory(tree, 1).fill(source + i).packed)


def test_the_engine_counts_as_the_driver_does(comm: Any) -> None:
    before = launches() - snapshot()["launches"]
    burst = Burst(comm, 9)
    MPI.Request.Waitall([*burst.receive(), *burst.send()])
    assert launches() - snapshot()["launches"] == before
    burst.check()


@pytest.mark.skipif(not AT_ONCE, reason="TEMPI_LAUNCH_AT_ONCE is not set")
def test_at_once_a_single_send_starts_and_a_burst_still_shares_launches(comm: Any) -> None:
    burst = Burst(comm, 30)
    receives = burst.receive()
    comm.Barrier()
    before = launches()
    first = comm.Isend(burst.out[0].message(burst.type(0)), burst.to, 0)
    assert launches() == before + 1
    rest = [comm.Isend(burst.out[i].message(burst.type(i)), burst.to, i) for i in range(1, 30)]
    MPI.Request.Waitall([first, *rest])
    assert launches() - before <= 30
    MPI.Request.Waitall(receives)
    burst.check()
