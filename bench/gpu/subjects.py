"""The subjects that pack and unpack on the GPU: tempi's kernels, the driver's pitched copies, and CuPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tempi.bench.gpu import cases as gpu_cases
from tempi.bench.gpu.memory import Memory
from tempi.measure import _native, cuda_driver
from tempi.measure.cuda_driver import Driver
from tempi.measure.device_work import Work, work


def tempi_work(memory: Memory, case: gpu_cases.Case, op: str) -> Work:
    part = (gpu_cases.layout_of(case), memory.strided + case.shift, memory.packed)
    return work(op, [part], memory.driver.ordinal)


def driver_timer(memory: Memory, case: gpu_cases.Case, op: str) -> _native.Timer | None:
    """cuMemcpy2DAsync or cuMemcpy3DAsync; None for a shape that they do not support."""
    shape = case.pitched()
    if shape is None or shape.pitch > memory.driver.attribute(cuda_driver.MAX_PITCH):
        return None
    copy = cuda_driver.pitched_copy(memory.strided + case.shift, shape, memory.packed, unpack=op == "unpack")
    timer = memory.driver.device_timer(_native.sequence(cuda_driver.copy_call(memory.driver, copy)))

    def run(loops: int, _owner: ctypes.Structure = copy) -> float:
        return timer(loops)

    return run


# -- CuPy --------------------------------------------------------------------------------------------


def why_no_cupy(driver: Driver) -> str | None:
    """Why CuPy is left out, or None."""
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

    A pack returns a new array from CuPy's pool, as CuPy's users get it; `into` copies it to the memory that is
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
    """None for a shape that is not a strided array."""
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
