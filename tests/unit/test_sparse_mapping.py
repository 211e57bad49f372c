"""Host memory for distant segments of addresses (csrc/transfer/sparse_mapping.c)."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cffi import FFI

from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = Path(__file__).resolve().parents[2] / "csrc" / "transfer" / "sparse_mapping.h"
PAGE, GIB, TIB = 4096, 1 << 30, 1 << 40

ffi = FFI()
ffi.cdef(_engine._declarations(HEADER.read_text(encoding="utf-8")))
lib = ffi.dlopen(_engine.library_path())
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]


@pytest.fixture
def sparse() -> Iterator[Any]:
    made = ffi.new("tempi_sparse *")
    yield made
    lib.tempi_sparse_close(made)


def joined(sparse: Any, *segments: tuple[int, int]) -> list[tuple[int, int]]:
    for low, high in segments:
        assert lib.tempi_sparse_add(sparse, low, high) == 0
    n = lib.tempi_sparse_join(sparse)
    return [(sparse.of[i].low, sparse.of[i].high) for i in range(n)]


def test_segments_are_whole_pages_and_in_order(sparse: Any) -> None:
    found = joined(sparse, (5 * TIB + 1, 5 * TIB + 2), (TIB - 1, TIB + PAGE + 1))
    assert found == [(TIB - PAGE, TIB + 2 * PAGE), (5 * TIB, 5 * TIB + PAGE)]


def test_close_segments_are_merged_and_nested_ones_change_nothing(sparse: Any) -> None:
    found = joined(sparse, (TIB, TIB + 9 * PAGE), (TIB + PAGE, TIB + 2 * PAGE), (TIB + 30 * PAGE, TIB + 31 * PAGE))
    assert found == [(TIB, TIB + 31 * PAGE)]
    inner = joined(sparse, (5 * TIB, 5 * TIB + 9 * PAGE), (5 * TIB + PAGE, 5 * TIB + 2 * PAGE))
    assert inner == [(TIB, TIB + 31 * PAGE), (5 * TIB, 5 * TIB + 9 * PAGE)]


def test_all_segments_are_mapped_at_one_shift(sparse: Any) -> None:
    places = joined(sparse, *((i * TIB, i * TIB + 3 * PAGE) for i in (20, 40, 60)))
    assert lib.tempi_sparse_map(sparse) == 0
    assert sparse.shift % PAGE == 0
    for low, high in places:
        memory = ffi.buffer(ffi.cast("char *", low + sparse.shift), high - low)
        assert memory[:] == bytes(high - low)
        memory[high - low - 1 : high - low] = b"x"


def taken(size: int, at: int = 0) -> int:
    """Reserves addresses, those at that place if any is given and they are free; returns the first."""
    no_reserve, no_replace = 0x4000, 0x100000  # mmap has the first from Python 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve | (no_replace if at else 0)
    got = int(libc.mmap(at, size, 0, flags, -1, 0))
    assert got % PAGE == 0, "no such room for addresses"
    return got


@pytest.fixture
def ends() -> Iterator[list[tuple[int, int]]]:
    """Pages near both ends of the address space, as a program has that is not position independent: one below 1 GiB,
    two at a distance of 20 GiB of which the last is at most 16 GiB below the end of 47 bits."""
    pages = []
    for below in range(9, 16):
        with contextlib.suppress(AssertionError):
            last = taken(PAGE, (1 << 47) - (below << 30))
            pages = [taken(PAGE, 1 << 29), taken(PAGE, last - 20 * GIB), last]
            break
    yield [(page, page + PAGE) for page in pages]
    for page in pages:
        libc.munmap(page, PAGE)


def test_memory_near_both_ends_of_the_address_space_has_a_shift(sparse: Any, ends: list[tuple[int, int]]) -> None:
    places = joined(sparse, ends[0], ends[2])
    assert lib.tempi_sparse_map(sparse) == 0
    for low, high in places:
        memory = ffi.buffer(ffi.cast("char *", low + sparse.shift), high - low)
        memory[high - low - 1 : high - low] = b"x"


def test_segments_fit_apart_that_are_too_long_together(sparse: Any, ends: list[tuple[int, int]]) -> None:
    """By a shift that is shorter than what lies between the last two."""
    joined(sparse, *ends)
    assert sparse.n == 2
    assert lib.tempi_sparse_map(sparse) == 0
    assert sparse.n == 3


def test_no_shift_is_out_of_memory_and_a_warning(sparse: Any, capfd: pytest.CaptureFixture[str]) -> None:
    joined(sparse, (0, PAGE), ((1 << 47) - 2 * PAGE, (1 << 47) - PAGE))
    assert lib.tempi_sparse_map(sparse) == 2
    assert "no room for host memory that stands for 2 segments of addresses" in capfd.readouterr().err


def test_the_shift_that_fitted_last_is_tried_first(sparse: Any, ends: list[tuple[int, int]]) -> None:
    joined(sparse, ends[0], ends[2])
    assert lib.tempi_sparse_map(sparse) == 0
    shift = sparse.shift
    lib.tempi_sparse_close(sparse)
    joined(sparse, (20 * TIB, 20 * TIB + PAGE), (40 * TIB, 40 * TIB + PAGE))
    assert lib.tempi_sparse_map(sparse) == 0
    assert sparse.shift == shift


def test_a_segment_in_the_middle_of_a_large_reservation_is_mapped_beyond_it(sparse: Any) -> None:
    """CUDA and sanitizers reserve many TiB of addresses in one piece."""
    size = 20 * TIB
    reserved = taken(size)
    middle = reserved + size // 2
    try:
        joined(sparse, (middle, middle + PAGE))
        assert lib.tempi_sparse_map(sparse) == 0
        assert abs(sparse.shift) >= size // 2 - PAGE
    finally:
        libc.munmap(reserved, size)
