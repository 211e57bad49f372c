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

from tempi.kernels._lookup import LOOK, LOOK_ONE
from tempi.kernels._move import AXIS_SHIFT, existing, grouped, lead_of, move_any, move_one, spacing, starts_at
from tempi.kernels._ops import add, at, band, lt, shl, shr, sub, u32
from tempi.kernels._place import PLACE3, all_threads, device, first_thread


def make(index: int) -> Any:
    """The kernel for offsets of `index` bits; parameters: _table.PARAMS."""
    place, look, look_one, to = PLACE3[index], LOOK[index], LOOK_ONE[index], at[index]

    @device
    def indexed(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form):  # type: ignore[no-untyped-def]
        """Offsets of word w without the table's, and its index on the table's axis."""
        d, s, i, i1, last = place(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl)
        axis = band(shr(form, u32(AXIS_SHIFT)), u32(255))
        if axis == sub(naxes, u32(1)):
            i = last
        elif axis == u32(1):
            i = i1
        return d, s, i

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
        threads = all_threads()
        count = sub(end, first)
        if not lt(threads, count) and not grouped(form):
            w = add(first, first_thread())
            if lt(w, end):
                d, s, i = indexed(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form)
                d, s = look_one(d, s, i, table, packed, guide, shift, start, form)
                move_one(form, to(dst, d), to(src, s))
            return
        # From the start of the first group, at most 3 words before the first word.
        lead = lead_of(form)
        origin = sub(first, lead)
        whole = add(count, lead)
        gap = spacing(form, threads)
        t = starts_at(form, first_thread())
        while lt(t, whole):
            w = add(origin, t)
            w1 = add(w, gap)
            w2 = add(w1, gap)
            w3 = add(w2, gap)
            # Instead of words outside the box its last one is read, so that no load depends on a branch.
            v, has = existing(w, first, count)
            v1, has1 = existing(w1, first, count)
            v2, has2 = existing(w2, first, count)
            v3, has3 = existing(w3, first, count)
            d, s, i = indexed(v, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form)
            p, x, i1 = indexed(v1, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form)
            q, y, i2 = indexed(v2, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form)
            r, z, i3 = indexed(v3, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl, form)
            d, s, p, x, q, y, r, z = look(
                d, s, p, x, q, y, r, z, i, i1, i2, i3, table, packed, guide, shift, start, form
            )
            move_any(
                form, to(dst, d), to(src, s), to(dst, p), to(src, x), to(dst, q), to(src, y), to(dst, r), to(src, z),
                has, has1, has2, has3,
            )  # fmt: skip
            t = add(t, shl(threads, u32(2)))

    return kernel
