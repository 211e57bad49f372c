"""Host memory for distant segments of addresses (csrc/transfer/sparse_mapping.c)."""

from __future__ import annotations

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
PAGE, TIB = 4096, 1 << 40

ffi = FFI()
ffi.cdef(_engine._declarations(HEADER.read_text(encoding="utf-8")))
lib = ffi.dlopen(_engine.library_path())


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


def test_a_segment_in_the_middle_of_a_large_reservation_is_mapped_beyond_it(sparse: Any) -> None:
    """CUDA and sanitizers reserve many TiB of addresses in one piece."""
    no_reserve = 0x4000  # mmap has it from Python 3.13 on
    size, flags = 20 * TIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    reserved = libc.mmap(0, size, 0, flags, -1, 0)
    assert reserved % PAGE == 0, "no such room for addresses"
    middle = reserved + size // 2
    try:
        joined(sparse, (middle, middle + PAGE))
        assert lib.tempi_sparse_map(sparse) == 0
        assert abs(sparse.shift) >= size // 2 - PAGE
    finally:
        libc.munmap(reserved, size)
