"""The exchanges of ``tempi bench collectives``, as blocks that each rank sends and receives.

A block is a shape (`cases.Case`) at a place of a buffer. Both sides of a block follow from the ranks alone, so each
rank can compute what it must receive from a peer. Only `Exchange.comm` and the datatypes of the shapes call MPI.
"""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tempi.bench.cases import Bytes, Case, Vector, size_name

AXES = "zyx"
LINE = 64
Offset = tuple[int, int, int]


# -- shapes of a block ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box(Case):
    """A subarray in C order, of doubles or of complex doubles (`element` 8 or 16 bytes)."""

    sizes: tuple[int, ...]
    subsizes: tuple[int, ...]
    starts: tuple[int, ...]
    element: int

    @property
    def name(self) -> str:
        return f"{self.subsizes} of {self.sizes}"

    @property
    def nbytes(self) -> int:
        return self.element * math.prod(self.subsizes)

    @property
    def span(self) -> int:
        return self.element * math.prod(self.sizes)

    @property
    def run(self) -> int:
        return self.element * self.subsizes[-1]

    def datatype(self, mpi: Any) -> Any:
        base = mpi.DOUBLE if self.element == 8 else mpi.C_DOUBLE_COMPLEX
        return base.Create_subarray(self.sizes, self.subsizes, self.starts).Commit()

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        array = buffer[: self.span].view(f"V{self.element}").reshape(self.sizes)
        return array[tuple(slice(a, a + n) for a, n in zip(self.starts, self.subsizes, strict=True))]


@functools.lru_cache(maxsize=64)
def _pieces(seed: tuple[int, ...], elements: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Lengths and starts: pieces of 1 to 16 elements with gaps of 0 to 16, in ascending order."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 17, elements)
    ends = np.cumsum(lengths)
    last = int(np.searchsorted(ends, elements))
    lengths = lengths[: last + 1]
    lengths[last] -= ends[last] - elements
    gaps = rng.integers(0, 17, lengths.size)
    starts = np.cumsum(gaps) + np.cumsum(lengths) - lengths
    return lengths.astype(np.int32), starts.astype(np.int32)


@dataclass(frozen=True, slots=True)
class Pieces(Case):
    """An indexed type of doubles: pieces of random length and distance."""

    elements: int
    seed: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.elements} doubles in pieces"

    @property
    def nbytes(self) -> int:
        return 8 * self.elements

    @property
    def span(self) -> int:
        lengths, starts = _pieces(self.seed, self.elements)
        return 8 * int(starts[-1] + lengths[-1])

    @property
    def run(self) -> int:
        return 8

    def datatype(self, mpi: Any) -> Any:
        return mpi.DOUBLE.Create_indexed(*_pieces(self.seed, self.elements)).Commit()

    def _places(self) -> npt.NDArray[np.int64]:
        lengths, starts = _pieces(self.seed, self.elements)
        packed = np.cumsum(lengths) - lengths
        return np.repeat(starts - packed, lengths) + np.arange(self.elements)

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        return buffer[: self.span].view(np.uint64)[self._places()]

    def scatter(self, buffer: Bytes, packed: Bytes) -> None:
        buffer[: self.span].view(np.uint64)[self._places()] = packed.view(np.uint64)


@dataclass(frozen=True, slots=True)
class Plain(Case):
    """Bytes without gaps: a count of MPI_BYTE."""

    size: int

    @property
    def name(self) -> str:
        return size_name(self.size)

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def span(self) -> int:
        return self.size

    @property
    def run(self) -> int:
        return self.size

    @property
    def count(self) -> int:
        return self.size

    def datatype(self, mpi: Any) -> Any:
        """Predefined: not to be freed."""
        return mpi.BYTE

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        return buffer[: self.size]


# -- exchanges ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Position:
    """A rank of the exchange's communicator; that of a pencil is one of several groups."""

    rank: int
    ranks: int
    group: int = 0
    groups: int = 1

    def of(self, rank: int) -> Position:
        """Another rank of the same communicator."""
        return Position(rank, self.ranks, self.group, self.groups)


