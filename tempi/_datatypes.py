"""Datatypes made in the engine from Python: the constructors behind `tempi.expression`.

Each function takes the text that represents the result, then MPI's arguments with inner types last.
Invalid arguments raise ValueError, OverflowError or an EngineError.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tempi import _engine
from tempi.layout import Layout, from_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Datatype",
    "State",
    "basic",
    "basic_names",
    "contiguous",
    "darray",
    "dup",
    "f90_complex",
    "f90_integer",
    "f90_real",
    "hindexed",
    "hindexed_block",
    "hvector",
    "indexed",
    "indexed_block",
    "resized",
    "struct",
    "subarray",
    "vector",
]


@dataclass(frozen=True, slots=True)
class State:
    """The layout after a pass that changed it; the first state is named "decode"."""

    name: str
    layout: Layout


@dataclass(frozen=True, slots=True, eq=False)
class Datatype:
    """A datatype in the engine, freed with this object."""

    text: str
    pointer: Any
    align: int  # bytes; alignment of the strictest basic type

    def states(self) -> list[State]:
        """All states from the type as written to its canonical form, which is the last."""
        ffi, lib = _engine.ffi, _engine.lib
        states: list[State] = []

        @ffi.callback("tempi_layout_trace")  # type: ignore[untyped-decorator]
        def note(_context: Any, name: Any, state: Any) -> None:
            states.append(State(_engine.text(name) or "", from_engine(state)))

        out = ffi.new("tempi_layout const **")
        status = lib.tempi_layout_canonical(self.pointer, note, ffi.NULL, out)
        _engine.check(status, doing=self.text)
        lib.tempi_layout_release(out[0])
        return states

    def layout(self) -> Layout:
        """The canonical form."""
        return from_engine(self.canonical())

    def canonical(self) -> Any:
        """The engine's object of the canonical form; it lives as long as the returned pointer."""
        ffi, lib = _engine.ffi, _engine.lib
        out = ffi.new("tempi_layout const **")
        _engine.check(lib.tempi_layout_canonical(self.pointer, ffi.NULL, ffi.NULL, out), doing=self.text)
        return ffi.gc(out[0], lib.tempi_layout_release)


# -- basic types ------------------------------------------------------------------------------------


def _scalar(kind: Any, count: int = 1) -> tuple[int, int]:
    return count * ctypes.sizeof(kind), ctypes.alignment(kind)


