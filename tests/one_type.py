"""Collectives that have one datatype for all blocks, with random types, in every form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
import oracle
from pending import FORMS, nonblocking, persistent
from redistribution import GUARD, NAMED, POISON, bytes_of
from world import MPI, Placed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PERSONAL = ["Alltoallv", "Alltoall"]
TO_ALL = ["Allgatherv", "Allgather"]
ROOTED = ["Gatherv", "Gather", "Scatterv", "Scatter"]
NEIGHBORS = ["Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_allgather", "Neighbor_allgatherv"]

#: By each form, how often a call starts what it names.
STARTS_OF = {"blocking": 1} | {form: starts for form, (_, starts) in FORMS.items()}
#: Random types for each form; of two of them fewer, as a test takes 0.1 seconds on Open MPI.
SEEDS = {"blocking": range(4)} | dict.fromkeys(FORMS, range(2))
in_every_form = pytest.mark.parametrize(("form", "seed"), [(form, seed) for form in SEEDS for seed in SEEDS[form]])


def needs_form(name: str, form: str) -> None:
    if form == "persistent" and not calls.has(f"MPI_{name}_init"):
        pytest.skip("new in MPI-4.0")


def in_form(form: str, comm: Any, name: str, again: Callable[[], None]) -> Callable[..., None]:
    """`again` puts the memory back before each start of a persistent request."""
    if form == "persistent":
        return persistent(comm, name, again)
    call: Callable[..., None] = nonblocking(comm, name) if form == "nonblocking" else getattr(comm, name)
    return call


def settle(form: str, comm: Any, first: Callable[[], None]) -> None:
    """Nonblocking calls are carried once the processes have agreed, in a blocking one after the first."""
    if form == "nonblocking":
        first()
        comm.Barrier()


# -- buffers ------------------------------------------------------------------------------------------------


class Row:
    """A buffer of elements of one type: a tree, or `unit` bytes each. `absolute`: the type has their addresses."""

    def __init__(self, tree: oracle.Tree | None, unit: int, elements: int, absolute: bool = False) -> None:
        self.made, self.unit = tree is not None, unit  # made: the type is this row's
        self.tree = tree or oracle.Contiguous(unit, NAMED[0])
        low, high = oracle.span(self.tree, elements)
        self.extent = self.tree.type_map.extent
        self.origin = GUARD - min(low, 0)
        self.memory = Placed(np.full(self.origin + max(high, 0) + GUARD, POISON, np.uint8))
        self.wanted = self.memory.array.copy()
        self.type = oracle.as_mpi(self.tree, MPI).Commit() if self.made else MPI.BYTE
        self.factor = 1 if self.made else unit
        self.buffer: Any = self.memory.at(self.origin)
        if absolute:
            self._make_absolute()

    def _make_absolute(self) -> None:
        address = self.memory.address + self.origin
        lower, extent = self.type.Get_extent()
        placed = self.type.Create_hindexed([1], [address])
        absolute = placed.Create_resized(address + lower, extent).Commit()
        placed.Free()
        if self.made:
            self.type.Free()
        self.made, self.buffer, self.type = True, MPI.BOTTOM, absolute

    def _unpack(self, at: int, packed: Any, into: Any) -> None:
        oracle.unpack(self.tree, len(packed) // self.unit, packed, into, self.origin + at * self.extent)

    def put(self, at: int, packed: Any) -> None:
        self._unpack(at, packed, self.memory.array)
        self.memory.put()

    def expect(self, at: int, packed: Any) -> None:
        self._unpack(at, packed, self.wanted)

    def expect_no_change(self) -> None:
        self.wanted[:] = self.memory.array

    def renewal(self) -> Callable[[], None]:
        """Puts the memory back as it is now."""
        before = self.memory.array.copy()
        return lambda: self.memory.fill(before)

    def all(self, count: int) -> list[Any]:
        return [self.buffer, count * self.factor, self.type]

    def each(self, counts: Sequence[int], places: Sequence[int], varied: bool) -> list[Any]:
        if not varied:
            return self.all(counts[0])
        scaled = [[self.factor * int(i) for i in row] for row in (counts, places)]
        return [self.buffer, *scaled, self.type]

    def check(self) -> None:
        np.testing.assert_array_equal(self.memory.get(), self.wanted)
        if self.made:
            self.type.Free()


SLOT = 4  # elements between two blocks: more than any has


@dataclass(frozen=True, slots=True)
class Shape:
    """Who passes what to whom: counts[i][j] elements from rank i to rank j, bytes by (i, j) or by i alone."""

    counts: Any
    unit: int
    personal: bool

    def data(self, source: int, to: int) -> Any:
        return bytes_of(source * 64 + self.personal * to, self.unit * int(self.counts[source][to]))


def places_of(counts: Sequence[int], varied: bool) -> list[int]:
    return [SLOT * i if varied else int(counts[0]) * i for i in range(len(counts))]


def shape_of(name: str, size: int, seed: int, unit: int) -> Shape:
    rng = np.random.default_rng([seed, size, len(name)])
    counts = rng.integers(0, SLOT, (size, size)) if name.endswith("v") else np.full((size, size), 3)
    counts = np.maximum(counts, counts.T)
    personal = ("all" in name and "gather" not in name) or "Scatter" in name
    if not personal:
        counts[:] = counts[:, :1]
    return Shape(counts, unit, personal)


def filled(row: Row, blocks: Sequence[Any], places: Sequence[int]) -> Row:
    for at, packed in zip(places, blocks, strict=True):
        row.put(at, packed)
    row.expect_no_change()
    return row


# -- calls --------------------------------------------------------------------------------------------------


def run(
    comm: Any,
    name: str,
    shape: Shape,
    tree: oracle.Tree | None,
    root: int = 0,
    in_place: bool = False,
    form: str = "blocking",
    absolute: bool = False,
) -> None:
    """One of PERSONAL or TO_ALL, or a gather."""
    size, rank, varied = comm.size, comm.rank, name.endswith("v")
    row = [int(n) for n in shape.counts[rank]]
    column = [int(n) for n in shape.counts[:, rank]]
    slots = SLOT * size
    if name in PERSONAL:
        out_at, in_at = places_of(row, varied), places_of(column, varied)
        given = [shape.data(rank, j) for j in range(size)]
        expected = [shape.data(i, rank) for i in range(size)]
    else:
        out_at, in_at = [0], places_of(column, varied)
        given = [shape.data(rank, rank)]
        expected = [shape.data(i, rank) for i in range(size)]
    into = Row(tree, shape.unit, slots, absolute)
    if in_place:
        own = given if name in PERSONAL else [given[0] if i == rank else given[0][:0] for i in range(size)]
        filled(into, own, in_at)
    out = filled(Row(tree, shape.unit, slots, absolute), given, out_at)
    for at, packed in zip(in_at, expected, strict=True):
        into.expect(at, packed)
    receive = into.each(column, in_at, varied)
    send: Any = MPI.IN_PLACE if in_place else out.each(row, out_at, varied) if name in PERSONAL else out.all(row[0])
    call = in_form(form, comm, name, into.renewal())
    if name in ROOTED:
        rank_is_root = rank == root
        if not rank_is_root:
            into.expect_no_change()
        call(send if rank_is_root or not in_place else out.all(row[0]), receive if rank_is_root else None, root)
    else:
        call(send, receive)
    out.check()
    into.check()


def derived_on(rank: int, seed: int, tree: oracle.Tree) -> oracle.Tree | None:
    """Rank 0 has the tree; the others bytes, or the tree as well."""
    return tree if rank == 0 or (seed + rank) % 2 else None
