"""Writes one kernel as C: operands, modifiers, memory. The instructions are in _arithmetic, _memory and
_control, each registered under its opcode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from . import _syntax as syntax
from ._errors import PtxError
from ._types import PRED, Type, read_as, type_or_none, written_as

SPECIAL = {f"%{name}.{axis}": f"{of}->{name}[{i}]"
           for name, of in (("tid", "t"), ("ntid", "b"), ("ctaid", "b"), ("nctaid", "b"))
           for i, axis in enumerate("xyz")} | {
    "%laneid": "t->lane",
    "%warpid": "t->warp",
    "%lanemask_eq": "(1u << t->lane)",
    "%lanemask_lt": "((1u << t->lane) - 1u)",
    "%lanemask_le": "(((1u << t->lane) - 1u) | 1u << t->lane)",
    "%lanemask_gt": "~(((1u << t->lane) - 1u) | 1u << t->lane)",
    "%lanemask_ge": "~((1u << t->lane) - 1u)",
    "%dynamic_smem_size": "(b->shared_size - b->shared_static)",
    "%total_smem_size": "b->shared_size",
    "WARP_SZ": "32u",
}  # fmt: skip

T = TypeVar("T")


class Words:
    """The modifiers of an instruction; its handler must consume each of them."""

    def __init__(self, instruction: syntax.Instruction) -> None:
        self.instruction = instruction
        self.left = list(instruction.modifiers)

    def error(self, message: str) -> PtxError:
        return PtxError(self.instruction.line, f"{message} in {self.instruction.text!r}")

    def choice(self, *words: str, default: str | None = None) -> str:
        """The next modifier, which must be one of these words."""
        if self.left and self.left[0] in words:
            return self.left.pop(0)
        if default is None:
            found = f".{self.left[0]}" if self.left else "nothing"
            raise self.error(f"unknown modifier: {found} where one of {', '.join(words)} belongs,")
        return default

    def flag(self, word: str) -> bool:
        return bool(self.choice(word, default=""))

    def any_of(self, *words: str) -> list[str]:
        """All leading modifiers that are among these words."""
        taken = []
        while self.left and self.left[0] in words:
            taken.append(self.left.pop(0))
        return taken

    def type(self, *allowed: str) -> Type:
        """The next modifier as a type; with `allowed`, one of these."""
        word = self.left.pop(0) if self.left else ""
        found = type_or_none(word)
        if found is None or (allowed and word not in allowed):
            raise self.error(f"unknown modifier: .{word} where a type belongs,")
        return found

    def done(self) -> None:
        if self.left:
            raise self.error(f"unknown modifier: .{self.left[0]}")

    def operands(self, *counts: int) -> tuple[syntax.Operand, ...]:
        """All operands, after the last modifier; their number must be one of these."""
        self.done()
        found = self.instruction.operands
        if len(found) not in counts:
            raise self.error(f"{len(found)} operands where {' or '.join(map(str, counts))} belong,")
        return found


class Writer:
    """The C text of one kernel under construction."""

    def __init__(self, kernel: syntax.Kernel, waits: bool, places: dict[str, int]) -> None:
        self.kernel = kernel
        self.waits = waits
        self.places = places  # offsets of shared, local and param variables
        self.lines: list[str] = []
        self.sites = 0
        self.stops = 0
        self.here: syntax.Instruction | None = None

    def write(self, line: str) -> None:
        self.lines.append(line)

    def error(self, message: str) -> PtxError:
        assert self.here is not None
        return PtxError(self.here.line, f"{message} in {self.here.text!r}")

    # ---- operands ---------------------------------------------------------------------------------

    def register(self, register: syntax.Register) -> str:
        return f"r->{register.name}" if self.waits else register.name

    def value(self, operand: syntax.Operand, want: Type, *, wider: bool = False) -> str:
        """An operand read as a type; `wider` if PTX permits a register wider than the type."""
        if isinstance(operand, syntax.Register):
            if (operand.kind == "pred") != (want.kind == "pred"):
                raise self.error("a predicate and a number mixed")
            if operand.bits != want.bits and not (wider and operand.bits > want.bits and want.kind != "f"):
                raise self.error(f"a register of {operand.bits} bits read as .{want.kind}{want.bits}")
            return read_as(self.register(operand), operand.bits, want)
        if isinstance(operand, syntax.Immediate):
            return self.immediate(operand, want)
        if isinstance(operand, syntax.Variable):
            return f"({want.c})({self.place(operand)})"
        if isinstance(operand, syntax.Not) and want.kind == "pred":
            return f"!{self.value(operand.operand, PRED)}"
        if isinstance(operand, syntax.Name):
            return f"({want.c}){self.special(operand)}"
        raise self.error("an operand of the wrong form")

    def special(self, name: syntax.Name) -> str:
        if name.text not in SPECIAL:
            raise self.error(f"unknown name {name.text}")
        return SPECIAL[name.text]

    def immediate(self, operand: syntax.Immediate, want: Type) -> str:
        if want.kind == "pred":
            return "1" if operand.value else "0"
        if operand.float_bits:
            if operand.float_bits != want.bits:
                raise self.error(f"a literal of {operand.float_bits} bits read as .{want.kind}{want.bits}")
            return read_as(f"0x{operand.value:x}ull", want.bits, want)
        if want.kind == "f":
            raise self.error("an integer literal read as a float")
        return f"({want.c})0x{operand.value % (1 << 64):x}ull"

    def place(self, variable: syntax.Variable) -> str:
        """The address of a variable in its own state space."""
        if variable.space in ("global", "const"):
            return f"(b->variables + {self.places[variable.name]}ull)"
        if variable.dynamic:
            return f"{self.places['']}u"
        return f"{self.places[variable.name]}u"

    def assign(self, operand: syntax.Operand, kind: Type, expression: str, *, wider: bool = False) -> None:
        """Writes one destination; `wider` if PTX extends the result to a wider register."""
        if isinstance(operand, syntax.Name) and operand.text == "_":
            self.write(f"(void)({expression});")
            return
        if not isinstance(operand, syntax.Register):
            raise self.error("the destination is no register")
        if (operand.kind == "pred") != (kind.kind == "pred"):
            raise self.error("a predicate and a number mixed")
        if operand.bits != kind.bits and not (wider and operand.bits > kind.bits and kind.kind != "f"):
            raise self.error(f"a result of .{kind.kind}{kind.bits} in a register of {operand.bits} bits")
        if kind.kind == "pred":
            self.write(f"{self.register(operand)} = ({expression}) ? 1 : 0;")
        else:
            self.write(f"{self.register(operand)} = {written_as(expression, kind, operand.bits)};")

    # ---- memory -------------------------------------------------------------------------------------

    def locate(self, operand: syntax.Operand, space: str, size: int) -> None:
        """Opens a block in which `p` points to the bytes of an address; the caller closes it."""
        assert self.here is not None
        if not isinstance(operand, syntax.Address):
            raise self.error("an address in brackets expected")
        base = self.base(operand.base, space)
        offset = f" + (uint64_t){operand.offset}ll" if operand.offset else ""
        address = f"{base}{offset}, {size}, {self.here.line}"
        call = {
            "global": f"tempi_ptx_global(b, {self.sites}, {address})",
            "const": f"tempi_ptx_global(b, {self.sites}, {address})",
            "shared": f"tempi_ptx_shared(b, {address})",
            "local": f"tempi_ptx_local(b, t, {address})",
            "param": f"tempi_ptx_param(b, {address})",
            "": f"tempi_ptx_generic(b, t, {self.sites}, {address})",
        }[space]
        self.sites += space in ("global", "const", "")
        self.write(f"{{ uint8_t *const p = {call};")
        self.write("if (!p) return TEMPI_PTX_FAULT;")

    def base(self, base: syntax.Operand, space: str) -> str:
        if isinstance(base, syntax.Register):
            if base.bits == 64 or (base.bits == 32 and space in ("shared", "local", "param", "const")):
                return f"(uint64_t){self.register(base)}"
            raise self.error("an address of the wrong width")
        if isinstance(base, syntax.Variable):
            own = "global" if base.space == "const" else base.space
            if own != ("global" if space == "const" else space):
                raise self.error(f"{base.name} is not in .{space or 'generic'} space")
            return f"(uint64_t){self.place(base)}"
        if isinstance(base, syntax.Immediate) and not base.float_bits:
            return f"0x{base.value % (1 << 64):x}ull"
        raise self.error("an address of an unknown form")

    # ---- waiting ------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Returns to the scheduler; the thread continues here at its next call."""
        assert self.here is not None
        self.stops += 1
        self.write(f"t->pc = {self.stops}; t->wait_line = {self.here.line}; return {reason};")
        self.write(f"case {self.stops}:;")


Handler = Callable[[Writer, Words], None]
HANDLERS: dict[str, Handler] = {}


def instruction(*opcodes: str) -> Callable[[Handler], Handler]:
    """Registers a function as the translator of these opcodes."""

    def register(handler: Handler) -> Handler:
        for opcode in opcodes:
            assert opcode not in HANDLERS
            HANDLERS[opcode] = handler
        return handler

    return register
