"""Strided boxes with scalar parameters: up to three dimensions over a run, any direction.

    packed side   |w0 |w1 |w2 |w3 |w4 |w5 | ...   consecutive threads, consecutive words
                    ^   ^   ^   ^   ^   ^
    memory side   |w0 |w1 | . . |w2 |w3 | . . |w4 |w5 | ...       runs of two words here

A warp has 32 consecutive words of the packed side, so its accesses there are whole lines for runs of any
length; on the memory side it touches only the sectors of the runs. Each thread moves
four words a round, one grid apart, and has all four loads in flight before the first store. Where the grid has just the
blocks that do the whole box in one round, a block's words are neighbours, and a thread's are one block apart. Where it has
a thread for each word, a thread moves one and computes no others.

    threads of a block    t          t          t          t            4 words a thread in one round
    words             b..b+255  b+256..511 b+512..767 b+768..1023       b = 1024 x the block's number

Bound by the memory: distinct sectors touched on both sides. Words of 1 and 2 bytes whose packed side is contiguous are
left to _narrow.py, which takes fewer instructions and accesses for them.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from tempi.kernels._ops import add, at, choose, least, load, lt, mul, shl, store, sub, u32
from tempi.kernels._place import PLACE4, all_threads, first_thread


def make(width: int, index: int) -> Any:
    """The kernel for words of `width` bytes and offsets of `index` bits; parameters: _table.PARAMS."""
    get, put, place, to, either = load[width], store[width], PLACE4[index], at[index], choose[32]

    def strided(dst, src, first, end, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, n2, m2, h2, d2, s2, dl, sl):  # type: ignore[no-untyped-def]
        step = all_threads()
        last = sub(end, u32(1))
        w = add(first, first_thread())
        if not lt(step, sub(end, first)):
            if lt(w, end):
                a, x = place(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, n2, m2, h2, d2, s2, dl, sl)
                put(to(dst, a), get(to(src, x)))
            return
        # Whether every block has a round of its own, which it fills, but for the last one.
        once = lt(sub(shl(step, u32(2)), sub(end, first)), shl(u32(cuda.blockDim.x), u32(2)))
        if once:
            w = add(w, mul(u32(cuda.blockIdx.x), mul(u32(cuda.blockDim.x), u32(3))))
            step = u32(cuda.blockDim.x)
        while lt(w, end):
            w1 = add(w, step)
            w2 = add(w1, step)
            w3 = add(w2, step)
            # Past the end the last word is read again, so that no load depends on a branch.
            a, x = place(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, n2, m2, h2, d2, s2, dl, sl)
            b, y = place(least(w1, last), naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, n2, m2, h2, d2, s2, dl, sl)
            c, z = place(least(w2, last), naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, n2, m2, h2, d2, s2, dl, sl)
            e, v = place(least(w3, last), naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, n2, m2, h2, d2, s2, dl, sl)
            word = get(to(src, x))
            word1 = get(to(src, y))
            word2 = get(to(src, z))
            word3 = get(to(src, v))
            put(to(dst, a), word)
            if lt(w1, end):
                put(to(dst, b), word1)
            if lt(w2, end):
                put(to(dst, c), word2)
            if lt(w3, end):
                put(to(dst, e), word3)
            w = either(once, end, add(w3, step))

    return strided
