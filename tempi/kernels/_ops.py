"""The kernels' instructions where Numba's own arithmetic would be slow or wrong.

Numba widens uint32 products to 64 bits, compares int64 with uint64 through float64 and guards
every division by a zero check. Each of these functions becomes one or two machine instructions.
`load` and `store` move one aligned word of 1 to 16 bytes of global memory (``ld.global.v4.u32`` for
16: PTX ISA 8.x, vectors). `fixed32`, `fixed64`, `fixed_words` and `fixed_longs` read what no kernel writes, descriptors
and tables (``ld.global.nc``), so the compiler may move them before stores. `merge` and `part` make a group of four
words of 1 or 2 bytes, and take it apart, by permutations of bytes in registers (``prmt``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

u32, u64 = types.uint32, types.uint64
I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
QUAD, PAIR = types.UniTuple(u32, 4), types.UniTuple(u64, 2)
_GLOBAL = 1  # NVPTX's number of the global address space


def _op(signature: Any, emit: Callable[..., Any]) -> Any:
    """A Numba function of that signature whose body is `emit(builder, *arguments)`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit(builder, *args)

    # Numba takes the number of parameters from the function.
    bodies = {
        1: lambda typing, a: (signature, codegen),
        2: lambda typing, a, b: (signature, codegen),
        3: lambda typing, a, b, c: (signature, codegen),
        4: lambda typing, a, b, c, d: (signature, codegen),
    }
    return intrinsic(bodies[len(signature.args)])


def _mulhi(b: Any, x: Any, y: Any) -> Any:
    return b.trunc(b.lshr(b.mul(b.zext(x, I64), b.zext(y, I64)), ir.Constant(I64, 32)), I32)


add = _op(u32(u32, u32), lambda b, x, y: b.add(x, y))
sub = _op(u32(u32, u32), lambda b, x, y: b.sub(x, y))
mul = _op(u32(u32, u32), lambda b, x, y: b.mul(x, y))
mulhi = _op(u32(u32, u32), _mulhi)
shr = _op(u32(u32, u32), lambda b, x, y: b.lshr(x, y))
shl = _op(u32(u32, u32), lambda b, x, y: b.shl(x, y))
band = _op(u32(u32, u32), lambda b, x, y: b.and_(x, y))
bor = _op(u32(u32, u32), lambda b, x, y: b.or_(x, y))
udiv = _op(u32(u32, u32), lambda b, x, y: b.udiv(x, y))
lt = _op(types.boolean(u32, u32), lambda b, x, y: b.icmp_unsigned("<", x, y))
least = _op(u32(u32, u32), lambda b, x, y: b.select(b.icmp_unsigned("<", x, y), x, y))


def _select(b: Any, condition: Any, x: Any, y: Any) -> Any:
    return b.select(b.trunc(condition, I1) if condition.type != I1 else condition, x, y)


# The second argument where the condition holds, else the third; both are computed.
choose = {32: _op(u32(types.boolean, u32, u32), _select), 64: _op(u64(types.boolean, u64, u64), _select)}

# 64-bit numbers: offsets and addresses, modulo 2^64.
wide = _op(u64(u32), lambda b, x: b.zext(x, I64))
narrow = _op(u32(u64), lambda b, x: b.trunc(x, I32))
joined = _op(
    u64(u32, u32), lambda b, low, high: b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), ir.Constant(I64, 32)))
)
add64 = _op(u64(u64, u64), lambda b, x, y: b.add(x, y))
sub64 = _op(u64(u64, u64), lambda b, x, y: b.sub(x, y))
shl64 = _op(u64(u64, u32), lambda b, x, y: b.shl(x, b.zext(y, I64)))
shr64 = _op(u64(u64, u32), lambda b, x, y: b.lshr(x, b.zext(y, I64)))
# base + index * bytes
cell = _op(u64(u64, u32, u32), lambda b, x, i, n: b.add(x, b.mul(b.zext(i, I64), b.zext(n, I64))))


def _pointer(b: Any, address: Any, kind: Any) -> Any:
    return b.inttoptr(address, ir.PointerType(kind, _GLOBAL))


def _loader(bits: int, kind: Any, fixed: bool = False) -> Any:
    def emit(b: Any, address: Any) -> Any:
        word = b.load(_pointer(b, address, ir.IntType(bits)))
        word.align = bits // 8
        return _mark(b, word) if fixed else word

    return _op(kind(u64), emit)


def _mark(b: Any, word: Any) -> Any:
    """A load of memory that stays as it is while the kernel runs."""
    word.set_metadata("invariant.load", b.module.add_metadata([]))
    return word


def _storer(bits: int, kind: Any) -> Any:
    def emit(b: Any, address: Any, value: Any) -> Any:
        b.store(value, _pointer(b, address, ir.IntType(bits))).align = bits // 8
        return ir.Constant(I32, 0)

    return _op(u32(u64, kind), emit)


_VECTOR = ir.VectorType(I32, 4)


