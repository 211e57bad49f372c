"""Transposes through shared memory: destination contiguous along axis a, source along axis b.

    source       b ->                 tile in shared memory        destination   a ->
      a  |....32 words....|  one row      32 x 32 words,             b |....32 words....|
      |  |................|  a warp       rows one word longer       | |................|
      v                                   so that columns lie in     v
                                          different banks

A block of 8 warps takes tiles of 32 x 32 words. First warp y reads rows y, y + 8, y + 16, y + 24 of
the source, each a full line where words are 4 bytes, with all four loads in flight; after the barrier it writes the
columns as rows of the destination. Every sector of either side is touched once, which no order of plain copies achieves.
The tile's number also selects the index on up to two more axes.

Bound by the memory, at 4 and 8 bytes; at 1 and 2 bytes a row is less than a line.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from tempi.kernels._ops import WORD, add, band, cell, least, load, lt, mad, mul, shr, store, sub, u32, udiv

TILE = 32
SHAPE = (TILE, TILE + 1)
ROWS = 8  # of a tile that a block moves at a time: 256 threads / 32


def make(width: int) -> Any:
    """The kernel for words of `width` bytes; parameters: _table.PARAMS."""
    get, put, kind, far = load[width], store[width], WORD[width], mad[64]

    def kernel(dst, src, tiles, na, nb, ta, tb, sa, db, n2, d2, s2, d3, s3):  # type: ignore[no-untyped-def]
        tile = cuda.shared.array(SHAPE, kind)
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
            # Rows and columns past the end are those of the last word, so that no load depends on a branch.
            column = cell(of, least(add(b, x), sub(nb, u32(1))), u32(width))
            row = add(a, y)
            last = sub(na, u32(1))
            word = get(far(column, least(row, last), sa))
            word1 = get(far(column, least(add(row, u32(ROWS)), last), sa))
            word2 = get(far(column, least(add(row, u32(2 * ROWS)), last), sa))
            word3 = get(far(column, least(add(row, u32(3 * ROWS)), last), sa))
            tile[y, x] = word
            tile[add(y, u32(ROWS)), x] = word1
            tile[add(y, u32(2 * ROWS)), x] = word2
            tile[add(y, u32(3 * ROWS)), x] = word3
            cuda.syncthreads()
            word = tile[x, y]
            word1 = tile[x, add(y, u32(ROWS))]
            word2 = tile[x, add(y, u32(2 * ROWS))]
            word3 = tile[x, add(y, u32(3 * ROWS))]
            row = add(b, y)
            if lt(add(a, x), na):
                column = cell(to, add(a, x), u32(width))
                if lt(row, nb):
                    put(far(column, row, db), word)
                if lt(add(row, u32(ROWS)), nb):
                    put(far(column, add(row, u32(ROWS)), db), word1)
                if lt(add(row, u32(2 * ROWS)), nb):
                    put(far(column, add(row, u32(2 * ROWS)), db), word2)
                if lt(add(row, u32(3 * ROWS)), nb):
                    put(far(column, add(row, u32(3 * ROWS)), db), word3)
            cuda.syncthreads()
            t = add(t, u32(cuda.gridDim.x))

    return kernel
