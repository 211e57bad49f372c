"""Fixtures for tests of the engine's own files in C."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")
CSRC = Path(__file__).resolve().parents[2] / "csrc"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
WARNINGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror")


@pytest.fixture(scope="session")
def sanitized_kernels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Objects of the host's pack kernels, for every program under the sanitizers that wants them.

    Not optimised: with sanitizers that takes a minute, without it is 10 seconds. All checks are on the scalar ones
    only: the same loops compiled for vectors take twice as long with the checks of addresses.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    folder = tmp_path_factory.mktemp("kernels")
    command = ["gcc", *WARNINGS, "-O0", "-g1", *SANITIZERS, f"-I{CSRC}", "-c"]
    for source in sorted((CSRC / "pack").glob("kernels_*.c")):
        fewer = [] if source.stem == "kernels_scalar" else ["-fno-sanitize=null,pointer-overflow"]
        subprocess.run([*command, *fewer, str(source)], cwd=folder, check=True, timeout=600)
    return sorted(folder.glob("*.o"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of shared memory where there is some; at the end it must be empty."""
    own = Path(tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path))
    try:
        yield own
        assert not list(own.iterdir())
    finally:
        shutil.rmtree(own)