def _load_quad(b: Any, address: Any) -> Any:
    vector = b.load(_pointer(b, address, _VECTOR))
    vector.align = 16
    quad = ir.Constant(ir.ArrayType(I32, 4), ir.Undefined)
    for i in range(4):
        quad = b.insert_value(quad, b.extract_element(vector, ir.Constant(I32, i)), i)
    return quad


def _store_quad(b: Any, address: Any, quad: Any) -> Any:
    vector = ir.Constant(_VECTOR, ir.Undefined)
    for i in range(4):
        vector = b.insert_element(vector, b.extract_value(quad, i), ir.Constant(I32, i))
    b.store(vector, _pointer(b, address, _VECTOR)).align = 16
    return ir.Constant(I32, 0)


_WORDS = {1: types.uint8, 2: types.uint16, 4: u32, 8: u64}
WORD = {**_WORDS, 16: QUAD}
load = {width: _loader(8 * width, kind) for width, kind in _WORDS.items()} | {16: _op(QUAD(u64), _load_quad)}
store = {width: _storer(8 * width, kind) for width, kind in _WORDS.items()} | {16: _op(u32(u64, QUAD), _store_quad)}
fixed32, fixed64 = _loader(32, u32, fixed=True), _loader(64, u64, fixed=True)


def _fixed_vector(part: Any, n: int, kind: Any, letter: str) -> Any:
    """Loads 16 bytes at this place of the code: LLVM would move a load behind the branches before its first use."""
    registers = ", ".join(f"${i}" for i in range(n))
    code = f"ld.global.nc.v{n}.u{part.width} {{{registers}}}, [${n}];"
    form = ir.FunctionType(ir.LiteralStructType([part] * n), [I64])
    constraints = ",".join([f"={letter}"] * n + ["l"])

    def emit(b: Any, address: Any) -> Any:
        loaded = b.asm(form, code, constraints, [address], side_effect=True)
        parts = ir.Constant(ir.ArrayType(part, n), ir.Undefined)
        for i in range(n):
            parts = b.insert_value(parts, b.extract_value(loaded, i), i)
        return parts

    return _op(kind(u64), emit)


fixed_words, fixed_longs = _fixed_vector(I32, 4, QUAD, "r"), _fixed_vector(I64, 2, PAIR, "l")


# -- groups of four words of 1 or 2 bytes -------------------------------------------------------------


def _permute(b: Any, x: Any, y: Any, selection: int) -> Any:
    """The bytes of x (0 to 3) and y (4 to 7) that the four digits select, the lowest first (PTX ISA, prmt)."""
    name = "llvm.nvvm.prmt"
    found = b.module.globals.get(name) or ir.Function(b.module, ir.FunctionType(I32, [I32] * 3), name)
    return b.call(found, [x, y, ir.Constant(I32, selection)])


def _merge_bytes(b: Any, *words: Any) -> Any:
    x, y, z, v = (b.zext(word, I32) for word in words)
    return _permute(b, _permute(b, x, y, 0x0040), _permute(b, z, v, 0x0040), 0x5410)


def _merge_shorts(b: Any, *words: Any) -> Any:
    x, y, z, v = (b.zext(word, I32) for word in words)
    low, high = _permute(b, x, y, 0x5410), _permute(b, z, v, 0x5410)
    return b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), ir.Constant(I64, 32)))


def _part(kind: Any, group: Any, bits: int, k: int) -> Any:
    whole = ir.IntType(4 * bits)
    return _op(kind(group), lambda b, x: b.trunc(b.lshr(x, ir.Constant(whole, bits * k)), ir.IntType(bits)))


GROUP = 4  # words
merge = {1: _op(u32(*[types.uint8] * 4), _merge_bytes), 2: _op(u64(*[types.uint16] * 4), _merge_shorts)}
part = {1: [_part(types.uint8, u32, 8, k) for k in range(4)], 2: [_part(types.uint16, u64, 16, k) for k in range(4)]}

# Offsets: a sum of index * stride, and the address that it leads to.
mad = {
    32: _op(u32(u32, u32, u32), lambda b, x, i, stride: b.add(x, b.mul(i, stride))),
    64: _op(u64(u64, u32, u64), lambda b, x, i, stride: b.add(x, b.mul(b.zext(i, I64), stride))),
}
at = {
    32: _op(u64(u64, u32), lambda b, base, x: b.add(base, b.sext(x, I64))),
    64: _op(u64(u64, u64), lambda b, base, x: b.add(base, x)),
}
not_above = {
    32: _op(types.boolean(u32, u32), lambda b, x, y: b.icmp_unsigned("<=", x, y)),
    64: _op(types.boolean(u64, u64), lambda b, x, y: b.icmp_unsigned("<=", x, y)),
}
plus = {32: add, 64: add64}
minus = {32: sub, 64: sub64}
offset = {32: u32, 64: u64}  # the type of an offset
as_offset = {32: narrow, 64: _op(u64(u64), lambda b, x: x)}
# A number of 4 or 8 bytes at an address, as an offset.
number4 = {
    32: fixed32,
    64: _op(u64(u64), lambda b, a: b.sext(_mark(b, b.load(_pointer(b, a, I32))), I64)),
}
