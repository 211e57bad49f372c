"""Fit, tables and interpolation, against known functions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tempi.expression import parse
from tempi.model import grid, predict, samples, store, tables

HERE = store.machine("some MPI 1.0")
SIZES = (256, 4096, 65536, 1 << 20)
FACTORS = {"own_pack": 2.0, "library_unpack": 4.0, "library_message": 3.0}
COLUMNS = [grid.Column("regular", run, stride) for run in (8, 64) for stride in (2 * run, 576, 4160)]


def seconds(quantity: str, column: grid.Column, size: int) -> float:
    """Power laws: linear interpolation of logarithms is exact for them."""
    return 1e-9 * FACTORS.get(quantity, 1.0) * size * column.run**-0.5 * max(column.stride, 1) ** 0.25


def points() -> list[store.Point]:
    made = []
    for quantity in grid.QUANTITIES:
        peer = "node" if quantity in grid.MESSAGES else None
        for column in [grid.PLAIN] if quantity == "contiguous" else COLUMNS:
            made += [store.Point(quantity, column, n, peer, (seconds(quantity, column, n),) * 9) for n in SIZES]
    return made


@pytest.fixture
def model(tmp_path: Path) -> predict.Model:
    path = tmp_path / "model.table"
    path.write_bytes(store.table_of(store.Calibration(HERE, tuple(points()))))
    return predict.Model(path)


def vector(size: int, run: int, stride: int) -> tuple[object, object]:
    """The engine's layout, and the object that keeps it alive."""
    owner = parse(f"hvector({size // run},1,{stride},contiguous({run},BYTE))")
    return owner.canonical(), owner


def test_fill_is_exact_at_nodes_and_straight_between() -> None:
    known = {1.0: 5.0, 3.0: 9.0}
    assert tables.fill(known, [1.0, 2.0, 3.0]) == [5.0, 7.0, 9.0]


def test_fill_is_latency_before_and_throughput_behind() -> None:
    assert tables.fill({1.0: 5.0, 3.0: 9.0}, [0.0, 4.5]) == [5.0, 10.5]


def test_monotone_keeps_increasing_values_and_pools_decreasing_ones() -> None:
    assert tables.monotone([1.0, 2.0, 2.0, 5.0]) == [1.0, 2.0, 2.0, 5.0]
    assert tables.monotone([1.0, 4.0, 2.0, 5.0]) == [1.0, 3.0, 3.0, 5.0]
    assert tables.monotone([3.0, 2.0, 1.0]) == [2.0, 2.0, 2.0]


def test_messages_may_be_faster_behind_the_eager_limit_but_packing_not() -> None:
    column, falling = COLUMNS[0], {grid.KIB: 1e-6, grid.EAGER: 4e-6, 4 * grid.KIB: 1e-6, 16 * grid.KIB: 5e-7}
    pooled = 1e-6**0.5 * 5e-7**0.5
    for quantity, expected in (
        ("library_message", [1e-6, 4e-6, pooled, pooled]),
        ("library_pack", [1e-6, *[(4e-6 * 1e-6 * 5e-7) ** (1 / 3)] * 3]),
    ):
        peer = "node" if quantity in grid.MESSAGES else None
        (table,) = tables.build({(quantity, column, size, peer): taken for size, taken in falling.items()})
        assert [math.exp(value) for value in table.seconds[0][0]] == pytest.approx(expected)


def test_predictions_are_exact_at_the_nodes(model: predict.Model) -> None:
    for column, size in itertools.product(COLUMNS, SIZES):
        layout, _owner = vector(size, column.run, column.stride)
        prediction = model.predict(layout, size)
        assert prediction is not None
        assert prediction.library == pytest.approx(seconds("library_message", column, size))
        assert prediction.pack == pytest.approx(seconds("stage_pack", column, size))
        assert prediction.message == pytest.approx(seconds("contiguous", grid.PLAIN, size))
        assert prediction.host == pytest.approx(prediction.pack + prediction.message + prediction.unpack)
        local = model.predict(layout, size, "unpack")
        assert local is not None
        assert local.library == pytest.approx(seconds("library_unpack", column, size))
        assert local.host == pytest.approx(seconds("own_unpack", column, size))


