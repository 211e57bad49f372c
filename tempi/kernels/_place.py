"""From a word's number to its position: the arithmetic shared by all families.

A box is a list of axes, innermost first; the run itself is one of them, in words. Word ``w`` has
index ``w mod n0`` on axis 0, ``(w div n0) mod n1`` on axis 1, and so on; the outermost axis takes
the rest. Divisions by a count n >= 2 are a multiplication and a shift (Granlund and Montgomery,
PLDI 1994): exact for w < 2^31 with ``h = ceil(log2 n) - 1`` and ``m = ceil(2^(32 + h) / n)``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from tempi.kernels._ops import add, mad, mul, mulhi, offset, shr, sub, u32

device = cuda.jit(device=True)


@device
def quotient(w, m, h):  # type: ignore[no-untyped-def]
    return shr(mulhi(w, m), h)


@device
def first_thread():  # type: ignore[no-untyped-def]
    """This thread's number in the grid."""
    return add(mul(u32(cuda.blockIdx.x), u32(cuda.blockDim.x)), u32(cuda.threadIdx.x))


@device
def all_threads():  # type: ignore[no-untyped-def]
    return mul(u32(cuda.gridDim.x), u32(cuda.blockDim.x))


def _make(index: int) -> tuple[Any, Any]:
    step, kind = mad[index], offset[index]

    @device
    def place4(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, n2, m2, h2, d2, s2, dl, sl):  # type: ignore[no-untyped-def]
        """(destination, source) offsets of word w, up to four axes."""
        d = kind(0)
        s = kind(0)
        if naxes > u32(1):
            q = quotient(w, m0, h0)
            r = sub(w, mul(q, n0))
            w = q
            d = step(d, r, d0)
            s = step(s, r, s0)
            if naxes > u32(2):
                q = quotient(w, m1, h1)
                r = sub(w, mul(q, n1))
                w = q
                d = step(d, r, d1)
                s = step(s, r, s1)
                if naxes > u32(3):
                    q = quotient(w, m2, h2)
                    r = sub(w, mul(q, n2))
                    w = q
                    d = step(d, r, d2)
                    s = step(s, r, s2)
        return step(d, w, dl), step(s, w, sl)

    @device
    def place3(w, naxes, n0, m0, h0, d0, s0, n1, m1, h1, d1, s1, dl, sl):  # type: ignore[no-untyped-def]
        """Offsets of word w for up to three axes, and its index on each: (d, s, i0, i1, last)."""
        d = kind(0)
        s = kind(0)
        i0 = u32(0)
        i1 = u32(0)
        if naxes > u32(1):
            q = quotient(w, m0, h0)
            i0 = sub(w, mul(q, n0))
            w = q
            d = step(d, i0, d0)
            s = step(s, i0, s0)
            if naxes > u32(2):
                q = quotient(w, m1, h1)
                i1 = sub(w, mul(q, n1))
                w = q
                d = step(d, i1, d1)
                s = step(s, i1, s1)
        return step(d, w, dl), step(s, w, sl), i0, i1, w

    return place4, place3


place4_32, place3_32 = _make(32)
place4_64, place3_64 = _make(64)
PLACE4 = {32: place4_32, 64: place4_64}
PLACE3 = {32: place3_32, 64: place3_64}
