"""The kernels' instructions where Numba's own arithmetic would be slow or wrong.

Numba widens uint32 products to 64 bits, compares int64 with uint64 through float64 and guards
every division by a zero check. Each of these functions becomes one or two machine instructions.
`load` and `store` move one aligned word of 1 to 16 bytes of global memory (``ld.global.v4.u32`` for
16: PTX ISA 8.x, vectors).
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
QUAD = types.UniTuple(u32, 4)
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
    }
    return intrinsic(bodies[len(signature.args)])


def _mulhi(b: Any, x: Any, y: Any) -> Any:
    return b.trunc(b.lshr(b.mul(b.zext(x, I64), b.zext(y, I64)), ir.Constant(I64, 32)), I32)


add = _op(u32(u32, u32), lambda b, x, y: b.add(x, y))
sub = _op(u32(u32, u32), lambda b, x, y: b.sub(x, y))
mul = _op(u32(u32, u32), lambda b, x, y: b.mul(x, y))
mulhi = _op(u32(u32, u32), _mulhi)
shr = _op(u32(u32, u32), lambda b, x, y: b.lshr(x, y))
band = _op(u32(u32, u32), lambda b, x, y: b.and_(x, y))
udiv = _op(u32(u32, u32), lambda b, x, y: b.udiv(x, y))
lt = _op(types.boolean(u32, u32), lambda b, x, y: b.icmp_unsigned("<", x, y))
least = _op(u32(u32, u32), lambda b, x, y: b.select(b.icmp_unsigned("<", x, y), x, y))

# 64-bit numbers: offsets and addresses, modulo 2^64.
wide = _op(u64(u32), lambda b, x: b.zext(x, I64))
narrow = _op(u32(u64), lambda b, x: b.trunc(x, I32))
add64 = _op(u64(u64, u64), lambda b, x, y: b.add(x, y))
sub64 = _op(u64(u64, u64), lambda b, x, y: b.sub(x, y))
shl64 = _op(u64(u64, u32), lambda b, x, y: b.shl(x, b.zext(y, I64)))
shr64 = _op(u64(u64, u32), lambda b, x, y: b.lshr(x, b.zext(y, I64)))
le64 = _op(types.boolean(u64, u64), lambda b, x, y: b.icmp_unsigned("<=", x, y))
# base + index * bytes
cell = _op(u64(u64, u32, u32), lambda b, x, i, n: b.add(x, b.mul(b.zext(i, I64), b.zext(n, I64))))


def _pointer(b: Any, address: Any, kind: Any) -> Any:
    return b.inttoptr(address, ir.PointerType(kind, _GLOBAL))


def _loader(bits: int, kind: Any) -> Any:
    def emit(b: Any, address: Any) -> Any:
        word = b.load(_pointer(b, address, ir.IntType(bits)))
        word.align = bits // 8
        return word

    return _op(kind(u64), emit)


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
load32, load64 = load[4], load[8]

# Offsets: a sum of index * stride, and the address that it leads to.
mad = {
    32: _op(u32(u32, u32, u32), lambda b, x, i, stride: b.add(x, b.mul(i, stride))),
    64: _op(u64(u64, u32, u64), lambda b, x, i, stride: b.add(x, b.mul(b.zext(i, I64), stride))),
}
at = {
    32: _op(u64(u64, u32), lambda b, base, x: b.add(base, b.sext(x, I64))),
    64: _op(u64(u64, u64), lambda b, base, x: b.add(base, x)),
}
plus = {32: add, 64: add64}
minus = {32: sub, 64: sub64}
offset = {32: u32, 64: u64}  # the type of an offset
as_offset = {32: narrow, 64: _op(u64(u64), lambda b, x: x)}
# A number of 4 or 8 bytes at an address, as an offset.
number4 = {
    32: load32,
    64: _op(u64(u64), lambda b, a: b.sext(b.load(_pointer(b, a, I32)), I64)),
}
