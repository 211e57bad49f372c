"""Packing, for tests: hand-made layouts, memory between guard pages, and the check of one case."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cffi import FFI
from numpy.typing import NDArray

from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
LEVELS = ("avx512", "avx2", "sse2", "neon", "scalar")
POISON = 0xA5
PAGE = mmap.PAGESIZE
Dim = tuple[int, int, int]  # count, stride, packed stride


def _internal() -> tuple[Any, Any]:
    """cffi's view of the same library, with the declarations of csrc/pack/pack.h that tempi.h lacks."""
    csrc = Path(__file__).resolve().parent.parent / "csrc"
    ffi = FFI()
    for name in ("tempi.h", "pack/pack.h"):
        ffi.cdef(_engine._declarations((csrc / name).read_text(encoding="utf-8")))
    return ffi, ffi.dlopen(_engine.library_path())


ffi, lib = _internal()


def levels_here() -> list[str]:
    """The ISAs of this processor, best first."""
    found = [name for name in LEVELS if lib.tempi_kernels_use(name.encode()) == lib.TEMPI_OK]
    lib.tempi_kernels_use(ffi.NULL)
    return found


# ---- layouts made by hand ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    """One tempi_box. `entries` are (offset, packed); with run == 0 the last one closes the table."""

    offset: int = 0
    packed: int = 0
    run: int = 0
    dims: tuple[Dim, ...] = ()
    entries: tuple[tuple[int, int], ...] = ()

    def places(self) -> tuple[Offsets, Offsets]:
        """(offset, packed) of each byte. With arrays: there are a million runs in some layouts."""
        starts = np.array([[self.offset], [self.packed]], np.int64)
        for count, stride, packed in self.dims:
            steps = np.arange(count, dtype=np.int64) * np.array([[stride], [packed]], np.int64)
            starts = (starts[:, :, None] + steps[:, None, :]).reshape(2, -1)
        within = [np.arange(self.run)]
        if self.entries:
            entries = np.array(self.entries, np.int64).T
            if self.run == 0:
                within = [np.arange(n) for n in np.diff(entries[1])]
                entries = np.repeat(entries[:, :-1], [len(each) for each in within], axis=1)
                entries += np.concatenate(within)
                within = [np.zeros(1, np.int64)]
            starts = (starts[:, :, None] + entries[:, None, :]).reshape(2, -1)
        offsets, places = (starts[:, :, None] + within[0]).reshape(2, -1)
        return offsets, places


@dataclass(frozen=True, slots=True)
class Hand:
    """A layout made by hand, with the offsets that its bytes must have, in packed order."""

    boxes: tuple[Box, ...]
    extent: int
    offsets: Offsets = field(repr=False)

    @classmethod
    def of(cls, boxes: Sequence[Box], extent: int | None = None) -> Hand:
        offsets, places = (np.concatenate(each) for each in zip(*(box.places() for box in boxes), strict=True))
        where = np.full(len(offsets), -(2**62), np.int64)
        where[places] = offsets
        assert (where > -(2**62)).all(), "the boxes leave holes in the packed stream"
        if extent is None:
            extent = int(where.max() - where.min()) + 1
        return cls(tuple(sorted(boxes, key=lambda box: box.packed)), extent, where)

    def shifted(self, offset: int, packed: int) -> tuple[Box, ...]:
        return tuple(replace(b, offset=b.offset + offset, packed=b.packed + packed) for b in self.boxes)

    @contextlib.contextmanager
    def layout(self) -> Iterator[Any]:
        """As tempi_layout *, for the time of the block."""
        boxes = ffi.new("tempi_box[]", len(self.boxes))
        keep = [boxes]
        for made, box in zip(boxes, self.boxes, strict=True):
            made.offset, made.packed, made.run, made.ndims = box.offset, box.packed, box.run, len(box.dims)
            for d, (count, stride, packed) in enumerate(box.dims):
                made.dims[d] = {"count": count, "stride": stride, "packed_stride": packed}
            if box.entries:
                entries = ffi.new("tempi_entry[]", list(box.entries))
                n = len(box.entries) - (box.run == 0)
                table = ffi.new("tempi_table *", {"n": n, "entries": entries})
                keep += [entries, table]
                made.table = table
        yield ffi.new(
            "tempi_layout *",
            {
                "size": len(self.offsets),
                "extent": self.extent,
                "true_lb": int(self.offsets.min()),
                "true_ub": int(self.offsets.max()) + 1,
                "nboxes": len(self.boxes),
                "boxes": boxes,
            },
        )


def vector(count: int, stride: int, run: int) -> Hand:
    return Hand.of([Box(run=run, dims=((count, stride, run),))])


