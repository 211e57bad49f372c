"""Exchanges of ``tempi bench collectives`` by functions with one datatype a side: equal blocks of one vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tempi.bench.cases import KIB, MIB, Vector, size_name
from tempi.bench.exchanges import Block, Exchange, Position

SHAPES = ((8, KIB), (64, KIB), (8, 64 * KIB), (64, 64 * KIB), (1024, MIB))  # run, size
FUNCTIONS = (
    *("Bcast", "Gather", "Scatter", "Allgather", "Allgatherv", "Alltoall", "Alltoallv"),
    *("Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall", "Neighbor_alltoallv"),
)


@dataclass(frozen=True, slots=True)
class OneType(Exchange):
    """About `size` bytes of each rank that has several blocks, or of the one that it has. Of neighbours each process
    has all others, twice."""

    called: str
    size: int
    length: int

    @property
    def name(self) -> str:
        return f"{self.called} run {self.length}, {size_name(self.size)}"

    @property
    def function(self) -> str:
        return self.called

    @property
    def sends_one(self) -> bool:
        """Whether the same block goes to all."""
        return "llgather" in self.called or self.called in ("Bcast", "Gather")

    def comm(self, mpi: Any, world: Any) -> Any:
        if not self.called.startswith("Neighbor"):
            return world.Dup()
        others = self._others(self.position(world.rank, world.size))
        return world.Create_dist_graph_adjacent(others, others)

    def _others(self, at: Position) -> list[int]:
        return [rank for rank in range(at.ranks) if rank != at.rank] * 2

    def _shape(self, at: Position) -> Vector:
        many = 1 if self.called == "Bcast" else at.ranks
        return Vector(max(self.length, self.size // many // self.length * self.length), self.length, 2 * self.length)

    def _blocks(self, at: Position, peers: Sequence[int], one: bool) -> list[Block]:
        """One after another, as a count of each says. A tag tells the blocks between two processes apart."""
        shape = self._shape(at)
        tags = [peers[:i].count(peer) for i, peer in enumerate(peers)]
        places = [0 if one else i * shape.span for i in range(len(peers))]
        return [Block(peer, tag, shape, place) for peer, tag, place in zip(peers, tags, places, strict=True)]

    def sends(self, at: Position) -> list[Block]:
        every = range(at.ranks)
        if self.called.startswith("Neighbor"):
            return self._blocks(at, self._others(at), self.sends_one)
        if self.called == "Gather":
            return self._blocks(at, [0], True)
        if self.called == "Bcast":
            return self._blocks(at, [rank for rank in every if rank != 0] if at.rank == 0 else [], True)
        return self._blocks(at, list(every) if at.rank == 0 or self.called != "Scatter" else [], self.sends_one)

    def receives(self, at: Position) -> list[Block]:
        every = range(at.ranks)
        if self.called.startswith("Neighbor"):
            return self._blocks(at, self._others(at), False)
        if self.called == "Scatter" or (self.called == "Bcast" and at.rank != 0):
            return self._blocks(at, [0], True)
        if self.called == "Bcast" or (self.called == "Gather" and at.rank != 0):
            return []
        return self._blocks(at, list(every), False)

    def arguments(
        self, at: Position, addresses: Sequence[int], each: int, datatype: int, array: Callable[[list[int]], int]
    ) -> list[int]:
        """Those before the communicator. `addresses`: of what is sent, and received; `each`: elements of a block;
        `array`: gives the address of an array of ints."""
        sent, received = addresses
        if self.called == "Bcast":
            return [sent if at.rank == 0 else received, each, datatype, 0]
        blocks = len(self._others(at)) if self.called.startswith("Neighbor") else at.ranks
        places = [array([each] * blocks), array([i * each for i in range(blocks)])]
        many = places if self.called.endswith("v") else [each]
        sends = many if self.called.lower().endswith("alltoallv") else [each]
        root = [0] if self.called in ("Gather", "Scatter") else []
        return [sent, *sends, datatype, received, *many, datatype, *root]


def exchanges(quick: bool) -> list[Exchange]:
    shapes = SHAPES[3:4] if quick else SHAPES
    return [OneType(function, size, run) for function in FUNCTIONS for run, size in shapes]
