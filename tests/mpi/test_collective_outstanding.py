"""Many nonblocking and persistent collectives of every kind at once, on several communicators, beside messages of the
same datatype and the library's own collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
import oracle
from pending import MPICH_4_0, agree, poll, request_of
from redistribution import NAMED, POISON
from world import MPI, Memory, Placed, acted, committed, is_on_several_hosts, partners

if TYPE_CHECKING:
    from collections.abc import Callable

VECTOR = oracle.Vector(50, 3, 5, NAMED[2])
UNIT = len(oracle.element_offsets(VECTOR, 1))
TO_ALL = ["Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw"]
ROOTED = ["Bcast", "Gather", "Gatherv", "Scatter", "Scatterv"]
NEIGHBORS = [
    *("Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw"),
    *("Neighbor_allgather", "Neighbor_allgatherv"),
]
ONES = np.ones(3)  # mpi4py 4.1.2 does not keep what a reduction sends, as it does what others send
PERSISTENT = calls.has("MPI_Neighbor_alltoallw_init") and not MPICH_4_0


def by_tests(requests: list[Any]) -> None:
    for request in requests:
        poll(request)


COMPLETE: dict[str, Callable[[list[Any]], Any]] = {
    "one by one": lambda requests: [request.Wait() for request in requests],
    "all": MPI.Request.Waitall,
    "any": lambda requests: [MPI.Request.Waitany(requests) for _ in requests],
    "test": by_tests,
}


class Started:
    """A collective of one vector for each block; `number` is that of its bytes."""

    def __init__(self, comm: Any, name: str, number: int, persistent: bool, datatype: Any) -> None:
        self.name, self.number, self.datatype = name, number, datatype
        self.root, self.at_root = number % comm.size, comm.rank == number % comm.size
        near = list(comm.Shift(0, 1) if name in NEIGHBORS else range(comm.size))
        self.blocks = self.blocks_from(near, comm.rank)
        self.out, self.into = (Memory(VECTOR, len(near)) for _ in range(2))
        self.out.fill(100 * number + comm.rank)
        arguments = self.arguments(len(near))
        if persistent:
            self.request = request_of(comm, name, *arguments)
            self.request.Start()
        else:
            self.request = getattr(comm, f"I{name.lower()}")(*arguments)
        self.persistent = persistent

    def blocks_from(self, near: list[int], rank: int) -> list[tuple[int, int]]:
        """Of each block that comes, its source and which of the source's it is."""
        if self.name.startswith(("Bcast", "Scatter")):
            is_bcast = self.name == "Bcast"
            return [] if is_bcast and self.at_root else [(self.root, 0 if is_bcast else rank)]
        if "gather" in self.name or self.name.startswith("Gather"):
            return [(source, 0) for source in near] if self.at_root or self.name not in ROOTED else []
        return [(source, 1 - e if self.name in NEIGHBORS else rank) for e, source in enumerate(near)]

    def each(self, memory: Memory, n: int) -> list[Any]:
        buffer, ones, places = memory.message(self.datatype)[0], [1] * n, list(range(n))
        if self.name.endswith("w"):
            return [buffer, ones, [VECTOR.type_map.extent * i for i in places], [self.datatype] * n]
        return [buffer, ones, places, self.datatype] if self.name.endswith("v") else [buffer, 1, self.datatype]

    def arguments(self, n: int) -> list[Any]:
        out, into = ([memory.message(self.datatype)[0], 1, self.datatype] for memory in (self.out, self.into))
        if self.name == "Bcast":
            return [out if self.at_root else into, self.root]
        if self.name.startswith("Scatter"):
            return [self.each(self.out, n) if self.at_root else None, into, self.root]
        if self.name.startswith("Gather"):
            return [out, self.each(self.into, n) if self.at_root else None, self.root]
        return [self.each(self.out, n) if "alltoall" in self.name.lower() else out, self.each(self.into, n)]

    def check(self) -> None:
        packed = np.full(UNIT * self.into.count, POISON, np.uint8)
        for e, (source, k) in enumerate(self.blocks):
            sent = Memory(VECTOR, self.out.count, where="host").fill(100 * self.number + source).packed
            packed[UNIT * e : UNIT * (e + 1)] = sent[UNIT * k : UNIT * (k + 1)]
        self.into.check(packed)

    def free(self) -> None:
        if self.persistent:
            self.request.Free()


