"""Fragments: any part of any packed stream, down to single bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import layouts
import oracle
from packing import Box, Case, Hand, check, ffi, lib, matrix, pointer, vector
from strategies import receive_trees, trees

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
some = settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
counts = st.integers(1, 3)

SMALL = {
    "vector": vector(5, 7, 3),
    "negative": vector(4, -9, 5),
    "transpose": matrix(3, 4, 2),
    "nested": Hand.of([Box(offset=3, run=2, dims=((2, 40, 12), (3, 9, 4), (2, 3, 2)))]),
    "table": Hand.of([Box(run=3, entries=((20, 0), (0, 3), (9, 6), (30, 9)))]),
    "variable": Hand.of([Box(entries=((20, 0), (0, 5), (9, 6), (30, 13), (0, 17)))]),
    "table in dims": Hand.of([Box(run=2, dims=((2, 50, 12), (2, 4, 2)), entries=((0, 0), (20, 4), (9, 8)))]),
    "dims in table": Hand.of([Box(run=2, dims=((2, 5, 6), (3, 11, 2)), entries=((40, 0), (0, 12)))]),
    "struct": Hand.of(
        [Box(run=3, dims=((3, 16, 8),)), Box(offset=4, packed=3, run=4, dims=((3, 16, 8),)),
         Box(offset=9, packed=7, run=1, dims=((3, 16, 8),))]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_fragments_of_a_small_layout(name: str, count: int) -> None:
    hand = SMALL[name]
    with hand.layout() as layout:
        case = Case.of(layout, count, hand.offsets, hand.extent + 5)
        layout.extent = hand.extent + 5
        size = case.offsets.size
        assert case.unique
        for first in range(size):
            for end in range(first, size + 1):
                case.pack(first, end - first, 1, None)
                case.unpack(first, end - first, None, 1)


def _random(rng: random.Random, depth: int) -> Hand:
    """Boxes nested at random: leaves, vectors, structs and tables of boxes one level further in."""
    if depth == 0:
        return Hand.of([Box(run=rng.choice((1, 2, 3, 4, 7, 8, 12, 16, 17, 33, 64, 65, 130)))])
    inner = _random(rng, depth - 1)
    size = len(inner.offsets)
    kind = rng.choice(("vector", "vector", "struct", "table"))
    boxes: list[Box] = []
    if kind == "vector":
        n = min(rng.choice((2, 3, 5, 16, 17, 33)), max(2, 30_000 // size))
        stride = rng.choice((1, -1)) * (inner.extent + rng.choice((0, 1, inner.extent)))
        boxes = [Box(b.offset, b.packed, b.run, ((n, stride, size), *b.dims), b.entries) for b in inner.boxes]
    elif kind == "struct":
        other = _random(rng, rng.randrange(depth))
        low = int(inner.offsets.max()) + rng.randint(1, 9) - int(other.offsets.min())
        boxes = [*inner.boxes, *other.shifted(low, size)]
    elif any(b.entries for b in inner.boxes):
        return inner
    else:
        n = rng.choice((2, 3, 8, 17))
        places = [(inner.extent + 5) * i + rng.randint(0, 4) for i in range(n)]
        rng.shuffle(places)
        entries = tuple((place, i * size) for i, place in enumerate(places))
        boxes = [Box(b.offset, b.packed, b.run, b.dims, entries) for b in inner.boxes]
    return Hand.of(boxes)


@pytest.mark.parametrize("seed", range(60))
def test_random_fragments_of_random_boxes(seed: int) -> None:
    rng = random.Random(seed)
    hand = _random(rng, rng.randint(1, 4))
    count = rng.choice((1, 2, 5))
    size = len(hand.offsets) * count
    cuts = [sorted((rng.randint(0, size), rng.randint(0, size))) for _ in range(5)]
    check(hand, count, [(first, end - first) for first, end in cuts])


@some
@given(trees(), counts, st.data())
def test_fragments_of_datatypes(tree: oracle.Tree, count: int, data: st.DataObject) -> None:
    reference = tree.type_map
    if not reference.size:
        return
    first = data.draw(st.integers(0, reference.size * count), "first")
    n = data.draw(st.integers(0, reference.size * count - first), "n")
    with layouts.raw(tree) as raw, layouts.canonical(tree) as canonical:
        for made in (raw, canonical):
            layout = ffi.cast("tempi_layout *", made)
            case = Case.of(layout, count, reference.offsets, reference.extent)
            case.pack(0, case.offsets.size, 0, 1)
            case.pack(first, n, None, None)


@some
@given(receive_trees(), counts, st.data())
def test_unpacking_datatypes(tree: oracle.Tree, count: int, data: st.DataObject) -> None:
    reference = tree.type_map
    if not reference.size:
        return
    first = data.draw(st.integers(0, reference.size * count), "first")
    with layouts.canonical(tree) as made:
        case = Case.of(ffi.cast("tempi_layout *", made), count, reference.offsets, reference.extent)
        assert case.unique
        case.unpack(0, case.offsets.size, 1, 0)
        case.unpack(first, case.offsets.size - first, None, None)


def test_a_stream_of_more_than_two_to_the_33_bytes() -> None:
    memory = np.arange(16, dtype=np.uint8)
    with Hand.of([Box(run=3, dims=((2, 5, 3),))], extent=0).layout() as layout:
        count, first = 2**33, 6 * (2**33 - 7) + 4
        out = np.full(32, 0xEE, np.uint8)
        lib.tempi_pack(layout, count, pointer(memory), first, 20, pointer(out))
        np.testing.assert_array_equal(out[:20], np.tile([0, 1, 2, 5, 6, 7], 5)[4:24])
        assert (out[20:] == 0xEE).all()


def test_a_fragment_of_no_bytes_touches_nothing() -> None:
    with vector(4, 8, 4).layout() as layout:
        lib.tempi_pack(layout, 1, ffi.NULL, 5, 0, ffi.NULL)
        lib.tempi_unpack(layout, 0, ffi.NULL, 0, 0, ffi.NULL)
