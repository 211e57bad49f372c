"""The layout functions of the engine: arguments, overflow, references, traces, threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import layouts
import oracle
from layouts import canonical
from oracle import Named
from tempi._engine import ffi, lib

NULL = ffi.NULL
BIG = 2**62


def call(constructor: str, *arguments: Any) -> tuple[int, Any]:
    """Status and result; free the result on success."""
    out = ffi.new("tempi_layout **")
    status = getattr(lib, f"tempi_layout_{constructor}")(*arguments, out)
    return status, out[0]


@pytest.fixture
def double() -> Any:
    status, layout = call("bytes", 8)
    assert status == lib.TEMPI_OK
    yield layout
    lib.tempi_layout_free(layout)


@pytest.fixture
def wide() -> Any:
    """A double with an extent of 2^40."""
    status, inner = call("bytes", 8)
    assert status == lib.TEMPI_OK
    status, layout = call("resized", 0, 2**40, inner)
    assert status == lib.TEMPI_OK
    lib.tempi_layout_free(inner)
    yield layout
    lib.tempi_layout_free(layout)


def test_bad_arguments_are_refused(double: Any) -> None:
    refused: list[tuple[Any, ...]] = [
        ("bytes", -1),
        ("pair", 0, 8, 4, 16),
        ("pair", 8, 4, 4, 16),
        ("pair", 8, 8, 4, 8),
        ("contiguous", -1, double),
        ("contiguous", 1, NULL),
        ("hvector", -1, 1, 8, double),
        ("hvector", 1, -1, 8, double),
        ("hindexed", -1, [1], [0], double),
        ("hindexed", 1, [-1], [0], double),
        ("hindexed", 1, NULL, [0], double),
        ("hindexed_block", 1, -1, [0], double),
        ("struct", 1, [-1], [0], [double]),
        ("struct", 1, [1], [0], [NULL]),
        ("resized", 0, 8, NULL),
        ("subarray", 0, [4], [2], [1], 0, double),
        ("subarray", 1, [4], [2], [3], 0, double),
        ("subarray", 1, [4], [5], [0], 0, double),
        ("subarray", 1, [4], [2], [-1], 0, double),
        ("subarray", 1, [4], [2], [1], 2, double),
        ("darray", 4, 4, 1, [8], [0], [-1], [4], 0, double),
        ("darray", 4, 0, 1, [8], [0], [-1], [3], 0, double),
        ("darray", 4, 0, 1, [8], [0], [1], [4], 0, double),
        ("darray", 4, 0, 1, [8], [2], [-1], [4], 0, double),
        ("darray", 4, 0, 1, [8], [7], [-1], [4], 0, double),
        ("darray", 4, 0, 1, [8], [1], [0], [4], 0, double),
    ]
    for constructor, *arguments in refused:
        given = [
            ffi.new("tempi_layout *[]", a) if isinstance(a, list) and a and not isinstance(a[0], int) else a
            for a in arguments
        ]
        status, out = call(constructor, *given)
        assert (constructor, arguments, status) == (constructor, arguments, lib.TEMPI_ERR_ARG)
        assert out == NULL


def test_a_size_that_does_not_fit_in_63_bits_is_an_overflow(double: Any, wide: Any) -> None:
    overflowing: list[tuple[Any, ...]] = [
        ("contiguous", BIG, double),
        ("contiguous", 2**24, wide),
        ("hvector", 2**30, 1, 2**40, double),
        ("hvector", 2, 1, -(2**63), double),
        ("hvector", BIG, BIG, 0, double),
        ("hindexed", 1, [1], [2**63 - 4], double),
        ("hindexed", 2, [1, 1], [-BIG - 8, BIG], double),
        ("hindexed", 2, [BIG, BIG], [0, 0], double),
        ("hindexed_block", 6, 1, [0, 1, 2, 3, 2**63 - 1, -(2**63)], double),
        ("hindexed_block", 1, 2**24, [0], wide),
        ("resized", 2**63 - 1, 1, double),
        ("subarray", 2, [2**40, 2**40], [1, 1], [0, 0], 0, double),
        ("subarray", 1, [2**24], [1], [0], 0, wide),
        ("darray", 1, 0, 2, [2**40, 2**40], [2, 2], [-1, -1], [1, 1], 0, double),
    ]
    for constructor, *arguments in overflowing:
        status, out = call(constructor, *arguments)
        assert (constructor, arguments, status) == (constructor, arguments, lib.TEMPI_ERR_OVERFLOW)
        assert out == NULL


def test_counts_above_two_to_the_31_are_fine(double: Any) -> None:
    status, layout = call("hvector", 2**33, 1, 16, double)
    assert status == lib.TEMPI_OK
    with layouts.canonical_of(layout) as made:
        assert layouts.boxes(made) == [(0, 0, 8, [(2**33, 16, 8)], 0)]
        assert (made.size, made.runs) == (2**36, 2**33)
    lib.tempi_layout_free(layout)


def test_a_layout_outlives_the_layouts_it_was_made_of(double: Any) -> None:
    status, inner = call("hindexed", 6, [1, 2, 3, 1, 2, 3], [0, 16, 50, 90, 130, 200], double)
    assert status == lib.TEMPI_OK
    status, outer = call("hvector", 3, 1, 1000, inner)
    assert status == lib.TEMPI_OK
    before = layouts.offsets(outer).tolist()
    lib.tempi_layout_free(inner)
    assert layouts.offsets(outer).tolist() == before
    lib.tempi_layout_free(outer)


def test_each_reference_is_released_once(double: Any) -> None:
    before = layouts.alive()
    out = [ffi.new("tempi_layout const **") for _ in range(3)]
    for one in out:
        assert lib.tempi_layout_canonical(double, NULL, NULL, one) == lib.TEMPI_OK
        assert one[0] == out[0][0]
    held = layouts.alive()
    assert held <= before + 1
    lib.tempi_layout_release(out[0][0])
    lib.tempi_layout_release(out[1][0])
    assert layouts.alive() == held
    lib.tempi_layout_release(out[2][0])
    assert layouts.alive() == before


def test_null_is_released_without_harm() -> None:
    lib.tempi_layout_release(NULL)
    lib.tempi_layout_free(NULL)


def test_trace_names_the_passes_in_order() -> None:
    tree = oracle.Struct((1, 1), (0, 16), (oracle.Contiguous(2, Named("INT")), Named("DOUBLE")))
    names = [name for name, _ in layouts.passes(tree)]
    assert names[0] == "decode"
    assert names[-1] == "join"
    assert set(names) <= {"decode", "elide", "fold", "flatten", "merge", "join", "table", "derive"}


def test_type_that_is_canonical_as_written_shows_no_pass() -> None:
    assert [name for name, _ in layouts.passes(oracle.Vector(5, 1, 3, Named("INT")))] == ["decode"]


def test_footprint_counts_the_table() -> None:
    places = tuple(i * i * 16 for i in range(1000))
    with canonical(oracle.HindexedBlock(1, places, Named("DOUBLE"))) as layout:
        footprint = lib.tempi_layout_footprint(layout)
        assert 16 * 1000 <= footprint <= 16 * 1000 + 1024


@pytest.mark.parametrize("lengths", [(1, 2), (1, 2, 3), (4, 5), (1, 40), (8, 16)])
def test_runs_of_different_lengths_take_16_bytes_each(lengths: tuple[int, ...]) -> None:
    n = 1000
    blocks = tuple(lengths[(i * i) % 7 % len(lengths)] for i in range(n))
    places = tuple(i * 1000 + i * i % 89 * 8 for i in range(n))
    with canonical(oracle.Hindexed(blocks, places, Named("DOUBLE"))) as layout:
        assert lib.tempi_layout_footprint(layout) <= 16 * n + 1024


def test_threads_share_one_layout() -> None:
    tree = oracle.Subarray((9, 9, 9), (3, 4, 5), (1, 2, 3), Named("DOUBLE"))
    before, seen, errors = layouts.alive(), set(), []
    barrier = threading.Barrier(4)

    def work() -> None:
        try:
            barrier.wait()
            for _ in range(200):
                with canonical(tree) as layout:
                    seen.add(layouts.boxes(layout)[0][0])
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert seen == {tree.type_map.true_lb}
    assert layouts.alive() == before
