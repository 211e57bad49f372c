"""Offset tables on the device: the position of entry j, and the entry that holds a packed byte.

A table is a set of arrays of numbers of 4 bytes, or 8 (WIDE): the memory offset of each entry; its packed
position (unless the entries are evenly spaced: then an axis gives it); and for runs of different lengths a
guide: for every g the entry that holds packed byte ``g << shift``, about one entry a cell, so that the
remaining search takes a step or two. csrc/cuda/plan_offsets.c writes them.

    packed byte  0        16        32        48
    guide        0         0         3         4
    entries      |0.....|1.|2......|3.......|4......

Neighbouring threads read the same or neighbouring numbers, so the caches serve all but the first.
"""

from __future__ import annotations

from typing import Any

from tempi.kernels._move import UNPACK, VARIABLE, WIDE, WIDTH_BITS
from tempi.kernels._ops import (
    add,
    add64,
    as_offset,
    band,
    cell,
    le64,
    load32,
    load64,
    minus,
    narrow,
    number4,
    offset,
    plus,
    shl64,
    shr,
    shr64,
    sub,
    u32,
    u64,
    wide,
)
from tempi.kernels._place import device

_signed4 = number4[64]


@device
def _number32(address, j, form):  # type: ignore[no-untyped-def]
    return load32(cell(address, j, u32(4)))


@device
def _number64(address, j, form):  # type: ignore[no-untyped-def]
    if band(form, u32(WIDE)):
        return load64(cell(address, j, u32(8)))
    return _signed4(cell(address, j, u32(4)))


NUMBER = {32: _number32, 64: _number64}


@device
def find(p, packed, guide, shift, form):  # type: ignore[no-untyped-def]
    """The entry that holds packed byte p: the last one that starts at or before it."""
    g = cell(guide, narrow(shr64(p, shift)), u32(4))
    low = load32(g)
    high = load32(add64(g, u64(4)))
    while low != high:
        middle = shr(add(add(low, high), u32(1)), u32(1))
        if le64(_number64(packed, middle, form), p):
            low = middle
        else:
            high = sub(middle, u32(1))
    return low


def _make(index: int) -> Any:
    number, total, difference = NUMBER[index], plus[index], minus[index]
    cut, kind = as_offset[index], offset[index]

    @device
    def look(d, s, i, table, packed, guide, shift, start, form):  # type: ignore[no-untyped-def]
        """Adds the table's offsets for index i on its axis to (d, s)."""
        if band(form, u32(VARIABLE)):
            # i counts words of the table's packed bytes from `start` on; the axis has already added their packed position.
            p = add64(start, shl64(wide(i), band(form, u32(WIDTH_BITS))))
            j = find(p, packed, guide, shift, form)
            memory = difference(total(number(table, j, form), cut(p)), number(packed, j, form))
            if band(form, u32(UNPACK)):
                return total(d, memory), s
            return d, total(s, memory)
        memory = number(table, i, form)
        position = kind(0)
        if packed != u64(0):
            position = number(packed, i, form)
        if band(form, u32(UNPACK)):
            return total(d, memory), total(s, position)
        return total(d, position), total(s, memory)

    return look


look32, look64 = _make(32), _make(64)
LOOK = {32: look32, 64: look64}
