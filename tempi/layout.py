"""Layouts as plain values: the strided form of a datatype.

A layout lists *boxes* in the order of the packed stream: contiguous runs repeated along regular
dimensions, and along an irregular one given as a table. Sizes, offsets, strides and positions are in
bytes. ``csrc/tempi.h`` describes the engine's structures for the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi import _engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

__all__ = ["Box", "Dim", "Layout", "Table", "from_engine"]


@dataclass(frozen=True, slots=True)
class Dim:
    """`count` steps of `stride` bytes in memory and `packed_stride` bytes in the packed stream."""

    count: int
    stride: int
    packed_stride: int


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """An irregular dimension: offsets of its entries relative to the box. Read-only arrays.

    `lengths`: bytes of each entry if the box's runs vary in length, else None.
    """

    offsets: Integers
    packed: Integers
    lengths: Integers | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[bytes, bytes, bytes | None]:
        lengths = None if self.lengths is None else self.lengths.tobytes()
        return self.offsets.tobytes(), self.packed.tobytes(), lengths


@dataclass(frozen=True, slots=True)
class Box:
    """Runs of `run` bytes (0: lengths from the table), the first at `offset`, repeated along `dims`
    (outermost first) and the table."""

    offset: int
    packed: int
    run: int
    dims: tuple[Dim, ...]
    table: Table | None = None
    space: int = 0

    @property
    def runs(self) -> int:
        """Number of runs."""
        entries = 1 if self.table is None else len(self.table)
        return prod((dim.count for dim in self.dims), start=entries)

    @property
    def longest_run(self) -> int:
        """Bytes of the longest run."""
        if self.table is not None and self.table.lengths is not None:
            return int(self.table.lengths.max())
        return self.run

    @property
    def size(self) -> int:
        """Packed bytes."""
        if self.table is None or self.table.lengths is None:
            return self.runs * self.run
        return prod(dim.count for dim in self.dims) * int(self.table.lengths.sum())

    def rows(self) -> Integers:
        """Every run as a row (packed position, memory offset, bytes), in packed order."""
        rows = np.array([[self.packed, self.offset, self.run]], np.int64)
        for dim in self.dims:
            steps = np.arange(dim.count, dtype=np.int64)[:, None]
            steps = steps * np.array([dim.packed_stride, dim.stride, 0], np.int64)
            rows = (rows[:, None, :] + steps[None, :, :]).reshape(-1, 3)
        if self.table is not None:
            lengths = 0 if self.table.lengths is None else self.table.lengths
            steps = np.stack(np.broadcast_arrays(self.table.packed, self.table.offsets, lengths), axis=1)
            rows = (rows[:, None, :] + steps[None, :, :]).reshape(-1, 3)
        ordered: Integers = rows[np.argsort(rows[:, 0], kind="stable")]
        return ordered


@dataclass(frozen=True, slots=True)
class Layout:
    """One element of a datatype: `size` packed bytes, in `runs` contiguous pieces of memory.

    `lb` and `extent` place the elements of a message; `true_lb` and `true_ub` bound the touched bytes;
    `footprint` is the memory that the layout occupies in the engine.
    """

    size: int
    lb: int
    extent: int
    true_lb: int
    true_ub: int
    runs: int
    dense: bool
    footprint: int
    boxes: tuple[Box, ...]

    @property
    def ub(self) -> int:
        """Upper bound."""
        return self.lb + self.extent

    @property
    def true_extent(self) -> int:
        """Bytes from the first touched byte to the last."""
        return self.true_ub - self.true_lb

    @property
    def longest_run(self) -> int:
        """Bytes of the longest run."""
        return max((box.longest_run for box in self.boxes), default=0)

    def rows(self, count: int = 1) -> Integers:
        """Every run of `count` elements as a row (packed position, memory offset, bytes), in packed
        order; adjacent runs are merged into one row."""
        if not self.boxes or count == 0:
            return np.zeros((0, 3), np.int64)
        rows = np.concatenate([box.rows() for box in self.boxes])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        steps = np.arange(count, dtype=np.int64)[:, None] * np.array([self.size, self.extent, 0], np.int64)
        return _merge((rows[None, :, :] + steps[:, None, :]).reshape(-1, 3))


def _merge(rows: Integers) -> Integers:
    """Merges neighbouring rows if the second starts in memory where the first ends."""
    starts = np.ones(len(rows), bool)
    starts[1:] = rows[:-1, 1] + rows[:-1, 2] != rows[1:, 1]
    first = np.flatnonzero(starts)
    merged = rows[first]
    merged[:, 2] = np.add.reduceat(rows[:, 2], first)
    return merged


def _table_from_engine(box: Any) -> Table | None:
    ffi = _engine.ffi
    if box.table == ffi.NULL:
        return None
    n = box.table.n
    entries = n + (1 if box.run == 0 else 0)
    data = ffi.buffer(box.table.entries, entries * ffi.sizeof("tempi_entry"))
    pairs = np.frombuffer(data, np.int64).reshape(-1, 2)
    offsets, packed = pairs[:n, 0].copy(), pairs[:n, 1].copy()
    lengths = np.diff(pairs[:, 1]) if box.run == 0 else None
    for array in (offsets, packed, lengths):
        if array is not None:
            array.flags.writeable = False
    return Table(offsets, packed, lengths)


def _box_from_engine(box: Any) -> Box:
    dims = tuple(Dim(d.count, d.stride, d.packed_stride) for d in box.dims[0 : box.ndims])
    return Box(box.offset, box.packed, box.run, dims, _table_from_engine(box), box.space)


def from_engine(pointer: Any) -> Layout:
    """A copy of the engine's ``tempi_layout *``."""
    return Layout(
        size=pointer.size,
        lb=pointer.lb,
        extent=pointer.extent,
        true_lb=pointer.true_lb,
        true_ub=pointer.true_ub,
        runs=pointer.runs,
        dense=bool(pointer.dense),
        footprint=_engine.lib.tempi_layout_footprint(pointer),
        boxes=tuple(_box_from_engine(box) for box in pointer.boxes[0 : pointer.nboxes]),
    )
