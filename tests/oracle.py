"""The type-map oracle: datatypes as trees with their type maps, straight from MPI-5.0 chapter 5.

A tree is written with the classes below, one per combiner. ``tree.type_map`` is the reference for
every part of tempi: the byte offsets in type-map order, and the bounds. It is slow and simple on purpose and
uses nothing of the engine. The same tree builds itself as a tempi layout
(`as_layout`), as an mpi4py datatype (`as_mpi`) and as text for ``tempi.expression`` (`str(tree)`).

The libraries (MPICH 5.0.2, Open MPI 5.0.11) interpret two points of the standard differently; the oracle
uses one interpretation: the bounds of a constructed type are the least and the greatest of its
members' bounds, whether or not those were set by a resize; and only a struct is padded to its
alignment. `as_mpi` resizes where a library differs, so that tree and datatype always agree.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle_basic import (
    NAMED,
    F90Complex,
    F90Integer,
    F90Real,
    Named,
    Tree,
    TypeMap,
    blocks,
    compose,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

__all__ = [
    "NAMED",
    "Contiguous",
    "Darray",
    "Dup",
    "F90Complex",
    "F90Integer",
    "F90Real",
    "Hindexed",
    "HindexedBlock",
    "Hvector",
    "Indexed",
    "IndexedBlock",
    "Named",
    "Resized",
    "Struct",
    "Subarray",
    "Tree",
    "TypeMap",
    "Vector",
    "as_layout",
    "as_mpi",
    "element_offsets",
    "overlaps",
    "pack",
    "span",
    "unpack",
]


# -- constructors -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dup(Tree):
    inner: Tree

    def compute(self) -> TypeMap:
        return self.inner.type_map

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        old = self.inner.type_map
        return engine.make("resized", old.lb, old.extent, inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Dup()

    def __str__(self) -> str:
        return f"dup({self.inner})"


@dataclass(frozen=True, slots=True)
class Contiguous(Tree):
    count: int
    inner: Tree

    def compute(self) -> TypeMap:
        return blocks(self.inner.type_map, [(0, self.count)])

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        return engine.make("contiguous", self.count, inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_contiguous(self.count)

    def __str__(self) -> str:
        return f"contiguous({self.count}, {self.inner})"


@dataclass(frozen=True, slots=True)
class Hvector(Tree):
    count: int
    blocklength: int
    stride: int
    inner: Tree

    def step(self) -> int:
        """Bytes from one block to the next."""
        return self.stride

    def compute(self) -> TypeMap:
        step = self.step()
        return blocks(self.inner.type_map, [(i * step, self.blocklength) for i in range(self.count)])

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        return engine.make("hvector", self.count, self.blocklength, self.step(), inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_hvector(self.count, self.blocklength, self.stride)

    def __str__(self) -> str:
        name = type(self).__name__.lower()
        return f"{name}({self.count}, {self.blocklength}, {self.stride}, {self.inner})"


@dataclass(frozen=True, slots=True)
class Vector(Hvector):
    def step(self) -> int:
        return self.stride * self.inner.type_map.extent

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_vector(self.count, self.blocklength, self.stride)


@dataclass(frozen=True, slots=True)
class Hindexed(Tree):
    blocklengths: tuple[int, ...]
    displacements: tuple[int, ...]
    inner: Tree

    def places(self) -> list[int]:
        """Bytes."""
        return list(self.displacements)

    def compute(self) -> TypeMap:
        return blocks(self.inner.type_map, zip(self.places(), self.blocklengths, strict=True))

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        return engine.make("hindexed", len(self.blocklengths), self.blocklengths, self.places(), inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_hindexed(self.blocklengths, self.displacements)

    def __str__(self) -> str:
        name = type(self).__name__.lower()
        return f"{name}({list(self.blocklengths)}, {list(self.displacements)}, {self.inner})"


@dataclass(frozen=True, slots=True)
class Indexed(Hindexed):
    def places(self) -> list[int]:
        return [d * self.inner.type_map.extent for d in self.displacements]

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_indexed(self.blocklengths, self.displacements)


@dataclass(frozen=True, slots=True)
class HindexedBlock(Tree):
    blocklength: int
    displacements: tuple[int, ...]
    inner: Tree

    def places(self) -> list[int]:
        """Bytes."""
        return list(self.displacements)

    def compute(self) -> TypeMap:
        return blocks(self.inner.type_map, [(at, self.blocklength) for at in self.places()])

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        places = self.places()
        return engine.make("hindexed_block", len(places), self.blocklength, places, inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_hindexed_block(self.blocklength, self.displacements)

    def __str__(self) -> str:
        return f"hindexed_block({self.blocklength}, {list(self.displacements)}, {self.inner})"


@dataclass(frozen=True, slots=True)
class IndexedBlock(HindexedBlock):
    def places(self) -> list[int]:
        return [d * self.inner.type_map.extent for d in self.displacements]

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_indexed_block(self.blocklength, self.displacements)

    def __str__(self) -> str:
        return f"indexed_block({self.blocklength}, {list(self.displacements)}, {self.inner})"


@dataclass(frozen=True, slots=True)
class Struct(Tree):
    blocklengths: tuple[int, ...]
    displacements: tuple[int, ...]
    inners: tuple[Tree, ...]

    def children(self) -> tuple[Tree, ...]:
        return self.inners

    def unpadded(self) -> TypeMap:
        members = zip(self.displacements, self.blocklengths, self.inners, strict=True)
        return compose(
            (at + j * inner.type_map.extent, inner.type_map) for at, length, inner in members for j in range(length)
        )

    def compute(self) -> TypeMap:
        plain = self.unpadded()
        padding = -plain.extent % plain.align
        return TypeMap(plain.offsets, plain.lb, plain.ub + padding, plain.align)

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        n = len(self.blocklengths)
        made = engine.make("struct", n, self.blocklengths, self.displacements, engine.array(inner))
        padded = self.type_map
        if padded.extent == self.unpadded().extent:
            return made
        return engine.make("resized", padded.lb, padded.extent, made)

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return module.Datatype.Create_struct(self.blocklengths, self.displacements, list(inner))

    def __str__(self) -> str:
        inners = ", ".join(map(str, self.inners))
        return f"struct({list(self.blocklengths)}, {list(self.displacements)}, [{inners}])"


@dataclass(frozen=True, slots=True)
class Resized(Tree):
    lb: int
    extent: int
    inner: Tree

    def compute(self) -> TypeMap:
        old = self.inner.type_map
        return TypeMap(old.offsets, self.lb, self.lb + self.extent, old.align)

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        return engine.make("resized", self.lb, self.extent, inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return inner[0].Create_resized(self.lb, self.extent)

    def __str__(self) -> str:
        return f"resized({self.lb}, {self.extent}, {self.inner})"


def _elements(sizes: Sequence[int], chosen: Sequence[Sequence[int]], order: str, inner: TypeMap) -> TypeMap:
    """The elements of an array whose index in dimension d is one of chosen[d], slowest first."""
    ndims = len(sizes)
    slow_first = list(range(ndims)) if order == "C" else list(reversed(range(ndims)))
    step = dict.fromkeys(range(ndims), 0)
    width = inner.extent
    for d in reversed(slow_first):
        step[d] = width
        width *= sizes[d]
    places = [
        sum(i * step[d] for d, i in zip(slow_first, index, strict=True))
        for index in itertools.product(*(chosen[d] for d in slow_first))
    ]
    data = compose((at, inner) for at in places)
    return TypeMap(data.offsets, 0, width, data.align)


def _order_number(order: str) -> int:
    return 0 if order == "C" else 1


@dataclass(frozen=True, slots=True)
class Subarray(Tree):
    sizes: tuple[int, ...]
    subsizes: tuple[int, ...]
    starts: tuple[int, ...]
    inner: Tree
    order: str = "C"

    def compute(self) -> TypeMap:
        chosen = [range(a, a + n) for a, n in zip(self.starts, self.subsizes, strict=True)]
        return _elements(self.sizes, chosen, self.order, self.inner.type_map)

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        shape = (self.sizes, self.subsizes, self.starts)
        return engine.make("subarray", len(self.sizes), *shape, _order_number(self.order), inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        order = module.ORDER_C if self.order == "C" else module.ORDER_FORTRAN
        return inner[0].Create_subarray(self.sizes, self.subsizes, self.starts, order)

    def __str__(self) -> str:
        shape = f"{list(self.sizes)}, {list(self.subsizes)}, {list(self.starts)}"
        return f"subarray({shape}, {self.inner}, order={self.order!r})"


_DISTRIBUTIONS = ("BLOCK", "CYCLIC", "NONE")


@dataclass(frozen=True, slots=True)
class Darray(Tree):
    size: int
    rank: int
    gsizes: tuple[int, ...]
    distribs: tuple[str, ...]
    dargs: tuple[int | None, ...]  # None: the default
    psizes: tuple[int, ...]
    inner: Tree
    order: str = "C"

    def owned(self, d: int) -> list[int]:
        """The global indices of this process in dimension d."""
        coordinates = np.unravel_index(self.rank, self.psizes)  # row-major in both orders
        whole, processes, argument = self.gsizes[d], self.psizes[d], self.dargs[d]
        if self.distribs[d] == "NONE":
            return list(range(whole))
        default = -(-whole // processes) if self.distribs[d] == "BLOCK" else 1
        k = default if argument is None else argument
        return [g for g in range(whole) if g // k % processes == coordinates[d]]

    def compute(self) -> TypeMap:
        chosen = [self.owned(d) for d in range(len(self.gsizes))]
        return _elements(self.gsizes, chosen, self.order, self.inner.type_map)

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        kinds = [_DISTRIBUTIONS.index(name) for name in self.distribs]
        dargs = [-1 if k is None else k for k in self.dargs]
        grid = (self.size, self.rank, len(self.gsizes), self.gsizes, kinds, dargs, self.psizes)
        return engine.make("darray", *grid, _order_number(self.order), inner[0])

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        kinds = [getattr(module, f"DISTRIBUTE_{name}") for name in self.distribs]
        dargs = [module.DISTRIBUTE_DFLT_DARG if k is None else k for k in self.dargs]
        order = module.ORDER_C if self.order == "C" else module.ORDER_FORTRAN
        return inner[0].Create_darray(self.size, self.rank, self.gsizes, kinds, dargs, self.psizes, order)

    def __str__(self) -> str:
        kinds = "[" + ", ".join(self.distribs) + "]"
        dargs = "[" + ", ".join("DFLT" if k is None else str(k) for k in self.dargs) + "]"
        grid = f"{self.size}, {self.rank}, {list(self.gsizes)}, {kinds}, {dargs}"
        return f"darray({grid}, {list(self.psizes)}, {self.inner}, order={self.order!r})"


# -- the bytes of a message ----------------------------------------------------------------------------


def element_offsets(tree: Tree, count: int) -> Offsets:
    """The bytes of `count` elements in packed order, relative to the buffer argument."""
    one = tree.type_map
    starts = np.arange(count, dtype=np.int64) * one.extent
    offsets: Offsets = (starts[:, None] + one.offsets[None, :]).reshape(-1)
    return offsets


def span(tree: Tree, count: int) -> tuple[int, int]:
    """The lowest byte of a message and one past the highest; (0, 0) if it has none."""
    offsets = element_offsets(tree, count)
    return (int(offsets.min()), int(offsets.max()) + 1) if len(offsets) else (0, 0)


def overlaps(tree: Tree, count: int = 1) -> bool:
    """Whether a byte occurs twice: then the type must not be used for a receive buffer."""
    offsets = element_offsets(tree, count)
    return len(np.unique(offsets)) < len(offsets)


def pack(tree: Tree, count: int, memory: Bytes, origin: int) -> Bytes:
    """The packed bytes of `count` elements; the buffer argument is memory[origin]."""
    packed: Bytes = memory[origin + element_offsets(tree, count)]
    return packed


def unpack(tree: Tree, count: int, packed: Bytes, memory: Bytes, origin: int) -> None:
    """Writes packed bytes, possibly fewer than `count` elements, to where they belong."""
    memory[origin + element_offsets(tree, count)[: len(packed)]] = packed


# -- building ---------------------------------------------------------------------------------------


class _Engine:
    """The layout constructors of one engine; keeps what it made until `close`."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self._ffi, self._lib = ffi, lib
        self._made: list[Any] = []

    def make(self, constructor: str, *arguments: Any) -> Any:
        out = self._ffi.new("tempi_layout **")
        given = [list(a) if isinstance(a, tuple) else a for a in arguments]
        status = getattr(self._lib, f"tempi_layout_{constructor}")(*given, out)
        if status != 0:
            raise RuntimeError(f"tempi_layout_{constructor}: status {status}")
        self._made.append(out[0])
        return out[0]

    def array(self, layouts: Sequence[Any]) -> Any:
        return self._ffi.new("tempi_layout *[]", list(layouts))

    def build(self, tree: Tree) -> Any:
        return tree.layout(self, [self.build(child) for child in tree.children()])

    def close(self) -> None:
        for layout in self._made:
            self._lib.tempi_layout_free(layout)
        self._made.clear()


@contextlib.contextmanager
def as_layout(tree: Tree, ffi: Any, lib: Any) -> Iterator[Any]:
    """The raw layout of the tree, freed at the end of the block."""
    engine = _Engine(ffi, lib)
    try:
        yield engine.build(tree)
    finally:
        engine.close()


def as_mpi(tree: Tree, module: Any) -> Any:
    """An uncommitted datatype of mpi4py's `module`, with the tree's own bounds. Free it."""
    inner = [as_mpi(child, module) for child in tree.children()]
    try:
        made = tree.mpi(module, inner)
    finally:
        for datatype in inner:
            datatype.Free()
    wanted = (tree.type_map.lb, tree.type_map.extent)
    if made.Get_extent() == wanted:
        return made
    try:
        return made.Create_resized(*wanted)
    finally:
        made.Free()
