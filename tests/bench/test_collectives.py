"""``tempi bench collectives``: its worker on real ranks, and its table from made-up records."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from launching import environment, launcher
from tempi.bench import chosen_exchanges, one_type, suite
from tempi.bench.options import CollectiveOptions, parse_collectives
from tempi.bench.suites import collectives as suite_collectives
from tempi.bench.suites import ways as suite_ways
from tempi.bench.workers import collectives as worker_collectives
from tempi.measure import launch, records
from tempi.measure.records import Record

Make = Callable[..., Record]
SUBJECTS = {"library", "tempi", "hand", "hand isend", "isend"}
OF_ONE_TYPE = {"library", "tempi", "hand"}
OWN = "to itself"  # exchanges that have a bound


def measured(folder: Path, ranks: int, options: CollectiveOptions, **variables: str) -> list[Record]:
    command = launch.worker_command("tempi.bench.workers.collectives", options.arguments())
    line = launch.command(launcher(), ranks, command, variables)
    done = subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(records.parse_lines(done.stdout.splitlines(), "stdout"))


def test_options_survive_the_command_line() -> None:
    options = CollectiveOptions(True, 0.5, 1000, check=True, form="persistent", ways=True, cases="-a b")
    assert parse_collectives(options.arguments()) == options


@pytest.mark.parametrize("ranks", [1, 2, 4, pytest.param(8, marks=pytest.mark.more)])
def test_every_subject_of_every_case_is_right(tmp_path: Path, ranks: int) -> None:
    found = measured(tmp_path, ranks, CollectiveOptions(True, 0.01, 1 << 26, check=True))
    assert suite.refusals(found) == []
    groups = suite.by_case(found)
    assert {case for case, _ in groups} == {one.name for one in chosen_exchanges.chosen(True, ranks)}
    for (_, op), group in groups.items():
        assert group.keys() == (OF_ONE_TYPE if op in one_type.FUNCTIONS else SUBJECTS)
    assert not any(record.seconds for record in found)
    if ranks > 1:
        assert all(record.meta["engaged"] for record in found)


@pytest.mark.once
def test_subjects_are_timed_and_what_is_too_large_is_named(tmp_path: Path) -> None:
    found = measured(tmp_path, 2, CollectiveOptions(True, 0.001, 2 << 20))
    rows = suite_collectives.rows(found)
    assert rows
    for row in rows:
        assert row.seconds.keys() - {"bound"} == (OF_ONE_TYPE if row.op in one_type.FUNCTIONS else SUBJECTS)
        assert row.engaged
    assert [row.case for row in rows if row.share] == [row.case for row in rows if row.case.startswith(OWN)] != []
    assert [row.case for row in rows if "bound" in row.seconds] == [row.case for row in rows if row.share]
    assert {record.op for record in found} == {
        *("Alltoallw", "Neighbor_alltoallw", "Gatherv", "Scatterv"),
        *one_type.FUNCTIONS,
    }
    assert all("the limit is 2 MiB" in text for text in suite.refusals(found))
    assert len(rows) + len(suite.refusals(found)) == len(chosen_exchanges.chosen(True, 2))


@pytest.mark.parametrize("form", ["nonblocking", "persistent"])
def test_other_forms_are_right(tmp_path: Path, form: str) -> None:
    """Those of neighbourhoods are wrong on Open MPI, and said to be so."""
    found = measured(tmp_path, 2, CollectiveOptions(True, 0.01, 1 << 26, check=True, form=form))
    assert all(
        record.subject in ("library", "hand") for record in found if "wrong bytes" in record.meta.get("refused", "")
    )
    right = [record for record in found if record.subject == "tempi"]
    assert len(right) == len(chosen_exchanges.chosen(True, 2))
    assert all(record.meta["checked"] for record in right)
    acting = {worker_collectives.form_of(name, form) for name in ("Alltoallw", "Neighbor_alltoallw")}
    assert acting == {record.op for record in right if record.op.endswith(("allw", "allw_init"))}
    assert all(record.meta["engaged"] for record in right if record.op in acting)


@pytest.mark.once
def test_every_way_is_right_and_forced(tmp_path: Path) -> None:
    options = CollectiveOptions(True, 0.001, 1 << 24, ways=True)
    found = measured(tmp_path, 2, options)
    groups = suite.by_case(found)
    ways = {"twice", "nontemporal", "packed", "once", "stored", "mapped", "reused"}
    assert all(group.keys() == {"tempi", *ways} for group in groups.values() if "library" not in group)
    assert len(suite_ways.rows(found)) + len(suite.refusals(found)) == len(groups)
    assert not any("wrong" in text for text in suite.refusals(found))


def test_without_tempi_the_library_is_measured(tmp_path: Path) -> None:
    options = CollectiveOptions(True, 0.01, 1 << 20, check=True)
    found = measured(tmp_path, 2, options, TEMPI_DISABLE="1")
    assert {record.subject for record in found if record.meta.get("checked")} == {"library"}


def test_the_samples_are_those_of_the_slowest_rank() -> None:
    assert worker_collectives.slowest([[1.0, 9.0, 1.0], [2.0, 2.0, 3.0]]) == (1, [2.0, 2.0, 3.0])


def test_ranks_have_different_contents() -> None:
    assert len({worker_collectives.key(rank) for rank in range(256)}) == 256


# -- table and verdicts -----------------------------------------------------------------------------------------------


def times(value: float) -> list[float]:
    return [value * (1 + 0.001 * step) for step in range(-4, 5)]


def case(make: Make, name: str, tempi: float, op: str = "Alltoallw", **more: float) -> Iterator[Record]:
    seconds = {"library": 4e-6, "tempi": tempi, "hand": 3e-6, "hand isend": 3.5e-6, "isend": 2e-6} | more
    for subject, value in seconds.items():
        yield make(subject, *times(value), case=name, op=op, ranks=2, engaged=True)


def printed(found: list[Record]) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    suite_collectives.show(console, found)
    return console.export_text()


def test_means_and_worst_cases_are_printed(make_record: Make) -> None:
    found = [*case(make_record, "fast", 1e-6), *case(make_record, "slow", 4e-6, "Neighbor_alltoallw")]
    text = printed(found)
    assert "geometric mean 2.00x over all 2 cases" in text
    assert (
        "MPI_Alltoallw, geometric mean of 1 cases: 4.00x over the library, 3.00x over hand, 3.50x over hand isend, "
        "2.00x over isend"
    ) in text
    assert "worst over the library: 1.00x (slow)" in text
    assert "worst over the better of library and hand: 0.75x (slow)" in text
    assert "1 of 2 slower than 1.1 x the better of library and hand + 200 ns\n  slow" in text


@pytest.mark.parametrize("better", ["hand", "hand isend"])
def test_the_better_of_both_hands_counts(make_record: Make, better: str) -> None:
    found = [*case(make_record, "c", 3e-6), *case(make_record, "d", 3e-6, "Alltoallw", **{better: 2.5e-6})]
    assert [row.misses for row in suite_collectives.rows(found)] == [(), ("slower",)]
    text = printed(found)
    assert "worst over the better of library and hand: 0.83x (d)" in text
    assert "1 of 2 above 1.15 x the better of library and hand (bar after tempi calibrate)" in text


def test_blocks_to_itself_are_held_against_the_bound(make_record: Make) -> None:
    found = [*case(make_record, "c", 1e-6, bound=0.9e-6), *case(make_record, "d", 1e-6, bound=0.8e-6)]
    found += case(make_record, "to others", 1e-6)
    rows = suite_collectives.rows(found)
    assert [row.misses for row in rows] == [(), ("bound",), ()]
    assert [row.share and round(row.share.value, 2) for row in rows] == [0.9, 0.8, None]
    assert "1 of 2 to itself below 0.85 of the bound\n  d\n" in printed(found)
    assert "of the bound" not in printed(found[-5:])


def test_a_wrong_subject_is_named(make_record: Make) -> None:
    found = [make_record("tempi", case="c", refused="rank 1 has 8 wrong bytes"), make_record("library", 1e-6, case="c")]
    text = printed(found)
    assert "c, pack, tempi: rank 1 has 8 wrong bytes" in text
    assert "tempi did not act" in text


def fake(monkeypatch: pytest.MonkeyPatch, found: list[Record]) -> None:
    def run_worker(*_: Any) -> Iterator[Record]:
        yield from found

    monkeypatch.setattr(launch, "run_worker", run_worker)
    monkeypatch.setattr(launch, "cores", lambda: 2)
    monkeypatch.setattr(launch, "find_launcher", lambda _: launch.Launcher("mpirun", "mpich"))


def test_more_ranks_than_cores_are_only_checked(
    make_record: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subjects = ("library", "tempi")
    fake(monkeypatch, [make_record(subject, checked=True, engaged=True, ranks=4) for subject in subjects])
    suite_collectives.run(suite.Common(), CollectiveOptions(True, 0.1, 1000), 4, 1)
    text = capsys.readouterr().out
    assert "1 cases right on 4 ranks: library, tempi; tempi acted on 1" in text
    assert "not timed: 4 ranks share 2 cores" in text


def test_a_wrong_answer_of_a_check_is_an_error(make_record: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, [make_record("hand", refused="rank 3 has 8 wrong bytes")])
    with pytest.raises(launch.LaunchError, match="wrong on 4 ranks: c, pack, hand: rank 3 has 8 wrong bytes"):
        suite_collectives.run(suite.Common(), CollectiveOptions(True, 0.1, 1000), 4, 1)


def test_the_choice_of_a_way_is_scored(make_record: Make) -> None:
    """By the half of the samples that does not pick the best one."""
    found = [
        make_record("tempi", *times(3e-6), case="a", op="Alltoallw"),
        make_record("twice", *times(4e-6), case="a", op="Alltoallw"),
        make_record("once", *times(2e-6), case="a", op="Alltoallw"),
        make_record("tempi", *times(3e-6), case="not by ways", op="Alltoallw"),
    ]
    (row,) = suite_ways.rows(found)
    assert row.picked == "once"
    assert row.regret == pytest.approx(1.5, rel=1e-2)
    assert row.floor == 1
    console = Console(width=200, record=True, file=io.StringIO())
    suite_ways.show(console, found)
    text = console.export_text()
    assert "chosen over best way, 1 cases: 1.500, 95% 1.50, worst 1.50" in text
    assert "floor over best way, 1 cases: 1.000, 95% 1.00, worst 1.00" in text
    assert "worst choice: a" in text