def test_predictions_follow_a_power_law_between_the_nodes(model: predict.Model) -> None:
    for size, run, stride in ((1024, 16, 700), (100 * 48, 48, 96 * 9), (1 << 18, 32, 2048)):
        layout, _owner = vector(size, run, stride)
        prediction = model.predict(layout, size)
        assert prediction is not None
        expected = seconds("library_message", grid.Column("regular", run, stride), size)
        assert prediction.library == pytest.approx(expected, rel=1e-6)


def test_predictions_are_positive_and_grow_with_the_size(model: predict.Model) -> None:
    layout, _owner = vector(1 << 20, 24, 100)
    prediction = [model.predict(layout, size) for size in range(24, 1 << 22, 9973)]
    times = [one.host for one in prediction if one is not None]
    assert len(times) == len(prediction)
    assert times[0] > 0
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(times))


def test_outside_the_table_shapes_are_clamped_and_sizes_extrapolated(model: predict.Model) -> None:
    layout, _owner = vector(1 << 22, 4096, (1 << 20) + 64)
    prediction = model.predict(layout, 1 << 22)
    assert prediction is not None
    edge = seconds("library_message", grid.Column("regular", 64, 4160), 1 << 20)
    assert prediction.library == pytest.approx(4 * edge)


def test_the_choice_is_the_least_prediction_less_the_margin(model: predict.Model) -> None:
    seen = set()
    for operation, run, size in itertools.product(predict.OPERATIONS, (8, 16, 64), (300, 5000, 1 << 19)):
        layout, _owner = vector(size // run * run, run, 1024)
        prediction = model.predict(layout, size, operation)
        assert prediction is not None
        assert prediction.acts == (prediction.host < 0.97 * prediction.library)
        acts = model.acts(layout, size, operation)
        assert acts == prediction.acts
        seen.add(acts)
    assert seen == {True, False}


@pytest.mark.parametrize(("own", "acts"), [(0.95, True), (0.98, False), (1.02, False)])
def test_within_the_margin_the_library_keeps_the_call(tmp_path: Path, own: float, acts: bool) -> None:
    factors = {"library_pack": 1.0, "own_pack": own}
    made = [store.Point(q, COLUMNS[0], n, None, (1e-9 * n * f,) * 9) for q, f in factors.items() for n in SIZES]
    path = tmp_path / "model.table"
    path.write_bytes(store.table_of(store.Calibration(HERE, tuple(made))))
    layout, _owner = vector(4096, COLUMNS[0].run, COLUMNS[0].stride)
    prediction = predict.Model(path).predict(layout, 4096, "pack")
    assert prediction is not None
    assert prediction.acts is acts


def test_without_tables_nothing_is_predicted(model: predict.Model) -> None:
    layout, _owner = vector(4096, 8, 512)
    assert model.predict(layout, 4096, peer="other") is None
    assert model.acts(layout, 4096, peer="other") is None
    irregular = parse("indexed([1,1,1,1,1,1],[0,3,4,9,11,30],DOUBLE)")
    assert model.predict(irregular.canonical(), 4096) is None
    dense = parse("contiguous(8,DOUBLE)")
    assert model.predict(dense.canonical(), 4096) is None


ROW = 3e-9  # seconds of a row's start


def corrected(tmp_path: Path, factor: float, row: float = ROW) -> predict.Model:
    """The power laws, with runs that share sets `factor` times as slow for each power of two above 1024, and
    nested shapes slower by `row` seconds for each row behind the first."""
    made = points()
    for quantity, size in itertools.product(grid.QUANTITIES, SIZES):
        peer = "node" if quantity in grid.MESSAGES else None
        for run, stride in itertools.product((8, 64), (5120, 4096)):
            column = grid.Column("aliased", run, stride)
            taken = factor ** math.log2(grid.aliasing(stride) / 1024) * seconds(
                quantity, grid.Column("regular", run, 4160), size
            )
            made.append(store.Point(quantity, column, size, peer, (taken,) * 9))
        if size >= 4096:
            column = grid.Column("nested", 8, 576)
            taken = seconds(quantity, grid.Column("regular", 8, 576), size) + row * (size // (8 * grid.INNER) - 1)
            made.append(store.Point(quantity, column, size, peer, (taken,) * 9))
    path = tmp_path / "corrected.table"
    path.write_bytes(store.table_of(store.Calibration(HERE, tuple(made))))
    return predict.Model(path)


@pytest.mark.parametrize(("stride", "power"), [(5120, 0), (3 * 1024, 0), (6144, 1), (2048, 1), (4096, 2), (1 << 16, 2)])
def test_runs_that_share_sets_are_regular_ones_with_a_factor(tmp_path: Path, stride: int, power: int) -> None:
    model = corrected(tmp_path, 3.0)
    for run, size in itertools.product((8, 24, 64), (384 * 8, 1 << 16)):
        layout, _owner = vector(size, run, stride)
        prediction = model.predict(layout, size, "pack")
        assert prediction is not None
        expected = seconds("own_pack", grid.Column("regular", run, min(stride, 4160)), size)
        rest = size // run * run  # whole runs
        assert prediction.host == pytest.approx(3.0**power * expected, rel=0.01 if rest != size else 1e-6)


def test_a_factor_ends_with_its_last_size_and_is_never_below_one(tmp_path: Path) -> None:
    for factor, least in ((3.0, 9.0), (0.5, 1.0)):
        layout, _owner = vector(1 << 23, 8, 4096)
        prediction = corrected(tmp_path, factor).predict(layout, 1 << 23, "unpack")
        assert prediction is not None
        edge = 8 * seconds("own_unpack", grid.Column("regular", 8, 4096), 1 << 20)
        assert prediction.host == pytest.approx(least * edge)


def by_steps(quantity: str, inner: int, step: int, size: int) -> float:
    """Rows of `inner` runs of 8 every 576 bytes: of the steps from run to run, one a row is `step` long."""
    lengths = [576] * (inner - 1) + [min(max(step, 16), 4160)]
    return sum(seconds(quantity, grid.Column("regular", 8, length), size) for length in lengths) / inner


@pytest.mark.parametrize("inner", [2, 4, 32])
def test_rows_of_nested_shapes_take_their_time(tmp_path: Path, inner: int) -> None:
    model, size = corrected(tmp_path, 2.0), 1 << 14
    rows = size // (8 * inner)
    owner = parse(f"hvector({rows},1,70000,hvector({inner},1,576,DOUBLE))")
    for operation, quantity in (("pack", "library_pack"), ("send", "library_message")):
        prediction = model.predict(owner.canonical(), size, operation)
        assert prediction is not None
        flat = by_steps(quantity, inner, 70000 - (inner - 1) * 576, size)
        assert prediction.library == pytest.approx(flat + ROW * (rows - 1))
    element = parse(f"hvector({inner},1,576,DOUBLE)")  # as many elements as rows
    prediction = model.predict(element.canonical(), size, "pack")
    assert prediction is not None
    flat = by_steps("library_pack", inner, 8, size)
    assert prediction.library == pytest.approx(flat + ROW * (rows - 1))


def test_nested_shapes_that_are_faster_are_no_correction(tmp_path: Path) -> None:
    model, size = corrected(tmp_path, 2.0, row=-1e-12), 1 << 14
    owner = parse("hvector(512,1,2304,hvector(4,1,576,DOUBLE))")
    folded = parse("hvector(512,1,2305,hvector(4,1,576,DOUBLE))")
    for one in (owner, folded):
        prediction = model.predict(one.canonical(), size, "pack")
        assert prediction is not None
        assert prediction.library == pytest.approx(
            seconds("library_pack", grid.Column("regular", 8, 576), size), rel=1e-3
        )


def test_uneven_runs_represent_the_sizes_of_the_grid() -> None:
    for run in grid.UNEVEN:
        column = grid.Column("regular", run, 4160)
        sizes = grid.sizes(column, False)
        assert sizes
        assert all(size % run == 0 for size in sizes)
        own = [store.Point("own_pack", column, size, None, (1e-9 * size,) * 9) for size in sizes]
        found = store.typical(own)
        assert [key[2] for key in found] == sorted({256, grid.EAGER, 4096, 65536, 1 << 20, 1 << 24})
        assert all(seconds == pytest.approx(1e-9 * key[2]) for key, seconds in found.items())


def test_fields_of_structs_and_runs_of_unlike_lengths_have_factors(tmp_path: Path) -> None:
    """Factors 3 and 5 on their families; tables without a correction predict like the family."""
    plain = {"elements": grid.Column("elements", 8, 40), "irregular": grid.Column("irregular", 16, 0)}
    factors = {"fields": 3.0, "varied": 5.0}
    made = [
        store.Point(quantity, column, size, None, (seconds(quantity, column, size),) * 9)
        for quantity, column, size in itertools.product(("library_pack", "own_pack"), plain.values(), SIZES)
    ]
    more = [
        replace(point, column=replace(point.column, family=name), seconds=(factors[name] * point.seconds[0],) * 9)
        for point in made
        for name in factors
        if plain[grid.CORRECTIONS[name]] == point.column
    ]
    texts = {
        "elements": "resized(0,40,DOUBLE)",
        "fields": "resized(0,40,hindexed_block(1,[8],DOUBLE))",
        "irregular": "indexed_block(2,[0,8,30,14,100],DOUBLE)",
        "varied": "indexed_block(2,[0,8,30,14,100,102],DOUBLE)",
    }
    for points_of, name in ((made, "without"), ([*made, *more], "with")):
        path = tmp_path / name
        path.write_bytes(store.table_of(store.Calibration(HERE, tuple(points_of))))
        model = predict.Model(path)
        for family, text in texts.items():
            owner = parse(text)
            prediction = model.predict(owner.canonical(), 4096, "pack")
            assert prediction is not None, family
            expected = seconds("own_pack", plain[grid.CORRECTIONS.get(family, family)], 4096)
            assert prediction.host == pytest.approx(expected * (factors.get(family, 1.0) if name == "with" else 1.0)), (
                family
            )


@pytest.mark.parametrize("measured", [("node",), ("far",), ("node", "far")])
def test_tables_of_one_locality_class_of_a_node_serve_both(tmp_path: Path, measured: tuple[str, ...]) -> None:
    own = [p for p in points() if p.peer is None]
    for factor, peer in enumerate(measured, 1):
        own += [replace(p, peer=peer, seconds=(factor * p.seconds[0],) * 9) for p in points() if p.peer == "node"]
    path = tmp_path / "model.table"
    path.write_bytes(store.table_of(store.Calibration(HERE, tuple(own))))
    model = predict.Model(path)
    layout, _owner = vector(4096, 8, 64)
    near, far = (model.predict(layout, 4096, "send", peer) for peer in ("node", "far"))
    assert near is not None
    assert far is not None
    assert far.library == pytest.approx(len(measured) * near.library)
    assert model.predict(layout, 4096, "send", "other") is None


def whole_messages(beyond: float, parts: float) -> list[store.Point]:
    """By column: `beyond` times the plain message, and two parts of so many picoseconds a byte."""
    made = [point for point in points() if point.quantity in ("contiguous", "library_message")]
    for column, n in itertools.product(COLUMNS, SIZES):
        part, plain = parts * 1e-12 * n, seconds("contiguous", grid.PLAIN, n)
        factor = beyond if column.run == 8 else 1.0
        whole = {"host_message": factor * plain + 2 * part, "stage_pack": part, "stage_unpack": part}
        for name, value in whole.items():
            made.append(store.Point(name, column, n, "node" if name == "host_message" else None, (value,) * 9))
    return made


def test_the_message_term_is_the_whole_message_minus_pack_and_unpack() -> None:
    found = store.typical(whole_messages(2.0, 1.0))
    for column, n in itertools.product(COLUMNS, SIZES):
        expected = (2 if column.run == 8 else 1) * seconds("contiguous", grid.PLAIN, n)
        assert found["contiguous", column, n, "node"] == pytest.approx(expected)


def test_the_time_of_a_decision_is_counted_once(tmp_path: Path) -> None:
    call = {"own_pack": 3e-7, "engine_pack": 2e-7}
    calls = [store.Point(name, COLUMNS[0], SIZES[0], None, (value,) * 9) for name, value in call.items()]
    path = tmp_path / "model.table"
    path.write_bytes(store.table_of(store.Calibration(HERE, (*whole_messages(2.0, 1.0), *calls))))
    for column, n in itertools.product(COLUMNS, SIZES[1:]):
        layout, _owner = vector(n, column.run, column.stride)
        prediction = predict.Model(path).predict(layout, n)
        assert prediction is not None
        whole = (2 if column.run == 8 else 1) * seconds("contiguous", grid.PLAIN, n) + 2e-12 * n
        assert whole > 2e-7
        assert prediction.host == pytest.approx(whole)


def test_a_message_term_that_is_a_small_part_of_the_whole_is_not_used() -> None:
    few = store.typical(whole_messages(2.0, 1e5))
    for column, n in itertools.product(COLUMNS, SIZES):
        assert few["contiguous", column, n, "node"] == pytest.approx(seconds("contiguous", grid.PLAIN, n))


def test_the_median_over_other_shapes_replaces_a_small_message_term() -> None:
    """One shape's time is nearly all pack and unpack; the others' message terms are twice the contiguous message."""
    odd = COLUMNS[0]
    both = [*whole_messages(2.0, 1.0), *(p for p in whole_messages(2.0, 1e5) if p.column == odd)]
    usual = [p for p in both if p.column.run == 8 or p.quantity != "host_message"]
    found = store.typical(usual)
    for n in SIZES:
        assert found["contiguous", odd, n, "node"] == pytest.approx(2 * seconds("contiguous", grid.PLAIN, n))


def test_call_seconds_is_the_time_that_the_shim_adds() -> None:
    own = store.Point("own_pack", COLUMNS[0], 256, None, (3e-7,) * 9)
    engine = store.Point("engine_pack", COLUMNS[0], 256, None, (2e-7,) * 9)
    assert store.call_seconds([own, engine]) == pytest.approx(1e-7)
    assert store.call_seconds([own]) == 0.0


def test_interval_of_the_median_needs_no_distribution() -> None:
    values = [float(n) for n in range(1, 42)]
    low, high = samples.interval(values)
    assert (low, high) == (15.0, 27.0)  # of 41 samples: ranks 15 and 27
    assert samples.interval([2.0, 1.0, 3.0]) == (1.0, 3.0)


def test_samples_that_drift_or_alternate_are_dependent() -> None:
    assert samples.dependent([1.0] * 10 + [1.5] * 9 + [1.2])
    assert samples.dependent([1.0, 2.0] * 10 + [1.5])
    mixed = [1.0, 1.1, 2.0, 2.2, 1.2, 2.1, 1.0, 1.3, 2.5, 1.1, 2.0, 2.3, 2.4, 1.2, 1.1]
    assert not samples.dependent(mixed)
    assert not samples.dependent([1.0] * 20)


def test_unstable_points_say_why() -> None:
    assert samples.trouble([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0]) is None
    assert samples.trouble([1.0] * 3) == "measured 3 times only"
    assert "known to" in str(samples.trouble([1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 3.0]))
    assert "depend" in str(samples.trouble([1.0] * 10 + [1.5] * 10 + [1.2]))


def test_samples_of_one_visit_are_one_sample_of_the_machine() -> None:
    """The machine has another speed in each round, and within a round the samples agree."""
    speeds = (1.0, 1.3, 1.1, 1.2, 1.0, 1.3, 1.1)
    point = store.Point("own_pack", COLUMNS[0], 256, None, (1.0,) * 3)
    for speed in speeds[1:]:
        point = point.joined(store.Point("own_pack", COLUMNS[0], 256, None, (speed,) * 3))
    assert point.visits == (3,) * 7
    assert point.spread == pytest.approx(0.15 / 1.1)  # of seven visits
    assert "known to" in str(point.trouble)


def test_the_typical_time_ignores_time_added_by_other_work() -> None:
    steady = store.Point("own_pack", COLUMNS[0], 256, None, (1.0,) * 7)
    assert steady.typical == pytest.approx(1.0)
    disturbed = store.Point("own_pack", COLUMNS[0], 256, None, (1.0, 90.0, 1.1, 1.0, 1.1, 1.0, 1.1, 80.0))
    assert 1.0 <= disturbed.typical <= 1.1


def test_the_typical_time_of_two_speeds_lies_between_them() -> None:
    slow, fast = [2.0] * 20, [1.0] * 20
    assert samples.typical(slow + fast) == pytest.approx(2**0.5)
    assert samples.typical([*slow, 2.0, *fast]) == pytest.approx(2**0.5, rel=0.05)  # the median would be 2
    assert samples.typical(slow + fast[:5]) == pytest.approx(2.0)


def test_every_column_of_the_grid_can_be_measured_once() -> None:
    coarse, fine = grid.columns(True), grid.columns(False)
    assert len({*coarse, *fine}) == len(coarse) + len(fine)
    for column in coarse:
        assert grid.sizes(column, True)
        assert not {*grid.sizes(column, True)} & {*grid.sizes(column, False)}
    assert not {*grid.contiguous_sizes(True)} & {*grid.contiguous_sizes(False)}
    assert all(math.log2(size // 64).is_integer() for size in grid.contiguous_sizes(False))
