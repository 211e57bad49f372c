"""PTX's types and the C representation of their values.

A register is an unsigned integer of its own width, whatever its type: PTX checks sizes, not kinds, and
newer compilers keep floats in .b32 registers. An operand is cast to the instruction's type when it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._errors import PtxError


@dataclass(frozen=True, slots=True)
class Type:
    """kind: u, s, b, f or pred (with the width of its C type)."""

    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def signed(self) -> bool:
        return self.kind == "s"

    @property
    def storage(self) -> str:
        return f"uint{self.bits}_t"

    @property
    def c(self) -> str:
        """The C type used to compute values of this type."""
        if self.kind == "f":
            return "float" if self.bits == 32 else "double"
        return f"int{self.bits}_t" if self.signed else self.storage

    @property
    def unsigned(self) -> Type:
        return Type("u", self.bits)


PRED = Type("pred", 8)
U32 = Type("u", 32)
U64 = Type("u", 64)
B32 = Type("b", 32)

INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
NARROW = ("u8", "s8", "b8")
BITS = ("b16", "b32", "b64")
FLOATS = ("f32", "f64")


def type_or_none(word: str) -> Type | None:
    if word == "pred":
        return PRED
    match = re.fullmatch(r"([usbf])(8|16|32|64)", word)
    if match is None or word in ("f8", "f16"):
        return None
    return Type(match.group(1), int(match.group(2)))


def ptx_type(word: str, line: int) -> Type:
    """The type that a word names; PtxError if it is no type or an unknown one."""
    found = type_or_none(word)
    if found is None:
        raise PtxError(line, f"unknown type .{word}")
    return found


def read_as(expression: str, have: int, want: Type) -> str:
    """A register of `have` bits as a value of type `want`."""
    if want.kind == "f":
        return f"tempi_ptx_f{want.bits}({expression})"
    return expression if want.storage == want.c and have == want.bits else f"({want.c}){expression}"


def written_as(expression: str, value: Type, have: int) -> str:
    """A value as the content of a register of `have` bits; signed types are sign-extended."""
    if value.kind == "f":
        return f"tempi_ptx_b{value.bits}({expression})"
    if value.signed and have > value.bits:
        return f"(uint{have}_t)(int{have}_t)({value.c})({expression})"
    return f"(uint{have}_t)({value.storage})({expression})"
