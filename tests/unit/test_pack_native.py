"""Packing from C: by clang, under the sanitizers, and on arm64."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from packing import levels_here

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
CASES = 400
KERNELS = sorted((CSRC / "pack").glob("kernels_*.c"))


def build(compiler: str, folder: Path, kernels: Sequence[Path], *flags: str) -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    program = folder / f"pack_driver_{compiler}"
    others = [
        CSRC / name
        for name in (
            "base/config.c",
            "base/method.c",
            "base/thread_cache.c",
            "base/log.c",
            "base/stats.c",
            "base/text.c",
            "base/thread.c",
            "datatype/box.c",
            "datatype/offset_table.c",
        )
    ]
    pack = sorted(set((CSRC / "pack").glob("*.c")) - set(KERNELS))
    sources = [HERE / "pack_driver.c", *others, *pack, *kernels]
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{CSRC}"]
    subprocess.run([*command, *flags, *sources, "-o", program], check=True, timeout=300)
    return program


def levels(*command: str | Path) -> list[str]:
    """The ISAs that the driver has run; fails if one of them made an error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert all(int(cases) == CASES for _, cases in lines)
    return [level for level, _ in lines]


@pytest.mark.more
def test_clang_packs_right(tmp_path: Path) -> None:
    assert levels(build("clang", tmp_path, KERNELS, "-O1")) == levels_here()


def test_sanitizers_find_nothing(tmp_path: Path, sanitized_kernels: list[Path]) -> None:
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = build("gcc", tmp_path, sanitized_kernels, "-O0", "-g1", *sanitizers)
    assert levels(program)[-1] == "scalar"


@pytest.mark.more
def test_arm64_packs_right(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if platform.machine() == "aarch64" or emulator is None:
        pytest.skip("needs qemu-aarch64 on another processor")
    program = build("aarch64-linux-gnu-gcc", tmp_path, KERNELS, "-O2", "-static")
    assert levels(emulator, program) == ["neon", "scalar"]
