"""Reads a PTX module."""

from __future__ import annotations

import re

from . import _syntax as syntax
from ._errors import PtxError
from ._tokens import Token, integer, tokens
from ._types import ptx_type

LINKAGE = (".visible", ".extern", ".weak", ".common", ".internal")
IGNORED = (".minnctapersm", ".maxnreg", ".noreturn")  # directives of a kernel that change no result
SECTIONS = (".section",)


def c_name(name: str) -> str:
    """A PTX name as part of a C name; distinct names stay distinct in practice ($ and % only)."""
    return re.sub(r"\W", "_", name.replace("%", "").replace("$", "S"))


class Reader:
    """The tokens, and the current position."""

    def __init__(self, text: str) -> None:
        self.tokens = list(tokens(text))
        last = self.tokens[-1].line if self.tokens else 1
        self.tokens.append(Token("end", "the end of the text", last))
        self.at = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def accept(self, *texts: str) -> Token | None:
        return self.take() if self.next.text in texts and self.next.kind != "string" else None

    def expect(self, text: str) -> Token:
        token = self.take()
        if token.text != text:
            raise PtxError(token.line, f"{text!r} expected, not {token.text!r}")
        return token

    def word(self, kind: str = "name") -> Token:
        token = self.take()
        if token.kind != kind:
            raise PtxError(token.line, f"a {kind} expected, not {token.text!r}")
        return token

    def number(self) -> int:
        sign = -1 if self.accept("-") else 1
        token = self.word("number")
        if token.text[1:2] in "fFdD" and not token.text[:2].lower() == "0x" and len(token.text) > 2:
            raise PtxError(token.line, f"an integer expected, not {token.text!r}")
        return sign * integer(token.text)


