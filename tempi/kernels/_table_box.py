"""Boxes with an offset table and scalar parameters: the table and up to two more axes.

    packed side   |w0 w1|w2 w3|w4 w5| ...            consecutive threads, consecutive words
                     |      \\____________
    memory side   . |w0 w1| . . . |w4 w5| . |w2 w3| ...   entry j is at table[j]

With runs of one length the table is any of the axes. With runs of different lengths it is axis 0,
counted in words of all its runs together, and a thread finds the entry of its word (_lookup.py).

Bound by the memory: the sectors of both sides and the table, 4 bytes an entry if offsets fit. With short
runs every entry is a sector of its own, and the rate of sectors is the bound.
"""

from __future__ import annotations

from typing import Any

from tempi.kernels._lookup import LOOK
from tempi.kernels._move import AXIS_SHIFT, move_any
from tempi.kernels._ops import add, at, least, lt, shr, sub, u32
from tempi.kernels._place import PLACE3, all_threads, device, first_thread


def make(index: int) -> Any:
    """The kernel for offsets of `index` bits; parameters: _table.PARAMS."""
    place, look, to = PLACE3[index], LOOK[index], at[index]

    @device
    def one(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form, table, packed, guide, shift, start):  # type: ignore[no-untyped-def]
        d, s, i, i1, last = place(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl)
        axis = shr(form, u32(AXIS_SHIFT))
        if axis == sub(naxes, u32(1)):
            i = last
        elif axis == u32(1):
            i = i1
        return look(d, s, i, table, packed, guide, shift, start, form)

    def kernel(  # type: ignore[no-untyped-def]
        dst,
        src,
        first,
        end,
        naxes,
        n0,
        m0,
        h0,
        d0,
        s0,
        n1,
        m1,
        h1,
        d1,
        s1,
        dl,
        sl,
        form,
        table,
        packed,
        guide,
        shift,
        start,
    ):
        step = all_threads()
        stop = sub(end, u32(1))
        w = add(first, first_thread())
        while lt(w, end):
            w1 = add(w, step)
            w2 = add(w1, step)
            w3 = add(w2, step)
            v1 = least(w1, stop)
            v2 = least(w2, stop)
            v3 = least(w3, stop)
            d, s = one(
                w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form, table, packed, guide, shift, start
            )
            p, x = one(
                v1, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form, table, packed, guide, shift, start
            )
            q, y = one(
                v2, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form, table, packed, guide, shift, start
            )
            r, z = one(
                v3, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form, table, packed, guide, shift, start
            )
            move_any(
                form, to(dst, d), to(src, s), to(dst, p), to(src, x), to(dst, q), to(src, y), to(dst, r), to(src, z),
                lt(w1, end), lt(w2, end), lt(w3, end),
            )  # fmt: skip
            w = add(w3, step)

    return kernel
