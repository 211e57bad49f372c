"""Runs the kernels' own Python, thread by thread: what they mean before any compiler has seen them.

`_ops` and Numba's `cuda` are replaced by plain functions on integers; all other modules of
tempi.kernels are run from their sources as they are. Memory is one array of bytes in which each byte
may be read, written, both or neither: a kernel that touches a byte outside its runs fails, as does a
misaligned access. Slow, exact, and the same on every machine.
"""

from __future__ import annotations

import builtins
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

SOURCES = Path(__file__).resolve().parents[2] / "tempi" / "kernels"
BASE = 0x7F_1234_0000_0000  # no address fits in 32 bits
M32, M64 = 2**32 - 1, 2**64 - 1
READ, WRITE = 1, 2


class Fault(Exception):
    """A kernel touched what it must not, or a thread misbehaved."""


class Memory:
    """Bytes from BASE on, with what may be done to each."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)
        self.rights = np.zeros(size, np.uint8)
        self.used = 0

    def allocate(self, size: int, align: int = 256) -> int:
        """Address of `size` bytes, a gap away from all others."""
        at = -(-(self.used + 64) // align) * align
        self.used = at + size
        assert self.used <= self.bytes.size, "the test needs more memory"
        return BASE + at

    def view(self, address: int, size: int) -> Bytes:
        return self.bytes[address - BASE : address - BASE + size]

    def allow(self, address: int, size: int, right: int) -> None:
        self.rights[address - BASE : address - BASE + size] |= right

    def allow_many(self, addresses: NDArray[np.int64], right: int) -> None:
        self.rights[addresses - BASE] |= right

    def load_any(self, address: int, size: int) -> Bytes:
        """For copies, which need no alignment."""
        at = address - BASE
        if at < 0 or not (self.rights[at : at + size] & READ).all():
            raise Fault(f"a copy of {size} bytes from {at:#x}")
        return self.bytes[at : at + size].copy()

    def store_any(self, address: int, data: Bytes) -> None:
        at = address - BASE
        if at < 0 or not (self.rights[at : at + data.size] & WRITE).all():
            raise Fault(f"a copy of {data.size} bytes to {at:#x}")
        self.bytes[at : at + data.size] = data

    def _check(self, address: int, size: int, right: int) -> int:
        at = address - BASE
        if address % size or at < 0 or at + size > self.bytes.size or not (self.rights[at : at + size] & right).all():
            raise Fault(f"{size} bytes at {at:#x}: not to be {'read' if right == READ else 'written'}")
        return at

    def load(self, address: int, size: int) -> bytes:
        at = self._check(address, size, READ)
        return self.bytes[at : at + size].tobytes()

    def store(self, address: int, value: bytes) -> None:
        at = self._check(address, len(value), WRITE)
        self.bytes[at : at + len(value)] = np.frombuffer(value, np.uint8)


# -- what the kernels import ------------------------------------------------------------------------


def _signed(x: int) -> int:
    return (x - 2**32 if x >> 31 else x) & M64


def _ops(memory: Memory) -> dict[str, Any]:
    """The names of tempi.kernels._ops on Python's integers."""

    def number(size: int) -> Callable[[int], int]:
        return lambda address: int.from_bytes(memory.load(address, size), "little")

    def u32(x: int) -> int:
        return x & M32

    def u64(x: int) -> int:
        return x & M64

    widths = (1, 2, 4, 8, 16)
    add, add64 = (lambda x, y: x + y & M32), (lambda x, y: x + y & M64)
    load32, load64 = number(4), number(8)
    return {
        "u32": u32,
        "u64": u64,
        "add": add,
        "sub": lambda x, y: x - y & M32,
        "mul": lambda x, y: x * y & M32,
        "mulhi": lambda x, y: x * y >> 32,
        "shr": lambda x, y: x >> y,
        "band": lambda x, y: x & y,
        "udiv": lambda x, y: x // y,
        "lt": lambda x, y: x < y,
        "least": min,
        "wide": lambda x: x,
        "narrow": u32,
        "add64": add64,
        "sub64": lambda x, y: x - y & M64,
        "shl64": lambda x, y: x << y & M64,
        "shr64": lambda x, y: x >> y,
        "le64": lambda x, y: x <= y,
        "cell": lambda base, i, n: base + i * n & M64,
        "WORD": dict.fromkeys(widths),
        "load": {n: (lambda n: lambda address: memory.load(address, n))(n) for n in widths},
        "store": dict.fromkeys(widths, memory.store),
        "load32": load32,
        "load64": load64,
        "mad": {32: lambda x, i, stride: x + i * stride & M32, 64: lambda x, i, stride: x + i * stride & M64},
        "at": {32: lambda base, x: base + _signed(x) & M64, 64: add64},
        "plus": {32: add, 64: add64},
        "minus": {32: lambda x, y: x - y & M32, 64: lambda x, y: x - y & M64},
        "offset": {32: u32, 64: u64},
        "as_offset": {32: u32, 64: u64},
        "number4": {32: load32, 64: lambda address: _signed(load32(address))},
    }


