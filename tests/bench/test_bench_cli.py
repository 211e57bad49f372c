"""``tempi bench`` as a person starts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tempi.bench import records, suite_overhead, suite_pack, suite_pingpong
from tempi.bench.records import Record

from tempi.cli.bench import bench


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Not started by a launcher; programs are kept in an empty place."""
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("command", ["pack", "pingpong", "overhead", "halo"])
def test_every_suite_has_the_common_options(command: str) -> None:
    text = CliRunner().invoke(bench, [command, "--help"]).output
    assert all(option in text for option in ("--json", "--quick", "--mpirun"))


@pytest.mark.parametrize("command", ["pack", "pingpong", "overhead", "halo"])
def test_a_missing_launcher_is_one_line(alone: Path, command: str) -> None:
    done = CliRunner().invoke(bench, [command, "--mpirun", "/nowhere/mpirun"])
    assert done.exit_code == 1
    assert done.output.strip() == "Error: --mpirun /nowhere/mpirun: no such program"


def test_halo_under_a_launcher_says_what_to_run(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    done = CliRunner().invoke(bench, ["halo"])
    assert done.exit_code == 2
    assert "tempi run $(tempi bench halo --build)" in done.output


@pytest.mark.parametrize("command", ["pack", "overhead"])
def test_suites_of_one_process_refuse_to_be_ranks(alone: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("PMIX_RANK", "0")
    done = CliRunner().invoke(bench, [command])
    assert done.exit_code == 2
    assert "starts what it needs itself" in done.output


def test_halo_build_prints_the_program(alone: Path) -> None:
    done = CliRunner().invoke(bench, ["halo", "--build"])
    assert done.exit_code == 0, done.output
    assert Path(done.output.strip()).is_file()


def _fake(monkeypatch: pytest.MonkeyPatch, module: object, name: str, op: str) -> None:
    def records_of(*_: object) -> list[Record]:
        subjects = ("library", "tempi", "hand", "bound")
        meta = {"run": 8, "engaged": True, "target": 0.0, "mpi": "none"}
        return [Record(name, "c, 4 KiB", op, subject, 8, (1e-6,) * 9, meta) for subject in subjects]

    monkeypatch.setattr(module, "_records", records_of)


@pytest.mark.parametrize(
    ("module", "name", "op", "picture"),
    [
        (suite_pack, "pack", "pack", True),
        (suite_pingpong, "pingpong", "one way", True),
        (suite_overhead, "overhead", "call", False),
    ],
    ids=["pack", "pingpong", "overhead"],
)
def test_records_and_picture_are_written(
    alone: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str, op: str, picture: bool
) -> None:
    _fake(monkeypatch, module, name, op)
    json, png = alone / "out" / "r.json", alone / "out" / "r.png"
    arguments = [name, "--json", str(json), *(["--png", str(png)] if picture else [])]
    done = CliRunner().invoke(bench, arguments)
    assert done.exit_code == 0, done.output
    assert "c, 4 KiB" in done.output
    assert {record.subject for record in records.read(json)} == {
        "library",
        "tempi",
        "hand",
        "bound",
    }
    assert not picture or png.read_bytes().startswith(b"\x89PNG")


def test_json_on_stdout_is_nothing_but_records(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake(monkeypatch, suite_pack, "pack", "pack")
    done = CliRunner().invoke(bench, ["pack", "--json", "-"])
    assert done.exit_code == 0
    found = list(records.parse_lines(done.stdout.splitlines(), "stdout"))
    assert len(found) == 4
    assert "speed-up" in done.stderr