class Parser(Reader):
    """A recursive-descent parser for one module."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.module = syntax.Module()
        self.file = syntax.Scope(None, 0)
        self.scopes = 0

    def parse(self) -> syntax.Module:
        while self.next.kind != "end":
            self.directive()
        if not self.module.isa:
            raise PtxError(1, "no .version: is it PTX?")
        return self.module

    # ---- the module -------------------------------------------------------------------------------

    def directive(self) -> None:
        linkage = []
        while token := self.accept(*LINKAGE):
            linkage.append(token.text)
        token = self.take()
        if token.text == ".version":
            major, minor = self.word("number").text.split(".")
            self.module.isa = int(major) * 10 + int(minor)
        elif token.text == ".target":
            self.target()
        elif token.text == ".address_size":
            if self.number() != 64:
                raise PtxError(token.line, "only .address_size 64 is supported")
        elif token.text == ".entry":
            self.kernel(token.line)
        elif token.text in (".global", ".const", ".shared"):
            self.module_variable(token, ".extern" in linkage)
        elif token.text == ".section":
            while not self.accept("}"):
                self.take()
        else:
            raise PtxError(token.line, f"{token.text} is not supported here")

    def target(self) -> None:
        token = self.word()
        match = re.fullmatch(r"sm_(\d+)[af]?", token.text)
        if match is None:
            raise PtxError(token.line, f"unknown target {token.text}")
        self.module.target = int(match.group(1))
        while self.accept(","):
            option = self.word()
            if option.text != "debug":
                raise PtxError(option.line, f"unknown target option {option.text}")

    def module_variable(self, token: Token, external: bool) -> None:
        variable = self.variable(token.text[1:], self.file)
        if variable.space == "shared":
            self.module.shared.append(variable)
        elif external:
            raise PtxError(token.line, f"{variable.name} is defined elsewhere; linking is not supported")
        else:
            self.module.variables.append(variable)

    def variable(self, space: str, scope: syntax.Scope) -> syntax.Variable:
        """The declaration after the state space: .align N .type name[size] = values ;"""
        variable = self.declared(space, scope)
        if self.accept("="):
            line = self.next.line
            values = self.values(variable, line)
            variable = syntax.Variable(variable.name, space, variable.size, variable.align, values)
            scope.names[variable.name] = variable
        self.expect(";")
        return variable

    def declared(self, space: str, scope: syntax.Scope) -> syntax.Variable:
        align, count = 0, 1
        if self.accept(".align"):
            align = self.number()
        vector = self.accept(".v2", ".v4")
        token = self.word()
        self.element = ptx_type(token.text[1:], token.line)
        size = self.element.bytes * (int(vector.text[2:]) if vector else 1)
        align = align or size
        if self.accept(".ptr"):
            while self.next.text not in (",", ")"):  # .global .align N: a promise, not a requirement
                self.take()
                if align and self.next.kind == "number":
                    self.take()
        name = self.word().text
        dynamic = False
        while self.accept("["):
            if self.next.text == "]":
                dynamic = True
            else:
                count *= self.number()
            self.expect("]")
        variable = syntax.Variable(name, space, 0 if dynamic else size * count, align, b"", dynamic)
        scope.names[name] = variable
        return variable

    def values(self, variable: syntax.Variable, line: int) -> bytes:
        data = bytearray()
        size = self.element.bytes
        words = []
        if self.accept("{"):
            while not self.accept("}"):
                words.append(self.value(size))
                self.accept(",")
        else:
            words.append(self.value(size))
        for word in words:
            data += (word % (1 << 8 * size)).to_bytes(size, "little")
        if len(data) > variable.size:
            raise PtxError(line, f"{variable.name} has more values than room")
        return bytes(data)

    def value(self, size: int) -> int:
        negative = self.accept("-") is not None
        token = self.word("number")
        immediate = literal(token)
        if immediate.float_bits and immediate.float_bits != 8 * size:
            raise PtxError(token.line, f"{token.text} does not fit an element of {size} bytes")
        return -immediate.value if negative else immediate.value

    # ---- a kernel -----------------------------------------------------------------------------------

    def kernel(self, line: int) -> None:
        kernel = syntax.Kernel(self.word().text, line)
        scope = self.scope(self.file)
        if self.accept("("):
            while not self.accept(")"):
                self.expect(".param")
                kernel.params.append(self.declared("param", scope))
                self.accept(",")
        while not self.accept("{"):
            self.performance(kernel)
        self.block(kernel, scope)
        self.module.kernels.append(kernel)

    def performance(self, kernel: syntax.Kernel) -> None:
        token = self.take()
        if token.text in (".maxntid", ".reqntid"):
            threads = self.number()
            while self.accept(","):
                threads *= self.number()
            kernel.max_threads = threads
        elif token.text in IGNORED:
            if self.next.kind == "number":
                self.take()
        elif token.text == ".pragma":
            self.word("string")
            self.expect(";")
        else:
            raise PtxError(token.line, f"{token.text} is not supported for a kernel")

    def scope(self, parent: syntax.Scope) -> syntax.Scope:
        self.scopes += 1
        return syntax.Scope(parent, self.scopes)

    def block(self, kernel: syntax.Kernel, scope: syntax.Scope) -> None:
        while not self.accept("}"):
            if self.accept("{"):
                self.block(kernel, self.scope(scope))
            else:
                self.statement(kernel, scope)

    def statement(self, kernel: syntax.Kernel, scope: syntax.Scope) -> None:
        token = self.next
        following = self.tokens[self.at + 1] if token.kind != "end" else token
        if token.text == ".reg":
            self.take()
            self.registers(kernel, scope)
        elif token.text in (".shared", ".local"):
            self.take()
            variable = self.variable(token.text[1:], scope)
            (kernel.shared if token.text == ".shared" else kernel.locals).append(variable)
        elif token.text == ".pragma":
            self.take()
            self.word("string")
            self.expect(";")
        elif token.kind == "name" and following.text == ":":
            self.label(kernel, scope)
        else:
            self.instruction(kernel, scope)

    def registers(self, kernel: syntax.Kernel, scope: syntax.Scope) -> None:
        token = self.word()
        kind = ptx_type(token.text[1:], token.line)
        while True:
            name = self.word().text
            names = [name]
            if self.accept("<"):
                names = [f"{name}{i}" for i in range(self.number())]
                self.expect(">")
            for each in names:
                register = syntax.Register(f"v{scope.number}_{c_name(each)}", kind.kind, kind.bits)
                scope.names[each] = register
                kernel.registers.append(register)
            if not self.accept(","):
                break
        self.expect(";")

    def label(self, kernel: syntax.Kernel, scope: syntax.Scope) -> None:
        token = self.word()
        self.expect(":")
        if self.accept(".branchtargets"):
            targets = [self.word().text]
            while self.accept(","):
                targets.append(self.word().text)
            self.expect(";")
            scope.targets[token.text] = tuple(targets)
            return
        name = f"l{scope.number}_{c_name(token.text)}"
        if token.text in scope.labels:
            raise PtxError(token.line, f"label {token.text} stands twice")
        scope.labels[token.text] = name
        kernel.body.append(syntax.Label(name, token.line))

    # ---- an instruction -----------------------------------------------------------------------------

    def instruction(self, kernel: syntax.Kernel, scope: syntax.Scope) -> None:
        start, guard = self.at, None
        if self.accept("@"):
            negated = self.accept("!") is not None
            guard = self.named(scope)
            guard = syntax.Not(guard) if negated else guard
        word = self.word()
        if word.text.startswith((".", "%")):
            raise PtxError(word.line, f"{word.text} is not supported here")
        opcode, *modifiers = word.text.split(".")
        operands = []
        while not self.accept(";"):
            if self.next.text == "(":  # the arguments of a call
                raise PtxError(word.line, f"unknown instruction {opcode}")
            operands.append(self.operand(scope))
            if self.next.text != ";":
                self.expect(",")
        text = " ".join(t.text for t in self.tokens[start : self.at])
        kernel.body.append(syntax.Instruction(opcode, tuple(modifiers), tuple(operands), guard, word.line, text, scope))

    def operand(self, scope: syntax.Scope) -> syntax.Operand:
        if self.accept("["):
            base = self.simple(scope)
            offset = 0
            if self.next.text in ("+", "-"):
                sign = 1 if self.take().text == "+" else -1
                offset = sign * self.number()
            self.expect("]")
            return syntax.Address(base, offset)
        if self.accept("{"):
            parts = []
            while not self.accept("}"):
                parts.append(self.simple(scope))
                self.accept(",")
            return syntax.Vector(tuple(parts))
        first = self.simple(scope)
        return syntax.Pair(first, self.simple(scope)) if self.accept("|") else first

    def simple(self, scope: syntax.Scope) -> syntax.Operand:
        if self.accept("!"):
            return syntax.Not(self.named(scope))
        if self.accept("-"):
            token = self.word("number")
            immediate = literal(token)
            if immediate.float_bits:
                raise PtxError(token.line, "a minus before a float in bits")
            return syntax.Immediate(-immediate.value)
        if self.next.kind == "number":
            return literal(self.take())
        return self.named(scope)

    def named(self, scope: syntax.Scope) -> syntax.Operand:
        token = self.word()
        return scope.find(token.text) or syntax.Name(token.text)


def literal(token: Token) -> syntax.Immediate:
    prefix, digits = token.text[:2].lower(), token.text[2:]
    if prefix in ("0f", "0d") and len(digits) in (8, 16):
        return syntax.Immediate(int(digits, 16), 4 * len(digits))
    if "." in token.text:
        raise PtxError(token.line, f"{token.text}: decimal fractions are not supported")
    return syntax.Immediate(integer(token.text))


def parse(text: str) -> syntax.Module:
    """The tree of one PTX module; PtxError names the text that cannot be read."""
    return Parser(text).parse()
