"""Collectives with blocks in several memories at once: MPI_BOTTOM with host and device addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oracle
from devices import DEVICES, EMULATED
from one_type import needs_form
from pending import request_of
from redistribution import block_of, bytes_of
from world import MPI, Memory, acted

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

PLACES = ("host", "device", "device:1", "managed", "pinned", "pool", "host")
TURNS = 3


class Blocks:
    """One side of a call: blocks with a type and a memory each."""

    def __init__(self, blocks: list[tuple[oracle.Tree, int]], rng: np.random.Generator) -> None:
        self.memories = [Memory(*block, where=PLACES[rng.integers(len(PLACES))]) for block in blocks]
        self.types = [oracle.as_mpi(tree, MPI).Commit() for tree, _ in blocks]

    @property
    def message(self) -> list[Any]:
        return [MPI.BOTTOM, [m.count for m in self.memories], [m.address for m in self.memories], self.types]

    def put(self, packed: list[Any]) -> None:
        for memory, own in zip(self.memories, packed, strict=True):
            whole = memory.copy()
            oracle.unpack(memory.tree, memory.count, own, whole, memory.origin)
            memory._put(whole)

    def check(self, packed: list[Any]) -> None:
        for memory, own in zip(self.memories, packed, strict=True):
            memory.check(own)

    def free(self) -> None:
        for datatype in self.types:
            datatype.Free()


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
@pytest.mark.parametrize("seed", range(6))
def test_a_graph_delivers_blocks_of_every_memory(comm: Any, seed: int, form: str) -> None:
    """To itself, to others, several times to one: each block from one memory to another."""
    needs_form("Neighbor_alltoallw", form)
    size, rank, rng = comm.size, comm.rank, np.random.default_rng([seed, comm.size])
    targets = [[int(i) for i in rng.integers(size, size=rng.integers(0, 2 * size + 3))] for _ in range(size)]
    blocks = [[block_of(rng) for _ in row] for row in targets]
    edges = [(source, k) for source, row in enumerate(targets) for k, to in enumerate(row) if to == rank]
    graph = comm.Create_dist_graph_adjacent([source for source, _ in edges], targets[rank])
    out = Blocks([block.sent for block in blocks[rank]], rng)
    into = Blocks([blocks[source][k].received for source, k in edges], rng)

    def packed(source: int, k: int, turn: int) -> Any:
        return bytes_of(1000 * turn + 50 * source + k, len(oracle.element_offsets(*blocks[source][k].sent)))

    sides = out.message, into.message
    kept = request_of(graph, "Neighbor_alltoallw", *sides) if form == "persistent" else None
    with acted(collectives=TURNS):
        for turn in range(TURNS):
            out.put([packed(rank, k, turn) for k in range(len(blocks[rank]))])
            if form == "blocking":
                graph.Neighbor_alltoallw(*sides)
            elif kept:
                kept.Start()
                kept.Wait()
            else:
                graph.Ineighbor_alltoallw(*sides).Wait()
            into.check([packed(source, k, turn) for source, k in edges])
    if kept:
        kept.Free()
    out.free()
    into.free()
    graph.Free()
