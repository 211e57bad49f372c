"""Sectors, counted from the layout and compared with a count byte by byte."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tempi.bench import sectors
from tempi.bench.sectors import Bound, Touched
from tempi.expression import parse
from tempi.layout import Box, Dim, Layout

pytestmark = pytest.mark.once


def layout_of(text: str) -> Layout:
    return parse(text).layout()


def brute(layout: Layout, count: int, base: int, sector: int) -> Touched:
    """Counts every byte separately."""
    rows = layout.rows(count)[:, 1:].tolist()
    held = np.unique(np.concatenate([base + offset + np.arange(run) for offset, run in rows]))
    numbers, bytes_each = np.unique(held // sector, return_counts=True)
    return Touched(len(numbers), int((bytes_each == sector).sum()))


EXPRESSIONS = [
    "BYTE",
    "vector(100, 1, 3, BYTE)",
    "vector(100, 8, 24, BYTE)",
    "vector(33, 5, 7, BYTE)",
    "vector(17, 4, 512, DOUBLE)",
    "hvector(9, 1, 100, vector(7, 1, 2, DOUBLE))",
    "hvector(9, 1, -100, vector(7, 1, 2, DOUBLE))",
    "subarray([10,10,10], [8,8,1], [1,1,1], DOUBLE)",
    "subarray([10,10,10], [1,8,8], [1,1,1], DOUBLE)",
    "subarray([10,10,10], [8,1,8], [1,1,1], DOUBLE)",
    "hvector(6, 1, 8, vector(6, 1, 6, DOUBLE))",
    "hvector(3, 1, 40, vector(5, 1, 3, DOUBLE))",
    "indexed([1,2,3], [7,0,20], DOUBLE)",
    "indexed_block(2, [9,1,30,12], INT)",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("sector", [32, 64])
@pytest.mark.parametrize("base", [0, 8, 31, 4096])
@pytest.mark.parametrize("count", [1, 3])
def test_counted_as_byte_by_byte(text: str, sector: int, base: int, count: int) -> None:
    layout = layout_of(text)
    assert sectors.touched(layout, count, base, sector) == brute(layout, count, base, sector)


def random_box(rng: random.Random) -> Box:
    """Steps that nest or do not, in any order and sign."""
    run = rng.choice((1, 2, 4, 8, 12, 16, 31, 32, 33, 64, 100))
    span, dims = run, []
    for _ in range(rng.randint(0, 3)):
        count, stride = rng.randint(2, 9), span + rng.choice((0, 0, 1, 4, 8, 32, 40))
        if rng.random() < 0.1:
            stride = max(run, stride // 2)
        dims.append((count, stride))
        span += (count - 1) * stride
    rng.shuffle(dims)
    packed = run
    made: list[Any] = []
    for count, stride in reversed(dims):
        made.insert(0, Dim(count, rng.choice((1, 1, -1)) * stride, packed))
        packed *= count
    return Box(rng.randint(0, 200), 0, run, tuple(made))


def overlaps(layout: Layout) -> bool:
    rows = layout.rows()[:, 1:]
    ordered = rows[np.argsort(rows[:, 0])]
    return bool((ordered[1:, 0] < (ordered[:-1, 0] + ordered[:-1, 1])).any())


@pytest.mark.parametrize("seed", range(200))
def test_random_boxes_are_counted_as_byte_by_byte(seed: int) -> None:
    rng = random.Random(seed)
    box = random_box(rng)
    layout = Layout(box.size, 0, 4096, 0, 0, box.runs, False, 0, (box,))
    base, sector = rng.randint(0, 100), rng.choice((32, 64))
    held, found = brute(layout, 1, base, sector), sectors.touched(layout, 1, base, sector)
    assert found.sectors == held.sectors
    if not overlaps(layout):
        assert held.whole - found.whole in range(held.sectors // 4 + 1)  # not canonical: runs may touch


def test_a_gigabyte_of_single_bytes_is_counted_at_once() -> None:
    layout = layout_of(f"vector({1 << 30}, 1, 512, BYTE)")
    assert sectors.touched(layout) == Touched(1 << 30, 0)
    dense = layout_of(f"vector({1 << 30}, 1, 2, BYTE)")
    assert sectors.touched(dense).sectors == 1 << 26


def test_a_layout_of_too_many_irregular_runs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sectors, "MOST_RUNS", 10)
    with pytest.raises(ValueError, match="too many"):
        sectors.touched(layout_of("indexed_block(1, [{}], INT)".format(",".join(str(3 * i * i) for i in range(20)))))


def test_the_bound_counts_both_sides() -> None:
    layout = layout_of("vector(1024, 8, 64, BYTE)")  # 8 of every 64 bytes: a sector each
    pack = sectors.bound("pack", layout, 1, 0, 0)
    assert pack == Bound(32 * 1024 + 8 * 1024, 0)
    assert pack.seconds(1e9) == pytest.approx(40960e-9)


def test_an_unpack_fills_the_sectors_that_it_writes_in_part() -> None:
    partial = layout_of("vector(1024, 8, 64, BYTE)")
    unpack = sectors.bound("unpack", partial, 1, 0, 0)
    assert unpack == Bound(40 * 1024, 32 * 1024)
    assert unpack.seconds(1e9, fill=1.0) == pytest.approx(72 * 1024 * 1e-9)
    whole = layout_of("vector(1024, 32, 64, BYTE)")
    assert sectors.bound("unpack", whole, 1, 0, 0).filled == 0
    assert sectors.bound("unpack", whole, 1, 8, 0).filled == 2 * 32 * 1024


def test_dense_elements_are_one_piece() -> None:
    assert sectors.touched(layout_of("contiguous(64, BYTE)"), 2, 16) == sectors.contiguous(128, 16)
