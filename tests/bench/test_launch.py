from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from tempi.measure import launch
from tempi.measure.records import Record

RECORD = Record("pack", "c", "pack", "tempi", 8, (1.0,), {})


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11", "openmpi"),
        ("mpirun (Open MPI) 4.1.4", "openmpi"),
        ("HYDRA build details:", "mpich"),
        ("something else", "other"),
    ],
)
def test_a_launcher_is_known_by_its_version(tmp_path: Path, version: str, kind: str) -> None:
    mpirun = script(tmp_path / "mpirun", f'echo "{version}"')
    assert launch.find_launcher(mpirun) == launch.Launcher(mpirun, kind)


def test_a_wrong_path_is_reported(tmp_path: Path) -> None:
    with pytest.raises(launch.LaunchError, match=r"--mpirun /nowhere/mpirun: no such program"):
        launch.find_launcher("/nowhere/mpirun")


def test_no_launcher_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launch.LaunchError, match=r"install an MPI .* or give --mpirun PATH"):
        launch.find_launcher()


def test_the_own_environment_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = tmp_path / "own" / "bin", tmp_path / "other"
    own.mkdir(parents=True)
    other.mkdir()
    monkeypatch.setenv("PATH", str(other))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "own"))
    found = script(other / "mpicc", "true")
    assert launch.find_tool(("mpicc",), None, "--mpicc") == found
    nearer = script(own / "mpicc", "true")
    assert launch.find_tool(("mpicc",), None, "--mpicc") == nearer


def test_variables_are_set_behind_the_launcher() -> None:
    line = launch.command(launch.Launcher("mpirun", "mpich"), 2, ["./a"], {"LD_PRELOAD": "/t.so"})
    assert line == ["mpirun", "-n", "2", "env", "LD_PRELOAD=/t.so", "./a"]


def test_open_mpi_is_allowed_to_oversubscribe_only_if_needed() -> None:
    mpirun, enough = launch.Launcher("mpirun", "openmpi"), launch.cores()
    assert "--oversubscribe" not in launch.command(mpirun, enough, ["./a"])
    assert "--oversubscribe" in launch.command(mpirun, enough + 1, ["./a"])


def test_records_are_read_and_the_rest_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mpirun = script(tmp_path / "mpirun", f"echo hello; echo '{RECORD.line()}'; echo '{{not a record'")
    found = list(launch.stream(launch.Launcher(mpirun, "mpich"), [mpirun]))
    assert found == [RECORD]
    assert capfd.readouterr().err == "hello\n{not a record\n"


def test_a_failure_is_reported_with_its_command(tmp_path: Path) -> None:
    mpirun = script(tmp_path / "mpirun", "exit 3")
    with pytest.raises(launch.LaunchError, match=f"exit status 3 from: {mpirun} -n 1"):
        list(launch.stream(launch.Launcher(mpirun, "mpich"), [mpirun, "-n", "1"]))


def test_the_reason_that_a_rank_reports_is_the_error(tmp_path: Path) -> None:
    mpirun = script(tmp_path / "mpirun", f'echo "${launch.ERRORS}" >&2; echo "no card" >> "${launch.ERRORS}"; exit 1')
    with pytest.raises(launch.LaunchError, match=r"\Ano card\Z"):
        list(launch.stream(launch.Launcher(mpirun, "mpich"), [mpirun]))


def test_a_rank_reports_to_its_starter_or_else_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for text in ("by hand", "from afar"):
        launch.report_error(text)
        assert capfd.readouterr().err == f"tempi bench: {text}\n"
        monkeypatch.setenv(launch.ERRORS, str(tmp_path / "of another machine"))
    (tmp_path / "errors").write_text("first\n")
    monkeypatch.setenv(launch.ERRORS, str(tmp_path / "errors"))
    launch.report_error("second")
    assert (tmp_path / "errors").read_text() == "first\nsecond\n"
    assert not launch.ERRORS.startswith("TEMPI_")  # the engine would warn of a variable that it does not know
    assert not capfd.readouterr().err


@pytest.mark.parametrize("name", ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"])
def test_a_rank_knows_that_it_is_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    assert not launch.under_launcher()
    monkeypatch.setenv(name, "0")
    assert launch.under_launcher()


def test_open_mpi_from_a_wheel_gets_its_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPAL_PREFIX", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "share" / "openmpi").mkdir(parents=True)
    line = """printf '{"bench":"b","case":"%s","op":"o","subject":"s","bytes":0,"seconds":[]}\\n'"""
    mpirun = script(tmp_path / "bin" / "mpirun", f'{line} "$OPAL_PREFIX"')
    found = list(launch.stream(launch.Launcher(mpirun, "openmpi"), [mpirun]))
    assert found[0].case == str(tmp_path)
    assert "OPAL_PREFIX" not in os.environ
