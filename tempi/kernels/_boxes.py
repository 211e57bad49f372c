"""Many boxes in one launch, of any number of axes, with or without tables, each with its own word width.

    chunk of the launch     0        1        2     |  3        4     | 5 ...
    box                     0        0        0     |  1        1     | 2 ...
    packed words of it   0..1023  1024..   2048..   | 0..     1024..  | ...
    a block's threads    t moves words t, t + 256, t + 512, t + 768 of the chunk

A block finds the box of its chunk by `map`, whose cell g is the box of chunk ``g << map_shift``, and a search
of a step or two between two cells. The descriptor is the same for the whole block, so loads of it are
broadcasts from the first-level cache.

Descriptor, 80 bytes (csrc/cuda/plan_boxes.c), and axis, 32 bytes:

    0 dst  8 src  16 table  24 packed  32 guide  40 first  44 end  48 chunk  52 axis  56 naxes
    60 form  64 shift  72 start
    0 d    8 s    16 n      20 m       24 h

Bound by the memory, as _strided.py; many small boxes by the latency of loading map, descriptor and axis in sequence.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from tempi.kernels._lookup import LOOK
from tempi.kernels._move import AXIS_SHIFT, move_any
from tempi.kernels._ops import (
    add,
    add64,
    at,
    cell,
    least,
    load32,
    load64,
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

DESC_BYTES, AXIS_BYTES = 80, 32
LANES = 256  # words from one of a thread's words to its next
CHUNK = 4 * LANES


@device
def box_of(chunk, descs, map, map_shift):  # type: ignore[no-untyped-def]
    """Address of the descriptor of the last box whose first chunk is not past this one."""
    g = cell(map, shr(chunk, map_shift), u32(4))
    low = load32(g)
    high = load32(add64(g, u64(4)))
    while low != high:
        middle = shr(add(add(low, high), u32(1)), u32(1))
        if lt(chunk, load32(add64(cell(descs, middle, u32(DESC_BYTES)), u64(48)))):
            high = sub(middle, u32(1))
        else:
            low = middle
    return cell(descs, low, u32(DESC_BYTES))


def make(index: int) -> Any:
    """The kernel for offsets of `index` bits; parameters: _table.PARAMS."""
    look, to, step, kind = LOOK[index], at[index], mad[index], offset[index]
    stride = {32: load32, 64: load64}[index]

    @device
    def copy_chunk(box, axis, first):  # type: ignore[no-untyped-def]
        """Four words of the box for this thread, from word `first` of the chunk on."""
        end = load32(add64(box, u64(44)))
        w = add(first, u32(cuda.threadIdx.x))
        if not lt(w, end):
            return
        w1 = add(w, u32(LANES))
        w2 = add(w, u32(2 * LANES))
        w3 = add(w, u32(3 * LANES))
        more1 = lt(w1, end)
        more2 = lt(w2, end)
        more3 = lt(w3, end)
        stop = sub(end, u32(1))
        w1 = least(w1, stop)
        w2 = least(w2, stop)
        w3 = least(w3, stop)
        d = kind(0)
        d1 = kind(0)
        d2 = kind(0)
        d3 = kind(0)
        s = kind(0)
        s1 = kind(0)
        s2 = kind(0)
        s3 = kind(0)
        form = load32(add64(box, u64(60)))
        table_axis = shr(form, u32(AXIS_SHIFT))
        outermost = sub(load32(add64(box, u64(56))), u32(1))
        a = u32(0)
        while True:
            i = w
            i1 = w1
            i2 = w2
            i3 = w3
            if lt(a, outermost):
                n = load32(add64(axis, u64(16)))
                m = load32(add64(axis, u64(20)))
                h = load32(add64(axis, u64(24)))
                w = quotient(i, m, h)
                w1 = quotient(i1, m, h)
                w2 = quotient(i2, m, h)
                w3 = quotient(i3, m, h)
                i = sub(i, mul(w, n))
                i1 = sub(i1, mul(w1, n))
                i2 = sub(i2, mul(w2, n))
                i3 = sub(i3, mul(w3, n))
            dstride = stride(axis)
            sstride = stride(add64(axis, u64(8)))
            d = step(d, i, dstride)
            s = step(s, i, sstride)
            d1 = step(d1, i1, dstride)
            s1 = step(s1, i1, sstride)
            d2 = step(d2, i2, dstride)
            s2 = step(s2, i2, sstride)
            d3 = step(d3, i3, dstride)
            s3 = step(s3, i3, sstride)
            if a == table_axis:
                table = load64(add64(box, u64(16)))
                packed = load64(add64(box, u64(24)))
                guide = load64(add64(box, u64(32)))
                shift = load32(add64(box, u64(64)))
                start = load64(add64(box, u64(72)))
                d, s = look(d, s, i, table, packed, guide, shift, start, form)
                d1, s1 = look(d1, s1, i1, table, packed, guide, shift, start, form)
                d2, s2 = look(d2, s2, i2, table, packed, guide, shift, start, form)
                d3, s3 = look(d3, s3, i3, table, packed, guide, shift, start, form)
            if a == outermost:
                break
            a = add(a, u32(1))
            axis = add64(axis, u64(AXIS_BYTES))
        dst = load64(box)
        src = load64(add64(box, u64(8)))
        move_any(
            form, to(dst, d), to(src, s), to(dst, d1), to(src, s1), to(dst, d2), to(src, s2), to(dst, d3), to(src, s3),
            more1, more2, more3,
        )  # fmt: skip

    def kernel(descs, axes, map, map_shift, chunks):  # type: ignore[no-untyped-def]
        chunk = u32(cuda.blockIdx.x)
        while lt(chunk, chunks):
            box = box_of(chunk, descs, map, map_shift)
            inside = sub(chunk, load32(add64(box, u64(48))))
            axis = cell(axes, load32(add64(box, u64(52))), u32(AXIS_BYTES))
            copy_chunk(box, axis, add(load32(add64(box, u64(40))), mul(inside, u32(CHUNK))))
            chunk = add(chunk, u32(cuda.gridDim.x))

    return kernel
