"""Pools of buffers and records, and the table of calls that pass, from C under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
SOURCES = (
    "base/budget.c",
    "base/thread_cache.c",
    "base/stats.c",
    "base/thread.c",
    "transfer/records.c",
    "transfer/slab.c",
    "transfer/staging.c",
)
QUIET = ("base/thread.c", "shim/request/quiet.c")
SANITIZERS = {"address": "address,undefined", "thread": "thread"}


def build(driver: str, sanitizer: str, into: Path) -> Path:
    program = into / driver
    flags = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", "-O1", "-g1", "-pthread")
    checks = (f"-fsanitize={SANITIZERS[sanitizer]}", "-fno-sanitize-recover=all")
    parts = QUIET if driver == "quiet_driver" else SOURCES
    sources = [HERE / f"{driver}.c", HERE / "shifted.c", *(CSRC / name for name in parts)]
    subprocess.run(["gcc", *flags, *checks, *sources, "-o", program], check=True, timeout=300)
    return program


@pytest.mark.parametrize(
    ("driver", "sanitizer"),
    [
        ("quiet_driver", "address"),
        ("quiet_driver", "thread"),
        ("records_driver", "address"),
        ("staging_driver", "address"),
        ("thread_cache_driver", "address"),
        ("thread_cache_driver", "thread"),
    ],
)
def test_sanitizers_find_nothing(driver: str, sanitizer: str, tmp_path: Path) -> None:
    """Leaks are checked at program exit."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = build(driver, sanitizer, tmp_path)
    done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
