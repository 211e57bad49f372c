"""Layouts against the type-map oracle, on generated datatypes."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import layouts
import oracle
import oracle_basic
from layouts import canonical
from strategies import receive_trees, trees

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
many = settings(max_examples=600, deadline=None, suppress_health_check=SLOW)
some = settings(max_examples=150, deadline=None, suppress_health_check=SLOW)


def assert_is_type_map(layout: layouts.Pointer, reference: oracle.TypeMap) -> None:
    assert layout.size == reference.size
    assert (layout.lb, layout.extent) == (reference.lb, reference.extent)
    assert (layout.true_lb, layout.true_ub) == (reference.true_lb, reference.true_ub)
    assert layouts.listed(layout) == layout.runs
    assert layouts.well_formed(layout) == []
    np.testing.assert_array_equal(layouts.offsets(layout), reference.offsets)


@some
@given(trees(), st.lists(st.tuples(st.integers(-60, 60), st.integers(0, 3)), max_size=4))
def test_the_oracle_s_blocks_are_composed_of_their_elements(tree: oracle.Tree, blocks: list[tuple[int, int]]) -> None:
    inner = tree.type_map
    fast = oracle_basic.blocks(inner, blocks)
    whole = oracle_basic.compose((at + j * inner.extent, inner) for at, length in blocks for j in range(length))
    np.testing.assert_array_equal(fast.offsets, whole.offsets)
    assert (fast.lb, fast.ub, fast.align) == (whole.lb, whole.ub, whole.align)


@many
@given(trees())
def test_raw_layout_is_the_type_map(tree: oracle.Tree) -> None:
    with layouts.raw(tree) as layout:
        assert_is_type_map(layout, tree.type_map)


@many
@given(trees())
def test_canonical_layout_is_the_type_map(tree: oracle.Tree) -> None:
    with canonical(tree) as layout:
        assert_is_type_map(layout, tree.type_map)


@many
@given(receive_trees())
def test_canonical_layout_of_a_receive_type_is_the_type_map(tree: oracle.Tree) -> None:
    with canonical(tree) as layout:
        assert_is_type_map(layout, tree.type_map)


@many
@given(trees())
def test_every_pass_keeps_the_type_map(tree: oracle.Tree) -> None:
    states = layouts.passes(tree)
    assert states[0][0] == "decode"
    for _, offsets in states:
        np.testing.assert_array_equal(offsets, tree.type_map.offsets)


def from_single_runs(tree: oracle.Tree) -> oracle.Tree:
    """The same bytes in the same order, one hindexed block a maximal run."""
    m = tree.type_map
    cuts = np.flatnonzero(np.diff(m.offsets) != 1) + 1
    starts = m.offsets[np.concatenate([[0], cuts])] if m.size else []
    lengths: Any = np.diff(np.concatenate([[0], cuts, [m.size]])) if m.size else []
    byte = oracle.Named("BYTE")
    flat = oracle.Hindexed(tuple(map(int, lengths)), tuple(map(int, starts)), byte)
    return oracle.Resized(m.lb, m.extent, flat)


def from_single_bytes(tree: oracle.Tree) -> oracle.Tree:
    """The same bytes in the same order, one struct member a byte."""
    m = tree.type_map
    byte = oracle.Named("CHAR")
    flat = oracle.Struct((1,) * m.size, tuple(map(int, m.offsets)), (byte,) * m.size)
    return oracle.Resized(m.lb, m.extent, flat)


def runs_of(tree: oracle.Tree) -> int:
    return int(np.count_nonzero(np.diff(tree.type_map.offsets) != 1)) + 1


@many
@given(trees(), st.sampled_from([from_single_runs, from_single_bytes]))
def test_equal_bytes_built_otherwise_are_one_layout(tree: oracle.Tree, rebuild: object) -> None:
    if runs_of(tree) > layouts.DERIVE_RUNS or tree.type_map.size > layouts.DERIVE_LISTED:
        return  # only promised for modest types
    assert callable(rebuild)
    with canonical(tree) as one, canonical(rebuild(tree)) as other:
        assert one == other


@some
@given(trees())
def test_canonical_of_canonical_is_itself(tree: oracle.Tree) -> None:
    with canonical(tree) as one, layouts.canonical_of(one) as again:
        assert again == one


@some
@given(trees(depth=3))
def test_layouts_compose_from_canonical_ones_too(tree: oracle.Tree) -> None:
    outer = oracle.Hvector(3, 2, 200, tree)
    with canonical(tree) as inner, layouts.hvector_of(3, 2, 200, inner) as composed:
        np.testing.assert_array_equal(layouts.offsets(composed), outer.type_map.offsets)


@pytest.fixture(autouse=True)
def nothing_left() -> object:
    before = layouts.alive()
    yield
    gc.collect()
    assert layouts.alive() == before
