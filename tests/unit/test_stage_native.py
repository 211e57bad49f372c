"""The pool of staging buffers, from C under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
SOURCES = ("base/budget.c", "transfer/slab.c", "transfer/stage.c")


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Leaks are looked for when the program ends."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = tmp_path / "stage_driver"
    flags = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", "-O1", "-g")
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    sources = [HERE / "stage_driver.c", *(CSRC / name for name in SOURCES)]
    subprocess.run(["gcc", *flags, *sanitizers, *sources, "-o", program], check=True, timeout=300)
    done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
