"""Collectives of one type for all neighbours, on random graphs, against the type map: random types on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import oracle
from one_type import NEIGHBORS, SLOT, STARTS_OF, Row, filled, in_every_form, in_form, needs_form
from pending import agree
from redistribution import NAMED, bytes_of, tree_of
from world import carried, needs_host_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

Types = tuple[oracle.Tree | None, oracle.Tree | None]  # of what a rank sends and receives; None: bytes


def types_of(rng: np.random.Generator, tree: oracle.Tree) -> Types:
    """Two, of elements of as many bytes as the tree's, at least one of them derived."""
    unit = len(oracle.element_offsets(tree, 1))
    run = next(run for run in (8, 4, 2, 1) if unit % run == 0)
    places = tuple(int(i) for i in rng.permutation(unit // run) * (run + int(rng.integers(1, 9))))
    kinds = [
        tree,
        None,
        oracle.Vector(unit // run, run, run + 3, NAMED[0]),
        oracle.IndexedBlock(run, places, NAMED[0]),
        oracle.Resized(0, 3 * unit, oracle.Hvector(unit, 1, 2, NAMED[0])),
    ]
    sent, received = rng.choice(len(kinds), 2, replace=False)
    return kinds[sent], kinds[received]


class Graph:
    """Random edges, for some ranks none, for others several to one rank or to itself, and elements of each edge."""

    def __init__(self, comm: Any, name: str, seed: int) -> None:
        rng = np.random.default_rng([seed, comm.size, len(name), 7])
        size, rank = comm.size, comm.rank
        self.name, self.personal, self.varied = name, "alltoall" in name, name.endswith("v")
        self.targets = [rng.integers(size, size=rng.integers(r == 0, 2 * size + 2)) for r in range(size)]
        # Sources in an order of their own, but the edges of one source in theirs.
        order = np.random.default_rng([seed, rank]).permutation(size)
        self.into = [(int(s), k) for s in order for k, to in enumerate(self.targets[s]) if to == rank]
        self.counts = self.counts_of(rng, (3, 0, 1, 2)[seed % 4])  # by (source, edge)
        self.given = [int(n) for n in self.counts[rank][: len(self.targets[rank]) if self.personal else 1]]
        self.taken = [int(self.counts[source][k]) for source, k in self.into]
        tree = tree_of(rng)
        self.unit = len(oracle.element_offsets(tree, 1))
        self.sent, self.received = [types_of(rng, tree) for _ in range(size)][rank]
        self.places = [self.places_of(rng, counts) for counts in (self.given, self.taken)]
        self.comm = comm.Create_dist_graph_adjacent([source for source, _ in self.into], list(self.targets[rank]))

    def counts_of(self, rng: np.random.Generator, equal: int) -> list[Any]:
        """Of all edges the same, of each source, or of each edge. A rank without edges still has what it would give."""
        edges = [max(1, len(row)) for row in self.targets]
        if not self.varied:
            return [np.full(n, equal) for n in edges]
        return [rng.integers(0, SLOT, n) if self.personal else np.full(n, rng.integers(0, SLOT)) for n in edges]

    def places_of(self, rng: np.random.Generator, counts: Sequence[int]) -> list[int]:
        """Blocks with counts of their own lie in any order."""
        n = len(counts)
        return [int(i) for i in (SLOT * rng.permutation(n) if self.varied else np.arange(n) * max(counts, default=0))]

    def data(self, source: int, edge: int, count: int) -> Any:
        return bytes_of(100 * source + self.personal * edge, self.unit * count)

    def exchange(self, form: str) -> None:
        out = Row(self.sent, self.unit, SLOT * (1 + len(self.given)))
        into = Row(self.received, self.unit, SLOT * (1 + len(self.taken)))
        filled(out, [self.data(self.comm.rank, k, n) for k, n in enumerate(self.given)], self.places[0])
        for (source, k), n, at in zip(self.into, self.taken, self.places[1], strict=True):
            into.expect(at, self.data(source, k, n))
        each = self.personal and self.varied
        send = out.each(self.given, self.places[0], True) if each else out.all(max(self.given, default=0))
        receive = into.each(self.taken, self.places[1], True) if self.varied else into.all(max(self.taken, default=0))
        in_form(form, self.comm, self.name, into.renewal())(send, receive)
        out.check()
        into.check()


@in_every_form
@pytest.mark.parametrize("name", NEIGHBORS)
def test_a_graph_with_one_type_on_each_side(comm: Any, name: str, form: str, seed: int) -> None:
    """The types of what a process sends and receives are not the same, nor those of two processes."""
    needs_host_memory()
    needs_form(name, form)
    graph = Graph(comm, name, seed)
    with carried(graph.comm, name):
        graph.exchange("blocking")
    if form != "blocking":
        agree(graph.comm)
        with carried(graph.comm, name, STARTS_OF[form]):
            graph.exchange(form)
    graph.comm.Free()
