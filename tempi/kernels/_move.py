"""Moves four words from four addresses to four others; the width is known only at run time.

The branch on the width is the same for a whole block. All loads precede the first store, so that
four are in flight. Words past the end are read (the caller passes the address of an existing word for
them) but not written.
"""

from __future__ import annotations

from typing import Any

from tempi.kernels._ops import band, load, store, u32
from tempi.kernels._place import device

# A kernel's `form`: bits 0 to 2 are the binary logarithm of the word's bytes, then the kind of table.
WIDTH_BITS, WIDE, UNPACK, VARIABLE = 7, 8, 16, 32
AXIS_SHIFT = 8  # from this bit on: the table's axis, in the boxes kernels; NO_TABLE: none
NO_TABLE = 255


def _mover(width: int) -> Any:
    get, put = load[width], store[width]

    @device
    def move(d, s, d1, s1, d2, s2, d3, s3, more1, more2, more3):  # type: ignore[no-untyped-def]
        a = get(s)
        b = get(s1)
        c = get(s2)
        e = get(s3)
        put(d, a)
        if more1:
            put(d1, b)
        if more2:
            put(d2, c)
        if more3:
            put(d3, e)

    return move


_move1, _move2, _move4, _move8, _move16 = (_mover(1 << i) for i in range(5))


@device
def move_any(form, d, s, d1, s1, d2, s2, d3, s3, more1, more2, more3):  # type: ignore[no-untyped-def]
    width = band(form, u32(WIDTH_BITS))
    if width == u32(4):
        _move16(d, s, d1, s1, d2, s2, d3, s3, more1, more2, more3)
    elif width == u32(3):
        _move8(d, s, d1, s1, d2, s2, d3, s3, more1, more2, more3)
    elif width == u32(2):
        _move4(d, s, d1, s1, d2, s2, d3, s3, more1, more2, more3)
    elif width == u32(1):
        _move2(d, s, d1, s1, d2, s2, d3, s3, more1, more2, more3)
    else:
        _move1(d, s, d1, s1, d2, s2, d3, s3, more1, more2, more3)