@dataclass(frozen=True, slots=True)
class Block:
    """A send and a receive with the same tag belong together. `place`: bytes from the start of the buffer."""

    peer: int
    tag: int
    shape: Case
    place: int = 0

    @property
    def end(self) -> int:
        return self.place + self.shape.span

    def part(self, buffer: Bytes) -> Bytes:
        return buffer[self.place : self.end]


class Exchange(abc.ABC):
    """What all ranks send to each other in one call."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def name(self) -> str: ...

    @property
    def function(self) -> str:
        """The MPI function, without its prefix."""
        return "Alltoallw"

    @property
    def one_buffer(self) -> bool:
        """Whether blocks are received into the buffer from which others are sent."""
        return False

    def groups(self, ranks: int) -> int:
        """Number of communicators that exchange side by side."""
        return 1

    def comm(self, mpi: Any, world: Any) -> Any:
        """The communicator, to be freed by the caller. Collective."""
        size = world.size // self.groups(world.size)
        return world.Split(world.rank // size, world.rank)

    def position(self, rank: int, ranks: int) -> Position:
        """That of a rank of MPI_COMM_WORLD."""
        groups = self.groups(ranks)
        size = ranks // groups
        return Position(rank % size, size, rank // size, groups)

    @abc.abstractmethod
    def sends(self, at: Position) -> list[Block]: ...

    @abc.abstractmethod
    def receives(self, at: Position) -> list[Block]: ...

    def span(self, at: Position) -> int:
        """Bytes of the longer buffer of that rank."""
        return max((block.end for block in (*self.sends(at), *self.receives(at))), default=0)


def share(points: int, parts: int, index: int) -> tuple[int, int]:
    """Start and number of the points in part `index`; the first parts have one more if it does not divide."""
    each, more = divmod(points, parts)
    return index * each + min(index, more), each + (index < more)


@dataclass(frozen=True, slots=True)
class Redistribution(Exchange):
    """Of a cube of complex doubles between two steps of a 3-D FFT, as mpi4py-fft and 2DECOMP make it.

    Before, axis `before` is distributed over the ranks of the communicator and `after` is whole; afterwards it is the
    other way round. Pencils have the third axis distributed too, over as many such communicators.
    """

    points: int
    before: int
    after: int
    pencils: bool = False

    @property
    def name(self) -> str:
        kind = "pencils" if self.pencils else "slabs"
        return f"FFT {kind} {AXES[self.before]} to {AXES[self.after]}, {self.points}^3"

    def groups(self, ranks: int) -> int:
        """The largest divisor up to the square root."""
        if not self.pencils:
            return 1
        return max(n for n in range(1, math.isqrt(ranks) + 1) if ranks % n == 0)

    def _sizes(self, at: Position, distributed: int) -> list[int]:
        sizes = [self.points] * 3
        sizes[3 - self.before - self.after] = share(self.points, at.groups, at.group)[1]
        sizes[distributed] = share(self.points, at.ranks, at.rank)[1]
        return sizes

    def _blocks(self, at: Position, distributed: int, cut: int) -> list[Block]:
        """The own part, which is distributed along one axis, cut into the peers' blocks along the other."""
        sizes = self._sizes(at, distributed)
        blocks = []
        for peer in range(at.ranks):
            starts, subsizes = [0, 0, 0], [*sizes]
            starts[cut], subsizes[cut] = share(self.points, at.ranks, peer)
            blocks.append(Block(peer, 0, Box(tuple(sizes), tuple(subsizes), tuple(starts), 16)))
        return blocks

    def sends(self, at: Position) -> list[Block]:
        return self._blocks(at, self.before, self.after)

    def receives(self, at: Position) -> list[Block]:
        return self._blocks(at, self.after, self.before)


