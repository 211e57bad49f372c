"""Loads, stores, moves, atomics."""

from __future__ import annotations

from . import _syntax as syntax
from ._types import BITS, FLOATS, INTEGERS, NARROW, Type, read_as
from ._writer import Words, Writer, instruction

CACHING = (
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc",
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
    "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B",
)  # fmt: skip
SCOPES = ("cta", "cluster", "gpu", "sys")
SPACES = ("global", "const", "shared", "shared::cta", "local", "param", "param::entry")


def space_of(words: Words) -> str:
    """The state space, "" for generic. A block is a cluster of its own; an entry has no other parameters."""
    return words.choice(*SPACES, default="").split("::")[0]


def ordering(words: Words) -> str:
    """The access's C11 memory order; "" if it is not atomic."""
    order = words.choice("weak", "volatile", "relaxed", "acquire", "release", "mmio", default="weak")
    if order == "mmio":
        words.choice("relaxed")
    if order in ("relaxed", "acquire", "release", "mmio"):
        words.choice(*SCOPES)
    return {"weak": "", "acquire": "__ATOMIC_ACQUIRE", "release": "__ATOMIC_RELEASE"}.get(order, "__ATOMIC_RELAXED")


def parts_of(words: Words, operand: syntax.Operand, count: int) -> tuple[syntax.Operand, ...]:
    """The registers of a vector operand, or the one register of a scalar."""
    if count == 1:
        return (operand,)
    if not isinstance(operand, syntax.Vector) or len(operand.parts) != count:
        raise words.error(f"{{...}} of {count} expected")
    return operand.parts


def access(words: Words) -> tuple[str, str, int, Type]:
    """The common parts of a load and a store: order, space, vector length, type."""
    order = ordering(words)
    space = space_of(words)
    words.any_of(*CACHING)
    count = int((words.choice("v2", "v4", "v8", default="v1"))[1:])
    kind = words.type(*NARROW, *INTEGERS, *BITS, *FLOATS)
    if count * kind.bits > 256:
        raise words.error("a vector of more than 256 bits")
    return order, space, count, kind


def bits_type(kind: Type) -> Type:
    """The type of a float's bits, since floats are moved as bits."""
    return Type("b", kind.bits) if kind.kind == "f" else kind


@instruction("ld", "ldu")
def load(w: Writer, words: Words) -> None:
    order, space, count, kind = access(words)
    destination, address = words.operands(2)
    kind = bits_type(kind)
    w.locate(address, space, count * kind.bytes)
    w.write(f"{kind.storage} x[{count}];")
    for i in range(count if order else 0):
        w.write(f"x[{i}] = __atomic_load_n(({kind.storage} *)(void *)p + {i}, {order});")
    if not order:
        w.write("memcpy(x, p, sizeof x);")
    for i, part in enumerate(parts_of(words, destination, count)):
        w.assign(part, kind, f"({kind.c})x[{i}]", wider=True)
    w.write("}")


@instruction("st")
def store(w: Writer, words: Words) -> None:
    order, space, count, kind = access(words)
    address, source = words.operands(2)
    kind = bits_type(kind)
    if space in ("const", "param"):
        raise words.error(f"a store to .{space}")
    w.locate(address, space, count * kind.bytes)
    values = [w.value(part, kind, wider=True) for part in parts_of(words, source, count)]
    w.write(f"const {kind.storage} x[{count}] = {{ {', '.join(f'({kind.storage})({v})' for v in values)} }};")
    for i in range(count if order else 0):
        w.write(f"__atomic_store_n(({kind.storage} *)(void *)p + {i}, x[{i}], {order});")
    if not order:
        w.write("memcpy(p, x, sizeof x);")
    w.write("}")


