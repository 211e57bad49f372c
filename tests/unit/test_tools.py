"""What `make gpu` runs, and what it says where there is no GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


def test_the_steps_on_a_card_are_those_of_the_emulated_device(suite: ModuleType) -> None:
    real, emulated = (list(suite.card_steps("lib.so", on)) for on in (False, True))
    assert [step.name for step in real] == [step.name for step in emulated]
    assert any(step.ranks == 2 for step in real)
    assert all(step.settings["TEMPI_CUDA_DRIVER"] == "emulated" for step in emulated)
    names = {name for step in real for name in step.settings}
    assert not [name for name in names if name.startswith(("TEMPI_CUDA_DRIVER", "TEMPI_EMULATOR"))]
    assert {"MPITEST_MEMORY", "TEMPI_DATATYPE_STAGED", "LD_PRELOAD"} <= names


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
