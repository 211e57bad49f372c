"""The points to measure: quantities, shapes, sizes, peers. Quantities and families are those of _format.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from tempi.model import _format, peers

__all__ = [
    "ALL_FAMILIES",
    "ALL_QUANTITIES",
    "AWARE_QUANTITIES",
    "BESIDE",
    "CORRECTIONS",
    "DEVICE_MESSAGES",
    "DEVICE_QUANTITIES",
    "EAGER",
    "FAMILIES",
    "LEAST_MOST",
    "MEMORIES",
    "MESSAGES",
    "MOST",
    "NEAREST",
    "PEERS",
    "PLAIN",
    "QUANTITIES",
    "SHIFT",
    "SHIFTED",
    "WITHIN",
    "Column",
    "aliasing",
    "columns",
    "contiguous_sizes",
    "corrected",
    "device_columns",
    "device_sizes",
    "lines",
    "nominal",
    "sizes",
]

#: Quantities timed on host memory.
QUANTITIES = tuple(one.name for one in _format.QUANTITIES if one.memory == "host")
#: Timed without tables of their own: `engine_pack`, compared with `own_pack`, gives the cost of the decision;
#: `host_message`, tempi's whole message, corrects `contiguous`.
BESIDE = ("engine_pack", "host_message")
#: Quantities that depend on the peer.
MESSAGES = (*(one.name for one in _format.QUANTITIES if one.memory == "host" and one.by_peer), "host_message")
FAMILIES = tuple(one.name for one in _format.FAMILIES if one.memory == "host")
#: Families whose tables correct another family's: `nested` by seconds per row, the others by a factor.
CORRECTIONS = {one.name: one.corrects for one in _format.FAMILIES if one.corrects}
#: Of device memory: regular, at an address that permits only smaller words.
(SHIFTED,) = (one.name for one in _format.FAMILIES if one.memory == "device")
ALL_FAMILIES = (*FAMILIES, SHIFTED)
DEVICE_QUANTITIES = tuple(one.name for one in _format.QUANTITIES if one.memory == "device")
#: Those of them that only a CUDA-aware library can do.
AWARE_QUANTITIES = tuple(one.name for one in _format.QUANTITIES if one.needs_cuda_aware)
DEVICE_MESSAGES = tuple(one.name for one in _format.QUANTITIES if one.memory == "device" and one.by_peer)
ALL_QUANTITIES = (*QUANTITIES, *DEVICE_QUANTITIES)
#: Memory of the datatype's bytes; a point without one is of host memory.
MEMORIES = ("host", "device", "managed")
#: In the engine's order.
PEERS = tuple(peer.name for peer in peers.PEERS)
#: Packing and unpacking within messages are timed with the first of these that the ranks span.
NEAREST = ("node", "far", "other", "self")
WITHIN = ("stage_pack", "stage_unpack")

KIB, MIB = 1 << 10, 1 << 20
#: Bytes of the largest measured message, and the lowest limit that a user may set: every shape then has one.
MOST, LEAST_MOST = 16 * MIB, 4 * KIB
#: Times jump below 4 KiB, at Open MPI's eager limit between ranks that share memory: a node just before it keeps the
#: jump out of the interpolation.
EAGER = 3584
# Two per octave near the cache sizes: the second level, and the free part of the third.
_LARGE = (MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB)
_WHOLE = (64, 256, KIB, EAGER, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, *_LARGE)
_SIZES = {
    "regular": _WHOLE,
    "aliased": (256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB),
    "nested": (4 * KIB, 64 * KIB),
    "fields": (KIB, 4 * KIB, 64 * KIB, MIB),
    "varied": (KIB, 4 * KIB, 64 * KIB, MIB),
    "elements": _WHOLE,
    "irregular": _WHOLE[1:],
    # Squares of doubles. The edges are no powers of two: such a stride would be the cache's worst case.
    "transposed": tuple(8 * edge * edge for edge in (5, 12, 21, 23, 45, 91, 181, 362, 724, 1448)),
}
LINE = 64  # each of the short runs on a cache line of its own: from this stride on a run costs a line
_COARSE = (256, EAGER, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
_COARSE_EDGES = tuple(8 * edge * edge for edge in (5, 21, 23, 91, 362, 1448))


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """One shape at all its sizes: `run` bytes every `stride`. `stride` 0: none, irregular."""

    family: str
    run: int
    stride: int

    @property
    def name(self) -> str:
        return f"{self.family} run {self.run}" + (f" stride {self.stride}" if self.stride else "")


#: Packed bytes without a shape.
PLAIN = Column("regular", 1, 0)


#: Strides of an odd number of lines: with powers of two the runs would share few cache sets.
SOME_LINES, MORE_LINES, A_PAGE = 9 * LINE, 17 * LINE, 65 * LINE
LONG = 4 * LINE
#: Runs that are no powers of two and have no constant-size copy: each takes longer than the powers of two on
#: both sides of it.
UNEVEN = (56, 80, 200)
PAGE = 4096
#: Odd multiples of 512, 1024, 2048 and 4096 bytes, for which no two runs are on one page.
ALIASED = (9 * 512, 5 * 1024, 5 * 2048, PAGE)
#: Runs of a row of the nested shapes.
INNER = 4


def _regular(runs: tuple[int, ...]) -> Iterator[Column]:
    """Strides for runs close together, one in some lines, and one per page; equal ones give one column. Long runs close
    together have a line between them, like the rows of an array within its ghost cells."""
    for run in runs:
        near = run + LINE if run >= LONG else 2 * run
        some = max(SOME_LINES, 2 * run + LINE)
        for stride in sorted({near, some, max(A_PAGE, some)}):
            yield Column("regular", run, stride)


def corrected(column: Column) -> Column:
    """The column whose times this one's are compared with."""
    if column.family == "aliased":
        return Column("regular", column.run, max(A_PAGE, 2 * column.run + LINE))
    return Column(CORRECTIONS[column.family], column.run, column.stride)


