"""``tempi compare``: ratios of medians, and the refusal to mix machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tempi.cli.compare import median_ratio
from tempi.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once

HERE = {"cpu": "x", "cores": 2, "arch": "a"}


def write(path: Path, factor: float, *subjects: str, machine: dict[str, Any] = HERE, spread: float = 0.01) -> str:
    lines = []
    for subject in subjects:
        seconds = [factor * 1e-6 * (1 + spread * (i % 5)) for i in range(25)]
        record = {"bench": "pack", "case": "c", "op": "pack", "subject": subject, "bytes": 8}
        lines.append(json.dumps({**record, "seconds": seconds, "meta": {"machine": machine}}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def objects(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["compare", "--json", "-", *arguments])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_ratio_is_that_of_the_medians_within_its_interval() -> None:
    value, low, high = median_ratio([1.0, 1.1, 0.9, 1.0], [2.0, 2.2, 1.8, 2.0])
    assert value == pytest.approx(2.0)
    assert low <= value <= high
    assert 1.5 < low < high < 2.5


@pytest.mark.parametrize(("factor", "verdict"), [(1.5, "slower"), (0.5, "faster"), (1.0, "same")])
def test_the_verdict_follows_the_interval(tmp_path: Path, factor: float, verdict: str) -> None:
    a, b = write(tmp_path / "a", 1, "tempi"), write(tmp_path / "b", factor, "tempi")
    (row,) = objects(a, b)
    assert row["meta"]["verdict"] == verdict
    assert row["meta"]["ratio"] == pytest.approx(factor)
    assert (row["bench"], row["subject"]) == ("pack", "tempi")


def test_noise_gives_no_verdict(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", 1, "tempi", spread=1), write(tmp_path / "b", 1.1, "tempi", spread=1)
    assert objects(a, b)[0]["meta"]["verdict"] == "same"


def test_only_common_measurements_are_compared_and_the_rest_is_counted(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", 1, "tempi", "hand"), write(tmp_path / "b", 1, "tempi", "library")
    assert [row["subject"] for row in objects(a, b)] == ["tempi"]
    assert "2 measurements are in one file only" in CliRunner().invoke(main, ["compare", a, b]).output


def test_machines_are_not_mixed_unless_forced(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", 1, "tempi"), write(tmp_path / "b", 1, "tempi", machine={**HERE, "cpu": "other"})
    done = CliRunner().invoke(main, ["compare", a, b])
    assert done.exit_code == 1
    assert "different machines" in done.output
    assert "other" in done.output
    assert len(objects("--force", a, b)) == 1


def test_files_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", 1, "tempi"), write(tmp_path / "b", 1, "hand")
    assert "no measurement in common" in CliRunner().invoke(main, ["compare", a, b]).output
    bad = tmp_path / "bad"
    bad.write_text("{}\n", encoding="utf-8")
    done = CliRunner().invoke(main, ["compare", a, str(bad)])
    assert done.exit_code == 1
    assert "bad, line 1" in done.output


def test_the_table_shows_both_medians(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", 1, "tempi", spread=0), write(tmp_path / "b", 2, "tempi", spread=0)
    output = CliRunner().invoke(main, ["compare", a, b], env={"COLUMNS": "120"}).output
    assert "1 us" in output
    assert "2 us" in output
    assert "2.000" in output