def start(comm: Any, turns: list[tuple[Any, str]], same: Any, datatype: Any) -> tuple[list[Started], list[Any]]:
    """Also messages to the right and sums: with their requests, and memory and its expected bytes."""
    (to, source), started = partners(comm), []
    others: list[Any] = []
    for turn, (own, name) in enumerate(turns):
        started.append(Started(own, name, 10 + turn, PERSISTENT and same.integers(3) == 0, datatype))
        if turn % 5 == 0:
            out, into = Memory(VECTOR, 1).fill(1000 * turn + comm.rank), Memory(VECTOR, 1)
            wanted = Memory(VECTOR, 1, where="host").fill(1000 * turn + source).packed
            requests = [comm.Irecv(into.message(datatype), source, turn), comm.Isend(out.message(datatype), to, turn)]
            others.append((requests, into, wanted))
        if turn % 7 == 0:
            total = np.zeros(3)
            others.append(([own.Iallreduce(ONES, total)], total, np.full(3, own.size)))
    return started, others


@pytest.mark.parametrize("how", COMPLETE)
def test_all_kinds_on_several_communicators_are_completed_in_any_order(comm: Any, how: str) -> None:
    """Each rank completes them in an order of its own."""
    same, mine = (np.random.default_rng([len(how), *more]) for more in ([], [comm.rank]))
    made = [comm.Dup(), comm.Split(0, -comm.rank), comm.Split(comm.rank % 2, comm.rank)]
    made.append(comm.Create_cart([comm.size], [True]))
    turns = [(own, name) for own in made for name in [*TO_ALL, *ROOTED, *(NEIGHBORS if own is made[-1] else [])]]
    with committed(VECTOR) as datatype:
        for own, name in turns:  # a function's calls are carried once the processes have agreed on it
            first = Started(own, name, 1, False, datatype)
            first.request.Wait()
            first.check()
        for own in made:
            agree(own)
        same.shuffle(turns)
        moves = sum(own.size > 1 or name != "Bcast" for own, name in turns)
        carried = {} if is_on_several_hosts(comm) else {"collectives": moves}
        with acted(**carried):
            started, others = start(comm, turns, same, datatype)
            requests = [each.request for each in started] + [one for row, _, _ in others for one in row]
            COMPLETE[how]([requests[i] for i in mine.permutation(len(requests))])
        for each in started:
            each.check()
            each.free()
        for _, into, wanted in others:
            into.check(wanted) if isinstance(into, Memory) else np.testing.assert_array_equal(into, wanted)
    for own in made:
        own.Free()


@pytest.mark.parametrize("name", ["Gather", "Scatter", "Bcast"])
def test_requests_with_other_roots_keep_their_own(comm: Any, name: str) -> None:
    """Each is started again and again, between calls with other roots."""
    if not PERSISTENT:
        pytest.skip("this library has none, or its own are wrong")
    size, rank = comm.size, comm.rank
    two = MPI.INT.Create_vector(2, 1, 2).Commit()
    own = [Placed(np.zeros(3, np.intc)) for _ in range(size)]
    whole = [Placed(np.zeros(3 * size, np.intc)) for _ in range(size)]
    requests = []
    for root in range(size):
        many = [whole[root].at(), 1, two]
        one = [own[root].at(), 1, two]
        arguments = {"Gather": (one, many), "Scatter": (many, one), "Bcast": (one,)}[name]
        requests.append(getattr(comm, f"{name}_init")(*arguments, root))
    for turn in range(4):
        for root in [*range(size), *range(size)[::-1]]:
            key = 1000 * turn + 100 * root
            own[root].fill(key + rank if name == "Gather" or (name == "Bcast" and rank == root) else -1)
            whole[root].fill(key + np.repeat(np.arange(size), 3) if name == "Scatter" else -1)
            requests[root].Start()
            other = (root + 1) % size
            said = Placed(np.array([turn if rank == other else -1, 0, 7], np.intc))
            comm.Bcast([said.at(), 1, two], other)
            assert said.get()[0] == turn
            requests[root].Wait()
            if name == "Gather" and rank == root:
                got = whole[root].get()
                assert got[::3].tolist() == got[2::3].tolist() == [key + i for i in range(size)]
            elif name != "Gather":
                assert own[root].get()[::2].tolist() == [key + (root if name == "Bcast" else rank)] * 2
    for request in requests:
        request.Free()
    two.Free()