def lines(column: Column, size: int) -> int:
    """Number of cache lines of the runs, each of which begins on a line of its own."""
    return size // min(column.run, LINE)


def aliasing(stride: int) -> int:
    """The largest power of two that divides the stride, a page at most: it determines how many cache sets the runs
    share."""
    return math.gcd(stride, PAGE)


def columns(quick: bool) -> list[Column]:
    """The columns of the coarse grid, or those that the full grid adds."""
    coarse = [
        *_regular((8, 64, 1024)),
        Column("elements", 8, 40),
        Column("transposed", 8, 0),
        Column("irregular", 16, 0),
        *(Column("aliased", 8, stride) for stride in ALIASED[2:]),
        Column("aliased", 64, PAGE),
        Column("nested", 8, SOME_LINES),
        Column("fields", 8, 40),
        Column("varied", 16, 0),
    ]
    if quick:
        return coarse
    fine = [*_regular((4, 16, 128, 256, 4096)), *(Column("regular", run, LINE) for run in (4, 8, 16))]
    fine += [Column("regular", run, MORE_LINES) for run in (8, 16, 64)]
    fine += _regular(UNEVEN)
    fine += [Column("elements", run, stride) for run, stride in ((8, A_PAGE), (64, 128), (1024, 2048))]
    fine += [Column("aliased", run, stride) for run in (8, 16, 64, 256) for stride in ALIASED]
    fine += [Column("aliased", 32, stride) for stride in ALIASED[1:]]
    fine += [Column("irregular", 256, 0), Column("nested", 64, SOME_LINES)]
    fine += [Column("fields", 64, 128), Column("varied", 256, 0)]
    return [column for column in fine if column not in coarse]


def sizes(column: Column, quick: bool) -> list[int]:
    """Packed sizes of a column in the coarse grid, or those that the full grid adds."""
    every = _COARSE if column.run in UNEVEN else _SIZES[column.family]
    coarse = _COARSE_EDGES if column.family == "transposed" else _COARSE
    first = column in columns(True)
    if quick:
        chosen = [size for size in every if size in coarse]
    else:
        chosen = [size for size in every if not (first and size in coarse)]
    whole = [size // column.run * column.run for size in chosen]
    return [size for size in whole if size > 0]


def nominal(column: Column, size: int) -> int:
    """The size of the grid that a whole number of runs represents."""
    if column.run in UNEVEN:
        return min(_COARSE, key=lambda one: abs(one - size))
    return EAGER if size == EAGER // column.run * column.run else size


def contiguous_sizes(quick: bool) -> list[int]:
    """Packed sizes of the messages of packed bytes."""
    every = [64 << step for step in range(19)]
    coarse = [*every[::3], EAGER]
    return coarse if quick else [size for size in every if size not in coarse]


# -- device memory ------------------------------------------------------------------------------------------

#: The emulated device: everything is measured once to check it; its times mean nothing.
_TINY = (256, 4 * KIB, 64 * KIB)
_DEVICE_SIZES = (256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
_DEVICE_COARSE = (256, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
#: Offset of the misaligned columns from an aligned address: words of four bytes remain possible.
SHIFT = 4


def device_columns(quick: bool, *, emulated: bool = False) -> list[Column]:
    """The coarse grid of kernels, or the columns that the full one adds. Strides of whole pages do not slow kernels."""
    others = [Column("elements", 8, 40), Column("transposed", 8, 0), Column("irregular", 16, 0)]
    if emulated:
        made = [Column("regular", 8, 16), Column("regular", 64, 128), *others, Column(SHIFTED, 64, 128)]
        return made if quick else []
    if quick:
        return [*_regular((8, 64, 1024)), *others, Column(SHIFTED, 64, 128), Column(SHIFTED, 1024, 2048)]
    return [*_regular((4, 16, 256, 4096)), Column("irregular", 256, 0), Column(SHIFTED, 64, 576)]


def device_sizes(column: Column, quick: bool, *, emulated: bool = False) -> list[int]:
    """Packed sizes of a column of device memory in the coarse grid, or those that the full grid adds."""
    every: tuple[int, ...] = _TINY if emulated else _DEVICE_SIZES
    coarse: tuple[int, ...] = _TINY if emulated else _DEVICE_COARSE
    if column.family == "transposed":
        every, coarse = (tuple(8 * isqrt(size // 8) ** 2 for size in these) for these in (every, coarse))
    first = column == PLAIN or column in device_columns(True, emulated=emulated)
    chosen = [size for size in every if (size in coarse if quick else not (first and size in coarse))]
    return [size for size in chosen if size >= column.run]
