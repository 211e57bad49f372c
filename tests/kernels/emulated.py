"""The shipped PTX on the emulated driver: the code for a GPU newer than the build, run by a CPU.

Like the interpreter it traps addresses outside an allocation and misaligned words. `allow` has no counterpart,
so writes outside the runs are found by the poison around them.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planning import PACK, ffi, kernel_table, lib
from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Addresses = NDArray[np.int64]

__all__ = ["PACK", "EmulatedMachine", "missing"]

CHUNK = 1 << 16
POISON = 0xA5
LIBRARY = Path(_engine.library_path()).with_name("libtempi-cuda.so")


def embedded_ptx() -> bytes:
    """The PTX in the engine; empty if it was built without kernels."""
    images = ffi.cast("tempi_kernel_image *", ffi.addressof(lib, "tempi_kernel_images"))
    i = 0
    while images[i].target != ffi.NULL:
        if ffi.string(images[i].target) == b"ptx":
            return bytes(ffi.buffer(images[i].data, images[i].size))
        i += 1
    return b""


def missing() -> str | None:
    """Why kernels cannot run on the emulated driver here, or None."""
    if not embedded_ptx():
        return "this build has no GPU kernels"
    if not LIBRARY.exists():
        return "this build has no emulated CUDA driver (libtempi-cuda.so)"
    return None


class _Driver:
    """The driver, its first device's context and the module."""

    def __init__(self) -> None:
        os.environ.setdefault("TEMPI_EMULATOR_MEMORY", "1024G")  # for strides of many GiB; pages come on use
        self.cuda = ctypes.CDLL(str(LIBRARY))
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(self.module), embedded_ptx())

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorName(result, ctypes.byref(text))
            raise AssertionError(f"{name}: {(text.value or b'?').decode()} ({result})")

    @functools.cache  # noqa: B019  (one driver lives as long as the process)
    def function(self, name: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(found), self.module, name.encode())
        return found


@functools.cache
def _driver() -> _Driver:
    return _Driver()


class _DeviceMemory:
    def __init__(self) -> None:
        self._made: list[int] = []

    def allocate(self, size: int, align: int = 256) -> int:
        address = ctypes.c_uint64()
        _driver().call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        assert address.value % align == 0
        self._made.append(address.value)
        return address.value

    def _chunks(self, addresses: Addresses) -> list[tuple[NDArray[np.bool_], int, int]]:
        """The addresses in each segment that is read or written in one piece: (mask, first, bytes)."""
        of = addresses // CHUNK
        found = []
        for number in np.unique(of).tolist():
            here = of == number
            low, high = int(addresses[here].min()), int(addresses[here].max()) + 1
            found.append((here, low, high - low))
        return found

    def _read(self, low: int, size: int) -> Bytes:
        data = np.empty(size, np.uint8)
        to = ctypes.c_void_p(data.ctypes.data)
        _driver().call("cuMemcpyDtoH_v2", to, ctypes.c_uint64(low), ctypes.c_size_t(size))
        return data

    def gather(self, addresses: Addresses) -> Bytes:
        out = np.empty(addresses.size, np.uint8)
        for here, low, size in self._chunks(addresses):
            out[here] = self._read(low, size)[addresses[here] - low]
        return out

    def scatter(self, addresses: Addresses, data: Bytes | int) -> None:
        for here, low, size in self._chunks(addresses):
            held = self._read(low, size)
            held[addresses[here] - low] = data if isinstance(data, int) else data[here]
            _driver().call(
                "cuMemcpyHtoD_v2", ctypes.c_uint64(low), ctypes.c_void_p(held.ctypes.data), ctypes.c_size_t(size)
            )

    def allow(self, addresses: Addresses, right: int) -> None:
        pass  # a device has no rights by the byte

    def copy(self, dst: int, src: int, size: int) -> None:
        _driver().call("cuMemcpyDtoD_v2", ctypes.c_uint64(dst), ctypes.c_uint64(src), ctypes.c_size_t(size))

    def free(self) -> None:
        for address in self._made:
            _driver().call("cuMemFree_v2", ctypes.c_uint64(address))
        self._made.clear()


class EmulatedMachine:
    """As interpreter.Machine."""

    def __init__(self) -> None:
        self.memory = _DeviceMemory()

    def launch(self, name: str, grid: int, block: int, params: Sequence[int], done: Sequence[int] = (0, 0)) -> None:
        """`done`: addresses of a flag and of its counter."""
        kernel = next(k for k in kernel_table().ALL if k.name == name)
        of = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
        held = [of[kind](value) for kind, value in zip(kernel.types, params, strict=True)]
        held += [of[kind](address) for kind, address in zip(kernel_table().DONE_PARAMS, done, strict=True)]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        driver = _driver()
        driver.call("cuLaunchKernel", driver.function(name), grid, 1, 1, block, 1, 1, 0, None, pointers, None)
        driver.call("cuCtxSynchronize")

    def close(self) -> None:
        self.memory.free()