def grid(ranks: int) -> Offset:
    """Three factors, as equal as possible, in descending order."""
    found = (
        (a, b, ranks // a // b)
        for a in range(1, ranks + 1)
        if ranks % a == 0
        for b in range(1, a + 1)
        if ranks // a % b == 0 and ranks // a // b <= b
    )
    return min(found, key=sum)


def _offsets(neighbours: int, cartesian: bool) -> list[Offset]:
    """Of the neighbours; those of a Cartesian communicator in its order: axis by axis, first the negative one."""
    if cartesian:
        return [(d * (a == 0), d * (a == 1), d * (a == 2)) for a in range(3) for d in (-1, 1)]
    steps = (-1, 0, 1)
    every = itertools.product(steps, steps, steps)
    return [one for one in every if any(one) and (neighbours == 26 or sum(map(abs, one)) == 1)]


@dataclass(frozen=True, slots=True)
class HaloExchange(Exchange):
    """Of `fields` cubes of `points`^3 doubles with one layer of halo, on a periodic grid of ranks."""

    points: int
    fields: int
    neighbours: int
    cartesian: bool = False

    @property
    def name(self) -> str:
        kind = "Cartesian" if self.cartesian else "graph"
        return f"halo {self.neighbours} {kind}, {self.points}^3 x {self.fields}"

    @property
    def function(self) -> str:
        return "Neighbor_alltoallw"

    @property
    def one_buffer(self) -> bool:
        return True

    def comm(self, mpi: Any, world: Any) -> Any:
        """The graph is made of MPI_COMM_WORLD: Open MPI 5.0.11 calls one made of a Cartesian communicator Cartesian."""
        if self.cartesian:
            return world.Create_cart(grid(world.size), [True] * 3)
        at = self.position(world.rank, world.size)
        sources = [block.peer for block in self.receives(at)]
        return world.Create_dist_graph_adjacent(sources, [block.peer for block in self.sends(at)])

    def _peer(self, at: Position, offset: Offset) -> int:
        dims = grid(at.ranks)
        own = (at.rank // (dims[1] * dims[2]), at.rank // dims[2] % dims[1], at.rank % dims[2])
        z, y, x = ((c + o) % n for c, o, n in zip(own, offset, dims, strict=True))
        return (z * dims[1] + y) * dims[2] + x

    def _region(self, offset: Offset, halo: bool) -> Box:
        """The halo towards that neighbour, or the cells that it needs."""
        n = self.points
        starts = [(0, 1, n + 1)[1 + o] if halo else (1, 1, n)[1 + o] for o in offset]
        subsizes = [1 if o else n for o in offset]
        return Box((self.fields, *[n + 2] * 3), (self.fields, *subsizes), (0, *starts), 8)

    def sends(self, at: Position) -> list[Block]:
        offsets = _offsets(self.neighbours, self.cartesian)
        return [Block(self._peer(at, o), tag, self._region(o, False)) for tag, o in enumerate(offsets)]

    def receives(self, at: Position) -> list[Block]:
        """A graph lists the sources in the order in which they send; what comes from an offset was sent along its
        opposite."""
        offsets = _offsets(self.neighbours, self.cartesian)
        opposite = [(-z, -y, -x) for z, y, x in offsets]
        listed, along = (offsets, opposite) if self.cartesian else (opposite, offsets)
        tags = [offsets.index(o) for o in along]
        return [Block(self._peer(at, o), tag, self._region(o, True)) for tag, o in zip(tags, listed, strict=True)]


def _lined_up(peers: Iterable[tuple[int, Case]]) -> list[Block]:
    """Blocks one after another, each on a cache line of its own."""
    blocks, place = [], 0
    for peer, shape in peers:
        blocks.append(Block(peer, 0, shape, place))
        place += -(-shape.span // LINE) * LINE
    return blocks


@dataclass(frozen=True, slots=True)
class Tiles(Exchange):
    """A square matrix of doubles on rank 0, and a tile of it on each rank, with one layer of halo around it: gathered,
    or scattered."""

    points: int
    scatters: bool = False

    @property
    def name(self) -> str:
        return f"{'scatter' if self.scatters else 'gather'} tiles, {self.points}^2"

    @property
    def function(self) -> str:
        return "Scatterv" if self.scatters else "Gatherv"

    @property
    def whole(self) -> tuple[int, int]:
        return (self.points, self.points)

    def place(self, rank: int, ranks: int) -> tuple[int, int]:
        """Row and column of the first point of a tile."""
        rows, columns = self._grid(ranks)
        return rank // columns * (self.points // rows), rank % columns * (self.points // columns)

    def tile(self, ranks: int) -> tuple[int, int]:
        """Rows and columns: equal for all, so that one datatype describes them."""
        rows, columns = self._grid(ranks)
        return self.points // rows, self.points // columns

    def _grid(self, ranks: int) -> tuple[int, int]:
        """More columns than rows: whole rows would have no gaps."""
        rows = max(n for n in range(1, math.isqrt(ranks) + 1) if ranks % n == 0)
        return rows, ranks // rows

    def _own(self, at: Position) -> list[Block]:
        rows, columns = self.tile(at.ranks)
        return [Block(0, at.rank, Box((rows + 2, columns + 2), (rows, columns), (1, 1), 8))]

    def _root(self, at: Position) -> list[Block]:
        if at.rank != 0:
            return []
        tile, each = self.tile(at.ranks), range(at.ranks)
        return [Block(peer, peer, Box(self.whole, tile, self.place(peer, at.ranks), 8)) for peer in each]

    def sends(self, at: Position) -> list[Block]:
        return self._root(at) if self.scatters else self._own(at)

    def receives(self, at: Position) -> list[Block]:
        return self._own(at) if self.scatters else self._root(at)


@dataclass(frozen=True, slots=True)
class Irregular(Exchange):
    """Indexed types of random pieces and unequal sizes, other ones on each side; `size` bytes sent by each rank."""

    size: int

    @property
    def name(self) -> str:
        return f"indexed, {size_name(self.size)}"

    def _elements(self, sender: int, ranks: int) -> list[int]:
        """Doubles for each receiver."""
        weights = np.random.default_rng((self.size, sender)).integers(1, 9, ranks)
        ends = np.concatenate(([0], np.cumsum(weights))) * (self.size // 8) // int(weights.sum())
        return [max(1, int(n)) for n in np.diff(ends)]

    def sends(self, at: Position) -> list[Block]:
        each = enumerate(self._elements(at.rank, at.ranks))
        return _lined_up((peer, Pieces(n, (self.size, at.rank, peer, 0))) for peer, n in each)

    def receives(self, at: Position) -> list[Block]:
        each = ((peer, self._elements(peer, at.ranks)[at.rank]) for peer in range(at.ranks))
        return _lined_up((peer, Pieces(n, (self.size, peer, at.rank, 1))) for peer, n in each)


@dataclass(frozen=True, slots=True)
class ContiguousBlocks(Exchange):
    """`size` bytes of each rank, in equal blocks without gaps."""

    size: int

    @property
    def name(self) -> str:
        return f"contiguous, {size_name(self.size)}"

    def sends(self, at: Position) -> list[Block]:
        return _lined_up((peer, Plain(self.size // at.ranks)) for peer in range(at.ranks))

    def receives(self, at: Position) -> list[Block]:
        return self.sends(at)


@dataclass(frozen=True, slots=True)
class StridedBlocks(Exchange):
    """`size` bytes of each rank, in equal blocks of runs, which are closer together where they are sent."""

    size: int
    run: int

    @property
    def name(self) -> str:
        return f"strided run {self.run}, {size_name(self.size)}"

    def _bytes(self, at: Position, peer: int) -> int:
        """Of the block to or from that process."""
        return self.size // at.ranks

    def _blocks(self, at: Position, step: int) -> list[Block]:
        sizes = [self._bytes(at, peer) // self.run * self.run for peer in range(at.ranks)]
        shapes = [Vector(size, self.run, step * self.run) if size else Plain(0) for size in sizes]
        return _lined_up(enumerate(shapes))

    def sends(self, at: Position) -> list[Block]:
        return self._blocks(at, 2)

    def receives(self, at: Position) -> list[Block]:
        return self._blocks(at, 3)


@dataclass(frozen=True, slots=True)
class OwnBlock(StridedBlocks):
    """`size` bytes from each rank to itself; nothing to the others."""

    @property
    def name(self) -> str:
        return f"to itself run {self.run}, {size_name(self.size)}"

    def _bytes(self, at: Position, peer: int) -> int:
        return self.size if peer == at.rank else 0
