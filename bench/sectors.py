"""The memory sectors that a layout touches: a lower bound for the traffic of any kernel.

A GPU's memory is read and written in sectors (32 bytes on NVIDIA's cards; `tempi bench gpu` measures the
granule). The least time of a pack is the bytes of the distinct sectors on both sides over the card's copy
rate. The count is exact, and for regular boxes as fast for a gigabyte as for a kilobyte:

1. A box's dimensions are sorted by their strides, since the order of the runs does not matter. If an outer
   step is at least as long as everything inside it, neighbours can share only one sector, the last of one
   and the first of the next.
2. The offset of a step within its sector repeats after sector / gcd(stride, sector) steps, so one period
   of a dimension is enough.
3. All other layouts (tables, several boxes, overlapping steps) mark their sectors in a bitmap.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from tempi.layout import Box, Layout

SECTOR = 32
#: Maximum number of runs for the bitmap.
MOST_RUNS = 1 << 27


@dataclass(frozen=True, slots=True)
class Touched:
    """Distinct sectors that contain a byte of the layout, and those of them that one run, or two adjacent runs, cover
    wholly."""

    sectors: int
    whole: int

    def partial(self) -> int:
        return self.sectors - self.whole


@dataclass(frozen=True, slots=True)
class _Nest:
    """Positive steps, outermost first, each at least as long as everything inside it."""

    dims: tuple[tuple[int, int], ...]  # (count, stride)
    run: int
    sector: int

    def span(self, level: int) -> int:
        return self.run + sum((count - 1) * stride for count, stride in self.dims[level:])

    def count(self, phases: dict[tuple[int, int], Touched], level: int, phase: int) -> Touched:
        """Sectors of the part from `level` on, if it starts `phase` bytes into a sector."""
        key = level, phase
        if key not in phases:
            inner = self._run(phase) if level == len(self.dims) else self._dim(phases, level, phase)
            phases[key] = inner
        return phases[key]

    def _run(self, phase: int) -> Touched:
        end = phase + self.run
        whole = end // self.sector - -(-phase // self.sector)
        return Touched(-(-end // self.sector), max(0, whole))

    def _joined(self, end: int, touching: bool) -> bool:
        """Whether the run that ends at `end` and the one that starts there together cover a sector."""
        within = end % self.sector
        return touching and within > 0 and self.run >= max(within, self.sector - within)

    def _dim(self, phases: dict[tuple[int, int], Touched], level: int, phase: int) -> Touched:
        count, stride = self.dims[level]
        period = self.sector // gcd(stride, self.sector)
        span = self.span(level + 1)
        sectors = whole = 0
        for step in range(min(period, count)):
            at = (phase + step * stride) % self.sector
            inner = self.count(phases, level + 1, at)
            steps = -(-(count - step) // period)
            shared = (at + span - 1) // self.sector == (at + stride) // self.sector
            followed = -(-(count - 1 - step) // period)  # steps of this phase that are followed by another step
            sectors += steps * inner.sectors - followed * shared
            whole += steps * inner.whole + followed * self._joined(at + span, stride == span)
        return Touched(sectors, whole)


def _nest(box: Box, count: int, extent: int, sector: int) -> tuple[int, _Nest] | None:
    """The box of `count` elements as a nest, and the offset of its lowest byte; None if it is not a nest."""
    dims = [(d.count, d.stride) for d in box.dims if d.count > 1] + [(count, extent)] * (count > 1)
    low = box.offset + sum((n - 1) * stride for n, stride in dims if stride < 0)
    ordered = sorted(((n, abs(stride)) for n, stride in dims), key=lambda dim: -dim[1])
    run = box.run
    while ordered and ordered[-1][1] == run:  # dense: sorted like this they are one run
        run *= ordered.pop()[0]
    nest = _Nest(tuple(ordered), run, sector)
    nested = all(stride >= nest.span(level + 1) for level, (_, stride) in enumerate(ordered))
    return (low, nest) if nested else None


def _marked(layout: Layout, count: int, base: int, sector: int) -> Touched:
    """Counts by the touched bytes of each sector; `whole` is right only if runs do not overlap."""
    if layout.runs * count > MOST_RUNS:
        raise ValueError(f"{layout.runs * count} irregular runs are too many to be counted one by one")
    rows = layout.rows(count)
    if not len(rows):
        return Touched(0, 0)
    start, end = rows[:, 1] + base, rows[:, 1] + base + rows[:, 2]
    low = int(start.min()) // sector
    first, last = start // sector - low, (end - 1) // sector - low
    size = int(last.max()) + 2
    single = first == last
    held = np.bincount(first, np.where(single, end - start, sector - start % sector), size)
    held += np.bincount(last, np.where(single, 0, (end - 1) % sector + 1), size)
    between = np.bincount(np.minimum(first + 1, last), ~single, size) - np.bincount(last, ~single, size)
    held += sector * (np.cumsum(between) > 0)
    return Touched(int(np.count_nonzero(held)), int(np.count_nonzero(held >= sector)))


def touched(layout: Layout, count: int = 1, base: int = 0, sector: int = SECTOR) -> Touched:
    """Sectors of `count` elements at address `base`. Raises ValueError if there are too many runs to count."""
    boxes = layout.boxes
    if layout.dense:
        return contiguous(layout.size * count, base + layout.true_lb, sector)
    if len(boxes) == 1 and boxes[0].table is None and count > 0:
        found = _nest(boxes[0], count, layout.extent, sector)
        if found is not None:
            low, nest = found
            return nest.count({}, 0, (base + low) % sector)
    return _marked(layout, count, base, sector)


def contiguous(size: int, base: int = 0, sector: int = SECTOR) -> Touched:
    """Sectors of `size` contiguous bytes."""
    return _Nest((), size, sector).count({}, 0, base % sector) if size else Touched(0, 0)


def table_bytes(layout: Layout) -> int:
    """Bytes of an irregular layout's offsets on the device, which every pack has to read: 4 bytes each if they
    fit."""
    tables = [box.table for box in layout.boxes if box.table is not None]
    return sum(len(table) * (4 if abs(table.offsets).max(initial=0) < 1 << 32 else 8) for table in tables)


@dataclass(frozen=True, slots=True)
class Bound:
    """The least bytes that a pack or unpack moves. `filled`: bytes of partly written sectors, which the memory may
    have to read first."""

    bytes: int
    filled: int

    def seconds(self, rate: float, fill: float = 0.0) -> float:
        """At `rate` bytes per second, read and written together; `fill`: cost of a filled byte, 0 to 1."""
        return (self.bytes + fill * self.filled) / rate


def bound(op: str, layout: Layout, count: int, base: int, packed: int, sector: int = SECTOR) -> Bound:
    """The bound of a pack or unpack between memory at `base` and packed bytes at `packed`."""
    strided = touched(layout, count, base, sector)
    dense = contiguous(layout.size * count, packed, sector)
    written = dense if op == "pack" else strided
    return Bound(sector * (strided.sectors + dense.sectors), sector * written.partial())
