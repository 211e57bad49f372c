"""Copies that collide within a page, from C under the sanitizers, on a made-up processor."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sanitizers import output

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = tmp_path_factory.mktemp("driver") / "copy_bytes_driver"
    flags = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", "-O1", "-g1")
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    subprocess.run(["gcc", *flags, *checks, HERE / "copy_bytes_driver.c", "-o", program], check=True, timeout=300)
    return program


@pytest.mark.parametrize(("slower", "shift"), [(28, 32), (5, 32), (3, 0), (1, 0)])
def test_received_bytes_are_shifted_where_copies_collide(driver: Path, slower: int, shift: int) -> None:
    none, some, asked = map(int, output(driver, slower).split())
    assert (none, some) == (0, shift)
    assert 0 < asked <= 10
