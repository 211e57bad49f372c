"""Strided boxes of narrow words whose other side is contiguous: packs (gather) of 1 and 2 bytes, unpacks (scatter) of 1.

    packed side   |a b c e|f g h i|j ...        a group of four words: one aligned access of 4 or 8 bytes
                   / |  \\ `-----.
    memory side   |a| . |b| . |c| . |e| ...     four accesses of 1 or 2 bytes

Consecutive threads have consecutive groups; each moves two groups a round, one grid apart, with all loads in flight
before the first store. A group's bytes are merged or taken apart in registers. The position of its first word takes a
division for each axis but the outermost; the three others follow by additions, and by a correction where a row ends.
At most three words before the first group and three behind the last one move on their own.

The body is words `body` to ``body + 4 * groups``; the packed side is aligned there (csrc/cuda/plan_launch.c).
Bound by the memory, as _strided.py; next by arithmetic: a word takes some 8 instructions with one axis, 17 with two
and 20 with three, counted in the machine code for sm_90 (14, 23 and 31 in _strided.py).
"""

from __future__ import annotations

from typing import Any

from tempi.kernels._ops import (
    GROUP,
    add,
    at,
    cell,
    choose,
    least,
    load,
    lt,
    mad,
    merge,
    minus,
    mul,
    offset,
    part,
    plus,
    shl,
    store,
    sub,
    u32,
)
from tempi.kernels._place import all_threads, device, first_thread, quotient

_LOG2 = GROUP.bit_length() - 1
_choose = choose[32]


def _placing(index: int) -> Any:
    """Device functions: the offset of a word on the memory side, and those of the four words of a group."""
    step, kind, total, difference, select = mad[index], offset[index], plus[index], minus[index], choose[index]

    @device
    def indexed(w, naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl):  # type: ignore[no-untyped-def]
        x = kind(0)
        i0 = u32(0)
        i1 = u32(0)
        i2 = u32(0)
        if naxes > u32(1):
            q = quotient(w, m0, h0)
            i0 = sub(w, mul(q, n0))
            w = q
            x = step(x, i0, x0)
            if naxes > u32(2):
                q = quotient(w, m1, h1)
                i1 = sub(w, mul(q, n1))
                w = q
                x = step(x, i1, x1)
                if naxes > u32(3):
                    q = quotient(w, m2, h2)
                    i2 = sub(w, mul(q, n2))
                    w = q
                    x = step(x, i2, x2)
        return step(x, w, xl), i0, i1, i2

    @device
    def next_of(x, i, n, back):  # type: ignore[no-untyped-def]
        """One index on: `back` is the way from behind the end of a row to the start of the next one."""
        i = add(i, u32(1))
        ends = i == n
        return select(ends, total(x, back), x), _choose(ends, u32(0), i), ends

    @device
    def after(x, i0, i1, i2, naxes, n0, x0, b0, n1, b1, n2, b2):  # type: ignore[no-untyped-def]
        """The offset of the next word, and its indices."""
        x, i0, ends = next_of(total(x, x0), i0, n0, b0)
        if naxes > u32(2) and ends:
            x, i1, ends = next_of(x, i1, n1, b1)
            if ends:
                x, i2, ends = next_of(x, i2, n2, b2)
        return x, i0, i1, i2

    @device
    def group_of(w, naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl, b0, b1, b2):  # type: ignore[no-untyped-def]
        x, i0, i1, i2 = indexed(w, naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl)
        if naxes > u32(1):
            y, i0, i1, i2 = after(x, i0, i1, i2, naxes, n0, x0, b0, n1, b1, n2, b2)
            z, i0, i1, i2 = after(y, i0, i1, i2, naxes, n0, x0, b0, n1, b1, n2, b2)
            v, i0, i1, i2 = after(z, i0, i1, i2, naxes, n0, x0, b0, n1, b1, n2, b2)
            return x, y, z, v
        y = total(x, xl)
        z = total(y, xl)
        return x, y, z, total(z, xl)

    @device
    def row_ends(naxes, n0, x0, n1, x1, n2, x2, xl):  # type: ignore[no-untyped-def]
        """From behind the end of a row on axis 0, 1, 2 to the start of the next one."""
        next0 = xl
        next1 = xl
        if naxes > u32(2):
            next0 = x1
        if naxes > u32(3):
            next1 = x2
        zero = kind(0)
        return (
            difference(next0, step(zero, n0, x0)),
            difference(next1, step(zero, n1, x1)),
            difference(xl, step(zero, n2, x2)),
        )

    return indexed, group_of, row_ends


