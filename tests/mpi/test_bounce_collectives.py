"""Collectives on device memory, by name: blocking, nonblocking, persistent; in place; every mix of memories.

With TEMPI_COLLECTIVES=library that does them all, with bounce buffers; else tempi carries all but the reductions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
from bounces import HOST, MPICH_4_OR_INTEL, PLACES, TYPES, Kit, Requests, bouncing, committed, same_on_device
from world import MPI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Elements of a block between two ranks: some of them none.
SLOT = 3


def block(one: int, other: int) -> int:
    """The same from both sides."""
    return (one + other + 1) % SLOT


def peer_counts(k: Kit) -> list[int]:
    return [block(k.rank, i) for i in range(k.size)]


def rank_counts(k: Kit) -> list[int]:
    return [mine(i) for i in range(k.size)]


def mine(rank: int) -> int:
    return (rank + 1) % SLOT


def slots(k: Kit) -> list[int]:
    """Where each rank's block begins, in elements: backwards, and with gaps."""
    return [SLOT * (k.size - 1 - i) for i in range(k.size)]


def bytes_of(k: Kit, places: list[int]) -> list[int]:
    return [k.datatype.extent * i for i in places]


def root_of(k: Kit) -> int:
    if not k.comm.is_inter:
        return int(k.size - 1)
    if MPI.COMM_WORLD.rank % 2:
        return 0
    return MPI.ROOT if k.rank == 0 else MPI.PROC_NULL


def is_root(k: Kit) -> bool:
    return root_of(k) == (MPI.ROOT if k.comm.is_inter else k.rank)


def bcast(k: Kit) -> list[Any]:
    memory = k.send(5) if is_root(k) else k.recv(5)
    return [memory, k.n(5), k.datatype, root_of(k), k.comm]


def gather(k: Kit) -> list[Any]:
    own = k.send(4, here=is_root(k))
    return [own, k.n(4), k.datatype, k.recv(4 * k.size), k.n(4), k.datatype, root_of(k), k.comm]


def gatherv(k: Kit) -> list[Any]:
    into = k.recv(SLOT * k.size)
    own = k.send(SLOT, here=is_root(k))
    arrays = [k.counts(rank_counts(k)), k.displs(slots(k))]
    return [own, k.n(mine(k.rank)), k.datatype, into, *arrays, k.datatype, root_of(k), k.comm]


def scatter(k: Kit) -> list[Any]:
    out = k.input(4 * k.size)
    into = k.recv(4) if not (k.in_place and is_root(k)) else k.send(4)
    return [out, k.n(4), k.datatype, into, k.n(4), k.datatype, root_of(k), k.comm]


def scatterv(k: Kit) -> list[Any]:
    out = k.input(SLOT * k.size)
    into = k.recv(SLOT) if not (k.in_place and is_root(k)) else k.send(SLOT)
    arrays = [k.counts(rank_counts(k)), k.displs(slots(k))]
    return [out, *arrays, k.datatype, into, k.n(mine(k.rank)), k.datatype, root_of(k), k.comm]


def allgather(k: Kit) -> list[Any]:
    return [k.send(4), k.n(4), k.datatype, k.recv(4 * k.size), k.n(4), k.datatype, k.comm]


def allgatherv(k: Kit) -> list[Any]:
    arrays = [k.counts(rank_counts(k)), k.displs(slots(k))]
    return [k.send(SLOT), k.n(mine(k.rank)), k.datatype, k.recv(SLOT * k.size), *arrays, k.datatype, k.comm]


def alltoall(k: Kit) -> list[Any]:
    return [k.send(2 * k.size), k.n(2), k.datatype, k.recv(2 * k.size), k.n(2), k.datatype, k.comm]


def alltoallv(k: Kit) -> list[Any]:
    def side(memory: Any) -> list[Any]:
        return [memory, k.counts(peer_counts(k)), k.displs(slots(k)), k.datatype]

    return [*side(k.send(SLOT * k.size)), *side(k.recv(SLOT * k.size)), k.comm]


def alltoallw(k: Kit) -> list[Any]:
    def side(memory: Any) -> list[Any]:
        return [memory, k.counts(peer_counts(k)), k.displs(bytes_of(k, slots(k))), k.types(k.size)]

    return [*side(k.send(SLOT * k.size)), *side(k.recv(SLOT * k.size)), k.comm]


def reduce(k: Kit) -> list[Any]:
    return [k.send(6, here=is_root(k)), k.recv(6), k.n(6), k.datatype, k.op, root_of(k), k.comm]


def allreduce(k: Kit) -> list[Any]:
    return [k.send(6), k.recv(6), k.n(6), k.datatype, k.op, k.comm]


