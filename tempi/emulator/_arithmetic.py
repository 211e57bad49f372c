"""Integer, bit and floating-point instructions.

Integers are computed unsigned, since C defines their overflow, and read as signed only if the sign
matters.
"""

from __future__ import annotations

from ._types import B32, BITS, FLOATS, INTEGERS, NARROW, PRED, U32, Type
from ._writer import Words, Writer, instruction

COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
# Float comparisons: true if neither operand is NaN and the relation holds; with a u suffix, also true if either is
# NaN. C has only the first kind, except for !=.
UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


def float_compare(compare: str, a: str, b: str) -> str:
    if compare in UNORDERED:
        return f"!{float_compare(UNORDERED[compare], a, b)}"
    if compare == "ne":
        return f"({a} < {b} || {a} > {b})"
    return f"({a} {COMPARE[compare]} {b})"


@instruction("add", "sub")
def add(w: Writer, words: Words) -> None:
    operator = "+" if words.instruction.opcode == "add" else "-"
    rounding(words)
    kind = words.type(*INTEGERS, *FLOATS)
    d, a, b = words.operands(3)
    as_type = kind if kind.kind == "f" else kind.unsigned
    w.assign(d, as_type, f"{w.value(a, as_type)} {operator} {w.value(b, as_type)}")


def rounding(words: Words) -> None:
    """Accepts only round to nearest even, which is C's rounding; no flushing of denormals."""
    words.flag("rn")


def product(w: Writer, a: str, b: str, kind: Type, part: str) -> tuple[Type, str]:
    """The low, high or whole product of two values read as `kind`."""
    wide = Type(kind.kind, 2 * kind.bits)
    if part == "wide":
        if kind.bits == 64:
            raise w.error(".wide of 64 bits")
        return wide, f"(({wide.c}){a} * ({wide.c}){b})"
    if part == "lo":
        # Through uint64_t: two uint16_t would be promoted to int and may overflow it.
        return kind.unsigned, f"((uint64_t){a} * (uint64_t){b})"
    if kind.bits == 64:
        return kind.unsigned, f"tempi_ptx_mulhi_{kind.kind}64({a}, {b})"
    return kind.unsigned, f"({kind.c})((({wide.c}){a} * ({wide.c}){b}) >> {kind.bits})"


@instruction("mul")
def mul(w: Writer, words: Words) -> None:
    part = words.choice("lo", "hi", "wide", default="")
    rounding(words)
    kind = words.type(*(INTEGERS if part else FLOATS))
    d, a, b = words.operands(3)
    if not part:
        w.assign(d, kind, f"{w.value(a, kind)} * {w.value(b, kind)}")
        return
    w.assign(d, *product(w, w.value(a, kind), w.value(b, kind), kind, part))


@instruction("mad")
def mad(w: Writer, words: Words) -> None:
    part = words.choice("lo", "hi", "wide")
    kind = words.type(*INTEGERS)
    d, a, b, c = words.operands(4)
    result, expression = product(w, w.value(a, kind), w.value(b, kind), kind, part)
    unsigned = result.unsigned
    w.assign(d, unsigned, f"({unsigned.c}){expression} + {w.value(c, unsigned)}")


@instruction("fma")
def fma(w: Writer, words: Words) -> None:
    words.choice("rn")
    kind = words.type(*FLOATS)
    d, a, b, c = words.operands(4)
    function = "fmaf" if kind.bits == 32 else "fma"
    w.assign(d, kind, f"{function}({w.value(a, kind)}, {w.value(b, kind)}, {w.value(c, kind)})")


@instruction("div", "rem")
def div(w: Writer, words: Words) -> None:
    opcode = words.instruction.opcode
    rounded = words.flag("rn")
    kind = words.type(*(FLOATS if rounded else INTEGERS))
    d, a, b = words.operands(3)
    left, right = w.value(a, kind), w.value(b, kind)
    if rounded and opcode == "div":
        w.assign(d, kind, f"{left} / {right}")
    elif rounded:
        raise words.error("rem of floats")
    else:
        w.assign(d, kind, f"tempi_ptx_{opcode}_{kind.kind}({left}, {right})")