class _Cuda(threading.local):
    """numba.cuda as one thread sees it."""

    threadIdx = SimpleNamespace(x=0)
    blockIdx = SimpleNamespace(x=0)
    blockDim = SimpleNamespace(x=0)
    gridDim = SimpleNamespace(x=0)
    tile: Any = None
    barrier: Any = None

    @property
    def shared(self) -> Any:
        return SimpleNamespace(array=lambda shape, word: self.tile)

    def jit(self, **options: Any) -> Callable[[Any], Any]:
        return lambda function: function

    def syncthreads(self) -> None:
        self.barrier.wait(timeout=60)

    def enter(self, thread: int, block: int, threads: int, blocks: int) -> None:
        self.threadIdx = SimpleNamespace(x=thread)
        self.blockIdx = SimpleNamespace(x=block)
        self.blockDim = SimpleNamespace(x=threads)
        self.gridDim = SimpleNamespace(x=blocks)


class Machine:
    """All kernels over one memory."""

    def __init__(self, size: int) -> None:
        self.memory = Memory(size)
        self.cuda = _Cuda()
        self._modules: dict[str, dict[str, Any]] = {"_ops": _ops(self.memory)}

    def module(self, name: str) -> dict[str, Any]:
        """The namespace of tempi.kernels.<name>, with its imports served from here."""
        if name not in self._modules:
            space: dict[str, Any] = {"__name__": name, "__builtins__": {**vars(builtins), "__import__": self._import}}
            self._modules[name] = space
            path = SOURCES / f"{name}.py"
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), space)
        return self._modules[name]

    def _import(self, name: str, *rest: Any) -> Any:
        if name == "numba":
            return SimpleNamespace(cuda=self.cuda)
        if name.startswith("tempi.kernels."):
            return SimpleNamespace(**self.module(name.removeprefix("tempi.kernels.")))
        return builtins.__import__(name, *rest)

    def launch(self, name: str, grid: int, block: int, params: Sequence[int]) -> None:
        """Runs every thread of the kernel, in reverse order: none may lean on another."""
        kernel = self.kernel(name)
        for number in reversed(range(grid)):
            if "transpose" in name:
                self._run_together(kernel, number, grid, block, params)
                continue
            for thread in reversed(range(block)):
                self.cuda.enter(thread, number, block, grid)
                kernel(*params)

    def _run_together(self, kernel: Any, number: int, grid: int, block: int, params: Sequence[int]) -> None:
        """A block whose threads wait for each other: each a thread of ours."""
        tile: dict[tuple[int, int], bytes] = {}
        barrier = threading.Barrier(block)
        wrong: list[BaseException] = []

        def run(thread: int) -> None:
            self.cuda.enter(thread, number, block, grid)
            self.cuda.tile, self.cuda.barrier = tile, barrier
            try:
                kernel(*params)
            except Exception as error:
                wrong.append(error)
                barrier.abort()

        threads = [threading.Thread(target=run, args=(t,)) for t in range(block)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise next((e for e in wrong if isinstance(e, Fault)), wrong[0])

    def kernel(self, name: str) -> Any:
        """The function behind a C name."""
        _, family, *rest = name.split("_")
        index = int(rest[-1][1:])
        if family == "strided":
            return self.module("_strided")["make"](int(rest[0][1:]), index)
        if family == "transpose":
            return self.module("_transpose")["make"](int(rest[0][1:]))
        return self.module({"boxes": "_boxes", "table": "_table_box"}[family])["make"](index)
