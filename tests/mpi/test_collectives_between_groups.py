"""Collectives of intercommunicators, within a node through shared memory: between the even and the odd ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from comms import halves
from redistribution import blocks_between, exchange
from world import ALONE, IN_PART, MPI, acted, counted, is_on_several_hosts, needs_host_memory, outcome

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator

RUNS, RUN, STRIDE = 5, 2, 3
EXTENT = RUN + (RUNS - 1) * STRIDE  # integers
PLACES = np.array([STRIDE * i + k for i in range(RUNS) for k in range(RUN)])
ROOTED = ["Gather", "Gatherv", "Scatter", "Scatterv", "Bcast"]
FUNCTIONS = ["Alltoall", "Alltoallv", "Allgather", "Allgatherv", *ROOTED]


@pytest.fixture
def inter(comm: Any) -> Iterator[Any]:
    if comm.size < 2:
        pytest.skip("needs 2 ranks")
    needs_host_memory()
    made = halves(MPI.Intracomm(comm))
    made.Ialltoallw(*[[np.zeros(1, np.uint8), *[[0] * made.remote_size] * 2, [MPI.BYTE] * made.remote_size]] * 2).Wait()
    made.Barrier()
    yield made
    made.Free()


def carried(comm: Any, name: str, calls: int) -> contextlib.AbstractContextManager[None]:
    """Between hosts by the processes that pack for themselves, of the functions that allow it."""
    if is_on_several_hosts(comm):
        return counted(False, {"collectives": 0, "collectives_split": calls * (name in (*IN_PART, *ALONE))})
    return acted(collectives=calls, collectives_split=0)


def nonblocking(inter: Any, name: str, *arguments: Any) -> None:
    getattr(inter, f"I{name.lower()}")(*arguments).Wait()


def persistent(inter: Any, name: str, *arguments: Any) -> None:
    try:
        request = getattr(inter, f"{name}_init")(*arguments)
    except NotImplementedError:
        pytest.skip("new in MPI-4.0")
    for _ in range(2):
        request.Start()
        request.Wait()
    request.Free()


def blocking(inter: Any, name: str, *arguments: Any) -> None:
    getattr(inter, name)(*arguments)


FORMS = {"blocking": (blocking, 1), "nonblocking": (nonblocking, 1), "persistent": (persistent, 2)}
forms = pytest.mark.parametrize("form", FORMS)
#: Calls that deliver wrong blocks between hosts, or fail, without tempi: of MPICH 5.0.2 and of Open MPI 5.0.11.
OPEN_MPI = "Open MPI" in MPI.Get_library_version()
WRONG = [("Scatterv", form) for form in FORMS] if OPEN_MPI else [("Bcast", "persistent")]


def world_rank(comm: Any, group: int, rank: int) -> int:
    return 2 * rank + group


@forms
@pytest.mark.parametrize("seed", range(4))
def test_alltoallw_delivers_each_block(comm: Any, inter: Any, form: str, seed: int) -> None:
    call, calls = FORMS[form]
    blocks = blocks_between(seed, comm.size)
    others = [world_rank(comm, 1 - comm.rank % 2, i) for i in range(inter.remote_size)]
    into = [blocks[source][comm.rank] for source in others]
    with carried(comm, "Alltoallw", calls):
        exchange(lambda *buffers: call(inter, "Alltoallw", *buffers), [blocks[comm.rank][to] for to in others], into)


class Blocks:
    """Blocks of integers, as vectors or without gaps, `count` of them one after another."""

    def __init__(self, kind: Any, count: int) -> None:
        self.kind, self.count = kind, count
        self.extent = EXTENT if kind != MPI.INT else PLACES.size
        self.memory = np.full(self.extent * count + 1, -1, np.int32)

    def places(self, i: int) -> Any:
        return i * self.extent + (PLACES if self.kind != MPI.INT else np.arange(PLACES.size))

    def argument(self, varied: bool) -> list[Any]:
        each = 1 if self.kind != MPI.INT else PLACES.size
        if not varied:
            return [self.memory, each, self.kind]
        step = 1 if self.kind != MPI.INT else PLACES.size
        return [self.memory, [each] * self.count, [step * i for i in range(self.count)], self.kind]


def content(source: int, to: int) -> Any:
    return np.arange(PLACES.size) + 1000 * source + 100 * (to + 1)


@forms
@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_type(comm: Any, inter: Any, name: str, group: int, form: str) -> None:
    """Vectors of the even ranks, integers of the odd ones; the root is the last rank of a group."""
    if name not in ROOTED and group:
        return
    if is_on_several_hosts(comm) and (name, form) in WRONG:
        pytest.skip("the library's call is wrong")
    call, calls = FORMS[form]
    own, other = comm.rank % 2, 1 - comm.rank % 2
    vector = MPI.INT.Create_vector(RUNS, RUN, STRIDE).Commit()
    kind = vector if own == 0 else MPI.INT
    root = inter.remote_size - 1
    if name in ROOTED and own == group:
        root = MPI.ROOT if inter.rank == inter.size - 1 else MPI.PROC_NULL
    several, varied = inter.remote_size, name.endswith("v")
    at_root, is_leaf = root == MPI.ROOT, name not in ROOTED or own != group
    sends_each = name.startswith("Alltoall") or (at_root and name.startswith("Scatter"))
    takes_each = name.startswith("All") or (at_root and name.startswith("Gather"))
    sends = sends_each or (is_leaf and name.startswith(("Allgather", "Gather"))) or (at_root and name == "Bcast")
    takes = takes_each or (is_leaf and name.startswith(("Scatter", "Bcast")))
    out, into = Blocks(kind, several if sends_each else 1), Blocks(kind, several if takes_each else 1)
    peers = [world_rank(comm, other, i) for i in range(several)]
    for i in range(out.count):
        out.memory[out.places(i)] = content(comm.rank, peers[i] if sends_each else -1)
    wanted = into.memory.copy()
    for i in range(into.count if takes else 0):
        source = peers[i] if takes_each else peers[root]
        alone = name.startswith(("Allgather", "Gather", "Bcast"))
        wanted[into.places(i)] = content(source, -1 if alone else comm.rank)
    sent = out.argument(varied and name != "Allgatherv" and name != "Gatherv") if sends else None
    received = into.argument(varied and name != "Scatterv") if takes else None
    arguments = [sent, received]
    if name == "Bcast":
        arguments = [sent or received or out.argument(False)]
    if name == "Gatherv" and not sends:
        arguments[0] = None
    arguments += [root] if name in ROOTED else []
    with carried(comm, name, calls + (form == "nonblocking")):
        if form == "nonblocking":  # the processes have agreed on it in a blocking one
            blocking(inter, name, *arguments)
        call(inter, name, *arguments)
    np.testing.assert_array_equal(into.memory, wanted)
    vector.Free()


def test_plain_types_stay_with_the_library(comm: Any, inter: Any) -> None:
    out, into = np.full(inter.remote_size, comm.rank, np.int32), np.zeros(inter.remote_size, np.int32)
    with acted(collectives=0):
        inter.Alltoall(out, into)
    assert into.tolist() == [world_rank(comm, 1 - comm.rank % 2, i) for i in range(inter.remote_size)]


def test_a_root_that_is_none_is_an_error(inter: Any) -> None:
    vector = MPI.INT.Create_vector(RUNS, RUN, STRIDE).Commit()
    out, into = Blocks(vector, 1), Blocks(vector, inter.remote_size)
    inter.Set_errhandler(MPI.ERRORS_RETURN)
    with acted(collectives=0):
        said = outcome(lambda: inter.Gather(out.argument(False), into.argument(False), inter.remote_size))
    assert "error" in str(said)
    vector.Free()
