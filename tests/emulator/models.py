"""The results of PTX instructions, in Python integers, by the definitions of the PTX ISA.

Each case is one instruction with operands %a, %b, %c and result %d. `ins` and `out` are register types;
a predicate is 0 or 1, a float its bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

M16, M32, M64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class Case:
    text: str
    ins: str  # letters: p predicate, h 16, w 32, l 64 bits
    out: str
    model: Callable[..., int]

    @property
    def name(self) -> str:
        return self.text.split()[0]


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def as_type(x: int, kind: str) -> int:
    bits = int(kind[1:])
    return signed(x, bits) if kind[0] == "s" else x & ((1 << bits) - 1)


def f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & M32))[0])


def f64(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits & M64))[0])


def to_f32(x: float) -> int:
    try:
        return int(struct.unpack("<I", struct.pack("<f", x))[0])
    except OverflowError:
        return 0x7F800000 if x > 0 else 0xFF800000


def to_f64(x: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", x))[0])


def letter(bits: int) -> str:
    return {16: "h", 32: "w", 64: "l"}[bits]


def quotient(a: int, b: int) -> int:
    """Towards zero; all ones for division by zero, as the hardware answers."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * quotient(a, b)


COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
INTS = ("u16", "u32", "u64", "s16", "s32", "s64")


def arithmetic() -> Iterator[Case]:
    for kind in INTS:
        bits = int(kind[1:])
        r = letter(bits)
        t = partial(as_type, kind=kind)
        two = f".{kind} %d, %a, %b;"
        three = f".{kind} %d, %a, %b, %c;"
        yield Case(f"add{two}", r + r, r, lambda a, b: a + b)
        yield Case(f"sub{two}", r + r, r, lambda a, b: a - b)
        yield Case(f"mul.lo{two}", r + r, r, lambda a, b: a * b)
        yield Case(f"mul.hi{two}", r + r, r, lambda a, b, t=t, n=bits: t(a) * t(b) >> n)
        yield Case(f"mad.lo{three}", r * 3, r, lambda a, b, c: a * b + c)
        yield Case(f"mad.hi{three}", r * 3, r, lambda a, b, c, t=t, n=bits: (t(a) * t(b) >> n) + c)
        if bits < 64:
            wide = letter(2 * bits)
            yield Case(f"mul.wide{two}", r + r, wide, lambda a, b, t=t: t(a) * t(b))
            yield Case(f"mad.wide{three}", r + r + wide, wide, lambda a, b, c, t=t: t(a) * t(b) + c)
        yield Case(f"div{two}", r + r, r, lambda a, b, t=t: quotient(t(a), t(b)))
        yield Case(f"rem{two}", r + r, r, lambda a, b, t=t: remainder(t(a), t(b)))
        yield Case(f"min{two}", r + r, r, lambda a, b, t=t: min(t(a), t(b)))
        yield Case(f"max{two}", r + r, r, lambda a, b, t=t: max(t(a), t(b)))
        if kind[0] == "s":
            yield Case(f"neg.{kind} %d, %a;", r, r, lambda a: -a)
            yield Case(f"abs.{kind} %d, %a;", r, r, lambda a, t=t: abs(t(a)))


def table3(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))


def permute(a: int, b: int, selection: int) -> int:
    both, result = b << 32 | a, 0
    for i in range(4):
        select = selection >> 4 * i & 15
        byte = both >> 8 * (select & 7) & 255
        result |= (255 * (byte >> 7) if select & 8 else byte) << 8 * i
    return result


def extract(a: int, at: int, length: int, bits: int, is_signed: bool) -> int:
    at, length = at & 255, length & 255
    if length == 0:
        return 0
    sign = a >> min(at + length - 1, bits - 1) & 1 if is_signed else 0
    inside = [a >> (at + i) & 1 if at + i < bits else sign for i in range(min(length, bits))]
    return sum(bit << i for i, bit in enumerate(inside)) | sum(sign << i for i in range(len(inside), bits))


def insert(a: int, b: int, at: int, length: int, bits: int) -> int:
    at, length = at & 255, length & 255
    mask = sum(1 << i for i in range(at, min(at + length, bits)))
    return b & ~mask | (a << at) & mask


def first_bit(a: int, kind: str, amount: bool) -> int:
    bits = int(kind[1:])
    value = as_type(a, kind)
    value = ~value if value < 0 else value
    if value == 0:
        return M32
    return bits - value.bit_length() if amount else value.bit_length() - 1


