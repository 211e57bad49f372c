"""Every kernel of every ISA of this machine: shapes on the boundaries of registers, lines and tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import packing
from packing import Box, Case, Hand, check, ffi, lib, matrix, pointer, vector
from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUNS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 96, 127, 128, 129, 255, 600, 4097)
COUNTS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
A_ROUND = 7  # calls that the default and the next candidate have in the first round of trials, with the first call
LARGE = 256 << 10  # bytes, from which on a loop has several candidates
EDGES = (1, 15, 16, 17, 31, 32, 33, 65)


@pytest.fixture(autouse=True, params=packing.levels_here())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    assert lib.tempi_kernels_use(request.param.encode()) == lib.TEMPI_OK
    yield request.param
    lib.tempi_kernels_use(ffi.NULL)


@pytest.fixture
def cache_of() -> Iterator[Callable[[int], None]]:
    """Assumes one of so many bytes."""
    yield lib.tempi_cache_assume
    lib.tempi_cache_assume(0)


def gaps(run: int) -> tuple[int, ...]:
    return (1, run, 2 * run, 3 * run, 6 * run + 1, 130, 1100, 2100)


@pytest.mark.parametrize("run", RUNS)
def test_vectors_of_a_few_runs(run: int) -> None:
    for gap in gaps(run):
        for count in (2, 3, 5, 8):
            check(vector(count, run + gap, run))


@pytest.mark.parametrize("count", COUNTS)
def test_vectors_of_any_length(count: int) -> None:
    for run in (1, 2, 4, 8, 12, 16, 24):
        for stride in (run + 1, 2 * run, 3 * run, 4 * run, 7 * run, 512):
            check(vector(count, stride, run))


@pytest.mark.parametrize("run", [1, 4, 8, 16, 64, 100])
def test_negative_strides(run: int) -> None:
    check(vector(17, -2 * run, run))
    check(vector(5, -600, run), count=3)


@pytest.mark.parametrize("run", [1, 3, 4, 8, 12, 16, 48, 256])
def test_nested_loops(run: int) -> None:
    rows = ((3, 20 * run, 6 * run), (3, 5 * run, 2 * run), (2, 2 * run, run))
    deep = ((2, 400 * run, 72 * run), (2, 190 * run, 36 * run), (2, 90 * run, 18 * run), *rows)
    check(Hand.of([Box(run=run, dims=rows)]), count=2)
    check(Hand.of([Box(run=run, dims=deep)]), count=3)


@pytest.mark.parametrize("run", [1, 2, 4, 8, 16])
def test_transposes_at_the_edges_of_tiles(run: int) -> None:
    for na in EDGES:
        for nb in EDGES:
            check(matrix(na, nb, run))


@pytest.mark.parametrize("run", [1, 2, 4, 8, 16])
def test_transposes_of_padded_rows(run: int) -> None:
    check(matrix(40, 33, run, a_stride=64 * run + 3))
    check(matrix(33, 16, run, a_stride=-64 * run))
    check(matrix(1024 // run, 66, run, a_stride=2048))  # lines that compete for places in the cache
    check(matrix(4096 // run, 320 // run, run, a_stride=64 * run + 320))  # blocks that begin where lines do
    check(matrix(2048 // run, 128 // run + 33, run, a_stride=4096))
    stacked = Hand.of([Box(run=run, dims=((3, 5000 * run, 323 * run), (19, run, 17 * run), (17, 40 * run, run)))])
    check(stacked, count=2)


@pytest.mark.parametrize("run", [3, 8, 12, 24, 40])
@pytest.mark.parametrize("lines", [300, 321])
def test_long_rows_walked_in_blocks(run: int, lines: int) -> None:
    step = max(64, 5 * run)
    check(Hand.of([Box(run=run, dims=((3, run, lines * run), (lines, step, run)))]))
    check(Hand.of([Box(run=run, dims=((2, run, 3 * lines * run), (3, lines * step, lines * run), (lines, step, run)))]))
    scattered = ((lines, run, 3 * run), (3, lines * run + 7, run))
    check(Hand.of([Box(run=run, dims=scattered)]))


def table(run: int, n: int) -> tuple[tuple[int, int], ...]:
    """n runs at irregular places, not in the order of their places."""
    return tuple(((i * 7919 % n) * (run + 3) + i % 3, i * run) for i in range(n))


@pytest.mark.parametrize("run", RUNS)
def test_tables(run: int) -> None:
    for n in (1, 2, 3, 4, 5, 33):
        check(Hand.of([Box(run=run, entries=table(run, n))]), count=2)


def test_tables_with_holes_in_the_packed_stream() -> None:
    both = [
        Box(run=8, entries=tuple((o, 2 * p) for o, p in table(8, 33))),
        Box(offset=1000, packed=8, run=8, entries=tuple((o, 2 * p) for o, p in table(8, 33))),
    ]
    check(Hand.of(both), count=2)


def test_tables_around_dims_and_dims_around_tables() -> None:
    entries = tuple((o * 50, p * 6) for o, p in table(4, 5))
    inner: tuple[packing.Dim, ...] = ((2, 40, 12), (3, 8, 4))
    check(Hand.of([Box(run=4, dims=inner, entries=entries)]), count=2)
    check(Hand.of([Box(run=4, dims=((3, 9000, 120), *inner), entries=entries)]))


def test_a_long_table() -> None:
    check(Hand.of([Box(run=8, entries=table(8, 40_000))]))


# Groups of runs have special code if all their lengths are between a power of two and twice that, and other
# code if all are short.
GROUPED = [list(range(n, 2 * n + 1)) * (50 // n + 1) for n in (1, 2, 4, 8, 16, 32)]
MIXED = [[1, 32, 5] * 12, [*[8, 16] * 16, *[8, 300] * 16, 16, 8]]


@pytest.mark.parametrize(
    "lengths", [[5], [1, 2, 3], list(range(1, 70)), [64, 65, 1024, 1025, 5000, 1], *GROUPED, *MIXED]
)
def test_variable_runs(lengths: list[int]) -> None:
    entries, packed, offset = [], 0, 0
    for i, length in enumerate(lengths):
        entries.append((offset, packed))
        packed += length
        offset += length + i % 4
    check(Hand.of([Box(entries=(*entries, (0, packed)))]), count=3)


def test_tables_whose_first_entry_is_not_the_boxs_start() -> None:
    shifted = tuple((o, p + 11) for o, p in table(8, 9))
    check(Hand.of([Box(packed=-11, run=8, entries=shifted)]), count=2, fragments=[(5, 90), (1, 142)])


@pytest.mark.parametrize("run", [2, 8, 16, 24, 48, 64, 256])
@pytest.mark.parametrize("stride", [1024, 4096])
def test_lines_that_compete_for_places(run: int, stride: int) -> None:
    check(vector(300, stride, run))
    check(vector(1030, -stride, run))


def check_a_mebibyte(run: int, stride: int) -> None:
    hand = vector((1 << 20) // run + 3, stride, run)
    with hand.layout() as layout:
        case = Case.of(layout, 1, hand.offsets, hand.extent)
        for shift in (8, None):
            case.pack(0, case.offsets.size, shift, shift)
            case.unpack(0, case.offsets.size, shift, shift)


@pytest.mark.parametrize(("run", "stride"), [(1, 2), (8, 24), (64, 128), (130, 300), (256, 4096), (8192, 16384)])
def test_copies_past_the_cache(cache_of: Callable[[int], None], run: int, stride: int) -> None:
    cache_of(1)
    check_a_mebibyte(run, stride)


@pytest.mark.parametrize(("run", "stride"), [(4, 8), (8, 16), (64, 128), (130, 300)])
def test_gathers_from_memory_into_the_cache(cache_of: Callable[[int], None], run: int, stride: int) -> None:
    cache_of(4 << 20 if run < 64 else 2 << 20)
    check_a_mebibyte(run, stride)


def test_a_layout_of_many_boxes_in_pieces() -> None:
    fields = [Box(offset=o, packed=p, run=n) for o, p, n in ((0, 0, 4), (8, 4, 8), (20, 12, 2), (24, 14, 8))]
    hand = Hand.of(fields, extent=40)
    check(hand, count=3001, fragments=[(1, 60_000), (21_999, 44_003)])
    repeated = [Box(b.offset, b.packed, b.run, ((2900, 40, 22),)) for b in fields]
    check(Hand.of(repeated), fragments=[(17, 50_000)])


# ---- kernels among which the first calls of a shape choose ----------------------------------------


@pytest.fixture
def taken() -> Iterator[Callable[[int], None]]:
    """Makes every loop with several candidates take one of them."""
    yield lib.tempi_tune_pretend
    lib.tempi_tune_pretend(-1)


@pytest.mark.parametrize("candidate", range(8))
@pytest.mark.parametrize("run", [8, 32, 64, 100, 256, 1000, 2048])
def test_every_candidate_moves_the_same_bytes(taken: Callable[[int], None], run: int, candidate: int) -> None:
    taken(candidate)
    for stride in (run + 130, 512, 4096):
        check(vector(257, stride, run))
    check(Hand.of([Box(run=run, dims=((3, 300 * 2048, 70 * run), (70, 2048, run)))]))


@pytest.mark.parametrize("candidate", range(8))
@pytest.mark.parametrize(("run", "stride"), [(4, 8), (128, 256)])
def test_every_candidate_of_a_large_copy(taken: Callable[[int], None], run: int, stride: int, candidate: int) -> None:
    taken(candidate)
    check_a_mebibyte(run, stride)


@pytest.mark.parametrize("candidate", range(2))
@pytest.mark.parametrize("run", [4, 8, 16])
@pytest.mark.parametrize("rows", [64, 65, 100, 331])
def test_every_candidate_of_a_large_transpose(
    taken: Callable[[int], None], rows: int, run: int, candidate: int
) -> None:
    taken(candidate)
    columns = LARGE // (rows * run) + 3
    check(matrix(rows, columns, run))
    check(matrix(rows, columns, run, a_stride=columns * run + 192))


def counter(name: str) -> int:
    return next(int(_engine.lib.tempi_stats_value(i)) for known, _, i in _engine.items("stats") if known == name)


def packed_in(seconds: Callable[[int], list[float]], calls: int, hand: Hand | None = None) -> tuple[int, int, int]:
    """Shapes settled by so many packs of one, those of them with another kernel than the default, and later changes.
    `seconds`: of each candidate, in that call."""
    weights = ffi.new("double[8]")
    hand = hand or vector(256, 1024, 16)
    names = "kernels_tuned", "kernels_changed", "kernels_later"
    lib.tempi_tune_pretend(-1)
    lib.tempi_tune_weigh(weights)
    before = [counter(name) for name in names]
    try:
        with hand.layout() as layout:
            case = Case.of(layout, 1, hand.offsets, hand.extent)
            packed = np.empty(case.offsets.size, np.uint8)
            for i in range(calls):
                weights[0:8] = seconds(i)
                lib.tempi_pack(layout, 1, pointer(case.memory, -case.low), 0, packed.size, pointer(packed))
    finally:
        lib.tempi_tune_weigh(ffi.NULL)
        lib.tempi_tune_pretend(-1)
    tuned, changed, later = (counter(name) - had for name, had in zip(names, before, strict=True))
    return tuned, changed, later


def settled_otherwise(
    seconds_of: list[float], hand: Hand | None = None, first: list[float] | None = None
) -> tuple[int, int]:
    """`first`: the seconds of each candidate in its first turn."""
    return packed_in(lambda i: first if first and i < A_ROUND else seconds_of, 300, hand)[:2]


@pytest.mark.parametrize("call", [1e-6, 1e-3])
@pytest.mark.parametrize("fastest", [0, 1, 2])
def test_the_fastest_candidate_is_settled(fastest: int, call: float) -> None:
    """Seconds are artificial: no clock is involved."""
    assert settled_otherwise([call / (1 + (i == fastest)) for i in range(8)]) == (1, int(fastest > 0))


def test_a_slow_first_turn_does_not_drop_a_candidate() -> None:
    """A machine may be half as fast for a while."""
    assert settled_otherwise([2e-6, 1e-6, *[2e-6] * 6], first=[2e-6, 5e-6, *[2e-6] * 6]) == (1, 1)


def test_runs_that_the_c_library_may_copy_faster_are_tried() -> None:
    assert settled_otherwise([2e-6, 1e-6, *[3e-6] * 6], vector(32, 2064, 2048)) == (1, 1)


def test_permutes_are_tried_beside_plain_loops() -> None:
    """Which AVX-512 alone has."""
    tried = int(_engine.text(_engine.lib.tempi_isa_name()) == "avx512")
    assert settled_otherwise([2e-6, 1e-6, *[3e-6] * 6], vector(256, 32, 16)) == (tried, tried)


@pytest.mark.parametrize(("rows", "tried"), [(64, 1), (63, 0)])
def test_large_transposes_that_ask_ahead_are_tried(rows: int, tried: int) -> None:
    assert settled_otherwise([2e-6, 1e-6, *[3e-6] * 6], matrix(rows, LARGE // (rows * 8) + 1, 8)) == (tried, tried)


def test_between_equals_the_default_stays() -> None:
    assert settled_otherwise([100e-6] + [98e-6] * 7) == (1, 0)


FASTER_LATER = [1e-6, 1.5e-6, *[3e-6] * 6], [1e-6, 0.8e-6, *[3e-6] * 6]
LATER = 1000  # calls, in which the two that are near have more than two other turns each


def test_a_kernel_that_is_faster_later_is_settled_instead() -> None:
    """And again the first one, once it is faster."""
    one, other = FASTER_LATER
    assert packed_in(lambda i: one if i < 300 else other, 300 + LATER) == (1, 0, 1)
    assert packed_in(lambda i: other if 300 <= i < 300 + LATER else one, 300 + 2 * LATER) == (1, 0, 2)


def changes_if_faster_for(length: int) -> int:
    """Of the kernel, if the other one is faster for so many calls at some time after the first trial."""
    one, other = FASTER_LATER

    def seconds(begins: int) -> Callable[[int], list[float]]:
        return lambda i: other if 0 <= i - begins < length else one

    return sum(packed_in(seconds(begins), 300)[2] for begins in range(36, 120, 4))


def test_one_round_is_not_enough_to_change_the_kernel() -> None:
    """Another program may have disturbed it. 5 calls are 10 packs: a round of two kernels has 6, and 12 are between it
    and one that makes sure."""
    assert changes_if_faster_for(5) == 0
    assert changes_if_faster_for(30) > 0


def test_a_kernel_that_was_far_slower_has_no_other_turn() -> None:
    slow, fast = [1e-6, *[2.1e-6] * 7], [1e-6, *[0.1e-6] * 7]
    assert packed_in(lambda i: slow if i < 300 else fast, 300 + LATER) == (1, 0, 0)