def reduce_scatter(k: Kit) -> list[Any]:
    counts = [1 + i % SLOT for i in range(k.comm.size)]
    total = sum(counts)
    return [k.send(total), k.recv(total), k.counts(counts), k.datatype, k.op, k.comm]


def reduce_scatter_block(k: Kit) -> list[Any]:
    return [k.send(2 * k.comm.size), k.recv(2 * k.comm.size), k.n(2), k.datatype, k.op, k.comm]


COLLECTIVES: dict[str, Callable[[Kit], list[Any]]] = {
    "Bcast": bcast,
    "Gather": gather,
    "Gatherv": gatherv,
    "Scatter": scatter,
    "Scatterv": scatterv,
    "Allgather": allgather,
    "Allgatherv": allgatherv,
    "Alltoall": alltoall,
    "Alltoallv": alltoallv,
    "Alltoallw": alltoallw,
    "Reduce": reduce,
    "Allreduce": allreduce,
    "Reduce_scatter": reduce_scatter,
    "Reduce_scatter_block": reduce_scatter_block,
    "Scan": allreduce,
    "Exscan": allreduce,
}
#: MPI_IN_PLACE may replace the input, or, in the scatters, the output.
IN_PLACE = tuple(name for name in COLLECTIVES if name != "Bcast")
BETWEEN = tuple(name for name in COLLECTIVES if name not in ("Scan", "Exscan"))


# -- neighbours: a row of ranks, whose ends have one each --------------------------------------------------


def neighbor_allgather(k: Kit) -> list[Any]:
    return [k.input(3), k.n(3), k.datatype, k.recv(6), k.n(3), k.datatype, k.comm]


def neighbor_allgatherv(k: Kit) -> list[Any]:
    arrays = [k.counts([2, 2]), k.displs([3, 0])]
    return [k.input(2), k.n(2), k.datatype, k.recv(6), *arrays, k.datatype, k.comm]


def neighbor_alltoall(k: Kit) -> list[Any]:
    return [k.input(4), k.n(2), k.datatype, k.recv(4), k.n(2), k.datatype, k.comm]


def neighbor_alltoallv(k: Kit) -> list[Any]:
    def side(memory: Any, counts: list[int]) -> list[Any]:
        return [memory, k.counts(counts), k.displs([3, 0]), k.datatype]

    return [*side(k.input(6), [1, 2]), *side(k.recv(6), [2, 1]), k.comm]


def neighbor_alltoallw(k: Kit) -> list[Any]:
    def side(memory: Any, counts: list[int]) -> list[Any]:
        return [memory, k.counts(counts), k.aints(bytes_of(k, [3, 0])), k.types(2)]

    return [*side(k.input(6), [1, 2]), *side(k.recv(6), [2, 1]), k.comm]


NEIGHBORS: dict[str, Callable[[Kit], list[Any]]] = {
    "Neighbor_allgather": neighbor_allgather,
    "Neighbor_allgatherv": neighbor_allgatherv,
    "Neighbor_alltoall": neighbor_alltoall,
    "Neighbor_alltoallv": neighbor_alltoallv,
    "Neighbor_alltoallw": neighbor_alltoallw,
}

# -- forms ----------------------------------------------------------------------------------------------------

FORMS = ("blocking", "nonblocking", "persistent")


def name_of(base: str, form: str) -> str:
    return {"blocking": base, "nonblocking": f"I{base.lower()}", "persistent": f"{base}_init"}[form]


def performed(base: str, form: str, arguments: Callable[[Kit], list[Any]]) -> Callable[[Kit], Any]:
    """The scenario: the call, and its completion."""
    name = f"MPI_{name_of(base, form)}"

    def run(k: Kit) -> Any:
        full = name + ("_c" if k.large else "")
        if form == "blocking":
            calls.call(full, *arguments(k))
            return None
        requests = Requests()
        if form == "nonblocking":
            calls.call(full, *arguments(k), requests.at())
            requests.wait()
            return None
        return restarted(k, full, arguments(k), requests)

    return run


def restarted(k: Kit, name: str, arguments: list[Any], requests: Requests) -> list[Any]:
    """A persistent request, used three times with new data."""
    calls.call(name, *arguments, MPI.INFO_NULL, requests.at())
    found = []
    for seed in range(3):
        k.refill(seed)
        calls.call("MPI_Start", requests.at())
        calls.call("MPI_Wait", requests.at(), requests.statuses)
        found += k.contents()
    calls.call("MPI_Request_free", requests.at())
    return found