def bits_of() -> Iterator[Case]:
    for bits in (16, 32, 64):
        r = letter(bits)
        yield Case(f"and.b{bits} %d, %a, %b;", r + r, r, lambda a, b: a & b)
        yield Case(f"or.b{bits} %d, %a, %b;", r + r, r, lambda a, b: a | b)
        yield Case(f"xor.b{bits} %d, %a, %b;", r + r, r, lambda a, b: a ^ b)
        yield Case(f"not.b{bits} %d, %a;", r, r, lambda a: ~a)
        yield Case(f"cnot.b{bits} %d, %a;", r, r, lambda a: int(a == 0))
        yield Case(f"shl.b{bits} %d, %a, %b;", r + "w", r, lambda a, b, n=bits: a << b if b < n else 0)
        for kind in ("b", "u"):
            yield Case(f"shr.{kind}{bits} %d, %a, %b;", r + "w", r, lambda a, b, n=bits: a >> b if b < n else 0)
        yield Case(f"shr.s{bits} %d, %a, %b;", r + "w", r, lambda a, b, n=bits: signed(a, n) >> min(b, n - 1))
        yield Case(f"mov.b{bits} %d, %a;", r, r, lambda a: a)
        yield Case(f"selp.b{bits} %d, %a, %b, %c;", r + r + "p", r, lambda a, b, c: a if c else b)
        if bits < 32:
            continue
        yield Case(f"popc.b{bits} %d, %a;", r, "w", lambda a: a.bit_count())
        yield Case(f"clz.b{bits} %d, %a;", r, "w", lambda a, n=bits: n - a.bit_length())
        yield Case(f"brev.b{bits} %d, %a;", r, r, lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2))
        yield Case(f"bfi.b{bits} %d, %a, %b, %c, 9;", r + r + "w", r, lambda a, b, c, n=bits: insert(a, b, c, 9, n))
        for kind in (f"u{bits}", f"s{bits}"):
            s = kind[0] == "s"
            yield Case(f"bfe.{kind} %d, %a, %b, %c;", r + "ww", r, lambda a, b, c, n=bits, s=s: extract(a, b, c, n, s))
            yield Case(f"bfind.{kind} %d, %a;", r, "w", lambda a, k=kind: first_bit(a, k, False))
            yield Case(f"bfind.shiftamt.{kind} %d, %a;", r, "w", lambda a, k=kind: first_bit(a, k, True))
    for word, operation in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
        yield Case(f"{word}.pred %d, %a, %b;", "pp", "p", operation)
    yield Case("not.pred %d, %a;", "p", "p", lambda a: 1 - a)
    yield Case("mov.pred %d, %a;", "p", "p", lambda a: a)
    for table in (0x1B, 0xE8, 0x80, 0xFE):
        text = f"lop3.b32 %d, %a, %b, %c, {table};"
        yield Case(text, "www", "w", lambda a, b, c, t=table: table3(a, b, c, t))
    yield Case("prmt.b32 %d, %a, %b, %c;", "www", "w", permute)
    for mode, count in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        yield Case(
            f"shf.l.{mode}.b32 %d, %a, %b, %c;",
            "www",
            "w",
            lambda a, b, c, count=count: (b << 32 | a) << count(c) >> 32,
        )
        yield Case(
            f"shf.r.{mode}.b32 %d, %a, %b, %c;", "www", "w", lambda a, b, c, count=count: (b << 32 | a) >> count(c)
        )


def comparing() -> Iterator[Case]:
    for kind in (*INTS, "b16", "b32", "b64"):
        r = letter(int(kind[1:]))
        for word, compare in COMPARE.items():
            if kind[0] == "b" and word not in ("eq", "ne"):
                continue
            yield Case(
                f"setp.{word}.{kind} %d, %a, %b;",
                r + r,
                "p",
                lambda a, b, k=kind, f=compare: int(f(as_type(a, k), as_type(b, k))),
            )
    for word, same in UNSIGNED.items():
        yield Case(f"setp.{word}.u32 %d, %a, %b;", "ww", "p", lambda a, b, f=COMPARE[same]: int(f(a, b)))
    for word, join in (("and", lambda x, c: x & c), ("or", lambda x, c: x | c), ("xor", lambda x, c: x ^ c)):
        yield Case(f"setp.lt.{word}.u32 %d, %a, %b, %c;", "wwp", "p", lambda a, b, c, join=join: join(int(a < b), c))
    for word, compare in COMPARE.items():
        for kind, value in (("f32", f32), ("f64", f64)):
            for unordered in (False, True):
                yield floats_compared(word, kind, value, compare, unordered)


def floats_compared(
    word: str, kind: str, value: Callable[[int], float], compare: Callable[[float, float], bool], unordered: bool
) -> Case:
    """With a u behind the word, true if one of the two is not a number; without it, false."""

    def model(a: int, b: int) -> int:
        x, y = value(a), value(b)
        return int(unordered if math.isnan(x) or math.isnan(y) else compare(x, y))

    r = letter(int(kind[1:]))
    return Case(f"setp.{word}{'u' if unordered else ''}.{kind} %d, %a, %b;", r + r, "p", model)


def whole(x: float, kind: str, source: int) -> int:
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    if math.isnan(x):
        return 0 if source == 32 and bits == 32 else 1 << bits - 1
    if math.isinf(x):
        return high if x > 0 else low
    return max(low, min(high, int(x)))


def converting() -> Iterator[Case]:
    for to in INTS:
        for source in INTS:
            r, d = letter(int(source[1:])), letter(int(to[1:]))
            yield Case(f"cvt.{to}.{source} %d, %a;", r, d, lambda a, k=source: as_type(a, k))
    for source in ("u8", "s8"):
        yield Case(f"cvt.s32.{source} %d, %a;", "w", "w", lambda a, k=source: as_type(a, k))
        yield Case(f"cvt.u16.{source} %d, %a;", "h", "h", lambda a, k=source: as_type(a, k))
    for to in ("u8", "s8"):
        yield Case(f"cvt.{to}.u32 %d, %a;", "w", "h", lambda a, k=to: as_type(a, k))
    for kind in ("u32", "s32", "u64", "s64"):
        r = letter(int(kind[1:]))
        yield Case(f"cvt.rn.f64.{kind} %d, %a;", r, "l", lambda a, k=kind: to_f64(float(as_type(a, k))))
        for source, value in (("f32", f32), ("f64", f64)):
            n = int(source[1:])
            yield Case(
                f"cvt.rzi.{kind}.{source} %d, %a;", letter(n), r, lambda a, k=kind, v=value, n=n: whole(v(a), k, n)
            )
    yield Case("cvt.rn.f32.s32 %d, %a;", "w", "w", lambda a: to_f32(float(signed(a, 32))))


CASES = (*arithmetic(), *bits_of(), *comparing(), *converting())
