"""Who packs and unpacks on the GPU: tempi's kernels, the driver's pitched copies, and CuPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tempi.bench import _native, gpu_cases, gpu_driver
from tempi.bench.gpu_driver import Driver
from tempi.bench.gpu_memory import Memory

from tempi import _engine

OPS = ("pack", "unpack")


@dataclass(frozen=True, slots=True)
class Work:
    """Packs or unpacks as the engine takes them: one piece of work."""

    op: str
    ops: Any  # tempi_device_op[]
    layouts: tuple[Any, ...]  # kept as long as this
    ordinal: int

    @property
    def arguments(self) -> tuple[Any, int, int, int]:
        return self.ops, len(self.ops), OPS.index(self.op), self.ordinal

    def run(self) -> None:
        """Does it and waits."""
        _engine.check(_engine.lib.tempi_device_run(*self.arguments), doing=f"{self.op} on the device")

    def time(self, loops: int) -> float:
        """Device seconds of so many of them."""
        return self._timed(loops)[0]

    def launches(self) -> int:
        """Kernels and copies that it takes."""
        return self._timed(1)[1]

    def _timed(self, loops: int) -> tuple[float, int]:
        ffi = _engine.ffi
        seconds, launches = ffi.new("double *"), ffi.new("int32_t *")
        status = _engine.lib.tempi_device_time(*self.arguments, loops, seconds, launches)
        _engine.check(status, doing=f"{self.op} on the device")
        return seconds[0], launches[0]

    def call(self) -> tuple[int, tuple[int, ...]]:
        """`run` for the timing loops in C."""
        ffi = _engine.ffi
        function = ffi.cast("uintptr_t", ffi.addressof(_engine.lib, "tempi_device_run"))
        ops, *rest = self.arguments
        return int(function), (int(ffi.cast("uintptr_t", ops)), *rest)


def work(op: str, parts: Sequence[tuple[Any, int, int]], ordinal: int) -> Work:
    """Of (layout, address in memory, address of the packed bytes)."""
    ffi = _engine.ffi
    made = ffi.new("tempi_device_op[]", len(parts))
    for one, (layout, memory, packed) in zip(made, parts, strict=True):
        one.layout, one.count = layout, 1
        one.mem, one.packed = ffi.cast("void *", memory), ffi.cast("void *", packed)
    return Work(op, made, tuple(layout for layout, _, _ in parts), ordinal)


def counted(op: str, layout: int, count: int, memory: int, packed: int, ordinal: int) -> Work:
    """Of so many elements of the layout at that address of the engine's."""
    made = work(op, [(_engine.ffi.cast("tempi_layout const *", layout), memory, packed)], ordinal)
    made.ops[0].count = count
    return made


def tempi_work(memory: Memory, case: gpu_cases.Case, op: str) -> Work:
    part = (gpu_cases.layout_of(case), memory.strided + case.shift, memory.packed)
    return work(op, [part], memory.driver.ordinal)


def driver_timer(memory: Memory, case: gpu_cases.Case, op: str) -> _native.Timer | None:
    """cuMemcpy2DAsync or cuMemcpy3DAsync; None for a shape that they do not know."""
    shape = case.pitched()
    if shape is None or shape.pitch > memory.driver.attribute(gpu_driver.MAX_PITCH):
        return None
    copy = gpu_driver.pitched_copy(memory.strided + case.shift, shape, memory.packed, unpack=op == "unpack")
    timer = memory.driver.device_timer(_native.sequence(gpu_driver.copy_call(memory.driver, copy)))

    def run(loops: int, _kept: ctypes.Structure = copy) -> float:
        return timer(loops)

    return run


# -- CuPy --------------------------------------------------------------------------------------------


def why_no_cupy(driver: Driver) -> str | None:
    """Why CuPy takes no part, or None."""
    if driver.emulated:
        return "CuPy needs a real GPU"
    try:
        import cupy
    except ImportError as error:
        return f"CuPy is not installed: {error}"
    try:
        cupy.cuda.Device(driver.ordinal).use()
    except Exception as error:
        return f"CuPy does not work here: {error}"
    return None


def _cupy_array(address: int, shape: Sequence[int], strides: Sequence[int], word: int) -> Any:
    import cupy

    size = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + word
    owner = cupy.cuda.UnownedMemory(address, size, None)
    return cupy.ndarray(shape, f"u{word}", cupy.cuda.MemoryPointer(owner, 0), strides)


@dataclass(frozen=True, slots=True)
class CuPy:
    """The strided array of a case: ``ascontiguousarray`` of it, or the assignment to it.

    What is packed is a new array from CuPy's pool, as its users have it; `into` copies it to where it is
    checked."""

    memory: Memory
    op: str
    array: Any
    packed: Any
    stream: Any

    def timer(self) -> _native.Timer:
        return self.memory.driver.device_time_of(self._repeat)

    def run(self) -> None:
        import cupy

        with self.stream:
            if self.op == "pack":
                self.packed[...] = cupy.ascontiguousarray(self.array)
            else:
                self.array[...] = self.packed
        self.stream.synchronize()

    def _repeat(self, loops: int) -> float:
        import cupy

        with self.stream:
            for _ in range(loops):
                if self.op == "pack":
                    cupy.ascontiguousarray(self.array)
                else:
                    self.array[...] = self.packed
        return 0.0


def cupy_subject(memory: Memory, case: gpu_cases.Case, op: str) -> CuPy | None:
    """None for a shape that is no strided array."""
    shape = case.pitched()
    if shape is None:
        return None
    import cupy

    word = shape.element
    sizes = (shape.depth, shape.height, shape.width // word)
    strides = (shape.plane or shape.pitch * shape.height, shape.pitch, word)
    dense = (sizes[1] * sizes[2] * word, sizes[2] * word, word)
    start = memory.strided + case.shift + shape.offset
    return CuPy(
        memory,
        op,
        _cupy_array(start, sizes, strides, word),
        _cupy_array(memory.packed, sizes, dense, word),
        cupy.cuda.ExternalStream(memory.driver.stream, memory.driver.ordinal),
    )
