"""Pictures of layouts: the mapping between memory and the packed stream.

`sample` computes; `text_rows`, `draw_memory` and `draw_mapping` draw. The caller saves the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tempi.layout import Box, Layout

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["Grid", "Sample", "draw_mapping", "draw_memory", "grid", "sample", "text_rows"]

_MOST_SAMPLES = 1 << 17
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Bytes of a message: packed position and memory offset of each; all bytes, or evenly spaced ones."""

    packed: Integers
    offsets: Integers
    size: int  # of the whole message, packed
    step: int  # 1: every byte is included
    first: int  # lowest byte of the message in memory
    last: int  # one past its highest

    @property
    def span(self) -> int:
        """Bytes of memory from the first touched byte to the last."""
        return self.last - self.first


def _locate(box: Box, packed: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Memory offsets of packed positions, and a mask of the positions that lie in the box."""
    rest = packed - box.packed
    inside = rest >= 0
    offsets = np.full(len(packed), box.offset, np.int64)
    run: Any = box.run
    dims = list(box.dims)
    while dims or box.table is not None:
        last = -1 if box.table is None else int(box.table.packed[-1])
        if dims and dims[0].packed_stride > last:
            dim = dims.pop(0)
            index = np.clip(rest // dim.packed_stride, 0, dim.count - 1)
            offsets += index * dim.stride
            rest = rest - index * dim.packed_stride
            continue
        assert box.table is not None
        entry = np.clip(np.searchsorted(box.table.packed, rest, side="right") - 1, 0, len(box.table) - 1)
        offsets += box.table.offsets[entry]
        rest = rest - box.table.packed[entry]
        run = box.run if box.table.lengths is None else box.table.lengths[entry]
        for dim in dims:
            index = np.clip(rest // dim.packed_stride, 0, dim.count - 1)
            offsets += index * dim.stride
            rest = rest - index * dim.packed_stride
        break
    return offsets + rest, inside & (rest >= 0) & (rest < run)


def sample(layout: Layout, count: int = 1, *, most: int = _MOST_SAMPLES) -> Sample:
    """All bytes of `count` elements, or at least half of `most` of them."""
    total = layout.size * count
    step = max(1, -(-total // most))
    packed = np.arange(0, total, step, dtype=np.int64)
    element, within = np.divmod(packed, max(1, layout.size))
    offsets = np.zeros(len(packed), np.int64)
    for box in layout.boxes:
        found, inside = _locate(box, within)
        offsets[inside] = found[inside]
    reach = (count - 1) * layout.extent
    first, last = layout.true_lb + min(0, reach), layout.true_ub + max(0, reach)
    return Sample(packed, offsets + element * layout.extent, total, step, first, last)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Memory as rows of cells: the mean position of each cell's bytes in the packed stream, 0 to 1; NaN
    if no byte is touched. `crowded` marks cells with a byte that is used more than once."""

    places: Floats
    crowded: NDArray[np.bool_]
    first: int  # memory offset of the first cell
    row: int  # bytes of memory in a row

    @property
    def cell(self) -> float:
        """Bytes of memory in a cell."""
        return float(self.row / max(1, self.places.shape[1]))


def _unit(layout: Layout, count: int) -> int:
    """The largest cell size at which every run begins and ends on a cell boundary."""
    steps = [layout.extent] if count > 1 else []
    for box in layout.boxes:
        steps += [box.run, box.offset - layout.true_lb, *(dim.stride for dim in box.dims)]
        if box.table is not None:
            steps.append(int(np.gcd.reduce(box.table.offsets)))
            if box.table.lengths is not None:
                steps.append(int(np.gcd.reduce(box.table.lengths)))
    return max(1, gcd(*steps))


def _row_bytes(layout: Layout, span: int, unit: int, shape: tuple[int, int], count: int) -> int:
    """Bytes of a row: a stride of the layout, or a multiple of it, shows the structure best."""
    rows, columns = shape
    strides: set[int] = {abs(dim.stride) for box in layout.boxes for dim in box.dims}
    strides |= {abs(layout.extent)} if count > 1 else set()
    useful = sorted(stride for stride in strides if 4 * unit <= stride < span)
    for stride in useful:
        if -(-span // stride) <= rows:
            return stride
    if useful:
        return useful[-1] * -(-span // (useful[-1] * rows))
    return max(-(-span // rows), min(span, unit * columns))


def grid(layout: Layout, count: int = 1, *, columns: int = 64, rows: int = 16) -> Grid:
    """The memory that a message spans, in at most `rows` x `columns` cells."""
    shown = sample(layout, count)
    if shown.size == 0:
        return Grid(np.full((0, columns), np.nan), np.zeros((0, columns), bool), 0, columns)
    unit = _unit(layout, count)
    row = _row_bytes(layout, shown.span, unit, (rows, columns), count)
    wide = row // unit if row % unit == 0 and row <= unit * columns else min(row, columns)
    high = -(-shown.span // row)
    down, along = np.divmod(shown.offsets - shown.first, row)
    cells = down * wide + along * wide // row
    used = np.bincount(cells, minlength=wide * high)
    sums = np.bincount(cells, weights=shown.packed.astype(np.float64), minlength=wide * high)
    with np.errstate(invalid="ignore"):
        places = sums / used / max(1, shown.size - 1)
    crowded = (used > -(-row // wide)) if shown.step == 1 else np.zeros(wide * high, bool)
    return Grid(places.reshape(high, wide), crowded.reshape(high, wide), shown.first, row)


def text_rows(picture: Grid) -> list[str]:
    """One string per row: 0 to z for first to last in the packed stream, . untouched, # used repeatedly."""
    if not np.isfinite(picture.places).any():
        return []
    low, high = float(np.nanmin(picture.places)), float(np.nanmax(picture.places))
    digits = np.nan_to_num((picture.places - low) / (high - low or 1.0)) * (len(_DIGITS) - 1) + 0.5
    symbols = np.array(list(_DIGITS))[digits.astype(int)]
    symbols[picture.crowded] = "#"
    symbols[np.isnan(picture.places)] = "."
    width = len(str(picture.first + picture.row * len(symbols)))
    return [f"{picture.first + i * picture.row:>{width}} {''.join(row)}" for i, row in enumerate(symbols)]


def draw_memory(axis: Any, picture: Grid, colours: Any) -> Any:
    """Memory row by row, coloured by position in the packed stream; returns the image."""
    high, wide = picture.places.shape
    image = axis.imshow(
        np.ma.masked_invalid(picture.places),
        cmap=colours,
        vmin=0,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
    )
    axis.set_facecolor("#e8e8e8")
    axis.set_yticks(range(0, high, max(1, high // 8)))
    axis.set_yticklabels([f"{picture.first + i * picture.row:,}" for i in axis.get_yticks()])
    axis.set_xlabel(f"bytes from the start of the row (one cell: {picture.cell:,.4g} B)")
    axis.set_ylabel("memory offset of the row, bytes")
    ticks = np.unique(np.linspace(0, wide - 1, min(wide, 9)).astype(int))
    axis.set_xticks(ticks)
    axis.set_xticklabels([f"{round(tick * picture.cell):,}" for tick in ticks])
    return image


def _bands(shown: Sample, most: int) -> tuple[list[tuple[int, int, int]], int]:
    """Up to `most` evenly chosen runs (packed, offset, bytes), and the total number of runs."""
    breaks = np.flatnonzero(np.diff(shown.offsets) != shown.step) + 1
    starts = np.concatenate([[0], breaks])
    ends = np.concatenate([breaks, [len(shown.offsets)]])
    chosen = np.unique(np.linspace(0, len(starts) - 1, min(most, len(starts))).astype(int))
    bands = [
        (int(shown.packed[starts[i]]), int(shown.offsets[starts[i]]), int(ends[i] - starts[i]) * shown.step)
        for i in chosen
    ]
    return bands, len(starts)


def _memory_bar(shown: Sample, cells: int) -> Floats:
    """Memory as one row of cells, as in `Grid.places`."""
    cells = min(cells, shown.span)
    at = (shown.offsets - shown.first) * cells // shown.span
    with np.errstate(invalid="ignore"):
        means: Floats = np.bincount(at, weights=shown.packed.astype(np.float64), minlength=cells) / np.bincount(
            at, minlength=cells
        )
    return means / max(1, shown.size - 1)


def draw_mapping(axis: Any, shown: Sample, colours: Any, *, most: int = 160) -> None:
    """Memory on top, the packed stream below, and a band from each run to its packed position."""
    first, scale = shown.first, shown.span
    runs, total = _bands(shown, most)
    for packed, offset, size in runs:
        top = [(offset - first) / scale, (offset + size - first) / scale]
        below = [packed / shown.size, (packed + size) / shown.size]
        colour = colours((packed + size / 2) / shown.size)
        axis.fill([*top, below[1], below[0]], [1, 1, 0, 0], color=colour, alpha=0.35, linewidth=0.4)
    for bottom, row in ((1.0, _memory_bar(shown, 1000)), (-0.09, np.linspace(0, 1, 256))):
        axis.imshow(
            np.ma.masked_invalid(row[None, :]),
            extent=(0, 1, bottom, bottom + 0.09),
            cmap=colours,
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
        )
        axis.add_patch(_outline(bottom))
    axis.set_xlim(-0.01, 1.01)
    axis.set_ylim(-0.3, 1.3)
    axis.axis("off")
    label = {"fontsize": 9, "va": "center"}
    axis.text(0, 1.18, f"memory from {first:,}", ha="left", **label)
    axis.text(1, 1.18, f"to {shown.last:,}", ha="right", **label)
    if len(runs) < total:
        axis.text(0.5, -0.18, f"bands of {len(runs)} runs drawn", ha="center", **label)
    axis.text(0, -0.18, "packed from 0", ha="left", **label)
    axis.text(1, -0.18, f"to {shown.size:,}", ha="right", **label)


def _outline(bottom: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((0, bottom), 1, 0.09, fill=False, edgecolor="#404040", linewidth=0.8)
