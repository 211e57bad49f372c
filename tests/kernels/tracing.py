"""The interpreter, with a record of every access and of the loads that it had to wait for.

A number has a depth: 0 if it comes from the kernel's parameters, else one more than that of the address from which it
was loaded. A comparison that decides a branch makes all that follows wait for its operands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interpreter import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Access", "TracingMachine"]

MOVES = ("load", "store")  # of data, by their width


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of data by one thread."""

    thread: int  # in the grid
    store: bool
    address: int
    size: int
    depth: int  # loads in sequence before it


class Number(int):
    """A number with the loads in sequence behind it."""

    depth = 0
    branch: Callable[[int], None]

    def _decides(self, other: object, result: bool) -> Flag:
        flag: Flag = _made(Flag, int(result), max(self.depth, _depth(other)), self.branch)
        return flag

    def __eq__(self, other: object) -> Flag:  # type: ignore[override]
        return self._decides(other, int(self) == other)

    def __ne__(self, other: object) -> Flag:  # type: ignore[override]
        return self._decides(other, int(self) != other)

    __hash__ = int.__hash__


class Flag(Number):
    """A comparison's result: the thread waits for it where it decides a branch."""

    def __bool__(self) -> bool:
        self.branch(self.depth)
        return int(self) != 0


def _made(kind: type[Any], value: int, depth: int, branch: Callable[[int], None]) -> Any:
    made = kind(value)
    made.depth, made.branch = depth, branch
    return made


def _depth(value: object) -> int:
    return value.depth if isinstance(value, Number) else 0


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Number) else value


@dataclass
class _Trace:
    cuda: Any
    accesses: list[Access] = field(default_factory=list)
    waited: int = 0  # of the thread that runs

    def branch(self, depth: int) -> None:
        self.waited = max(self.waited, depth)

    def _wrap_result(self, value: Any, depth: int) -> Any:
        if isinstance(value, bool):
            return _made(Flag, int(value), depth, self.branch)
        if isinstance(value, int):
            return _made(Number, value, depth, self.branch)
        if isinstance(value, tuple):
            return tuple(self._wrap_result(each, depth) for each in value)
        return value

    def operation(self, function: Callable[..., Any], loads: bool) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            depth = max(_depth(argument) for argument in arguments)
            if loads:
                depth = max(depth, self.waited) + 1
            return self._wrap_result(function(*(_plain(argument) for argument in arguments)), depth)

        return run

    def move(self, function: Callable[..., Any], size: int, store: bool) -> Callable[..., Any]:
        def run(address: int, *data: bytes) -> Any:
            thread = self.cuda.blockIdx.x * self.cuda.blockDim.x + self.cuda.threadIdx.x
            depth = max(_depth(address), self.waited)
            self.accesses.append(Access(thread, store, int(address), size, depth))
            return function(int(address), *data)

        return run


class TracingMachine(Machine):
    """Its kernels run as those of Machine; `accesses` are those of the last launch."""

    def __init__(self) -> None:
        super().__init__()
        self._trace = _Trace(self.cuda)
        self._modules["_ops"] = {name: self._traced(name, op) for name, op in self._modules["_ops"].items()}

    def _traced(self, name: str, op: Any) -> Any:
        if name in MOVES:
            return {size: self._trace.move(each, size, name == "store") for size, each in op.items()}
        if name in ("WORD", "GROUP", "merge", "part"):
            return op
        loads = name.startswith(("fixed", "load", "number4"))
        if isinstance(op, dict):
            return {key: self._trace.operation(each, loads) for key, each in op.items()}
        return self._trace.operation(op, loads)

    @property
    def accesses(self) -> list[Access]:
        return self._trace.accesses

    def launch(self, name: str, grid: int, block: int, params: Sequence[int]) -> None:
        self._trace.accesses = []
        super().launch(name, grid, block, params)

    def kernel(self, name: str) -> Any:
        kernel = super().kernel(name)

        def run(*params: int) -> None:
            self._trace.waited = 0
            kernel(*params)

        return run
