"""Datatypes written as text: ``vector(100, 1, 128, hvector(4, 1, 4096, FLOAT))``.

Each MPI type constructor is a function of that name with its arguments in MPI's order (the inner type
last, then ``order='C'`` or ``'F'``); basic types are names with or without ``MPI_``. Numbers may be
integer arithmetic, lists may be repeated or ranges: ``subarray([256+2]*3, [1,256,256], [1]*3, DOUBLE)``,
``indexed([1]*9, range(0,18,2), INT)``. Nothing is evaluated as Python.

Structs are padded to the alignment of their members, as in MPI libraries. Errors name the position
and the rule.
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from tempi import _datatypes
from tempi._datatypes import Datatype, State
from tempi._datatypes import basic_names as names
from tempi._errors import EngineError, TempiError

__all__ = ["Datatype", "ExpressionError", "State", "names", "parse"]


class ExpressionError(TempiError, ValueError):
    """The text is not a datatype. `position` counts characters from 0; `rule` says what was expected."""

    def __init__(self, text: str, position: int, rule: str) -> None:
        super().__init__(f"at character {position + 1}: {rule}\n  {text}\n  {' ' * position}^")
        self.text, self.position, self.rule = text, position, rule


_INT, _COUNT, _INTS, _COUNTS = "integer", "count", "integers", "counts"
_TYPE, _TYPES, _WORD, _WORDS, _DARGS = "type", "types", "word", "words", "dargs"
_BLOCKS = (("blocklengths", _COUNTS), ("displacements", _INTS))
_INNER = ("type", _TYPE)
_ORDER = ("order", _WORD)


@dataclass(frozen=True, slots=True)
class _Constructor:
    make: Callable[..., Datatype]
    parameters: tuple[tuple[str, str], ...]
    optional: int = 0  # number of trailing parameters that may be omitted

    def usage(self, name: str) -> str:
        return f"{name}({', '.join(parameter for parameter, _ in self.parameters)})"


_STRIDED = (("count", _COUNT), ("blocklength", _COUNT), ("stride", _INT), _INNER)
_CONSTRUCTORS: dict[str, _Constructor] = {
    "dup": _Constructor(_datatypes.dup, (_INNER,)),
    "contiguous": _Constructor(_datatypes.contiguous, (("count", _COUNT), _INNER)),
    "vector": _Constructor(_datatypes.vector, _STRIDED),
    "hvector": _Constructor(_datatypes.hvector, _STRIDED),
    "indexed": _Constructor(_datatypes.indexed, (*_BLOCKS, _INNER)),
    "hindexed": _Constructor(_datatypes.hindexed, (*_BLOCKS, _INNER)),
    "indexed_block": _Constructor(_datatypes.indexed_block, (("blocklength", _COUNT), _BLOCKS[1], _INNER)),
    "hindexed_block": _Constructor(_datatypes.hindexed_block, (("blocklength", _COUNT), _BLOCKS[1], _INNER)),
    "struct": _Constructor(_datatypes.struct, (*_BLOCKS, ("types", _TYPES))),
    "resized": _Constructor(_datatypes.resized, (("lb", _INT), ("extent", _INT), _INNER)),
    "subarray": _Constructor(
        _datatypes.subarray, (("sizes", _COUNTS), ("subsizes", _COUNTS), ("starts", _COUNTS), _INNER, _ORDER), 1
    ),
    "darray": _Constructor(
        _datatypes.darray,
        (
            ("size", _COUNT),
            ("rank", _COUNT),
            ("gsizes", _COUNTS),
            ("distribs", _WORDS),
            ("dargs", _DARGS),
            ("psizes", _COUNTS),
            _INNER,
            _ORDER,
        ),
        1,
    ),
    "f90_integer": _Constructor(_datatypes.f90_integer, (("range", _COUNT),)),
    "f90_real": _Constructor(_datatypes.f90_real, (("precision", _COUNT), ("range", _COUNT))),
    "f90_complex": _Constructor(_datatypes.f90_complex, (("precision", _COUNT), ("range", _COUNT))),
}
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_MOST_ITEMS = 1 << 24  # in a list written as [...] * n


def _near(written: str, known: Iterable[str]) -> str:
    """The end of a message with the closest known name; "" if none is close."""
    found = difflib.get_close_matches(written, list(known), n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(found)}?" if found else ""


class _Parser:
    """Traverses Python's syntax tree of the text; an unknown node is an error at its position."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, node: ast.expr | ast.keyword, rule: str) -> NoReturn:
        before = self.text.encode()[: node.col_offset].decode(errors="replace")
        raise ExpressionError(self.text, len(before), rule)

    def source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def parse(self) -> Datatype:
        # A basic type such as 2INT is not a Python name; MPI_2INT is one.
        try:
            tree = ast.parse(self.text, mode="eval")
        except SyntaxError as error:
            raise ExpressionError(self.text, max(0, (error.offset or 1) - 1), error.msg) from None
        except (ValueError, RecursionError, MemoryError):
            raise ExpressionError(self.text[:80], 0, "this is too deep or not text") from None
        return self.type(tree.body)

    def name(self, node: ast.expr) -> str | None:
        """The last part of a name such as vector, MPI_Type_vector or MPI.DOUBLE."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.attr
        return node.id if isinstance(node, ast.Name) else None

    def type(self, node: ast.expr) -> Datatype:
        if isinstance(node, ast.Call):
            return self.call(node)
        name = self.name(node)
        if name is None:
            self.fail(node, "expected a datatype: a basic type or a constructor")
        basic = name.upper().removeprefix("MPI_")
        made = _datatypes.basic(basic)
        if made is None:
            hint = f"; {basic.lower()} needs arguments" if basic.lower() in _CONSTRUCTORS else _near(basic, names())
            self.fail(node, f"no basic type is called {name}{hint}")
        return made

    def call(self, node: ast.Call) -> Datatype:
        written = self.name(node.func) or ""
        name = written.lower()
        for prefix in ("mpi_", "type_", "create_"):
            name = name.removeprefix(prefix)
        constructor = _CONSTRUCTORS.get(name)
        if constructor is None:
            known = _near(name, _CONSTRUCTORS) or "; there are " + ", ".join(_CONSTRUCTORS)
            self.fail(node, f"no constructor is called {written or 'that'}{known}")
        values = self.arguments(node, name, constructor)
        try:
            return constructor.make(self.source(node), *values)
        except (EngineError, OverflowError, ValueError) as error:
            if isinstance(error, ExpressionError):
                raise
            self.fail(node, f"{name}: {error}")

    def arguments(self, node: ast.Call, name: str, constructor: _Constructor) -> list[Any]:
        """The arguments in order: positional ones, then named ones."""
        usage = constructor.usage(name)
        parameters = constructor.parameters
        if len(node.args) > len(parameters):
            self.fail(node.args[len(parameters)], f"too many arguments: {usage}")
        given: dict[str, ast.expr] = {
            parameter: argument for (parameter, _), argument in zip(parameters, node.args, strict=False)
        }
        for keyword in node.keywords:
            if keyword.arg not in dict(parameters):
                meant = _near(keyword.arg or "", dict(parameters))
                self.fail(keyword, f"no argument is called {keyword.arg}{meant}: {usage}")
            if keyword.arg in given:
                self.fail(keyword, f"{keyword.arg} is given twice: {usage}")
            given[keyword.arg] = keyword.value
        values = []
        for i, (parameter, kind) in enumerate(parameters):
            if parameter in given:
                values.append(self.value(given[parameter], parameter, kind))
            elif i < len(parameters) - constructor.optional:
                self.fail(node, f"{parameter} is missing: {usage}")
        return values

    def value(self, node: ast.expr, parameter: str, kind: str) -> Any:
        if kind == _TYPE:
            return self.type(node)
        if kind == _INT:
            return self.integer(node, parameter)
        if kind == _COUNT:
            return self.count(node, parameter)
        if kind == _WORD:
            return self.word(node, parameter)
        items = self.items(node, parameter)
        if kind == _TYPES:
            return [self.type(item) for item in items]
        if kind == _WORDS:
            return [self.word(item, parameter) for item in items]
        if kind == _DARGS:
            return [self.distribution_argument(item) for item in items]
        number = self.count if kind == _COUNTS else self.integer
        return [number(item, parameter) for item in items]

    def items(self, node: ast.expr, parameter: str) -> list[ast.expr]:
        if isinstance(node, (ast.List, ast.Tuple)):
            return list(node.elts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            items = self.items(node.left, parameter)
            times = self.integer(node.right, parameter)
            if not 0 <= times * len(items) <= _MOST_ITEMS:
                self.fail(node, f"{parameter}: at most {_MOST_ITEMS} items")
            return items * times
        if isinstance(node, ast.Call) and self.name(node.func) == "range":
            return self.range(node, parameter)
        self.fail(node, f"{parameter}: expected a list such as [1, 2, 3]")

    def range(self, node: ast.Call, parameter: str) -> list[ast.expr]:
        numbers = [self.integer(argument, parameter) for argument in node.args]
        if not 1 <= len(numbers) <= 3 or node.keywords or (len(numbers) == 3 and numbers[2] == 0):
            self.fail(node, f"{parameter}: range(stop), range(start, stop) or range(start, stop, step)")
        numbers_in = range(*numbers)
        if len(numbers_in) > _MOST_ITEMS:
            self.fail(node, f"{parameter}: at most {_MOST_ITEMS} items")
        return [ast.copy_location(ast.Constant(number), node) for number in numbers_in]

    def integer(self, node: ast.expr, parameter: str) -> int:
        number = self.arithmetic(node, parameter)
        if not -(2**63) <= number < 2**63:
            self.fail(node, f"{parameter}: {number} does not fit in 64 bits")
        return number

    def count(self, node: ast.expr, parameter: str) -> int:
        number = self.integer(node, parameter)
        if number < 0:
            self.fail(node, f"{parameter}: {number} is negative")
        return number

    def arithmetic(self, node: ast.expr, parameter: str) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            number = self.integer(node.operand, parameter)
            return -number if isinstance(node.op, ast.USub) else number
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self.integer(node.left, parameter), self.integer(node.right, parameter)
            if isinstance(node.op, ast.FloorDiv) and right == 0:
                self.fail(node.right, f"{parameter}: division by zero")
            return _ARITHMETIC[type(node.op)](left, right)
        self.fail(node, f"{parameter}: expected an integer")

    def word(self, node: ast.expr, parameter: str) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        name = self.name(node)
        if name is None:
            self.fail(node, f"{parameter}: expected a word")
        return name.removeprefix("MPI_").removeprefix("ORDER_")

    def distribution_argument(self, node: ast.expr) -> int | None:
        default = isinstance(node, ast.Constant) and node.value is None
        if default or (self.name(node) or "").removeprefix("MPI_").removeprefix("DISTRIBUTE_").startswith("DFLT"):
            return None
        return self.integer(node, "dargs")


def parse(text: str) -> Datatype:
    """The datatype that the text describes. Raises ExpressionError."""
    return _Parser(text.strip()).parse()
