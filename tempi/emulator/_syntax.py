"""PTX tokens to a tree: a module of variables and kernels, a kernel of statements.

The tree keeps the text as written. The translation decides what an instruction means and whether its modifiers
are known; names are bound here, since PTX scopes nest.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """A register, under the C name that is unique in its kernel."""

    name: str
    kind: str  # from the type: u, s, b, f or pred
    bits: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable; its space is global, const, shared, local or param."""

    name: str
    space: str
    size: int
    align: int
    values: bytes = b""  # the first bytes; the others are zero
    dynamic: bool = False  # shared memory whose size is set at launch


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal: an integer, or the bits of a float of that many bits."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Name:
    """A special register, a label or the sink _."""

    text: str


@dataclass(frozen=True, slots=True)
class Address:
    """[base + offset]."""

    base: Operand
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """{a, b, ...}."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """a|b, two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """!p."""

    operand: Operand


Operand = Register | Variable | Immediate | Name | Address | Vector | Pair | Not


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; modifiers are the words after the first, `guard` is the predicate before it."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Operand | None
    line: int
    text: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target, under its C name."""

    name: str
    line: int


@dataclass(slots=True)
class Scope:
    """A pair of braces: inner names hide outer ones."""

    parent: Scope | None
    number: int
    names: dict[str, Register | Variable] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def find(self, name: str) -> Register | Variable | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def label(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


@dataclass(slots=True)
class Kernel:
    """An .entry."""

    name: str
    line: int
    params: list[Variable] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    locals: list[Variable] = field(default_factory=list)
    shared: list[Variable] = field(default_factory=list)
    body: list[Instruction | Label] = field(default_factory=list)
    max_threads: int = 0


@dataclass(slots=True)
class Module:
    """A PTX text: isa 80 for .version 8.0, target 70 for sm_70."""

    isa: int = 0
    target: int = 0
    variables: list[Variable] = field(default_factory=list)
    shared: list[Variable] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
