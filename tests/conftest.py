"""Fixtures for all tests: the engine's files, the command line's script, a C compiler, two hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def library() -> Path:
    """libtempi.so as this test run uses it."""
    return Path(_engine.library_path())


@pytest.fixture(scope="session")
def script() -> Path:
    """The shell script ``tempi`` of this installation."""
    from tempi.cli.run import script_path

    return script_path()


@pytest.fixture(scope="session")
def compiler() -> str:
    """A C compiler, or a skip with its reason."""
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler on the PATH")
    return found


@pytest.fixture
def executable(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes an executable file of that name and text under tmp_path."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture(scope="session")
def hosts() -> str:
    """scripts/two-hosts, which runs a command on the first of two hosts, or a skip with its reason."""
    script = str(Path(__file__).resolve().parents[1] / "scripts" / "two-hosts")
    done = subprocess.run([script, "true"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return script