@instruction("min", "max")
def least(w: Writer, words: Words) -> None:
    opcode = words.instruction.opcode
    kind = words.type(*INTEGERS, *FLOATS)
    d, a, b = words.operands(3)
    left, right = w.value(a, kind), w.value(b, kind)
    if kind.kind == "f":
        w.assign(d, kind, f"f{opcode}{'f' if kind.bits == 32 else ''}({left}, {right})")
        return
    w.assign(d, kind, f"{left} {'<' if opcode == 'min' else '>'} {right} ? {left} : {right}")


@instruction("neg", "abs")
def negate(w: Writer, words: Words) -> None:
    kind = words.type("s16", "s32", "s64", *FLOATS)
    d, a = words.operands(2)
    value = w.value(a, kind)
    unsigned = kind if kind.kind == "f" else kind.unsigned
    minus = f"-{value}" if kind.kind == "f" else f"(0 - {w.value(a, unsigned)})"
    if words.instruction.opcode == "neg":
        w.assign(d, unsigned, minus)
    elif kind.kind == "f":
        w.assign(d, kind, f"fabs{'f' if kind.bits == 32 else ''}({value})")
    else:
        w.assign(d, unsigned, f"{value} < 0 ? {minus} : {w.value(a, unsigned)}")


@instruction("sqrt")
def sqrt(w: Writer, words: Words) -> None:
    words.choice("rn")
    kind = words.type(*FLOATS)
    d, a = words.operands(2)
    w.assign(d, kind, f"sqrt{'f' if kind.bits == 32 else ''}({w.value(a, kind)})")


# ---- bits ------------------------------------------------------------------------------------------


@instruction("and", "or", "xor")
def logic(w: Writer, words: Words) -> None:
    operator = {"and": "&", "or": "|", "xor": "^"}[words.instruction.opcode]
    kind = words.type("pred", *BITS)
    d, a, b = words.operands(3)
    w.assign(d, kind, f"{w.value(a, kind)} {operator} {w.value(b, kind)}")


@instruction("not", "cnot")
def complement(w: Writer, words: Words) -> None:
    bitwise = words.instruction.opcode == "not"
    kind = words.type("pred", *BITS) if bitwise else words.type(*BITS)
    d, a = words.operands(2)
    logical = kind.kind == "pred" or not bitwise
    w.assign(d, kind, f"{'!' if logical else '~'}{w.value(a, kind)}")


@instruction("lop3")
def lop3(w: Writer, words: Words) -> None:
    kind = words.type("b32")
    d, a, b, c, table = words.operands(5)
    values = ", ".join(w.value(x, kind) for x in (a, b, c, table))
    w.assign(d, kind, f"tempi_ptx_lop3({values})")


@instruction("shl", "shr")
def shift(w: Writer, words: Words) -> None:
    opcode = words.instruction.opcode
    kind = words.type(*BITS, *(INTEGERS if opcode == "shr" else ()))
    d, a, by = words.operands(3)
    which = "shl" if opcode == "shl" else f"shr_{'s' if kind.signed else 'u'}"
    w.assign(d, kind, f"tempi_ptx_{which}({w.value(a, kind)}, {w.value(by, U32)}, {kind.bits})")


@instruction("shf")
def funnel(w: Writer, words: Words) -> None:
    way = words.choice("l", "r")
    wrap = words.choice("wrap", "clamp") == "wrap"
    kind = words.type("b32")
    d, a, b, by = words.operands(4)
    count = w.value(by, U32)
    count = f"({count} & 31)" if wrap else count
    w.assign(d, kind, f"tempi_ptx_shf_{way}({w.value(a, kind)}, {w.value(b, kind)}, {count})")


@instruction("prmt")
def prmt(w: Writer, words: Words) -> None:
    kind = words.type("b32")
    d, a, b, selection = words.operands(4)
    w.assign(d, kind, f"tempi_ptx_prmt({w.value(a, kind)}, {w.value(b, kind)}, {w.value(selection, kind)})")


@instruction("bfe")
def bfe(w: Writer, words: Words) -> None:
    kind = words.type("u32", "u64", "s32", "s64")
    d, a, at, length = words.operands(4)
    value = w.value(a, kind.unsigned)
    place = f"{w.value(at, U32)}, {w.value(length, U32)}"
    w.assign(d, kind.unsigned, f"tempi_ptx_bfe({value}, {place}, {kind.bits}, {int(kind.signed)})")


