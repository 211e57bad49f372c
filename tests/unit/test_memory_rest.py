"""Memory that processes write and others read rests before it is written again: from C, under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sanitizers import BASE, output

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
KIB, MIB, LARGE = 1 << 10, 1 << 20, 1 << 40


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = tmp_path_factory.mktemp("driver") / "rest_driver"
    parts = [path for path in sorted((CSRC / "exchange").glob("*.c")) if path.stem not in ("exchange", "ring")]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wl,--wrap=posix_fallocate,--wrap=fstatvfs"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{CSRC}", "-O1", "-g1"]
    sources = [HERE / "rest_driver.c", *BASE, *parts]
    subprocess.run(["gcc", *flags, *checks, *sources, "-o", program, "-lpthread"], check=True, timeout=300)
    return program


def test_blocks_of_messages_rest_before_they_are_used_again(driver: Path, folder: Path) -> None:
    output(driver, "rest", folder)


def rings(
    driver: Path, folder: Path, members: int, *, limit: int = LARGE, free: int = LARGE, room: int = LARGE
) -> list[str]:
    return output(driver, "rings", folder, members, limit, free, room).split()


@pytest.mark.parametrize(
    ("members", "ring"),
    [(2, 2 * MIB), (3, MIB), (4, 512 * KIB), (5, 512 * KIB), (8, 256 * KIB), (9, 128 * KIB), (32, 16 * KIB)],
)
def test_the_rings_of_a_process_have_two_mebibytes_if_all_have_no_more_than_sixteen(
    driver: Path, folder: Path, members: int, ring: int
) -> None:
    assert rings(driver, folder, members) == [str(ring), str(ring)]


@pytest.mark.parametrize(("bytes_", "ring"), [(3 * MIB, MIB), (3 * MIB // 2, 512 * KIB), (MIB, 256 * KIB)])
def test_rings_are_shorter_where_there_is_less_memory(driver: Path, folder: Path, bytes_: int, ring: int) -> None:
    """Or no file may be as long, or they would take more than a sixteenth of what is free."""
    assert rings(driver, folder, 2, limit=bytes_) == [str(ring), str(ring)]
    assert rings(driver, folder, 2, free=16 * bytes_) == [str(ring), str(ring)]
    assert rings(driver, folder, 2, room=bytes_) == [str(ring), str(ring)]


def test_there_is_no_ring_that_is_too_short(driver: Path, folder: Path) -> None:
    assert rings(driver, folder, 2, free=KIB) == [str(256 * KIB), str(256 * KIB)]
    assert rings(driver, folder, 2, limit=512 * KIB) == ["none"]
    assert rings(driver, folder, 2, room=512 * KIB) == ["none"]
