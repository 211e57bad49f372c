"""Scores of choosers from made-up records, and the held-out shapes."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tempi.bench import cases
from tempi.bench.suites import model as suite_model
from tempi.measure.records import Record
from tempi.model import grid

pytestmark = pytest.mark.once


def pair(
    library: list[float], tempi: list[float], *, model: bool, rule: bool, case: str = "c", predicted: bool = True
) -> list[Record]:
    prediction = {"library": 2e-6, "tempi": 1e-6} if predicted else None
    meta = {"model": model, "rule": rule, "predicted": prediction}
    both = {"library": library, "tempi": tempi}
    return [Record("model", case, "one way", name, 64, tuple(taken), meta) for name, taken in both.items()]


def test_regret_is_the_chosen_time_over_the_best() -> None:
    (row,) = suite_model.rows(pair([2e-6] * 8, [1e-6] * 8, model=True, rule=False))
    assert row.regret("model") == 1.0
    assert row.regret("rule") == pytest.approx(2.0)
    assert row.regret("perfect") == 1.0
    assert row.slowdown("model") == pytest.approx(0.5)


def test_the_best_is_picked_on_other_samples_than_are_scored() -> None:
    """By the even samples tempi is faster, by the odd ones it is not: the pick itself has regret."""
    (row,) = suite_model.rows(pair([2e-6] * 8, [1e-6, 3e-6] * 4, model=False, rule=True))
    assert row.chosen["perfect"] == "tempi"
    assert row.regret("perfect") == pytest.approx(1.5)
    assert row.regret("model") == 1.0


def test_errors_are_relative_to_what_was_measured() -> None:
    (row,) = suite_model.rows(pair([2e-6] * 8, [0.8e-6] * 8, model=True, rule=True))
    assert row.error("library") == pytest.approx(0.0)
    assert row.error("tempi") == pytest.approx(0.25)
    (without,) = suite_model.rows(pair([2e-6] * 8, [1e-6] * 8, model=True, rule=True, predicted=False))
    assert without.error("tempi") is None


def test_a_case_without_one_method_is_left_out() -> None:
    assert suite_model.rows(pair([2e-6] * 8, [], model=True, rule=True)) == []


def test_the_output_names_every_chooser() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    found = pair([2e-6] * 8, [1e-6] * 8, model=True, rule=False)
    assert len(suite_model.show(console, found)) == 1
    text = console.export_text()
    assert all(name in text for name in suite_model.TEXTS.values())
    assert "one way, tempi: predictions off by 0%" in text
    assert suite_model.show(console, []) == []


def test_all_operations_are_scored_together_as_well() -> None:
    good = pair([2e-6] * 8, [1e-6] * 8, model=True, rule=True)
    bad = [replace(one, op="pack") for one in pair([2e-6] * 8, [8e-6] * 8, model=True, rule=True)]
    console = Console(width=200, record=True, file=io.StringIO())
    suite_model.show(console, good + bad)
    lines = console.export_text().splitlines()
    scored = [[cell.strip() for cell in line.split("│")] for line in lines if "calibrated model" in line]
    assert [line[1] for line in scored] == ["one way", "pack", "all"]
    assert scored[-1][3:5] == ["2", "2.000"]  # of 1 and 4
    assert any(line.startswith("all: predictions off by ") and "of 4 cases" in line for line in lines)


def test_a_peer_class_without_tables_is_reported() -> None:
    near = [one.with_meta(peer="node", calibrated=["self", "far"]) for one in pair([1.0], [1.0], model=True, rule=True)]
    (line,) = suite_model.uncalibrated(near)
    assert line.startswith("one way: the ranks were on the same LLC, but the tables are of ranks on another LLC")
    assert suite_model.uncalibrated([one.with_meta(calibrated=["node"]) for one in near]) == []
    assert suite_model.uncalibrated([one.with_meta(calibrated=[]) for one in near]) == []


@pytest.mark.parametrize("quick", [True, False])
def test_held_out_shapes_are_none_of_the_grids(quick: bool) -> None:
    columns = {*grid.columns(True), *grid.columns(False)}
    measured = {(column.run, column.stride) for column in columns}
    vectors = [case for case in cases.held_out(quick) if isinstance(case, cases.Vector)]
    assert vectors
    assert not {(case.length, case.stride) for case in vectors} & measured
    assert not {case.length for case in vectors} & {column.run for column in columns}
    assert len({case.name for case in cases.held_out(quick)}) == len(cases.held_out(quick))


def test_the_halo_has_all_its_directions() -> None:
    halo = [case for case in cases.held_out(False) if isinstance(case, cases.Halo)]
    assert len({case.direction for case in halo}) == 26
