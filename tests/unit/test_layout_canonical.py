"""Canonical layouts by name: the design's counter-examples, and ways of building one thing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import layouts
from layouts import boxes, canonical
from oracle import (
    Contiguous,
    Darray,
    Dup,
    Hindexed,
    HindexedBlock,
    Hvector,
    Indexed,
    IndexedBlock,
    Named,
    Resized,
    Struct,
    Subarray,
    Tree,
    Vector,
)
from tempi._engine import lib

INT, DOUBLE, FLOAT, BYTE = Named("INT"), Named("DOUBLE"), Named("FLOAT"), Named("BYTE")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = layouts.alive()
    yield
    assert layouts.alive() == before


def assert_one_layout(*trees: Tree) -> None:
    """All trees mean the same bytes, and share one pointer."""
    first = trees[0].type_map
    with canonical(trees[0]) as expected:
        for tree in trees[1:]:
            np.testing.assert_array_equal(tree.type_map.offsets, first.offsets)
            assert (tree.type_map.lb, tree.type_map.ub) == (first.lb, first.ub)
            with canonical(tree) as layout:
                assert boxes(layout) == boxes(expected)
                assert layout == expected


# -- cases that the paper's passes get wrong


def test_transposed_type_is_not_a_copy() -> None:
    n = 16
    with canonical(Hvector(n, 1, 4, Vector(n, 1, n, FLOAT))) as layout:
        assert boxes(layout) == [(0, 0, 4, [(n, 4, 4 * n), (n, 4 * n, 4)], 0)]
        assert layout.dense == 0
        assert layout.runs == n * n


def test_elided_dimension_keeps_its_offset() -> None:
    tree = Subarray((16, 16, 16), (1, 3, 4), (5, 1, 4), BYTE)
    with canonical(tree) as layout:
        assert boxes(layout) == [(1300, 0, 4, [(3, 16, 4)], 0)]
        assert (layout.true_lb, layout.extent) == (1300, 4096)


def test_zero_stride_repeats_the_same_bytes() -> None:
    with canonical(Hvector(5, 1, 0, INT)) as layout:
        assert boxes(layout) == [(0, 0, 4, [(5, 0, 4)], 0)]
        assert (layout.size, layout.true_ub) == (20, 4)


def test_reversed_array_keeps_its_order() -> None:
    with canonical(Hvector(4, 1, -8, DOUBLE)) as layout:
        assert boxes(layout) == [(0, 0, 8, [(4, -8, 8)], 0)]
        assert (layout.lb, layout.extent, layout.true_lb) == (-24, 32, -24)


def test_overlapping_blocks_stay_apart() -> None:
    with canonical(Hvector(3, 2, 4, INT)) as layout:
        assert boxes(layout) == [(0, 0, 8, [(3, 4, 8)], 0)]


def test_runs_that_touch_in_memory_only_do_not_fold() -> None:
    with canonical(Hvector(300, 1, 4, Struct((1, 1), (0, 5000), (INT, DOUBLE)))) as layout:
        assert boxes(layout) == [
            (0, 0, 4, [(300, 4, 12)], 0),
            (5000, 4, 8, [(300, 4, 12)], 0),
        ]


def test_dimensions_that_step_alike_in_memory_only_do_not_flatten() -> None:
    member = Struct((1, 1), (0, 9000), (Hvector(20, 1, 16, INT), DOUBLE))
    with canonical(Hvector(30, 1, 320, member)) as layout:
        assert boxes(layout) == [
            (0, 0, 4, [(30, 320, 88), (20, 16, 4)], 0),
            (9000, 80, 8, [(30, 320, 88)], 0),
        ]


def test_boxes_that_touch_in_memory_only_do_not_merge() -> None:
    members = (Hvector(300, 1, 16, INT), Hvector(300, 1, 16, INT))
    with canonical(Struct((1, 1), (0, 4), members)) as layout:
        assert boxes(layout) == [(0, 0, 4, [(2, 4, 1200), (300, 16, 4)], 0)]


# -- one thing, built in many ways

FACE = Subarray((6, 5, 4), (6, 5, 1), (0, 0, 2), DOUBLE)


def test_face_is_one_layout_however_built() -> None:
    starts = tuple(2 + 4 * i for i in range(30))
    byte_starts = tuple(8 * s for s in starts)
    assert_one_layout(
        FACE,
        Subarray((4, 5, 6), (1, 5, 6), (2, 0, 0), DOUBLE, "F"),
        Resized(0, 960, Hindexed((1,), (16,), Hvector(6, 1, 160, Hvector(5, 1, 32, DOUBLE)))),
        Resized(0, 960, Hindexed((1,), (16,), Vector(30, 1, 4, DOUBLE))),
        Resized(0, 960, IndexedBlock(1, starts, DOUBLE)),
        Resized(0, 960, Hindexed((1,) * 30, byte_starts, DOUBLE)),
        Resized(0, 960, Struct((1,) * 30, byte_starts, (DOUBLE,) * 30)),
        Resized(0, 960, HindexedBlock(2, byte_starts, INT)),
        Dup(Dup(FACE)),
        Contiguous(1, FACE),
    )


def test_large_vector_is_one_layout_however_built() -> None:
    n = 20000  # far above the limit up to which types are derived from their runs
    starts = tuple(range(0, 3 * n, 3))
    extent = 8 * (3 * (n - 1) + 1)
    assert_one_layout(
        Vector(n, 1, 3, DOUBLE),
        Indexed((1,) * n, starts, DOUBLE),
        Struct((1,) * n, tuple(8 * s for s in starts), (DOUBLE,) * n),
        Resized(0, extent, Hindexed((1,) * n, tuple(24 * i for i in range(n)), Contiguous(8, BYTE))),
    )


def test_large_two_level_nest_is_found_in_a_table() -> None:
    places = tuple(1000 * i + 12 * j for i in range(60) for j in range(50))
    tree = HindexedBlock(1, places, INT)
    with canonical(tree) as layout:
        assert boxes(layout) == [(0, 0, 4, [(60, 1000, 200), (50, 12, 4)], 0)]


def test_array_of_structs_is_one_box_a_field() -> None:
    n = 5000
    member = Resized(0, 24, Struct((1, 1), (0, 8), (INT, DOUBLE)))
    places = tuple(24 * i + k for i in range(n) for k in (0, 8))
    singly = Struct((1,) * (2 * n), places, (INT, DOUBLE) * n)
    with canonical(Contiguous(n, member)) as layout:
        assert boxes(layout) == [
            (0, 0, 4, [(n, 24, 12)], 0),
            (8, 4, 8, [(n, 24, 12)], 0),
        ]
        with canonical(Resized(0, 24 * n, singly)) as other:
            assert other == layout


def test_touching_runs_become_one() -> None:
    assert_one_layout(
        Contiguous(24, BYTE),
        Contiguous(6, INT),
        Hindexed((8, 8, 8), (0, 8, 16), BYTE),
        Hvector(3, 2, 8, INT),
        Struct((2, 1, 2), (0, 8, 16), (INT, DOUBLE, INT)),
    )


def test_equal_boxes_at_equal_spacing_join() -> None:
    face = Subarray((8, 8), (2, 3), (0, 0), DOUBLE)
    starts = tuple(1000 * i for i in range(7))
    with canonical(Struct((1,) * 7, starts, (face,) * 7)) as layout:
        assert boxes(layout) == [(0, 0, 24, [(7, 1000, 48), (2, 64, 24)], 0)]


def test_alternating_boxes_join_pairwise() -> None:
    wide, narrow = Hvector(40, 1, 64, DOUBLE), Hvector(40, 1, 64, INT)
    starts = tuple(4000 * i + (2700 if k else 0) for i in range(6) for k in range(2))
    with canonical(Struct((1,) * 12, starts, (wide, narrow) * 6)) as layout:
        assert boxes(layout) == [
            (0, 0, 8, [(6, 4000, 480), (40, 64, 8)], 0),
            (2700, 320, 4, [(6, 4000, 480), (40, 64, 4)], 0),
        ]


def test_cyclic_array_is_boxes_not_a_table() -> None:
    tree = Darray(4, 1, (1000, 1001), ("CYCLIC", "CYCLIC"), (3, 2), (2, 2), DOUBLE)
    with canonical(tree) as layout:
        assert layout.nboxes <= 4
        assert all(table == 0 for *_, table in boxes(layout))
        np.testing.assert_array_equal(layouts.offsets(layout), tree.type_map.offsets)


# -- irregular types


def irregular(n: int, *, seed: int = 1) -> tuple[int, ...]:
    gaps = np.random.default_rng(seed).integers(2, 9, n)
    return tuple(int(at) for at in np.cumsum(gaps) * 16)


def test_irregular_type_is_one_table_of_16_bytes_a_run() -> None:
    for tree in (
        HindexedBlock(2, irregular(4000), DOUBLE),
        Hindexed(tuple(1 + i % 3 for i in range(4000)), irregular(4000), INT),
    ):
        with canonical(tree) as layout:
            assert layout.nboxes == 1
            assert lib.tempi_layout_footprint(layout) <= 16 * layout.runs + 1024


def test_irregular_type_is_one_layout_however_built() -> None:
    places = irregular(3000)
    assert_one_layout(
        HindexedBlock(1, places, DOUBLE),
        Hindexed((8,) * 3000, places, BYTE),
        HindexedBlock(2, places, INT),
        Struct((1,) * 3000, places, (DOUBLE,) * 3000),
        Dup(Hindexed((2,) * 3000, places, FLOAT)),
    )


def test_irregular_blocks_of_one_length_that_touch_are_runs() -> None:
    """More of them than are derived from their runs again."""
    places = irregular(1000)
    halves = tuple(place + part for place in places for part in (0, 8))
    lone = (*halves, places[-1] + 4096)
    assert_one_layout(HindexedBlock(2, places, DOUBLE), HindexedBlock(1, halves, DOUBLE))
    assert_one_layout(Hindexed((*(2,) * 1000, 1), (*places, lone[-1]), DOUBLE), HindexedBlock(1, lone, DOUBLE))
    with canonical(HindexedBlock(1, lone, DOUBLE)) as layout:
        assert layout.runs == 1001


def test_fields_at_irregular_places_share_one_table() -> None:
    particle = Struct((1, 1), (0, 8), (INT, DOUBLE))
    places = irregular(3000)
    flat = tuple(at + k for at in places for k in (0, 8))
    with canonical(HindexedBlock(1, places, particle)) as layout:
        tables = [box.table for box in layout.boxes[0 : layout.nboxes]]
        assert [b[2:] for b in boxes(layout)] == [(4, [], 3000), (8, [], 3000)]
        assert tables[0] == tables[1]
        assert lib.tempi_layout_footprint(layout) < 16 * 3000 + 2048
        singly = Struct((1,) * 6000, flat, (INT, DOUBLE) * 3000)
        with canonical(Resized(layout.lb, layout.extent, singly)) as other:
            assert other == layout


def test_irregular_in_irregular_is_their_product() -> None:
    inner = Hindexed(tuple(1 + i % 2 for i in range(12)), irregular(12, seed=2), INT)
    tree = HindexedBlock(1, tuple(3000 * i * i for i in range(40)), inner)
    with canonical(tree) as layout:
        np.testing.assert_array_equal(layouts.offsets(layout), tree.type_map.offsets)


def test_few_loose_runs_are_boxes() -> None:
    with canonical(Hindexed((1, 3, 2), (0, 16, 60), INT)) as layout:
        assert [b[:3] for b in boxes(layout)] == [(0, 0, 4), (16, 4, 12), (60, 16, 8)]


def test_many_members_of_one_type_are_a_table_over_its_boxes() -> None:
    row = Hvector(3, 1, 40, DOUBLE)
    tree = Struct((1,) * 500, irregular(500), (row,) * 500)
    with layouts.raw(tree) as layout:
        assert boxes(layout) == [(irregular(500)[0], 0, 8, [(3, 40, 8)], 500)]


def test_member_of_other_bounds_keeps_them() -> None:
    row = Hvector(3, 1, 40, DOUBLE)
    members: list[Tree] = [row] * 100
    members[50] = Resized(-100000, row.type_map.extent, row)
    tree = Struct((1,) * 100, tuple(range(0, 20000, 200)), tuple(members))
    with canonical(tree) as layout:
        assert layout.lb == tree.type_map.lb == -90000
        np.testing.assert_array_equal(layouts.offsets(layout), tree.type_map.offsets)


def test_nest_that_breaks_off_is_no_nest() -> None:
    half = [0, 8, 20, 28, 40]
    places = tuple(at + 100 * i for i in range(300) for at in half)
    for n in (10, 11, len(places)):
        tree = HindexedBlock(1, places[:n], INT)
        with canonical(tree) as layout:
            np.testing.assert_array_equal(layouts.offsets(layout), tree.type_map.offsets)


@pytest.mark.parametrize("last", [1, 9, 12, 15, 16, 24])
def test_runs_regular_except_for_the_last_are_distinguished(last: int) -> None:
    for n in (5, 300):
        tree = Hindexed((8,) * n + (last,), tuple(32 * i for i in range(n + 1)), BYTE)
        with canonical(tree) as layout:
            np.testing.assert_array_equal(layouts.offsets(layout), tree.type_map.offsets)


def test_pattern_that_occurs_twice_within_a_type_is_a_loop() -> None:
    lengths = (1, 4, 8, 2, 4, 8, 2, 16)
    places = (0, 10, 20, 40, 110, 120, 140, 300)
    with canonical(Hindexed(lengths, places, BYTE)) as layout:
        assert [b[2:4] for b in boxes(layout)] == [
            (1, []),
            (4, [(2, 100, 14)]),
            (8, [(2, 100, 14)]),
            (2, [(2, 100, 14)]),
            (16, []),
        ]


# -- dimensions


def deep(levels: int, inner: Tree, *, gap: int = 1) -> Tree:
    tree = inner
    for _ in range(levels):
        tree = Hvector(2, 1, 2 * (tree.type_map.true_ub - tree.type_map.true_lb) + gap, tree)
    return tree


@pytest.mark.parametrize("levels", [10, 11, 12, 13, 14])
def test_more_dimensions_than_fit_become_a_table(levels: int) -> None:
    tree = deep(levels, BYTE)
    with canonical(tree) as layout:
        assert layouts.well_formed(layout) == []
        np.testing.assert_array_equal(layouts.offsets(layout), tree.type_map.offsets)


@pytest.mark.parametrize("inner", [Hindexed((1, 2, 3, 1, 2), (0, 9, 20, 41, 60), BYTE), Named("DOUBLE_INT")])
def test_dimensions_over_irregular_types_fit_too(inner: Tree) -> None:
    tree = deep(12, inner, gap=3)
    with layouts.raw(tree) as layout:
        assert layouts.well_formed(layout) == []
        np.testing.assert_array_equal(layouts.offsets(layout), tree.type_map.offsets)


def test_contiguous_dimensions_never_run_out() -> None:
    tree: Tree = DOUBLE
    for _ in range(30):
        tree = Contiguous(1 if tree.type_map.size > 10000 else 2, tree)
    with canonical(tree) as layout:
        assert layout.dense == 1
        assert boxes(layout) == [(0, 0, tree.type_map.size, [], 0)]


# -- bounds are part of a type


def test_other_extent_is_another_layout() -> None:
    with canonical(DOUBLE) as plain, canonical(Resized(0, 16, DOUBLE)) as spaced:
        assert plain != spaced
        assert (plain.dense, spaced.dense) == (1, 0)
        assert boxes(plain) == boxes(spaced)


def test_other_lower_bound_is_another_layout() -> None:
    with canonical(DOUBLE) as plain, canonical(Resized(-4, 8, DOUBLE)) as moved:
        assert plain != moved
        assert (moved.lb, moved.dense) == (-4, 1)


@pytest.mark.parametrize(
    ("tree", "bounds"),
    [
        (Contiguous(0, DOUBLE), (0, 0)),
        (Contiguous(0, Resized(-4, 100, DOUBLE)), (0, 0)),
        (Hindexed((1,), (50,), Contiguous(0, INT)), (0, 0)),
        (Contiguous(3, Resized(0, 100, Contiguous(0, INT))), (0, 300)),
        (Struct((0, 1), (0, 50), (Resized(-10, 100, INT), INT)), (50, 4)),
        (Struct((1, 1), (0, 200), (Resized(0, 100, INT), INT)), (0, 204)),
        (Contiguous(3, Resized(4, -8, INT)), (-12, 8)),
        (Hvector(2, 3, 100, Resized(4, -8, INT)), (-12, 108)),
        (Subarray((4, 4), (2, 2), (1, 1), Resized(4, -8, INT)), (0, -128)),
        (Subarray((4, 4), (2, 2), (1, 1), Resized(-4, 20, INT)), (0, 320)),
        (Darray(4, 3, (2,), ("CYCLIC",), (1,), (4,), INT), (0, 8)),
    ],
)
def test_bounds_follow_the_standard(tree: Tree, bounds: tuple[int, int]) -> None:
    """Expected values as both MPICH 5.0.2 and Open MPI 5.0.11 have them, where these agree."""
    with canonical(tree) as layout:
        assert (layout.lb, layout.extent) == bounds


def test_type_without_bytes_has_no_boxes() -> None:
    with canonical(Resized(3, 20, Hvector(0, 5, 7, DOUBLE))) as layout:
        assert (layout.size, layout.nboxes, layout.runs, layout.dense) == (0, 0, 0, 0)
        assert (layout.lb, layout.extent, layout.true_lb, layout.true_ub) == (3, 20, 0, 0)
