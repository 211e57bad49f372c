"""Collectives of predefined datatypes, which tempi passes on until their processes come to carry them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import oracle
from one_type import Shape, needs_form, run
from redistribution import NAMED
from world import MPI, Placed, acted, carried, is_on_several_hosts, needs_host_memory, placement

#: More communicators than tempi finds at once (TEMPI_NODE_CACHE_BITS).
MANY = 150
THREADS, TURNS = 3, 20
TREE = oracle.Vector(5, 2, 3, NAMED[2])


def one_each(comm: Any, name: str = "Alltoallv") -> Shape:
    """A block for each rank."""
    return Shape(np.full((comm.size, comm.size), 1), 40, name == "Alltoallv")


def test_plain_types_stay_with_the_library(comm: Any) -> None:
    """In memory that it can read, or that is bounced between hosts."""
    size, ours = comm.size, placement.device and not is_on_several_hosts(comm)
    out, into = Placed(np.arange(size, dtype="i4")), Placed(np.zeros(size, "i4"))
    other = comm.Dup()
    with acted(collectives=20 * (1 + (size > 1)) * ours):
        for _ in range(20):
            other.Alltoall([out.at(), 1, MPI.INT], [into.at(), 1, MPI.INT])
            other.Bcast([out.at(), size, MPI.INT], 0)
    assert (into.get() == comm.rank).all()
    other.Free()


def test_a_type_that_becomes_derived_is_noticed_at_a_later_call(comm: Any) -> None:
    other = comm.Dup()
    shape = one_each(comm)
    for _ in range(3):
        run(other, "Alltoallv", shape, None)
    with carried(other, "Alltoallv", 8):
        for _ in range(8):
            run(other, "Alltoallv", shape, TREE if comm.rank == 0 else None)
    other.Free()


@pytest.mark.parametrize("name", ["Alltoallv", "Allgather", "Gather"])
def test_all_ranks_look_at_the_same_calls(comm: Any, name: str) -> None:
    """The first, the second, the fourth and so on, though ranks with a derived datatype do not pass the others."""
    needs_host_memory("tempi carries all calls in memory that the library cannot reach")
    other, size = comm.Dup(), comm.size
    shape = one_each(comm, name)
    looked_at = [1 << k for k in range(7)]
    with acted(collectives=0, collectives_split=0):
        for k in range(1, looked_at[-1]):
            derived = k not in looked_at and k % 3 > 0 and k % size == other.rank
            run(other, name, shape, TREE if derived else None)
    with carried(other, name, 2):
        for _ in range(2):
            run(other, name, shape, TREE if other.rank == 0 else None)
    other.Free()


@pytest.mark.parametrize("name", ["Alltoallv", "Gatherv"])
def test_a_persistent_request_ends_calls_that_pass(comm: Any, name: str) -> None:
    """In it the processes of a host may come to carry what they have left to the library."""
    needs_form(name, "persistent")
    other = comm.Dup()
    shape = one_each(comm, name)
    mine = TREE if other.rank == 0 else None
    for _ in range(5):
        run(other, name, shape, None)
    run(other, name, shape, mine, form="persistent")
    for _ in range(2):
        run(other, name, shape, mine)
    other.Free()


def test_what_nonblocking_calls_have_agreed_on_holds_for_all_ranks_at_once(comm: Any) -> None:
    """Also for those that had found before that the next calls need not be looked at."""
    other, vector = comm.Dup(), MPI.DOUBLE.Create_vector(2, 1, 3).Commit()  # of 4
    sent, got = Placed(np.arange(4.0)), Placed(np.zeros(2))
    named, derived = [got.at(), 2, MPI.DOUBLE], [sent.at(), 1, vector]
    for k in range(1, 6):
        other.Ibcast(derived if other.rank == 0 and k == 4 else named, 0).Wait()
    other.Barrier()
    with carried(other, "Bcast", 2 * (other.size > 1)):
        for _ in range(2):
            got.fill(-1)
            other.Bcast(derived if other.rank == 0 else named, 0)
            assert other.rank == 0 or got.get().tolist() == [0.0, 3.0]
    vector.Free()
    other.Free()


def test_a_communicator_begins_anew_where_one_was_freed(comm: Any) -> None:
    """It may have the handle of the freed one, whose next calls would have passed on some ranks."""
    needs_host_memory("tempi carries all calls in memory that the library cannot reach")
    shapes = {name: one_each(comm, name) for name in ("Alltoallv", "Allgather")}
    for first in range(comm.size):
        other = comm.Dup()
        with acted(collectives=0, collectives_split=0):
            for _ in range(5):
                run(other, "Allgather", shapes["Allgather"], None)
        with carried(other, "Alltoallv", 1):
            run(other, "Alltoallv", shapes["Alltoallv"], TREE if comm.rank == first else None)
        other.Free()
        other = comm.Dup()
        with acted(collectives=0, collectives_split=0):
            for _ in range(5):
                run(other, "Alltoallv", shapes["Alltoallv"], None)
        other.Free()


def test_calls_are_counted_on_more_communicators_than_are_found_at_once(comm: Any) -> None:
    """Which of them share a place differs between the ranks, as each has made other handles before."""
    needs_host_memory("tempi carries all calls in memory that the library cannot reach")
    own = [MPI.COMM_SELF.Dup() for _ in range(3 * comm.rank)]
    for one in own:
        for _ in range(3):
            run(one, "Alltoallv", one_each(one), None)
    several = [comm.Dup() for _ in range(MANY)]
    shape = one_each(comm)
    with acted(collectives=0, collectives_split=0):
        for _ in range(7):
            for other in several:
                run(other, "Alltoallv", shape, None)
    for k, other in enumerate(several):
        with carried(other, "Alltoallv", 2):
            for _ in range(2):
                run(other, "Alltoallv", shape, TREE if comm.rank == k % comm.size else None)
        other.Free()
    for one in own:
        one.Free()


def test_threads_count_the_calls_of_their_own_communicators(comm: Any) -> None:
    """They make and free them meanwhile. A process that counted otherwise would wait for the others."""
    needs_host_memory("tempi carries all calls in memory that the library cannot reach")
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("no threads")
    shape = one_each(comm)
    parents = [comm.Dup() for _ in range(THREADS)]

    def turns(k: int) -> int:
        for turn in range(TURNS):
            other = parents[k].Dup()
            for call in range(1, 9):
                derived = call == 8 and comm.rank == (k + turn) % comm.size
                run(other, "Alltoallv", shape, TREE if derived else None)
            other.Free()
        return TURNS

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(turns, range(THREADS))) == [TURNS] * THREADS
    for parent in parents:
        parent.Free()