def matrix(na: int, nb: int, run: int, a_stride: int | None = None) -> Hand:
    """A transpose: packed along a, in memory along b."""
    return Hand.of([Box(run=run, dims=((nb, run, na * run), (na, a_stride or nb * run, run)))])


# ---- memory between guard pages ----------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Fenced:
    """Whole pages, readable and writable, between two inaccessible ones."""

    def __init__(self, inner: int) -> None:
        pages = mmap.mmap(-1, inner + 2 * PAGE)
        self.bytes = np.frombuffer(pages, np.uint8, inner, PAGE)
        first = self.bytes.ctypes.data - PAGE
        for end in (first, first + PAGE + inner):
            assert _libc.mprotect(end, PAGE, 0) == 0


_SMALL = 1 << 18  # up to this size pages are cached: mapping and protecting takes longer than most cases
_kept: defaultdict[int, list[Fenced]] = defaultdict(list)


@contextlib.contextmanager
def fenced(size: int, shift: int | None = 0) -> Iterator[Bytes]:
    """`size` bytes of any content, `shift` bytes behind a guard page, or (None) right before one."""
    inner = -(-(size + (shift or 0)) // PAGE) * PAGE or PAGE
    kept = _kept[inner]
    pages = kept.pop() if kept else Fenced(inner)
    start = inner - size if shift is None else shift
    yield pages.bytes[start : start + size]
    if inner <= _SMALL:  # but not those of a failed case, which its traceback still uses
        kept.append(pages)


def pointer(memory: Bytes, at: int = 0) -> Any:
    return ffi.cast("char *", memory.ctypes.data + at)


# ---- the check ---------------------------------------------------------------------------------------


def same(found: Bytes, wanted: Bytes) -> None:
    if found.tobytes() != wanted.tobytes():  # takes a tenth of the time of finding the differences
        np.testing.assert_array_equal(found, wanted)


@dataclass(frozen=True, slots=True)
class Case:
    """`count` elements of a layout, whose bytes lie at `offsets` (of all of them, in packed order)."""

    layout: Any
    count: int
    offsets: Offsets
    memory: Bytes = field(repr=False)  # what is packed, from the lowest offset on
    low: int
    unique: bool  # no byte of memory is named twice, so unpacking is defined

    @classmethod
    def of(cls, layout: Any, count: int, element: Offsets, extent: int) -> Case:
        offsets = (element[None, :] + extent * np.arange(count, dtype=np.int64)[:, None]).ravel()
        low, high = int(offsets.min()), int(offsets.max()) + 1
        memory = np.random.default_rng(offsets.size).integers(0, 256, high - low, np.uint8)
        named = np.zeros(high - low, np.bool_)  # np.unique takes a second for a mebibyte
        named[offsets - low] = True
        return cls(layout, count, offsets, memory, low, int(named.sum()) == offsets.size)

    def pack(self, first: int, n: int, shift: int | None, memory_shift: int | None) -> None:
        wanted = self.memory[self.offsets[first : first + n] - self.low]
        with fenced(n, shift) as packed, fenced(len(self.memory), memory_shift) as memory:
            memory[:] = self.memory
            base = pointer(memory, -self.low)
            for pack in (lib.tempi_pack, lib.tempi_pack_nontemporal):
                packed[:] = ~wanted
                pack(self.layout, self.count, base, first, n, pointer(packed))
                same(packed, wanted)
                same(memory, self.memory)

    def unpack(self, first: int, n: int, shift: int | None, memory_shift: int | None) -> None:
        where = self.offsets[first : first + n] - self.low
        wanted = np.full(len(self.memory), POISON, np.uint8)
        wanted[where] = self.memory[where]
        with fenced(n, shift) as packed, fenced(len(self.memory), memory_shift) as memory:
            packed[:] = self.memory[where]
            base = pointer(memory, -self.low)
            for unpack in (lib.tempi_unpack, lib.tempi_unpack_nontemporal):
                memory[:] = POISON
                unpack(self.layout, self.count, pointer(packed), first, n, base)
                same(memory, wanted)

    def check(self, first: int = 0, n: int | None = None) -> None:
        """Packs and unpacks, at the start of a page, misaligned, and at the end of a page."""
        n = self.offsets.size - first if n is None else n
        for shift, memory_shift in ((0, 0), (3, 8), (8, 5), (None, None)):
            self.pack(first, n, shift, memory_shift)
            if self.unique:
                self.unpack(first, n, shift, memory_shift)


def check(hand: Hand, count: int = 1, fragments: Iterable[tuple[int, int]] = ()) -> None:
    """The whole message, and the fragments (first, n)."""
    with hand.layout() as layout:
        case = Case.of(layout, count, hand.offsets, hand.extent)
        case.check()
        for first, n in fragments:
            case.check(first, n)
