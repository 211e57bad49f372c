"""Many boxes in one launch, of any number of axes, with or without tables, each with its own word width.

    chunk of the launch     0        1        2     |  3        4     | 5 ...
    box                     0        0        0     |  1        1     | 2 ...
    packed words of it   0..1023  1024..   2048..   | 0..     1024..  | ...
    a block's threads    t moves words t, t + 256, t + 512, t + 768 of the chunk

Loads that wait for each other are two before the data, three with a table of runs of one length: the map, then
all of the descriptor at once, then the table. Cell g of the map is the box of chunk ``g << map_shift``; only where
chunks share cells, in launches of more than 4096 chunks, does a search between two cells follow. The descriptor is
the same for the whole block, so loads of it are broadcasts from the first-level cache.

Descriptor, 160 bytes (csrc/cuda/plan_boxes.c), whose axes are those up to the fourth, innermost first. Each line is one
load of 16 bytes, and no part of it is left unused: the assembler would give its register to a later load, which would
then wait.

      0 dst            8 src
     16 first    20 end      24 chunk    28 form
     32 d0       36 s0       40 d1       44 s1         low halves of the strides
     48 d2       52 s2       56 d3       60 s3
     64 n0       68 m0       72 n1       76 m1
     80 n2       84 m2       88 h0, h1, h2 a byte each  92 number of the other axes, 4 bits, and the first of them
     96 and 112: high halves of the strides, in ``_i64`` kernels
    128 table          136 packed                       with tables
    144 guide          152 start                        the guide's shift is in `form`

Another axis has 32 bytes: ``0 d  8 s  16 n  20 m  24 h``. The outermost axis has m == 0, so that no index is carried on to
the axes behind it, and all are computed without a branch. Boxes of narrow words may have groups (_move.py): then a
thread's four words are neighbours, and the first chunk starts up to three words before the box.

Bound by the memory, as _strided.py; many small boxes by the latency of the loads in sequence.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from tempi.kernels._lookup import LOOK, LOOK_ONE
from tempi.kernels._move import AXIS_SHIFT, NO_TABLE, existing, grouped, lead_of, move_any, move_one, spacing, starts_at
from tempi.kernels._ops import (
    add,
    add64,
    as_offset,
    at,
    band,
    cell,
    choose,
    fixed32,
    fixed_longs,
    fixed_words,
    joined,
    lt,
    mad,
    mul,
    offset,
    shr,
    sub,
    u32,
    u64,
)
from tempi.kernels._place import device, quotient

DESC_BYTES, AXIS_BYTES = 160, 32
select = choose[32]
LANES = 256  # words from one of a thread's words to its next
CHUNK = 4 * LANES


@device
def box_of(chunk, descs, map, map_shift):  # type: ignore[no-untyped-def]
    """Address of the descriptor of the last box whose first chunk is not past this one."""
    g = cell(map, shr(chunk, map_shift), u32(4))
    low = fixed32(g)
    if map_shift != u32(0):
        high = fixed32(add64(g, u64(4)))
        while low != high:
            middle = shr(add(add(low, high), u32(1)), u32(1))
            if lt(chunk, fixed32(add64(cell(descs, middle, u32(DESC_BYTES)), u64(24)))):
                high = sub(middle, u32(1))
            else:
                low = middle
    return cell(descs, low, u32(DESC_BYTES))


@device
def byte(word, k):  # type: ignore[no-untyped-def]
    return band(shr(word, u32(8 * k)), u32(255))


def _strides(index: int) -> Any:
    """A function: the strides in a line of low halves, whose high halves are two lines further on."""

    @device
    def strides32(line):  # type: ignore[no-untyped-def]
        return fixed_words(line)

    @device
    def strides64(line):  # type: ignore[no-untyped-def]
        a, b, c, e = fixed_words(line)
        i, j, k, n = fixed_words(add64(line, u64(64)))
        return joined(a, i), joined(b, j), joined(c, k), joined(e, n)

    return {32: strides32, 64: strides64}[index]


def make(index: int, tables: bool) -> Any:
    """The kernel for offsets of `index` bits, of boxes some of which have tables; parameters: _table.PARAMS."""
    look, look_one, to, step = LOOK[index], LOOK_ONE[index], at[index], mad[index]
    kind, cut = offset[index], as_offset[index]
    strides = _strides(index)

    @device
    def along(w, d, s, i, k, table_axis, n, m, h, stride_d, stride_s):  # type: ignore[no-untyped-def]
        """Adds axis k: (rest of the word's number, d, s, index on the table's axis)."""
        q = quotient(w, m, h)
        j = sub(w, mul(q, n))
        if tables:
            i = select(k == table_axis, j, i)
        return q, step(d, j, stride_d), step(s, j, stride_s), i

    @device
    def others(w, w1, w2, w3, d, s, i, d1, s1, i1, d2, s2, i2, d3, s3, i3, axis, n_others, table_axis):  # type: ignore[no-untyped-def]
        """Adds the axes behind the third; rare."""
        k = u32(3)
        end = add(n_others, k)
        while lt(k, end):
            far_d, far_s = fixed_longs(axis)
            n, m, h, _ = fixed_words(add64(axis, u64(16)))
            d_k = cut(far_d)
            s_k = cut(far_s)
            w, d, s, i = along(w, d, s, i, k, table_axis, n, m, h, d_k, s_k)
            w1, d1, s1, i1 = along(w1, d1, s1, i1, k, table_axis, n, m, h, d_k, s_k)
            w2, d2, s2, i2 = along(w2, d2, s2, i2, k, table_axis, n, m, h, d_k, s_k)
            w3, d3, s3, i3 = along(w3, d3, s3, i3, k, table_axis, n, m, h, d_k, s_k)
            k = add(k, u32(1))
            axis = add64(axis, u64(AXIS_BYTES))
        return d, s, i, d1, s1, i1, d2, s2, i2, d3, s3, i3

    @device
    def copy_chunk(chunk, box, axes):  # type: ignore[no-untyped-def]
        """Four words of the box for this thread, or one."""
        first, end, first_chunk, form = fixed_words(add64(box, u64(16)))
        d_0, s_0, d_1, s_1 = strides(add64(box, u64(32)))
        d_2, s_2, d_3, s_3 = strides(add64(box, u64(48)))
        n_0, m_0, n_1, m_1 = fixed_words(add64(box, u64(64)))
        n_2, m_2, shifts, other_axes = fixed_words(add64(box, u64(80)))
        dst, src = fixed_longs(box)
        if tables:
            table, packed = fixed_longs(add64(box, u64(128)))
            guide, start = fixed_longs(add64(box, u64(144)))
        h_0 = byte(shifts, 0)
        h_1 = byte(shifts, 1)
        h_2 = byte(shifts, 2)
        n_others = band(other_axes, u32(15))
        lead = lead_of(form)
        count = sub(end, first)
        t = mul(sub(chunk, first_chunk), u32(CHUNK))
        rest = sub(add(count, lead), t)
        # No thread leaves before it has computed its place: the assembler would wait for `end` before the other loads.
        mine = starts_at(form, u32(cuda.threadIdx.x))
        table_axis = band(shr(form, u32(AXIS_SHIFT)), u32(NO_TABLE))
        w = add(sub(first, lead), add(t, mine))
        zero = kind(0)
        none = u32(0)
        if lt(rest, u32(LANES + 1)) and not grouped(form) and n_others == none:
            r, d, s, i = along(w, zero, zero, none, u32(0), table_axis, n_0, m_0, h_0, d_0, s_0)
            r, d, s, i = along(r, d, s, i, u32(1), table_axis, n_1, m_1, h_1, d_1, s_1)
            r, d, s, i = along(r, d, s, i, u32(2), table_axis, n_2, m_2, h_2, d_2, s_2)
            r, d, s, i = along(r, d, s, i, u32(3), table_axis, none, none, none, d_3, s_3)
            if lt(mine, rest):
                if tables and table_axis != u32(NO_TABLE):
                    d, s = look_one(d, s, i, table, packed, guide, byte(form, 3), start, form)
                move_one(form, to(dst, d), to(src, s))
            return
        gap = spacing(form, u32(LANES))
        w1 = add(w, gap)
        w2 = add(w1, gap)
        w3 = add(w2, gap)
        w, has = existing(w, first, count)
        w1, has1 = existing(w1, first, count)
        w2, has2 = existing(w2, first, count)
        w3, has3 = existing(w3, first, count)
        w, d, s, i = along(w, zero, zero, none, u32(0), table_axis, n_0, m_0, h_0, d_0, s_0)
        w1, d1, s1, i1 = along(w1, zero, zero, none, u32(0), table_axis, n_0, m_0, h_0, d_0, s_0)
        w2, d2, s2, i2 = along(w2, zero, zero, none, u32(0), table_axis, n_0, m_0, h_0, d_0, s_0)
        w3, d3, s3, i3 = along(w3, zero, zero, none, u32(0), table_axis, n_0, m_0, h_0, d_0, s_0)
        w, d, s, i = along(w, d, s, i, u32(1), table_axis, n_1, m_1, h_1, d_1, s_1)
        w1, d1, s1, i1 = along(w1, d1, s1, i1, u32(1), table_axis, n_1, m_1, h_1, d_1, s_1)
        w2, d2, s2, i2 = along(w2, d2, s2, i2, u32(1), table_axis, n_1, m_1, h_1, d_1, s_1)
        w3, d3, s3, i3 = along(w3, d3, s3, i3, u32(1), table_axis, n_1, m_1, h_1, d_1, s_1)
        w, d, s, i = along(w, d, s, i, u32(2), table_axis, n_2, m_2, h_2, d_2, s_2)
        w1, d1, s1, i1 = along(w1, d1, s1, i1, u32(2), table_axis, n_2, m_2, h_2, d_2, s_2)
        w2, d2, s2, i2 = along(w2, d2, s2, i2, u32(2), table_axis, n_2, m_2, h_2, d_2, s_2)
        w3, d3, s3, i3 = along(w3, d3, s3, i3, u32(2), table_axis, n_2, m_2, h_2, d_2, s_2)
        if n_others == none:
            w, d, s, i = along(w, d, s, i, u32(3), table_axis, none, none, none, d_3, s_3)
            w1, d1, s1, i1 = along(w1, d1, s1, i1, u32(3), table_axis, none, none, none, d_3, s_3)
            w2, d2, s2, i2 = along(w2, d2, s2, i2, u32(3), table_axis, none, none, none, d_3, s_3)
            w3, d3, s3, i3 = along(w3, d3, s3, i3, u32(3), table_axis, none, none, none, d_3, s_3)
        else:
            d, s, i, d1, s1, i1, d2, s2, i2, d3, s3, i3 = others(
                w, w1, w2, w3, d, s, i, d1, s1, i1, d2, s2, i2, d3, s3, i3,
                cell(axes, shr(other_axes, u32(4)), u32(AXIS_BYTES)), n_others, table_axis,
            )  # fmt: skip
        if lt(mine, rest):
            if tables and table_axis != u32(NO_TABLE):
                d, s, d1, s1, d2, s2, d3, s3 = look(
                    d, s, d1, s1, d2, s2, d3, s3, i, i1, i2, i3, table, packed, guide, byte(form, 3), start, form
                )
            move_any(
                form, to(dst, d), to(src, s), to(dst, d1), to(src, s1), to(dst, d2), to(src, s2),
                to(dst, d3), to(src, s3), has, has1, has2, has3,
            )  # fmt: skip

    def kernel(descs, axes, map, map_shift, chunks):  # type: ignore[no-untyped-def]
        chunk = u32(cuda.blockIdx.x)
        while lt(chunk, chunks):
            copy_chunk(chunk, box_of(chunk, descs, map, map_shift), axes)
            chunk = add(chunk, u32(cuda.gridDim.x))

    return kernel
