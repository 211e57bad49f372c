"""Moves four words from four addresses to four others; the width is known only at run time.

The branch on the width is the same for a whole block. All loads precede the first store, so that
four are in flight. Words past the end are read (the caller passes the address of an existing word for
them) but not written.

Words of 1 and 2 bytes whose packed side is contiguous move in groups: a thread's four words are neighbours there, and
their group is a word of 4 or 8 bytes, aligned (the planner's `lead`). On the memory side each moves on its own.

    memory side   |a| . |b| . |c| . |e|        four loads of a byte   (GATHER), or four stores (SCATTER)
                    \\    |   /    ,-'
    packed side      |a b c e|                 one store of 4 bytes   (GATHER), or one load (SCATTER)
"""

from __future__ import annotations

from typing import Any

from tempi.kernels._ops import GROUP, add, band, choose, load, lt, merge, part, shl, shr, store, sub, u32
from tempi.kernels._place import device

# A kernel's `form`: bits 0 to 2 are the binary logarithm of the word's bytes, then the kind of table, then
# how narrow words are grouped; the highest byte is the shift of a table's guide, in the boxes kernels.
WIDTH_BITS, WIDE, UNPACK, VARIABLE, GATHER, SCATTER = 7, 8, 16, 32, 64, 128
AXIS_SHIFT = 8  # from this bit on: the table's axis, in the boxes kernels; NO_TABLE: none
NO_TABLE = 255
LEAD_SHIFT = 16  # from this bit on, two bits: words between the start of the first group and the first word
_GROUP_LOG2 = GROUP.bit_length() - 1
choose_word = choose[32]


@device
def lead_of(form):  # type: ignore[no-untyped-def]
    return band(shr(form, u32(LEAD_SHIFT)), u32(GROUP - 1))


@device
def grouped(form):  # type: ignore[no-untyped-def]
    return band(form, u32(GATHER | SCATTER)) != u32(0)


@device
def spacing(form, apart):  # type: ignore[no-untyped-def]
    """Words from one of a thread's words to its next: 1 within a group, else `apart`."""
    return choose_word(grouped(form), u32(1), apart)


@device
def starts_at(form, thread):  # type: ignore[no-untyped-def]
    """Words before a thread's first one, counted from the start of the first group."""
    return choose_word(grouped(form), shl(thread, u32(_GROUP_LOG2)), thread)


@device
def existing(w, first, count):  # type: ignore[no-untyped-def]
    """(w, whether it is one of the `count` words from `first` on; if not, the last of them in its place)."""
    has = lt(sub(w, first), count)
    return choose_word(has, w, sub(add(first, count), u32(1))), has


def _mover(width: int, groups: bool = False) -> Any:
    """The first of a thread's words is outside only where they are a group."""
    get, put = load[width], store[width]

    @device
    def move(d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3):  # type: ignore[no-untyped-def]
        a = get(s)
        b = get(s1)
        c = get(s2)
        e = get(s3)
        if has or not groups:
            put(d, a)
        if has1:
            put(d1, b)
        if has2:
            put(d2, c)
        if has3:
            put(d3, e)

    return move


def _grouper(width: int) -> Any:
    get, put, plain = load[width], store[width], _mover(width, groups=True)
    get_group, put_group, join = load[GROUP * width], store[GROUP * width], merge[width]
    part0, part1, part2, part3 = part[width]

    @device
    def move(form, d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3):  # type: ignore[no-untyped-def]
        whole = has and has1 and has2 and has3
        if whole and band(form, u32(GATHER)):
            put_group(d, join(get(s), get(s1), get(s2), get(s3)))
        elif whole and band(form, u32(SCATTER)):
            group = get_group(s)
            put(d, part0(group))
            put(d1, part1(group))
            put(d2, part2(group))
            put(d3, part3(group))
        else:
            plain(d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3)

    return move


_group1, _group2 = _grouper(1), _grouper(2)
_move4, _move8, _move16 = (_mover(width) for width in (4, 8, 16))


@device
def move_any(form, d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3):  # type: ignore[no-untyped-def]
    width = band(form, u32(WIDTH_BITS))
    if width == u32(4):
        _move16(d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3)
    elif width == u32(3):
        _move8(d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3)
    elif width == u32(2):
        _move4(d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3)
    elif width == u32(1):
        _group2(form, d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3)
    else:
        _group1(form, d, s, d1, s1, d2, s2, d3, s3, has, has1, has2, has3)


def _single(width: int) -> Any:
    get, put = load[width], store[width]

    @device
    def move(d, s):  # type: ignore[no-untyped-def]
        put(d, get(s))

    return move


_one1, _one2, _one4, _one8, _one16 = (_single(1 << i) for i in range(5))


@device
def move_one(form, d, s):  # type: ignore[no-untyped-def]
    """One word, where a thread has no more."""
    width = band(form, u32(WIDTH_BITS))
    if width == u32(4):
        _one16(d, s)
    elif width == u32(3):
        _one8(d, s)
    elif width == u32(2):
        _one4(d, s)
    elif width == u32(1):
        _one2(d, s)
    else:
        _one1(d, s)
