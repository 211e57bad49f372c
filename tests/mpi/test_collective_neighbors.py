"""Neighbours on a grid that are one process: its blocks come in the order of MPI-4.1, 8.6, also where the library's do
not (csrc/shim/coll/neighbor_order.h)."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import calls
import oracle
from pending import FORMS, agree, forms
from redistribution import NAMED, blocks_between, bytes_of, exchange
from world import MPI, Placed, carried, is_on_several_hosts, snapshot

VECTOR = oracle.Vector(40, 3, 5, NAMED[2])
OPEN_MPI = "Open MPI" in MPI.Get_library_version()


def opposite_blocks(cart: Any) -> tuple[Any, Any, Any]:
    """For and from the neighbours in two dimensions, one element of VECTOR each: sent, received, and as is to come."""
    near = [rank for d in range(2) for rank in cart.Shift(d, 1)]
    unit, extent = len(oracle.element_offsets(VECTOR, 1)), VECTOR.type_map.extent
    out, into = (Placed(np.zeros(5 * extent, np.uint8)) for _ in range(2))
    wanted = into.array.copy()
    for e, source in enumerate(near):
        oracle.unpack(VECTOR, 1, bytes_of(10 * cart.rank + e, unit), out.array, e * extent)
        oracle.unpack(VECTOR, 1, bytes_of(10 * source + (e ^ 1), unit), wanted, e * extent)
    out.put()
    return out, into, wanted


@pytest.mark.parametrize("duplicated", [False, True])
@pytest.mark.parametrize("name", ["Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw"])
def test_neighbours_that_are_one_get_the_opposite_block_at_once(comm: Any, name: str, duplicated: bool) -> None:
    """By the first call of the communicator, in which its processes cannot agree on anything."""
    made = comm.Create_cart([2, comm.size // 2] if comm.size % 2 == 0 else [1, comm.size], [True, True])
    cart = made.Dup() if duplicated else made
    datatype = oracle.as_mpi(VECTOR, MPI).Commit()
    out, into, wanted = opposite_blocks(cart)
    in_bytes = name.endswith("w")
    places = [e * (VECTOR.type_map.extent if in_bytes else 1) for e in range(4)]
    more = [1] if name == "Neighbor_alltoall" else [[1] * 4, places]
    arguments = [[side.at(), *more, [datatype] * 4 if in_bytes else datatype] for side in (out, into)]
    for _ in range(3):
        into.fill(0)
        # A call with types of blocks needs no agreement, so tempi has it.
        with carried(cart, name) if in_bytes else contextlib.nullcontext():
            getattr(cart, f"I{name.lower()}")(*arguments).Wait()
        np.testing.assert_array_equal(into.get(), wanted)
    datatype.Free()
    if duplicated:
        cart.Free()
    made.Free()


@forms
def test_neighbours_with_one_type_get_the_opposite_block(comm: Any, form: str) -> None:
    """Two of them are one process in each direction. Between hosts each rank packs for itself, and puts right what
    Open MPI delivers."""
    if comm.size % 2 or (OPEN_MPI and form == "persistent" and not calls.has("MPI_Neighbor_alltoall_init")):
        pytest.skip("needs an even number of ranks")
    cart = comm.Create_cart([2, comm.size // 2], [True, True])
    datatype = oracle.as_mpi(VECTOR, MPI).Commit()
    unit = len(oracle.element_offsets(VECTOR, 1))
    out, into, wanted = opposite_blocks(cart)
    arguments = [out.at(), 1, datatype], [into.at(), 1, datatype]
    cart.Neighbor_alltoall(*arguments)
    np.testing.assert_array_equal(into.get(), wanted)
    agree(cart)
    into.fill(0)
    make, starts = FORMS[form]
    before = snapshot()
    with carried(cart, "Neighbor_alltoall", starts):
        make(cart, "Neighbor_alltoall")(*arguments)
    np.testing.assert_array_equal(into.get(), wanted)
    if is_on_several_hosts(cart):
        assert snapshot()["remote_bytes"] - before["remote_bytes"] == starts * 2 * 4 * unit
    datatype.Free()
    cart.Free()


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("form", ["blocking", *FORMS])
@pytest.mark.parametrize("name", ["Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw"])
@pytest.mark.parametrize("kind", ["alone", "grid", "duplicate", "duplicate alone"])
def test_a_process_that_is_both_neighbours_exchanges_its_blocks(
    comm: Any, name: str, form: str, kind: str, derived: bool
) -> None:
    """Intel MPI delivers them in the wrong order in all forms, Open MPI in those that are not blocking. On what
    MPI_Comm_idup makes the processes have agreed on nothing, until a blocking collective."""
    if form == "persistent" and not calls.has(f"MPI_{name}_init"):
        pytest.skip("new in MPI-4.0")
    alone = kind.endswith("alone")
    if not alone and comm.size % 2:
        pytest.skip("needs an even number of ranks")
    dims = [1] if alone else [2, comm.size // 2]
    cart = (MPI.COMM_SELF if alone else comm).Create_cart(dims, [True] * len(dims))
    if kind.startswith("duplicate"):
        made = cart
        cart, request = made.Idup()
        request.Wait()
        made.Free()
    n = 2 * cart.Get_dim()
    # An element is an int, or the first and the third of three.
    datatype = MPI.INT.Create_vector(2, 1, 2).Commit() if derived else MPI.INT
    ints = 3 if derived else 1
    sides = Placed(100 * cart.rank + np.arange(ints * n, dtype=np.intc)), Placed(np.zeros(ints * n, np.intc))
    (out, into), received = (side.at() for side in sides), sides[1]
    sources = np.ravel([cart.Shift(d, 1) for d in range(n // 2)])
    wanted = np.array([100 * s + ints * (e ^ 1) + np.arange(ints) for e, s in enumerate(sources)])
    wanted[:, 1::2] = -1
    ones, places = [1] * n, list(range(n))
    arguments = {
        "Neighbor_alltoall": ([out, 1, datatype], [into, 1, datatype]),
        "Neighbor_alltoallv": ([out, ones, places, datatype], [into, ones, places, datatype]),
        "Neighbor_alltoallw": tuple([one, ones, [4 * ints * p for p in places], [datatype] * n] for one in (out, into)),
    }[name]
    make = getattr(cart, name) if form == "blocking" else FORMS[form][0](cart, name)
    for i in range(6):
        received.fill(-1)
        make(*arguments)
        assert received.get().tolist() == wanted.ravel().tolist()
        if i == 2:
            agree(cart)
    if derived:
        datatype.Free()
    cart.Free()


@pytest.mark.parametrize("dims", [1, 2])
def test_some_processes_of_a_grid_are_no_grid(comm: Any, dims: int) -> None:
    """Open MPI 5.0.11 takes what MPI_Comm_create_group makes of them for the whole one."""
    cart = comm.Create_cart(MPI.Compute_dims(comm.size, dims), [True] * dims)
    part = cart.Create_group(cart.group.Incl(range(cart.rank % 2, cart.size, 2)))
    blocks = blocks_between(31, part.size)
    for _ in range(2):
        with carried(part, "Alltoallw"):
            exchange(part.Alltoallw, blocks[part.rank], [row[part.rank] for row in blocks])
    part.Free()
    cart.Free()
