"""Redistributions of random types between ranks: what each block is, and the buffers of a call.

Every rank knows what all ranks send, because the datatypes and the bytes follow from a seed; so each computes what it
must receive by the oracle, without a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import oracle
from devices import DeviceMemory
from world import MPI, placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMED = [oracle.Named(name) for name in ("BYTE", "SHORT", "INT", "DOUBLE")]
GUARD = 64
POISON = 0xA5


# -- random datatypes -------------------------------------------------------------------------------


def tree_of(rng: np.random.Generator) -> oracle.Tree:
    base = NAMED[rng.integers(len(NAMED))]
    n, block, gap = (int(rng.integers(low, high)) for low, high in ((1, 24), (1, 7), (0, 6)))
    places = [int(i) for i in rng.permutation(n) * (block + gap)]
    match int(rng.integers(8)):
        case 0:
            return oracle.Vector(n, block, block + gap, base)
        case 1:
            return oracle.Contiguous(n * block, base)
        case 2:
            return oracle.IndexedBlock(block, tuple(places), base)
        case 3:
            return oracle.Hvector(3, 1, 900 * 8, oracle.Vector(n, block, block + gap, base))
        case 4:
            return oracle.Subarray((n + 3, block + 2), (n, block), (1, 1), base)
        case 5:
            return oracle.Vector(40 * n, block, block + gap, base)
        case 6:
            inner = oracle.Vector(2, 1, 2, base)
            return oracle.Struct((block, 1, n), (0, 512, 1024), (base, inner, NAMED[0]))
        case _:
            return oracle.Hvector(n, 1, -64 * 8, oracle.Contiguous(block, base))


@dataclass(frozen=True, slots=True)
class Block:
    """What goes from one rank to another: bytes that follow from `seed`, and the types of both sides."""

    sent: tuple[oracle.Tree, int]
    received: tuple[oracle.Tree, int]
    seed: int


def block_of(rng: np.random.Generator) -> Block:
    tree, count = tree_of(rng), int(rng.integers(0, 4))
    if rng.integers(10) == 0:
        count *= 1 + 30000 // (1 + len(oracle.element_offsets(tree, 1)))
    size = len(oracle.element_offsets(tree, count))
    other: tuple[oracle.Tree, int] = (tree, count)
    match int(rng.integers(4)):
        case 0:
            other = (NAMED[0], size)
        case 1 if size:
            other = (oracle.Vector(size, 1, 2, NAMED[0]), 1)
        case 2 if count:
            other = (oracle.Contiguous(count, tree), 1)
    if rng.integers(2):
        return Block((tree, count), other, int(rng.integers(1 << 30)))
    return Block(other, (tree, count), int(rng.integers(1 << 30)))


# -- buffers of a call ------------------------------------------------------------------------------


class Side:
    """One buffer with a place for each block, with guards between them; on a device in a run that says so."""

    def __init__(self, blocks: Sequence[tuple[oracle.Tree, int]]) -> None:
        self.blocks, self.origins, at = list(blocks), [], GUARD
        for tree, count in blocks:
            low, high = oracle.span(tree, count)
            self.origins.append(at - min(low, 0))
            at += max(high, 0) - min(low, 0) + GUARD
        self.memory = np.full(at, POISON, np.uint8)
        self.device = DeviceMemory(at) if placement.device else None
        self.types = [oracle.as_mpi(tree, MPI).Commit() for tree, _ in blocks]

    def put(self, packed: Sequence[Any], memory: Any = None) -> None:
        """The packed bytes of each block; None: it stays as it is."""
        target = self.memory if memory is None else memory
        for (tree, count), origin, own in zip(self.blocks, self.origins, packed, strict=True):
            if own is not None:
                oracle.unpack(tree, count, own, target, origin)
        if self.device and memory is None:
            self.device.write(self.memory)

    def size(self, i: int) -> int:
        return len(oracle.element_offsets(*self.blocks[i]))

    @property
    def message(self) -> list[Any]:
        buffer = self.device.at(0) if self.device else self.memory
        return [buffer, [count for _, count in self.blocks], self.origins, self.types]

    def check(self, expected: Sequence[Any]) -> None:
        wanted = np.full_like(self.memory, POISON)
        self.put(expected, wanted)
        np.testing.assert_array_equal(self.device.read() if self.device else self.memory, wanted)

    def free(self) -> None:
        for datatype in self.types:
            datatype.Free()


def bytes_of(seed: int, n: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, n, np.uint8)


def exchange(call: Callable[..., None], out: Sequence[Block | None], into: Sequence[Block | None]) -> None:
    """`out` and `into`: the blocks in the order of the call's arguments; None: MPI_PROC_NULL."""
    nothing = (NAMED[0], 3)
    sent = Side([block.sent if block else nothing for block in out])
    received = Side([block.received if block else nothing for block in into])
    sent.put([bytes_of(b.seed, sent.size(i)) if b else None for i, b in enumerate(out)])
    received.put([None] * len(received.blocks))
    call(sent.message, received.message)
    received.check([bytes_of(b.seed, received.size(i)) if b else None for i, b in enumerate(into)])
    sent.free()
    received.free()


def blocks_between(seed: int, size: int) -> list[list[Block]]:
    rng = np.random.default_rng([seed, size])
    return [[block_of(rng) for _ in range(size)] for _ in range(size)]
