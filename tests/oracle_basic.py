"""The basis of `oracle`: type maps, trees, and the named types as trees."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]

__all__ = ["NAMED", "F90Complex", "F90Integer", "F90Real", "Named", "Tree", "TypeMap", "blocks", "compose"]


@dataclass(frozen=True, slots=True, eq=False)
class TypeMap:
    """The bytes of one element in type-map order, and its bounds, all in bytes."""

    offsets: Offsets
    lb: int
    ub: int
    align: int  # of the strictest basic type, for the padding of structs; 1 without any

    @property
    def size(self) -> int:
        return len(self.offsets)

    @property
    def extent(self) -> int:
        return self.ub - self.lb

    @property
    def true_lb(self) -> int:
        return int(self.offsets.min()) if self.size else 0

    @property
    def true_ub(self) -> int:
        return int(self.offsets.max()) + 1 if self.size else 0

    @property
    def empty(self) -> bool:
        """No entries at all, not even bounds set by a resize."""
        return self.size == 0 and self.lb == 0 and self.ub == 0


def compose(parts: Iterable[tuple[int, TypeMap]]) -> TypeMap:
    """The type map of members (displacement, type map), in this order."""
    members = [(at, inner) for at, inner in parts if not inner.empty]
    if not members:
        return TypeMap(np.zeros(0, np.int64), 0, 0, 1)
    return TypeMap(
        np.concatenate([inner.offsets + at for at, inner in members]),
        min(at + inner.lb for at, inner in members),
        max(at + inner.ub for at, inner in members),
        max((inner.align for _, inner in members if inner.size), default=1),
    )


def blocks(inner: TypeMap, blocks: Iterable[tuple[int, int]]) -> TypeMap:
    """Blocks (displacement, blocklength) of one type: the same as `compose` of all elements, and faster."""
    places = [at + j * inner.extent for at, length in blocks for j in range(length)]
    if inner.empty or not places:
        return compose([])
    offsets = np.add.outer(np.array(places), inner.offsets).ravel()
    align = inner.align if inner.size else 1
    return TypeMap(offsets, min(places) + inner.lb, max(places) + inner.ub, align)


@functools.lru_cache(maxsize=512)
def _type_map(tree: Tree) -> TypeMap:
    return tree.compute()


@dataclass(frozen=True, slots=True)
class Tree:
    """A datatype. Subclasses define its type map, its text, and how it is built."""

    @property
    def type_map(self) -> TypeMap:
        return _type_map(self)

    def compute(self) -> TypeMap:
        raise NotImplementedError

    def children(self) -> tuple[Tree, ...]:
        inner = getattr(self, "inner", None)
        return () if inner is None else (inner,)

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        """The raw tempi layout, from those of the children."""
        raise NotImplementedError

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        """The mpi4py datatype, from those of the children."""
        raise NotImplementedError


# -- named types ------------------------------------------------------------------------------------

_C = ctypes
_SCALARS: dict[str, tuple[Any, int]] = {  # the C type, and how many of them
    "CHAR": (_C.c_char, 1),
    "SIGNED_CHAR": (_C.c_byte, 1),
    "UNSIGNED_CHAR": (_C.c_ubyte, 1),
    "BYTE": (_C.c_ubyte, 1),
    "WCHAR": (_C.c_wchar, 1),
    "C_BOOL": (_C.c_bool, 1),
    "SHORT": (_C.c_short, 1),
    "UNSIGNED_SHORT": (_C.c_ushort, 1),
    "INT": (_C.c_int, 1),
    "UNSIGNED": (_C.c_uint, 1),
    "LONG": (_C.c_long, 1),
    "UNSIGNED_LONG": (_C.c_ulong, 1),
    "LONG_LONG": (_C.c_longlong, 1),
    "UNSIGNED_LONG_LONG": (_C.c_ulonglong, 1),
    "FLOAT": (_C.c_float, 1),
    "DOUBLE": (_C.c_double, 1),
    "LONG_DOUBLE": (_C.c_longdouble, 1),
    "INT8_T": (_C.c_int8, 1),
    "INT16_T": (_C.c_int16, 1),
    "INT32_T": (_C.c_int32, 1),
    "INT64_T": (_C.c_int64, 1),
    "UINT8_T": (_C.c_uint8, 1),
    "UINT16_T": (_C.c_uint16, 1),
    "UINT32_T": (_C.c_uint32, 1),
    "UINT64_T": (_C.c_uint64, 1),
    "AINT": (_C.c_ssize_t, 1),
    "COUNT": (_C.c_longlong, 1),
    "OFFSET": (_C.c_longlong, 1),
    "C_FLOAT_COMPLEX": (_C.c_float, 2),
    "C_DOUBLE_COMPLEX": (_C.c_double, 2),
    "C_LONG_DOUBLE_COMPLEX": (_C.c_longdouble, 2),
}
_PAIRS: dict[str, Any] = {  # the type of the value; the index is an int right behind it
    "FLOAT_INT": _C.c_float,
    "DOUBLE_INT": _C.c_double,
    "LONG_INT": _C.c_long,
    "TWOINT": _C.c_int,
    "SHORT_INT": _C.c_short,
    "LONG_DOUBLE_INT": _C.c_longdouble,
}
NAMED: tuple[str, ...] = (*_SCALARS, *_PAIRS)


@dataclass(frozen=True, slots=True)
class Named(Tree):
    """A predefined C type by its name without ``MPI_``."""

    name: str

    def pair(self) -> tuple[int, int, int, int]:
        """Value size, offset and size of the index, extent: as a C compiler lays them out."""
        value = _PAIRS[self.name]
        fields = [("value", value), ("index", _C.c_int)]
        struct: Any = type("Pair", (_C.Structure,), {"_fields_": fields})
        return _C.sizeof(value), struct.index.offset, _C.sizeof(_C.c_int), _C.sizeof(struct)

    def compute(self) -> TypeMap:
        if self.name in _SCALARS:
            kind, n = _SCALARS[self.name]
            size = n * _C.sizeof(kind)
            return TypeMap(np.arange(size, dtype=np.int64), 0, size, _C.alignment(kind))
        value, index, index_size, extent = self.pair()
        offsets = np.concatenate([np.arange(value), index + np.arange(index_size)])
        return TypeMap(offsets.astype(np.int64), 0, extent, max(_C.alignment(_PAIRS[self.name]), 4))

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        if self.name in _PAIRS:
            return engine.make("pair", *self.pair())
        return engine.make("bytes", self.type_map.size)

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return getattr(module, self.name).Dup()

    def __str__(self) -> str:
        return self.name


def _f90_size(limits: Sequence[tuple[Any, int]], *wanted: int) -> int:
    for limit, size in limits:
        if all(w <= have for w, have in zip(wanted, limit, strict=True)):
            return size
    raise ValueError(f"no Fortran kind has {wanted}")


_F90_INTEGERS = (((2,), 1), ((4,), 2), ((9,), 4), ((18,), 8))
_F90_REALS = (((6, 37), 4), ((15, 307), 8))


class _F90(Tree):
    """Common to the parametrised Fortran types: bytes of one size."""

    __slots__ = ()

    def bytes(self) -> tuple[int, int]:
        """Size and alignment."""
        raise NotImplementedError

    def compute(self) -> TypeMap:
        size, align = self.bytes()
        return TypeMap(np.arange(size, dtype=np.int64), 0, size, align)

    def layout(self, engine: Any, inner: Sequence[Any]) -> Any:
        return engine.make("bytes", self.bytes()[0])


@dataclass(frozen=True, slots=True)
class F90Integer(_F90):
    range: int

    def bytes(self) -> tuple[int, int]:
        size = _f90_size(_F90_INTEGERS, self.range)
        return size, size

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return module.Datatype.Create_f90_integer(self.range).Dup()

    def __str__(self) -> str:
        return f"f90_integer({self.range})"


@dataclass(frozen=True, slots=True)
class F90Real(_F90):
    precision: int
    range: int

    def bytes(self) -> tuple[int, int]:
        size = _f90_size(_F90_REALS, self.precision, self.range)
        return size, size

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return module.Datatype.Create_f90_real(self.precision, self.range).Dup()

    def __str__(self) -> str:
        return f"f90_real({self.precision}, {self.range})"


@dataclass(frozen=True, slots=True)
class F90Complex(_F90):
    precision: int
    range: int

    def bytes(self) -> tuple[int, int]:
        size = _f90_size(_F90_REALS, self.precision, self.range)
        return 2 * size, size

    def mpi(self, module: Any, inner: Sequence[Any]) -> Any:
        return module.Datatype.Create_f90_complex(self.precision, self.range).Dup()

    def __str__(self) -> str:
        return f"f90_complex({self.precision}, {self.range})"
