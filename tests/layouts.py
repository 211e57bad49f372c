"""Layouts of the engine, for tests: made from oracle trees, read back as plain offsets."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

import oracle
from tempi._engine import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

Pointer = Any  # a tempi_layout *

#: The limits of csrc/datatype/layout.h up to which equal bytes are guaranteed to be one layout.
DERIVE_RUNS = 256
DERIVE_LISTED = 4096


def alive() -> int:
    """Canonical layouts in this process."""
    return int(lib.tempi_layout_alive())


def raw(tree: oracle.Tree) -> contextlib.AbstractContextManager[Pointer]:
    return oracle.as_layout(tree, ffi, lib)


@contextlib.contextmanager
def canonical_of(layout: Pointer) -> Iterator[Pointer]:
    out = ffi.new("tempi_layout const **")
    assert lib.tempi_layout_canonical(layout, ffi.NULL, ffi.NULL, out) == lib.TEMPI_OK
    try:
        yield out[0]
    finally:
        lib.tempi_layout_release(out[0])


@contextlib.contextmanager
def canonical(tree: oracle.Tree) -> Iterator[Pointer]:
    with contextlib.ExitStack() as stack:
        with raw(tree) as layout:
            made = stack.enter_context(canonical_of(layout))
        yield made


@contextlib.contextmanager
def hvector_of(count: int, blocklength: int, stride: int, inner: Pointer) -> Iterator[Pointer]:
    out = ffi.new("tempi_layout **")
    assert lib.tempi_layout_hvector(count, blocklength, stride, inner, out) == lib.TEMPI_OK
    try:
        yield out[0]
    finally:
        lib.tempi_layout_free(out[0])


def passes(tree: oracle.Tree) -> list[tuple[str, NDArray[np.int64]]]:
    """Name and offsets of every state that the trace shows."""
    states = []

    @ffi.callback("tempi_layout_trace")  # type: ignore[untyped-decorator]
    def note(_context: Any, name: Any, state: Pointer) -> None:
        states.append((ffi.string(name).decode(), offsets(state)))

    out = ffi.new("tempi_layout const **")
    with raw(tree) as layout:
        assert lib.tempi_layout_canonical(layout, note, ffi.NULL, out) == lib.TEMPI_OK
    lib.tempi_layout_release(out[0])
    return states


def dims(box: Any) -> list[tuple[int, int, int]]:
    """(count, stride, packed stride), outermost first."""
    return [(d.count, d.stride, d.packed_stride) for d in box.dims[0 : box.ndims]]


def boxes(layout: Pointer) -> list[tuple[int, int, int, list[tuple[int, int, int]], int]]:
    """(offset, packed, run, dims, entries in the table) of each box."""
    return [
        (b.offset, b.packed, b.run, dims(b), b.table.n if b.table != ffi.NULL else 0)
        for b in layout.boxes[0 : layout.nboxes]
    ]


def _box_runs(box: Any) -> NDArray[np.int64]:
    """Rows (packed, offset, bytes) of all runs of a box."""
    rows = np.array([[box.packed, box.offset, box.run]], np.int64)
    for count, stride, packed in dims(box):
        steps = np.arange(count, dtype=np.int64)[:, None] * np.array([packed, stride, 0], np.int64)
        rows = (rows[:, None, :] + steps[None, :, :]).reshape(-1, 3)
    if box.table != ffi.NULL:
        n = box.table.n
        steps = np.array([(e.packed, e.offset, 0) for e in box.table.entries[0:n]], np.int64)
        if box.run == 0:
            ends = [e.packed for e in box.table.entries[1 : n + 1]]
            steps[:, 2] = np.array(ends, np.int64) - steps[:, 0]
        rows = (rows[:, None, :] + steps[None, :, :]).reshape(-1, 3)
    return rows


def offsets(layout: Pointer) -> NDArray[np.int64]:
    """The byte offsets in packed order; each packed position must be covered exactly once."""
    where = np.full(layout.size, -(2**62), np.int64)
    covered = np.zeros(layout.size, np.int64)
    for box in layout.boxes[0 : layout.nboxes]:
        for packed, offset, n in _box_runs(box):
            covered[packed : packed + n] += 1
            where[packed : packed + n] = np.arange(offset, offset + n)
    assert (covered == 1).all(), "the boxes do not cover the packed stream exactly once"
    return where


def listed(layout: Pointer) -> int:
    return sum(len(_box_runs(box)) for box in layout.boxes[0 : layout.nboxes])


def well_formed(layout: Pointer) -> list[str]:
    """Violations of the rules for boxes in tempi.h."""
    wrong = []
    starts = [b.packed for b in layout.boxes[0 : layout.nboxes]]
    if starts != sorted(starts):
        wrong.append("boxes are not in packed order")
    for number, box in enumerate(layout.boxes[0 : layout.nboxes]):
        wrong += [f"box {number}: {rule}" for rule in _box_faults(box)]
    return wrong


def _box_faults(box: Any) -> list[str]:
    wrong = []
    levels = [(packed, (count - 1) * packed) for count, _, packed in dims(box)]
    if levels != sorted(levels, key=lambda level: -level[0]):
        wrong.append("dims are not in packed order")
    span = box.run
    if box.table != ffi.NULL:
        n = box.table.n
        places = [e.packed for e in box.table.entries[0 : n + (box.run == 0)]]
        gaps = [b - a for a, b in itertools.pairwise(places)]
        if (box.table.entries[0].packed, box.table.entries[0].offset) != (0, 0):
            wrong.append("the table does not begin at (0, 0)")
        inside = [level for level in levels if level[0] <= places[n - 1]]
        levels = levels[: len(levels) - len(inside)]
        for packed, reach in reversed(inside):
            if packed < span:
                wrong.append("dims inside the table do not nest")
            span += reach
        if min(gaps, default=span) < span or (box.run == 0 and min(gaps) < 1):
            wrong.append("entries do not nest")
        span += places[-1]
    for packed, reach in reversed(levels):
        if packed < span:
            wrong.append("dims do not nest")
        span += reach
    if any(count < 2 for count, _, _ in dims(box)):
        wrong.append("a dim of count 1")
    if box.ndims > 11:
        wrong.append("no dimension left for the message's count")
    return wrong
