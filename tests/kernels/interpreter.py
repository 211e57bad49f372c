"""Runs the kernels' own Python, thread by thread: their meaning without any compiler.

`_ops` and Numba's `cuda` are replaced by plain functions on integers; all other modules of
tempi.kernels are run from their sources as they are. Every byte of memory may be read, written or
neither: a kernel that touches a byte outside its runs fails, as does a
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
    Addresses = NDArray[np.int64]

SOURCES = Path(__file__).resolve().parents[2] / "tempi" / "kernels"
BASE = 0x7F_1234_0000_0000  # no address fits in 32 bits
M32, M64 = 2**32 - 1, 2**64 - 1
READ, WRITE = 1, 2
PAGE = 4096
POISON = 0xA5


class Fault(Exception):
    """A kernel made an invalid access, or a thread misbehaved."""


class Memory:
    """Pages of bytes, allocated on first use, with the permitted accesses of each byte."""

    def __init__(self) -> None:
        self._pages: dict[int, tuple[Bytes, Bytes]] = {}
        self._next = BASE

    def allocate(self, size: int, align: int = 256) -> int:
        """Address of `size` bytes, a gap away from all others."""
        at = -(-(self._next + 64) // align) * align
        self._next = at + size
        return at

    def _page(self, number: int) -> tuple[Bytes, Bytes]:
        if number not in self._pages:
            self._pages[number] = (np.full(PAGE, POISON, np.uint8), np.zeros(PAGE, np.uint8))
        return self._pages[number]

    def _spread(self, addresses: Addresses, kind: int, data: Bytes | int | None = None) -> Bytes:
        """Reads bytes (kind 0) or rights (1) at all addresses, after writing `data` there if it is given."""
        out = np.empty(addresses.size, np.uint8)
        for number in np.unique(addresses // PAGE).tolist():
            here = addresses // PAGE == number
            page = self._page(number)[kind]
            if data is not None:
                page[addresses[here] % PAGE] = data if isinstance(data, int) else data[here]
            out[here] = page[addresses[here] % PAGE]
        return out

    def gather(self, addresses: Addresses) -> Bytes:
        return self._spread(addresses, 0)

    def scatter(self, addresses: Addresses, data: Bytes | int) -> None:
        self._spread(addresses, 0, data)

    def allow(self, addresses: Addresses, right: int) -> None:
        self._spread(addresses, 1, right)

    def copy(self, dst: int, src: int, size: int) -> None:
        """Copies of the driver must respect the same byte rights as kernels; they need no alignment."""
        steps = np.arange(size)
        if not (self._spread(src + steps, 1) & READ).all() or not (self._spread(dst + steps, 1) & WRITE).all():
            raise Fault(f"a copy of {size} bytes from {src:#x} to {dst:#x}")
        self.scatter(dst + steps, self.gather(src + steps))

    def _check(self, address: int, size: int, right: int) -> tuple[Bytes, int]:
        page, rights = self._page(address // PAGE)
        at = address % PAGE
        if address % size or not (rights[at : at + size] & right).all():
            raise Fault(f"{size} bytes at {address:#x}: not to be {'read' if right == READ else 'written'}")
        return page, at

    def load(self, address: int, size: int) -> bytes:
        page, at = self._check(address, size, READ)
        return page[at : at + size].tobytes()

    def store(self, address: int, value: bytes) -> None:
        page, at = self._check(address, len(value), WRITE)
        page[at : at + len(value)] = np.frombuffer(value, np.uint8)


# -- the kernels' imports ------------------------------------------------------------------------


def _signed(x: int) -> int:
    return (x - 2**32 if x >> 31 else x) & M64


def _ops(memory: Memory) -> dict[str, Any]:
    """The names of tempi.kernels._ops on Python's integers."""

    def number(size: int) -> Callable[[int], int]:
        return lambda address: int.from_bytes(memory.load(address, size), "little")

    def word(size: int) -> Callable[[int], bytes]:
        return lambda address: memory.load(address, size)

    def u32(x: int) -> int:
        return x & M32

    def u64(x: int) -> int:
        return x & M64

    widths = (1, 2, 4, 8, 16)

    def vector(n: int, size: int) -> Callable[[int], tuple[int, ...]]:
        def load(address: int) -> tuple[int, ...]:
            found = memory.load(address, n * size)
            return tuple(int.from_bytes(found[i : i + size], "little") for i in range(0, n * size, size))

        return load

    def part(size: int, k: int) -> Callable[[bytes], bytes]:
        return lambda group: group[k * size : (k + 1) * size]

    add, add64 = (lambda x, y: x + y & M32), (lambda x, y: x + y & M64)
    fixed32 = number(4)
    return {
        "u32": u32,
        "u64": u64,
        "add": add,
        "sub": lambda x, y: x - y & M32,
        "mul": lambda x, y: x * y & M32,
        "mulhi": lambda x, y: x * y >> 32,
        "shr": lambda x, y: x >> y,
        "shl": lambda x, y: x << y & M32,
        "band": lambda x, y: x & y,
        "bor": lambda x, y: x | y,
        "udiv": lambda x, y: x // y,
        "lt": lambda x, y: x < y,
        "least": min,
        "choose": dict.fromkeys((32, 64), lambda condition, x, y: x if condition else y),
        "wide": lambda x: x,
        "narrow": u32,
        "joined": lambda low, high: low | high << 32,
        "add64": add64,
        "sub64": lambda x, y: x - y & M64,
        "shl64": lambda x, y: x << y & M64,
        "shr64": lambda x, y: x >> y,
        "not_above": dict.fromkeys((32, 64), lambda x, y: x <= y),
        "cell": lambda base, i, n: base + i * n & M64,
        "WORD": dict.fromkeys(widths),
        "load": {size: word(size) for size in widths},
        "store": dict.fromkeys(widths, memory.store),
        "fixed32": fixed32,
        "fixed64": number(8),
        "fixed_words": vector(4, 4),
        "fixed_longs": vector(2, 8),
        "GROUP": 4,
        "merge": dict.fromkeys((1, 2), lambda *words: b"".join(words)),
        "part": {size: [part(size, k) for k in range(4)] for size in (1, 2)},
        "mad": {32: lambda x, i, stride: x + i * stride & M32, 64: lambda x, i, stride: x + i * stride & M64},
        "at": {32: lambda base, x: base + _signed(x) & M64, 64: add64},
        "plus": {32: add, 64: add64},
        "minus": {32: lambda x, y: x - y & M32, 64: lambda x, y: x - y & M64},
        "offset": {32: u32, 64: u64},
        "as_offset": {32: u32, 64: u64},
        "number4": {32: fixed32, 64: lambda address: _signed(fixed32(address))},
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

    def __init__(self) -> None:
        self.memory = Memory()
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
        """Runs every thread of the kernel, in reverse order: none may depend on another."""
        kernel = self.kernel(name)
        for number in reversed(range(grid)):
            if "transpose" in name:
                self._run_together(kernel, number, grid, block, params)
                continue
            for thread in reversed(range(block)):
                self.cuda.enter(thread, number, block, grid)
                kernel(*params)

    def _run_together(self, kernel: Any, number: int, grid: int, block: int, params: Sequence[int]) -> None:
        """A block with barriers: each CUDA thread runs in a Python thread."""
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
        if family in ("gather", "scatter"):
            return self.module("_narrow")["MAKE"][family](int(rest[0][1:]), index)
        if family == "table":
            return self.module("_table_box")["make"](index)
        return self.module("_boxes")["make"](index, family == "tables")
