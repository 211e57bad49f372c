"""Copies that collide within a page: from C under the sanitizers, on a made-up processor, and by the engine here."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from sanitizers import output
from tempi import _engine

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


@pytest.mark.parametrize(("slower", "last", "shift"), [(28, 31, 32), (25, 15, 32), (5, 31, 32), (3, 31, 0), (1, 31, 0)])
def test_received_bytes_are_shifted_where_copies_collide(driver: Path, slower: int, last: int, shift: int) -> None:
    """Zen 3 collides at 1 to 31 bytes, Zen 4 at 1 to 15."""
    none, some, asked = map(int, output(driver, slower, last).split())
    assert (none, some) == (0, shift)
    assert 0 < asked <= 15


def test_the_copies_that_are_timed_are_the_c_librarys(driver: Path) -> None:
    """A compiler copies a length that it knows by instructions of its own."""
    built = driver.with_suffix(".o")
    flags = ("-std=c11", "-D_GNU_SOURCE", "-U_FORTIFY_SOURCE", "-O2", f"-I{CSRC}")
    source = CSRC / "base" / "copy_bytes.c"
    subprocess.run(["gcc", *flags, "-c", source, "-o", built], check=True, timeout=300)
    assert " memcpy" in output("nm", "-u", built)


def _slower(distance: int) -> float:
    """How many times as long the C library takes for 64 KiB if they go so far behind their source, modulo 4096."""
    memory = mmap.mmap(-1, 64 * 4096)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def takes(offset: int) -> float:
        def once() -> float:
            begin = time.perf_counter()
            memcpy(start + 32 * 4096 + offset, start, 1 << 16)
            return time.perf_counter() - begin

        return min(once() for _ in range(30))

    return takes(distance) / takes(64)


def test_the_engine_as_it_is_built_knows_this_processor() -> None:
    engine = ctypes.CDLL(_engine.library_path())
    engine.tempi_copy_shift.argtypes = [ctypes.c_int64]
    engine.tempi_copy_shift.restype = ctypes.c_int64
    slower = max(_slower(2), _slower(16))
    if 2 < slower < 8:
        pytest.skip(f"colliding copies take {slower:.1f} times as long here: between the two")
    assert engine.tempi_copy_shift(3072) == (32 if slower >= 8 else 0)
