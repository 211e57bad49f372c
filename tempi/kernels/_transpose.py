"""Transposes through shared memory: destination contiguous along axis a, source along axis b.

    source       b ->                 tile in shared memory        destination   a ->
      a  |....32 words....|  one row      32 x 32 words,             b |....32 words....|
      |  |................|  a warp       rows one word longer       | |................|
      v                                   so that columns lie in     v
                                          different banks

A block of 8 warps takes tiles of 32 x 32 words. First warp y reads rows y, y + 8, y + 16, y + 24 of
the source, each a full line where words are 4 bytes; after the barrier it writes the columns as rows
of the destination. Every sector of either side is touched once, which no order of plain copies achieves.
The tile's number also selects the index on up to two more axes.

Bound by the memory, at 4 and 8 bytes; at 1 and 2 bytes a row is less than a line.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from tempi.kernels._ops import WORD, add, band, cell, load, lt, mad, mul, shr, store, sub, u32, udiv

TILE = 32
SHAPE = (TILE, TILE + 1)
ROWS = 8  # of a tile that a block moves at a time: 256 threads / 32


def make(width: int) -> Any:
    """The kernel for words of `width` bytes; parameters: _table.PARAMS."""
    get, put, word, far = load[width], store[width], WORD[width], mad[64]

    def kernel(dst, src, tiles, na, nb, ta, tb, sa, db, n2, d2, s2, d3, s3):  # type: ignore[no-untyped-def]
        tile = cuda.shared.array(SHAPE, word)
        x = band(u32(cuda.threadIdx.x), u32(TILE - 1))
        y = shr(u32(cuda.threadIdx.x), u32(5))
        t = u32(cuda.blockIdx.x)
        while lt(t, tiles):
            # t = ((i3 * n2 + i2) * tb + its row of tiles) * ta + its column of tiles
            u = udiv(t, ta)
            a = mul(sub(t, mul(u, ta)), u32(TILE))
            v = udiv(u, tb)
            b = mul(sub(u, mul(v, tb)), u32(TILE))
            i3 = udiv(v, n2)
            i2 = sub(v, mul(i3, n2))
            to = far(far(dst, i2, d2), i3, d3)
            of = far(far(src, i2, s2), i3, s3)
            r = y
            while lt(r, u32(TILE)):
                if lt(add(a, r), na) and lt(add(b, x), nb):
                    tile[r, x] = get(cell(far(of, add(a, r), sa), add(b, x), u32(width)))
                r = add(r, u32(ROWS))
            cuda.syncthreads()
            r = y
            while lt(r, u32(TILE)):
                if lt(add(b, r), nb) and lt(add(a, x), na):
                    put(cell(far(to, add(b, r), db), add(a, x), u32(width)), tile[x, r])
                r = add(r, u32(ROWS))
            cuda.syncthreads()
            t = add(t, u32(cuda.gridDim.x))

    return kernel