def _make(gathers: bool, width: int, index: int) -> Any:
    get, put, get_group, put_group = load[width], store[width], load[GROUP * width], store[GROUP * width]
    join, (part0, part1, part2, part3) = merge[width], part[width]
    to = at[index]
    indexed, group_of, row_ends = _placing(index)

    @device
    def read(base, x, y, z, v):  # type: ignore[no-untyped-def]
        return get(to(base, x)), get(to(base, y)), get(to(base, z)), get(to(base, v))

    @device
    def spread(base, x, y, z, v, group):  # type: ignore[no-untyped-def]
        put(to(base, x), part0(group))
        put(to(base, y), part1(group))
        put(to(base, z), part2(group))
        put(to(base, v), part3(group))

    def gather(dst, src, first, groups, body, end, naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl):  # type: ignore[no-untyped-def]
        threads = all_threads()
        g = first_thread()
        before = sub(body, first)
        grouped = shl(groups, u32(_LOG2))
        if lt(g, sub(sub(end, first), grouped)):
            w = add(first, g)
            if not lt(g, before):
                w = add(w, grouped)
            x, _, _, _ = indexed(w, naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl)
            put(cell(dst, w, u32(width)), get(to(src, x)))
        b0, b1, b2 = row_ends(naxes, n0, x0, n1, x1, n2, x2, xl)
        base = cell(dst, body, u32(width))
        last = sub(groups, u32(1))
        while lt(g, groups):
            g1 = add(g, threads)
            x, y, z, v = group_of(
                add(body, shl(g, u32(_LOG2))),
                naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl, b0, b1, b2,
            )  # fmt: skip
            if lt(threads, groups):
                # Past the end the last group is read again, so that no load depends on a branch.
                p, q, r, s = group_of(
                    add(body, shl(least(g1, last), u32(_LOG2))),
                    naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl, b0, b1, b2,
                )  # fmt: skip
                a, b, c, e = read(src, x, y, z, v)
                f, h, i, j = read(src, p, q, r, s)
                put_group(cell(base, g, u32(GROUP * width)), join(a, b, c, e))
                if lt(g1, groups):
                    put_group(cell(base, g1, u32(GROUP * width)), join(f, h, i, j))
            else:
                a, b, c, e = read(src, x, y, z, v)
                put_group(cell(base, g, u32(GROUP * width)), join(a, b, c, e))
            g = add(g1, threads)

    def scatter(dst, src, first, groups, body, end, naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl):  # type: ignore[no-untyped-def]
        threads = all_threads()
        g = first_thread()
        before = sub(body, first)
        grouped = shl(groups, u32(_LOG2))
        if lt(g, sub(sub(end, first), grouped)):
            w = add(first, g)
            if not lt(g, before):
                w = add(w, grouped)
            x, _, _, _ = indexed(w, naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl)
            put(to(dst, x), get(cell(src, w, u32(width))))
        b0, b1, b2 = row_ends(naxes, n0, x0, n1, x1, n2, x2, xl)
        base = cell(src, body, u32(width))
        last = sub(groups, u32(1))
        while lt(g, groups):
            g1 = add(g, threads)
            group = get_group(cell(base, g, u32(GROUP * width)))
            group1 = group
            if lt(threads, groups):
                group1 = get_group(cell(base, least(g1, last), u32(GROUP * width)))
            x, y, z, v = group_of(
                add(body, shl(g, u32(_LOG2))),
                naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl, b0, b1, b2,
            )  # fmt: skip
            spread(dst, x, y, z, v, group)
            if lt(g1, groups):
                x, y, z, v = group_of(
                    add(body, shl(g1, u32(_LOG2))),
                    naxes, n0, m0, h0, x0, n1, m1, h1, x1, n2, m2, h2, x2, xl, b0, b1, b2,
                )  # fmt: skip
                spread(dst, x, y, z, v, group1)
            g = add(g1, threads)

    return gather if gathers else scatter


MAKE = {
    "gather": lambda width, index: _make(True, width, index),
    "scatter": lambda width, index: _make(False, width, index),
}
