"""The parts of `make gpu`, what it makes of their results, what is installed again, and what travels."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tempi.measure import records
from tempi.measure.records import Record

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_tool", ROOT / "tests" / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    return tool("gpu")


@pytest.fixture(scope="module")
def rehearsal() -> ModuleType:
    return tool("rehearsal")


def job(gpu: ModuleType, folder: Path, **more: Any) -> Any:
    environment = gpu.suite.Environment(folder, (), {})
    values = {"end": time.monotonic() + 60, "emulated": False, "quick": True, "rehearsed": False, **more}
    return gpu.Job(environment=environment, variables=dict(os.environ), card="a card", folder=folder, **values)


# ---- parts and verdicts -------------------------------------------------------------------------------


def test_the_makefile_and_the_page_name_the_parts_in_their_order(gpu: ModuleType) -> None:
    assert f"PART={'|'.join(gpu.PARTS)} is one part" in (ROOT / "Makefile").read_text()
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert re.findall(r"^\| (\w+) \| .*\.json", page, re.MULTILINE) == list(gpu.PARTS)
    assert gpu.LIMIT + gpu.GRACE < 480


@pytest.mark.parametrize(
    ("counts", "met"),
    [((3, 0, 0), True), ((3, 0, 2), True), ((3, 1, 0), False), ((0, 0, 0), False), ((0, 0, 2), None)],
)
def test_a_step_is_good_bad_or_skipped_with_a_reason(gpu: ModuleType, counts: Any, met: bool | None) -> None:
    reasons = ["SKIPPED [2] no sanitizer"] * bool(counts[2])
    assert gpu.bar_of("a step", gpu.suite.Tally(*counts, reasons)).met is met


def test_a_step_that_skips_everything_without_a_reason_is_bad(gpu: ModuleType) -> None:
    assert gpu.bar_of("a step", gpu.suite.Tally(0, 0, 2)).met is False


def test_the_reasons_of_skips_are_those_of_pytest(gpu: ModuleType) -> None:
    output = "SKIPPED [2] test_x.py:3: no card\nSKIPPED [1] test_y.py:3: no tool\n1 passed, 3 skipped in 0.10s\n"
    tally = gpu.suite.tally_of(output, 0)
    assert (tally.passed, tally.skipped) == (1, 3)
    assert [reason.rpartition(": ")[2] for reason in tally.reasons] == ["no card", "no tool"]


def test_the_quick_tests_have_every_file_of_the_long_ones(gpu: ModuleType) -> None:
    every = list(gpu.suite.card_steps("lib.so", False))
    short = list(gpu.shorter(every))
    assert len(short) == len(gpu.SHORT)

    def files(steps: Any) -> set[str]:
        return {word for step in steps for word in step.arguments if "/tests/" in word}

    assert files(short) == files(every)


def test_a_part_that_fails_is_bad_and_keeps_its_records(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(self: Any, *words: str, **_: str) -> int:
        with records.Journal(self.folder / "messages.json") as journal:
            journal.add(Record("gpu", "c", "one way", "auto", 8, (1.0,), {"checked": True, "part": "messages"}))
            journal.add(Record("gpu", "MPS", "messages", "all", 0, (), {"part": "messages", "left_out": "no MPS"}))
            journal.add(Record("gpu", "staged", "messages", "all", 0, (), {"part": "messages", "failed": "lost"}))
        return 0

    monkeypatch.setattr(gpu.Job, "tempi", measured)
    found = {bar.text: (bar.measured, bar.met) for bar in gpu.benched(job(gpu, tmp_path), "messages")}
    assert found == {
        "left out: messages, MPS": ("no MPS", None),
        "tempi bench gpu: messages, staged": ("lost", False),
        "every answer right": ("1 checked, 0 wrong", True),
    }


def test_a_part_without_records_is_bad(gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.Job, "tempi", lambda *_, **__: 1)
    assert [bar.met for bar in gpu.benched(job(gpu, tmp_path), "rates")] == [False]


def runs(process: int) -> bool:
    try:
        return not Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False


def test_a_part_is_stopped_when_its_time_is_over(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything that it started."""
    monkeypatch.setattr(gpu, "GRACE", 0.0)
    script(tmp_path / "bin" / "python", 'sleep 60 & echo $! >"$0.child"; wait')
    began = time.monotonic()
    assert job(gpu, tmp_path, end=began + 0.2).tempi("bench", "gpu") == 124
    assert time.monotonic() - began < 30
    child = int((tmp_path / "bin" / "python.child").read_text())
    while runs(child):
        assert time.monotonic() - began < 30
        time.sleep(0.02)