@instruction("mov")
def mov(w: Writer, words: Words) -> None:
    kind = bits_type(words.type("pred", *INTEGERS, *BITS, *FLOATS))
    d, a = words.operands(2)
    if isinstance(d, syntax.Vector):
        split(w, words, d.parts, w.value(a, kind), kind)
    elif isinstance(a, syntax.Vector):
        part = Type("b", kind.bits // len(a.parts))
        joined = " | ".join(f"({kind.storage}){w.value(x, part)} << {i * part.bits}" for i, x in enumerate(a.parts))
        w.assign(d, kind, joined)
    else:
        w.assign(d, kind, w.value(a, kind))


def split(w: Writer, words: Words, parts: tuple[syntax.Operand, ...], value: str, kind: Type) -> None:
    part = Type("b", kind.bits // len(parts))
    if part.bits not in (8, 16, 32):
        raise words.error("a vector of unknown parts")
    w.write(f"{{ const {kind.storage} x = {value};")
    for i, each in enumerate(parts):
        w.assign(each, part, f"({part.storage})(x >> {i * part.bits})")
    w.write("}")


@instruction("cvta")
def cvta(w: Writer, words: Words) -> None:
    """Generic addresses equal global ones; shared and local memory have windows of their own."""
    into = words.flag("to")
    space = space_of(words)
    kind = words.type("u64")
    d, a = words.operands(2)
    if isinstance(a, syntax.Address):
        raise words.error("an address in brackets")
    window = {
        "global": "0ull",
        "const": "0ull",
        "shared": "TEMPI_PTX_SHARED_WINDOW",
        "local": "TEMPI_PTX_LOCAL_WINDOW",
    }.get(space)
    if window is None:
        raise words.error(f"cvta of .{space or 'generic'}")
    w.assign(d, kind, f"{w.value(a, kind)} {'-' if into else '+'} {window}")


# ---- atomics ----------------------------------------------------------------------------------------

FETCH = {"add": "fetch_add", "and": "fetch_and", "or": "fetch_or", "xor": "fetch_xor", "exch": "exchange_n"}
CHOOSE = {
    "min": "x < y ? x : y",
    "max": "x > y ? x : y",
    "inc": "x >= y ? 0 : x + 1",
    "dec": "x == 0 || x > y ? y : x - 1",
}
ATOMIC = {
    "add": ("u32", "s32", "u64", *FLOATS),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
    "min": ("u32", "u64", "s32", "s64"),
    "max": ("u32", "u64", "s32", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
}


@instruction("atom", "red")
def atom(w: Writer, words: Words) -> None:
    """Always sequentially consistent: a stronger order than requested is also correct."""
    fetches = words.instruction.opcode == "atom"
    words.choice("relaxed", "acquire", "release", "acq_rel", default="")
    words.choice(*SCOPES, default="")
    space = words.choice("global", "shared", "shared::cta", default="").split("::")[0]
    operation = words.choice(*ATOMIC)
    kind = words.type(*ATOMIC[operation])
    wanted = (3 if operation == "cas" else 2) + fetches
    operands = words.operands(wanted)
    destination = operands[0] if fetches else syntax.Name("_")
    address, *values = operands[1:] if fetches else operands
    w.locate(address, space, kind.bytes)
    sources = [w.value(v, kind) for v in values]
    w.write(f"{kind.storage} *const q = ({kind.storage} *)(void *)p; {kind.storage} old;")
    if operation == "cas":
        w.write(f"old = {sources[0]};")
        w.write(f"__atomic_compare_exchange_n(q, &old, {sources[1]}, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);")
    elif operation in FETCH and kind.kind != "f":
        w.write(f"old = __atomic_{FETCH[operation]}(q, ({kind.storage}){sources[0]}, __ATOMIC_SEQ_CST);")
    else:
        exchange(w, kind, CHOOSE.get(operation, "x + y"), sources[0])
    raw = Type("b", kind.bits)
    w.assign(destination, raw, "old")
    w.write("}")


def exchange(w: Writer, kind: Type, choose: str, source: str) -> None:
    """An operation missing in C's atomics, by compare and exchange."""
    new = f"tempi_ptx_b{kind.bits}(z)" if kind.kind == "f" else "z"
    w.write("old = __atomic_load_n(q, __ATOMIC_SEQ_CST); for (;;) {")
    w.write(f"const {kind.c} x = {read_as('old', kind.bits, kind)}; const {kind.c} y = {source};")
    w.write(f"const {kind.c} z = ({kind.c})({choose});")
    w.write(f"if (__atomic_compare_exchange_n(q, &old, ({kind.storage}){new}, 0,")
    w.write("__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break; }")


@instruction("prefetch", "prefetchu")
def prefetch(w: Writer, words: Words) -> None:
    words.choice("global", default="")
    words.choice("L1", "L2")
    words.operands(1)


@instruction("membar", "fence")
def fence(w: Writer, words: Words) -> None:
    if words.instruction.opcode == "membar":
        words.choice("cta", "gl", "sys")
    else:
        words.choice("sc", "acq_rel", default="")
        words.choice(*SCOPES)
    words.operands(0)
    w.write("__atomic_thread_fence(__ATOMIC_SEQ_CST);")


# ---- copies to shared memory ----------------------------------------------------------------------


@instruction("cp")
def copy(w: Writer, words: Words) -> None:
    """cp.async completes at once, which PTX permits."""
    words.choice("async")
    if words.choice("commit_group", "wait_all", "wait_group", default=""):
        words.operands(0, 1)
        return
    words.choice("ca", "cg")
    words.choice("shared", "shared::cta")
    words.choice("global")
    words.any_of("L2::64B", "L2::128B", "L2::256B")
    to, source, size = words.operands(3)
    if not isinstance(size, syntax.Immediate) or size.value not in (4, 8, 16):
        raise words.error("a size that is not 4, 8 or 16")
    w.locate(source, "global", size.value)
    w.write("const uint8_t *const from = p;")
    w.locate(to, "shared", size.value)
    w.write(f"memcpy(p, from, {size.value}); }} }}")
