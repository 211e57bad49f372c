"""Layouts from C: under the sanitizers, without memory, and on arm64."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
WRAP = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc"
KINDS = 9


def build(compiler: str, folder: Path, *flags: str) -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    program = folder / f"layout_driver_{compiler}"
    sources = [HERE / "layout_driver.c", *sorted((CSRC / "datatype").glob("*.c"))]
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-g1", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", WRAP]
    subprocess.run([*command, *flags, *sources, "-o", program, "-lpthread"], check=True, timeout=300)
    return program


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("gcc", tmp_path_factory.mktemp("plain"), "-O2")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return build("gcc", tmp_path_factory.mktemp("sanitized"), *flags)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_sanitizers_find_nothing(sanitized: Path, plain: Path) -> None:
    done, expected = run(sanitized), run(plain)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected.stdout
    assert done.stdout.count("size ") == KINDS


@pytest.mark.parametrize("failing", range(1, 25))
def test_failing_allocation_is_reported_and_leaks_nothing(sanitized: Path, failing: int) -> None:
    done = run(sanitized, str(failing))
    assert done.stderr == ""
    statuses = [int(line.split(": ")[1]) for line in done.stdout.splitlines()]
    assert len(statuses) == KINDS
    assert set(statuses) <= {0, 2}  # TEMPI_OK where no allocation failed, or it could be done without
    if failing < 4:
        assert done.returncode == 0
        assert 2 in statuses


@pytest.mark.more
def test_arm64_makes_the_same_layouts(plain: Path, tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if platform.machine() == "aarch64" or emulator is None:
        pytest.skip("needs qemu-aarch64 on another processor")
    program = build("aarch64-linux-gnu-gcc", tmp_path, "-O2", "-static")
    done = run(emulator, program)
    assert done.returncode == 0
    assert done.stdout == run(plain).stdout