def test_messages_do_not_hang_where_memory_of_others_cannot_be_read(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MPIR_CVAR_CH4_CMA_ENABLE", raising=False)
    assert gpu.single_copy_off(None) == {}
    assert gpu.single_copy_off("Operation not permitted") == {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}
    assert "process_vm_readv is refused here (Operation not permitted)" in capsys.readouterr().out
    monkeypatch.setenv("MPIR_CVAR_CH4_CMA_ENABLE", "1")
    assert gpu.single_copy_off("Operation not permitted") == {}


def test_a_rehearsal_holds_answers_and_no_targets(gpu: ModuleType) -> None:
    held = ["tests: x", "tempi calibrate", "every answer right", "the model's messages"]
    assert not [text for text in held if gpu.of_targets(gpu.Bar(text, "", False))]
    assert gpu.of_targets(gpu.Bar("never slower than CuPy", "", False))


# ---- installing ---------------------------------------------------------------------------------------


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_same_sources_are_not_installed_again(tmp_path: Path) -> None:
    """A copy of the tree makes all files new: their content counts."""
    for folder in ("csrc", "tempi", "bench", "scripts", "build/kernels"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text(folder)
    script(tmp_path / "venv" / "bin" / "python", "echo x >>installed")

    def install() -> int:
        """How often it was installed so far."""
        done = subprocess.run([ROOT / "scripts" / "gpu-install", "venv"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "installed").read_text().count("x")

    assert (install(), install()) == (1, 1)
    os.utime(tmp_path / "csrc" / "file", (1, 1))
    assert install() == 1
    for number, name in enumerate(("csrc", "build/kernels"), 2):
        (tmp_path / name / "file").write_text("changed")
        assert install() == number


# ---- the rehearsal ------------------------------------------------------------------------------------


def test_what_travels_is_what_git_does_not_ignore_and_the_kernels(rehearsal: ModuleType) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    files = {str(path.relative_to(ROOT)) for path in rehearsal.travelling()}
    assert {"Makefile", "tests/tools/gpu.py", "csrc/tempi.h", "scripts/gpu-environment"} <= files
    built = [name for name in files if name.startswith((".venv", "results/", "tempi/lib/", "build/"))]
    assert all(name.startswith("build/kernels/") for name in built)
    assert sum((ROOT / name).stat().st_size for name in files) < rehearsal.MOST // 2


def test_programs_of_an_mpi_and_git_are_hidden(rehearsal: ModuleType) -> None:
    assert all(
        rehearsal.HIDDEN.match(name) for name in ("mpirun", "mpicc.mpich", "ompi_info", "hydra_pmi_proxy", "git")
    )
    assert not any(rehearsal.HIDDEN.match(name) for name in ("gcc", "make", "sh", "python3", "unshare"))


def test_it_is_said_where_it_cannot_be_rehearsed(
    rehearsal: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rehearsal.shutil, "which", lambda name: None)
    assert rehearsal.main(["venv", "wheels"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("not rehearsed: only root with unshare")
    assert lines[-1] == "0 passed, 0 failed, 1 skipped"


def test_a_rehearsal_that_hangs_is_ended_with_all_its_processes(rehearsal: ModuleType, tmp_path: Path) -> None:
    try:
        rehearsal.permitted()
    except rehearsal.CannotError as error:
        pytest.skip(str(error))
    for name in ("machine", "tree", "kept"):
        (tmp_path / name).mkdir()
    place = rehearsal.Place(tmp_path, tmp_path / "kept")
    (tmp_path / "bin").symlink_to("/usr/bin")
    began = time.monotonic()
    status, output = place.run(
        "sh", "-c", f"ls {ROOT}; ls /sys/class/net /dev/nvidiactl; setsid sleep 99 & sleep 99", limit=2
    )
    assert status != 0
    assert time.monotonic() - began < 30
    assert "/dev/nvidiactl" in output
    assert "Makefile" not in output, "the checkout is hidden"