#: Those of MPICH 4.0.2 and Intel MPI are wrong from the first or second start on, or abort when they are freed.
BROKEN_IN_MPICH_4 = ("MPI_Gather_init", "MPI_Scatter_init", "MPI_Allgather_init")


def wanted(name: str) -> None:
    if not calls.has(name):
        pytest.skip(f"this library has no {name}")
    if MPICH_4_OR_INTEL and name in BROKEN_IN_MPICH_4:
        pytest.skip(f"MPICH 4.0.2 or Intel MPI by itself is wrong in {name}")


REDUCTIONS = ("Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan")
OPENMPI = "Open MPI" in MPI.Get_library_version()


def trees_of(base: str, form: str) -> list[str]:
    """Open MPI 5.0.11 by itself writes outside its own buffers in a nonblocking reduction of a type that
    begins below its address, on 4 ranks."""
    broken = OPENMPI and base in REDUCTIONS and form != "blocking"
    return [name for name in TYPES if not (broken and name == "below")]


CARRIED = os.environ.get("TEMPI_COLLECTIVES") != "library"


def settle(comm: Any, run: Callable[[Kit], Any]) -> None:
    """The processes agree that tempi carries it, as they have a derived datatype."""
    with committed(TYPES["strided"]) as datatype:
        for _ in range(2):
            run(Kit(comm, TYPES["strided"], datatype, HOST))
            comm.Barrier()


def every_way(comm: Any, base: str, form: str, arguments: Any, **options: Any) -> None:
    wanted(f"MPI_{name_of(base, form)}")
    options["carried"] = CARRIED and base not in REDUCTIONS
    if options["carried"]:
        settle(comm, performed(base, form, arguments))
    for i, tree in enumerate(trees_of(base, form)):
        for j, places in enumerate(PLACES):
            same_on_device(comm, performed(base, form, arguments), tree, places, large=(i + j) % 2 == 0, **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", COLLECTIVES)
def test_collective(comm: Any, base: str, form: str) -> None:
    every_way(comm, base, form, COLLECTIVES[base])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", IN_PLACE)
def test_collective_in_place(comm: Any, base: str, form: str) -> None:
    every_way(comm, base, form, COLLECTIVES[base], in_place=True, everywhere=False)


@pytest.fixture(scope="module")
def row() -> Iterator[Any]:
    made = MPI.COMM_WORLD.Create_cart([MPI.COMM_WORLD.size], [False])
    made.Set_errhandler(MPI.ERRORS_RETURN)
    yield made
    made.Free()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", NEIGHBORS)
def test_collective_among_neighbours(row: Any, base: str, form: str) -> None:
    every_way(row, base, form, NEIGHBORS[base])


@pytest.fixture(scope="module")
def between() -> Iterator[Any]:
    """The even ranks and the odd ranks."""
    world = MPI.COMM_WORLD
    if world.size == 1:
        yield None
        return
    local: Any = world.Split(world.rank % 2, world.rank)
    made = local.Create_intercomm(0, world, 1 - world.rank % 2)
    made.Set_errhandler(MPI.ERRORS_RETURN)
    yield made
    made.Free()
    local.Free()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", BETWEEN)
def test_collective_between_two_groups(between: Any, base: str, form: str) -> None:
    if between is None:
        pytest.skip("one rank is no two groups")
    every_way(between, base, form, COLLECTIVES[base])


def test_every_collective_that_bounces_has_a_test_by_name() -> None:
    tested = {name_of(base, form) for base in (*COLLECTIVES, *NEIGHBORS) for form in FORMS}
    assert bouncing("COMMUNICATOR") - {"Isendrecv", "Isendrecv_replace"} == tested


def test_pieces_of_one_buffer_may_lie_far_apart(comm: Any) -> None:
    """Further apart than the slack of a staging buffer."""
    emulator = pytest.importorskip("tempi.emulator.array")
    far, n = 4 << 20, 64
    host = np.zeros((comm.size, far), np.uint8)
    host[:, :n] = comm.rank * comm.size + np.arange(1, comm.size + 1)[:, None]
    out, into = (emulator.DeviceArray.from_numpy(each.ravel()) for each in (host, np.zeros_like(host)))
    layout = [[n] * comm.size, [far * i for i in range(comm.size)], [MPI.BYTE] * comm.size]
    comm.Alltoallw([out, *layout], [into, *layout])
    found = into.to_numpy().reshape(comm.size, far)
    expected = np.arange(comm.size)[:, None] * comm.size + comm.rank + 1
    np.testing.assert_array_equal(found[:, :n], np.broadcast_to(expected, (comm.size, n)))
    assert not found[:, n:].any()
