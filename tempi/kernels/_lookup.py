"""Offset tables on the device: the position of entry j, and the entry that holds a packed byte.

A table is a set of arrays of numbers of 4 bytes, or 8 (WIDE): the memory offset of each entry; its packed
position (unless the entries are evenly spaced: then an axis gives it); and for runs of different lengths a
guide: for every g the entry that holds packed byte ``g << shift``, about one entry a cell, so that the
remaining search takes a step or two. csrc/cuda/plan_offsets.c writes them.

    packed byte  0        16        32        48
    guide        0         0         3         4
    entries      |0.....|1.|2......|3.......|4......

Neighbouring threads read the same or neighbouring numbers, so the caches serve all but the first. A thread looks
four words up at once: each step issues the loads of all four before it needs the first of them.
"""

from __future__ import annotations

from typing import Any

from tempi.kernels._move import UNPACK, VARIABLE, WIDE, WIDTH_BITS
from tempi.kernels._ops import (
    add,
    add64,
    as_offset,
    band,
    bor,
    cell,
    choose,
    fixed32,
    fixed64,
    minus,
    narrow,
    not_above,
    number4,
    offset,
    plus,
    shl,
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
_choose = choose[32]


@device
def _shifted64(i, width):  # type: ignore[no-untyped-def]
    return shl64(wide(i), width)


@device
def _cell64(p, shift):  # type: ignore[no-untyped-def]
    return narrow(shr64(p, shift))


@device
def _numbers32(address, i, i1, i2, i3, form):  # type: ignore[no-untyped-def]
    four = u32(4)
    return (
        fixed32(cell(address, i, four)),
        fixed32(cell(address, i1, four)),
        fixed32(cell(address, i2, four)),
        fixed32(cell(address, i3, four)),
    )


@device
def _numbers64(address, i, i1, i2, i3, form):  # type: ignore[no-untyped-def]
    if band(form, u32(WIDE)):
        eight = u32(8)
        return (
            fixed64(cell(address, i, eight)),
            fixed64(cell(address, i1, eight)),
            fixed64(cell(address, i2, eight)),
            fixed64(cell(address, i3, eight)),
        )
    four = u32(4)
    return (
        _signed4(cell(address, i, four)),
        _signed4(cell(address, i1, four)),
        _signed4(cell(address, i2, four)),
        _signed4(cell(address, i3, four)),
    )


NUMBERS = {32: _numbers32, 64: _numbers64}


@device
def _middle(low, high):  # type: ignore[no-untyped-def]
    return shr(add(add(low, high), u32(1)), u32(1))


def _make(index: int) -> Any:
    numbers, total, difference = NUMBERS[index], plus[index], minus[index]
    cut, kind, select = as_offset[index], offset[index], choose[index]
    starts_before, position, cell_of = not_above[index], {32: shl, 64: _shifted64}[index], {32: shr, 64: _cell64}[index]

    @device
    def narrowed(low, high, middle, number, p):  # type: ignore[no-untyped-def]
        """A step of a search. Where it has ended (low == high == middle) nothing changes: entry `low` starts before p."""
        below = starts_before(number, p)
        return _choose(below, middle, low), _choose(below, high, sub(middle, u32(1)))

    @device
    def find(p, p1, p2, p3, packed, guide, shift, form):  # type: ignore[no-untyped-def]
        """The entries that hold four packed bytes: for each the last one that starts at or before it."""
        four = u32(4)
        next = u64(4)
        g = cell(guide, cell_of(p, shift), four)
        g1 = cell(guide, cell_of(p1, shift), four)
        g2 = cell(guide, cell_of(p2, shift), four)
        g3 = cell(guide, cell_of(p3, shift), four)
        low = fixed32(g)
        low1 = fixed32(g1)
        low2 = fixed32(g2)
        low3 = fixed32(g3)
        high = fixed32(add64(g, next))
        high1 = fixed32(add64(g1, next))
        high2 = fixed32(add64(g2, next))
        high3 = fixed32(add64(g3, next))
        while bor(bor(sub(high, low), sub(high1, low1)), bor(sub(high2, low2), sub(high3, low3))) != u32(0):
            m = _middle(low, high)
            m1 = _middle(low1, high1)
            m2 = _middle(low2, high2)
            m3 = _middle(low3, high3)
            x, x1, x2, x3 = numbers(packed, m, m1, m2, m3, form)
            low, high = narrowed(low, high, m, x, p)
            low1, high1 = narrowed(low1, high1, m1, x1, p1)
            low2, high2 = narrowed(low2, high2, m2, x2, p2)
            low3, high3 = narrowed(low3, high3, m3, x3, p3)
        return low, low1, low2, low3

    @device
    def found(i, i1, i2, i3, table, packed, guide, shift, start, form):  # type: ignore[no-untyped-def]
        """Memory offsets and packed positions for four indices on the table's axis."""
        o = kind(0)
        o1 = kind(0)
        o2 = kind(0)
        o3 = kind(0)
        if band(form, u32(VARIABLE)):
            # i counts words of the table's packed bytes from `start` on; the axis has already added their packed position.
            width = band(form, u32(WIDTH_BITS))
            origin = cut(start)
            p = total(origin, position(i, width))
            p1 = total(origin, position(i1, width))
            p2 = total(origin, position(i2, width))
            p3 = total(origin, position(i3, width))
            j, j1, j2, j3 = find(p, p1, p2, p3, packed, guide, shift, form)
            m, m1, m2, m3 = numbers(table, j, j1, j2, j3, form)
            x, x1, x2, x3 = numbers(packed, j, j1, j2, j3, form)
            m = difference(total(m, p), x)
            m1 = difference(total(m1, p1), x1)
            m2 = difference(total(m2, p2), x2)
            m3 = difference(total(m3, p3), x3)
            return m, m1, m2, m3, o, o1, o2, o3
        m, m1, m2, m3 = numbers(table, i, i1, i2, i3, form)
        if packed != u64(0):
            o, o1, o2, o3 = numbers(packed, i, i1, i2, i3, form)
        return m, m1, m2, m3, o, o1, o2, o3

    @device
    def look(d, s, d1, s1, d2, s2, d3, s3, i, i1, i2, i3, table, packed, guide, shift, start, form):  # type: ignore[no-untyped-def]
        """Adds the table's offsets for four indices on its axis to four pairs (d, s)."""
        m, m1, m2, m3, o, o1, o2, o3 = found(i, i1, i2, i3, table, packed, guide, shift, start, form)
        unpack = band(form, u32(UNPACK)) != u32(0)
        d = total(d, select(unpack, m, o))
        s = total(s, select(unpack, o, m))
        d1 = total(d1, select(unpack, m1, o1))
        s1 = total(s1, select(unpack, o1, m1))
        d2 = total(d2, select(unpack, m2, o2))
        s2 = total(s2, select(unpack, o2, m2))
        d3 = total(d3, select(unpack, m3, o3))
        s3 = total(s3, select(unpack, o3, m3))
        return d, s, d1, s1, d2, s2, d3, s3

    @device
    def look_one(d, s, i, table, packed, guide, shift, start, form):  # type: ignore[no-untyped-def]
        """The same for one index; the compiler drops the copies."""
        m, _, _, _, o, _, _, _ = found(i, i, i, i, table, packed, guide, shift, start, form)
        unpack = band(form, u32(UNPACK)) != u32(0)
        return total(d, select(unpack, m, o)), total(s, select(unpack, o, m))

    return look, look_one


_32, _64 = _make(32), _make(64)
LOOK = {32: _32[0], 64: _64[0]}
LOOK_ONE = {32: _32[1], 64: _64[1]}
