"""Host memory in place of a buffer of several pieces (csrc/transfer/bounce_buffer.c)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cffi import FFI

import layouts
import oracle
from tempi import _engine

CSRC = Path(__file__).resolve().parents[2] / "csrc"
FAR = 3 * 4096

ffi = FFI()
for name in ("tempi.h", "transfer/sparse_mapping.h", "transfer/bounce_buffer.h"):
    ffi.cdef(_engine._declarations((CSRC / name).read_text(encoding="utf-8")))
lib = ffi.dlopen(_engine.library_path())


@pytest.mark.parametrize("places", [(0, FAR), (FAR, 0), (FAR, 0, FAR // 2)], ids=str)
def test_the_memory_reaches_from_the_first_piece_to_the_last(places: tuple[int, ...]) -> None:
    """Mapped, as the gaps outweigh the bytes, and with each piece as far from the start as in the program's memory."""
    memory = ffi.from_buffer(bytearray(os.urandom(FAR + 8)), require_writable=True)
    bounce = ffi.new("tempi_bounce_buffer *")
    with layouts.canonical(oracle.Named("DOUBLE")) as layout:
        lib.tempi_bounce_buffer_open(bounce, memory)
        for place in places:
            piece = {"layout": ffi.cast("tempi_layout *", layout), "count": 1, "displacement": place, "device": -1}
            assert lib.tempi_bounce_buffer_add(bounce, ffi.new("tempi_bounce_buffer_piece *", piece)) == 0
        assert lib.tempi_bounce_buffer_take(bounce) == 0
        block = ffi.cast("char *", bounce.block)
        assert block <= bounce.given
        assert bounce.given + FAR + 8 <= block + bounce.mapped
        assert lib.tempi_bounce_buffer_fill(bounce) == 0
        for place in places:
            assert ffi.buffer(bounce.given + place, 8)[:] == ffi.buffer(memory + place, 8)[:]
        lib.tempi_bounce_buffer_close(bounce)