_C = ctypes
#: name: (bytes, alignment)
_BASIC: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("CHAR", "SIGNED_CHAR", "UNSIGNED_CHAR", "BYTE", "PACKED", "CHARACTER"), (1, 1)),
    "WCHAR": _scalar(_C.c_wchar),
    "SHORT": _scalar(_C.c_short),
    "UNSIGNED_SHORT": _scalar(_C.c_ushort),
    "INT": _scalar(_C.c_int),
    "UNSIGNED": _scalar(_C.c_uint),
    "LONG": _scalar(_C.c_long),
    "UNSIGNED_LONG": _scalar(_C.c_ulong),
    "LONG_LONG": _scalar(_C.c_longlong),
    "LONG_LONG_INT": _scalar(_C.c_longlong),
    "UNSIGNED_LONG_LONG": _scalar(_C.c_ulonglong),
    "FLOAT": _scalar(_C.c_float),
    "DOUBLE": _scalar(_C.c_double),
    "LONG_DOUBLE": _scalar(_C.c_longdouble),
    "C_BOOL": _scalar(_C.c_bool),
    "CXX_BOOL": _scalar(_C.c_bool),
    **{f"{u}INT{8 * n}_T": (n, n) for u in ("", "U") for n in (1, 2, 4, 8)},
    "AINT": _scalar(_C.c_ssize_t),
    "COUNT": (8, 8),
    "OFFSET": (8, 8),
    **{f"{c}FLOAT_COMPLEX": _scalar(_C.c_float, 2) for c in ("C_", "CXX_")},
    **{f"{c}DOUBLE_COMPLEX": _scalar(_C.c_double, 2) for c in ("C_", "CXX_")},
    **{f"{c}LONG_DOUBLE_COMPLEX": _scalar(_C.c_longdouble, 2) for c in ("C_", "CXX_")},
    "C_COMPLEX": _scalar(_C.c_float, 2),
    "INTEGER": (4, 4),
    "LOGICAL": (4, 4),
    "REAL": (4, 4),
    "DOUBLE_PRECISION": (8, 8),
    "COMPLEX": (8, 4),
    "DOUBLE_COMPLEX": (16, 8),
    **{f"INTEGER{n}": (n, n) for n in (1, 2, 4, 8, 16)},
    **{f"LOGICAL{n}": (n, n) for n in (1, 2, 4, 8, 16)},
    **{f"REAL{n}": (n, n) for n in (2, 4, 8, 16)},
    **{f"COMPLEX{n}": (n, n // 2) for n in (4, 8, 16, 32)},
    **dict.fromkeys(("TWOINT", "2INT", "TWOINTEGER", "2INTEGER", "TWOREAL", "2REAL"), (8, 4)),
    **dict.fromkeys(("TWODOUBLE_PRECISION", "2DOUBLE_PRECISION"), (16, 8)),
}
#: Pair types with padding, or space for it: the C type of the value; an int follows.
_PAIRS: dict[str, Any] = {
    "FLOAT_INT": _C.c_float,
    "DOUBLE_INT": _C.c_double,
    "LONG_INT": _C.c_long,
    "SHORT_INT": _C.c_short,
    "LONG_DOUBLE_INT": _C.c_longdouble,
}


def basic_names() -> list[str]:
    """Names of the basic types, without ``MPI_``, sorted."""
    return sorted([*_BASIC, *_PAIRS])


# -- making layouts -----------------------------------------------------------------------------------


def _make(text: str, align: int, constructor: str, *arguments: Any) -> Datatype:
    """Calls tempi_layout_<constructor>; the Datatype frees the result."""
    ffi, lib = _engine.ffi, _engine.lib
    out = ffi.new("tempi_layout **")
    given = [argument.pointer if isinstance(argument, Datatype) else argument for argument in arguments]
    status = getattr(lib, f"tempi_layout_{constructor}")(*given, out)
    _engine.check(status, doing=constructor)
    return Datatype(text, ffi.gc(out[0], lib.tempi_layout_free), align)


def basic(name: str) -> Datatype | None:
    if name in _BASIC:
        size, align = _BASIC[name]
        return _make(name, align, "bytes", size)
    if name not in _PAIRS:
        return None
    value = _PAIRS[name]
    pair: Any = type("Pair", (_C.Structure,), {"_fields_": [("value", value), ("index", _C.c_int)]})
    index = pair.index
    align = max(_C.alignment(value), _C.alignment(_C.c_int))
    return _make(name, align, "pair", _C.sizeof(value), index.offset, index.size, _C.sizeof(pair))


def dup(text: str, inner: Datatype) -> Datatype:
    return _make(text, inner.align, "resized", inner.pointer.lb, inner.pointer.extent, inner)


def contiguous(text: str, count: int, inner: Datatype) -> Datatype:
    return _make(text, inner.align, "contiguous", count, inner)


def hvector(text: str, count: int, blocklength: int, stride: int, inner: Datatype) -> Datatype:
    return _make(text, inner.align, "hvector", count, blocklength, stride, inner)


def vector(text: str, count: int, blocklength: int, stride: int, inner: Datatype) -> Datatype:
    return hvector(text, count, blocklength, stride * inner.pointer.extent, inner)


def _same_length(**lists: Sequence[Any]) -> None:
    lengths = {name: len(items) for name, items in lists.items()}
    if len(set(lengths.values())) > 1:
        parts = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ValueError(f"the lists must be of one length: {parts}")


def hindexed(text: str, blocklengths: list[int], displacements: list[int], inner: Datatype) -> Datatype:
    _same_length(blocklengths=blocklengths, displacements=displacements)
    n = len(blocklengths)
    return _make(text, inner.align, "hindexed", n, blocklengths, displacements, inner)


def _in_extents(displacements: list[int], inner: Datatype) -> list[int]:
    return [d * inner.pointer.extent for d in displacements]


def indexed(text: str, blocklengths: list[int], displacements: list[int], inner: Datatype) -> Datatype:
    return hindexed(text, blocklengths, _in_extents(displacements, inner), inner)


def hindexed_block(text: str, blocklength: int, displacements: list[int], inner: Datatype) -> Datatype:
    n = len(displacements)
    return _make(text, inner.align, "hindexed_block", n, blocklength, displacements, inner)


def indexed_block(text: str, blocklength: int, displacements: list[int], inner: Datatype) -> Datatype:
    return hindexed_block(text, blocklength, _in_extents(displacements, inner), inner)


def struct(text: str, blocklengths: list[int], displacements: list[int], inners: list[Datatype]) -> Datatype:
    _same_length(blocklengths=blocklengths, displacements=displacements, types=inners)
    pointers = _engine.ffi.new("tempi_layout *[]", [inner.pointer for inner in inners])
    used = zip(blocklengths, inners, strict=True)
    align = max((inner.align for n, inner in used if n and inner.pointer.size), default=1)
    made = _make(text, align, "struct", len(inners), blocklengths, displacements, pointers)
    lb, extent = made.pointer.lb, made.pointer.extent
    padding = -extent % align
    return _make(text, align, "resized", lb, extent + padding, made) if padding else made


def resized(text: str, lb: int, extent: int, inner: Datatype) -> Datatype:
    return _make(text, inner.align, "resized", lb, extent, inner)


def _order(order: str) -> int:
    if order.upper() not in ("C", "F", "FORTRAN"):
        raise ValueError(f"order is 'C' or 'F', not {order!r}")
    lib = _engine.lib
    return int(lib.TEMPI_ORDER_C if order.upper() == "C" else lib.TEMPI_ORDER_FORTRAN)


def subarray(
    text: str, sizes: list[int], subsizes: list[int], starts: list[int], inner: Datatype, order: str = "C"
) -> Datatype:
    _same_length(sizes=sizes, subsizes=subsizes, starts=starts)
    shape = (len(sizes), sizes, subsizes, starts, _order(order))
    for d, (size, subsize, start) in enumerate(zip(sizes, subsizes, starts, strict=True)):
        if not 0 <= start <= start + subsize <= size:
            raise ValueError(f"dimension {d}: start {start} + subsize {subsize} is not within size {size}")
    return _make(text, inner.align, "subarray", *shape, inner)


def darray(
    text: str,
    size: int,
    rank: int,
    gsizes: list[int],
    distribs: list[str],
    dargs: list[Any],
    psizes: list[int],
    inner: Datatype,
    order: str = "C",
) -> Datatype:
    _same_length(gsizes=gsizes, distribs=distribs, dargs=dargs, psizes=psizes)
    lib = _engine.lib
    kinds = {kind: getattr(lib, f"TEMPI_DISTRIBUTE_{kind}") for kind in ("BLOCK", "CYCLIC", "NONE")}
    words = [str(word).upper().removeprefix("MPI_").removeprefix("DISTRIBUTE_") for word in distribs]
    for word in words:
        if word not in kinds:
            raise ValueError(f"a distribution is BLOCK, CYCLIC or NONE, not {word}")
    arguments = [k if isinstance(k, int) else lib.TEMPI_DISTRIBUTE_DFLT_DARG for k in dargs]
    grid = (size, rank, len(gsizes), gsizes, [kinds[word] for word in words], arguments, psizes)
    return _make(text, inner.align, "darray", *grid, _order(order), inner)


def _kind(limits: Sequence[tuple[tuple[int, ...], int]], *wanted: int) -> int:
    for limit, size in limits:
        if all(w <= have for w, have in zip(wanted, limit, strict=True)):
            return size
    raise ValueError(f"no Fortran kind has {' and '.join(map(str, wanted))} decimal digits of it")


_REALS = (((6, 37), 4), ((15, 307), 8), ((33, 4931), 16))


def f90_integer(text: str, decimal_range: int) -> Datatype:
    size = _kind((((2,), 1), ((4,), 2), ((9,), 4), ((18,), 8)), decimal_range)
    return _make(text, size, "bytes", size)


def f90_real(text: str, precision: int, decimal_range: int) -> Datatype:
    size = _kind(_REALS, precision, decimal_range)
    return _make(text, size, "bytes", size)


def f90_complex(text: str, precision: int, decimal_range: int) -> Datatype:
    size = _kind(_REALS, precision, decimal_range)
    return _make(text, size, "bytes", 2 * size)