@instruction("bfi")
def bfi(w: Writer, words: Words) -> None:
    kind = words.type("b32", "b64")
    d, a, b, at, length = words.operands(5)
    place = f"{w.value(at, U32)}, {w.value(length, U32)}"
    w.assign(d, kind, f"tempi_ptx_bfi({w.value(a, kind)}, {w.value(b, kind)}, {place}, {kind.bits})")


@instruction("popc", "clz", "brev")
def count_bits(w: Writer, words: Words) -> None:
    opcode = words.instruction.opcode
    kind = words.type("b32", "b64")
    d, a = words.operands(2)
    value = w.value(a, kind)
    if opcode == "brev":
        w.assign(d, kind, f"tempi_ptx_brev({value}, {kind.bits})")
    elif opcode == "clz":
        w.assign(d, B32, f"tempi_ptx_clz({value}, {kind.bits})")
    else:
        w.assign(d, B32, f"__builtin_popcountll({value})")


@instruction("bfind")
def bfind(w: Writer, words: Words) -> None:
    amount = int(words.flag("shiftamt"))
    kind = words.type("u32", "u64", "s32", "s64")
    d, a = words.operands(2)
    value = w.value(a, kind)
    unsigned = w.value(a, kind.unsigned)
    value = f"({value} < 0 ? ({kind.storage})~{unsigned} : {unsigned})" if kind.signed else unsigned
    w.assign(d, U32, f"tempi_ptx_bfind({value}, {kind.bits}, {amount})")


# ---- comparing and choosing -------------------------------------------------------------------------


@instruction("setp")
def setp(w: Writer, words: Words) -> None:
    compare = words.choice(*COMPARE, *UNORDERED)
    combine = words.choice("and", "or", "xor", default="")
    kind = words.type(*INTEGERS, *BITS, *FLOATS)
    operands = words.operands(4 if combine else 3)
    d, a, b = operands[:3]
    if kind.kind == "b" and compare not in ("eq", "ne"):
        raise words.error("bits have no order")
    if (kind.kind != "f" and compare in UNORDERED) or (kind.kind != "u" and compare in ("lo", "ls", "hi", "hs")):
        raise words.error(f".{compare} of .{kind.kind}{kind.bits}")
    if kind.kind == "f":
        truth = float_compare(compare, w.value(a, kind), w.value(b, kind))
    else:
        truth = f"({w.value(a, kind)} {COMPARE[compare]} {w.value(b, kind)})"
    if combine:
        operator = {"and": "&&", "or": "||", "xor": "^"}[combine]
        truth = f"({truth} {operator} {w.value(operands[3], PRED)})"
    w.assign(d, PRED, truth)


@instruction("selp")
def selp(w: Writer, words: Words) -> None:
    kind = words.type(*INTEGERS, *BITS, *FLOATS)
    d, a, b, p = words.operands(4)
    w.assign(d, kind, f"{w.value(p, PRED)} ? {w.value(a, kind)} : {w.value(b, kind)}")


@instruction("cvt")
def cvt(w: Writer, words: Words) -> None:
    way = words.choice("rn", "rzi", "rni", "rz", default="")
    words_types = (*INTEGERS, *NARROW, *FLOATS)
    to, source = words.type(*words_types), words.type(*words_types)
    d, a = words.operands(2)
    value = w.value(a, source, wider=True)
    if to.kind == "f" and source.kind == "f":
        narrows = to.bits < source.bits
        if narrows != (way == "rn") or way not in ("", "rn"):
            raise words.error("a rounding that is not supported")
    elif to.kind == "f":
        if way != "rn":
            raise words.error("a rounding that is not supported")
    elif source.kind == "f":
        value = to_integer(words, value, way, source, to)
    elif way:
        raise words.error("a rounding that is not supported")
    w.assign(d, to, f"({to.c})({value})", wider=True)


def to_integer(words: Words, value: str, way: str, source: Type, to: Type) -> str:
    """A float as an integer, clamped to the range; NaN gives 0, or the top bit for 64-bit types."""
    if way not in ("rzi", "rni") or to.bits < 32:
        raise words.error("a conversion that is not supported")
    suffix = "f" if source.bits == 32 else ""
    rounded = f"{'trunc' if way == 'rzi' else 'rint'}{suffix}({value})"
    nan = 0 if source.bits == 32 and to.bits == 32 else 1 << to.bits - 1
    return f"tempi_ptx_to_{to.kind}{to.bits}({rounded}, {nan}ull)"
