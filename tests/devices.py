"""Memory of a CUDA device, emulated or real, for tests: what a CUDA program would do, by ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tempi import _engine

__all__ = ["DEVICES", "DeviceMemory"]

Bytes = NDArray[np.uint8]
u64, size_t = ctypes.c_uint64, ctypes.c_size_t

#: Emulated devices of each process.
DEVICES = int(os.environ.get("TEMPI_EMULATOR_DEVICES", "1"))


@functools.cache
def driver() -> ctypes.CDLL:
    """The driver's library, initialised: the emulated one where the run says so, or the machine's own."""
    if os.environ.get("TEMPI_CUDA_DRIVER") == "emulated":
        library = ctypes.CDLL(str(Path(_engine.library_path()).with_name("libtempi-cuda.so")))
    else:
        library = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    result = library.cuInit(0)
    assert result == 0, f"no CUDA device: cuInit: CUDA error {result}"
    return library


@functools.cache
def context(device: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(made), device, on=None)
    return made


def call(name: str, *arguments: Any, on: int | None) -> None:
    """A driver call that must not fail, with that device's context current."""
    if on is not None:
        assert driver().cuCtxSetCurrent(context(on)) == 0
    result = getattr(driver(), name)(*arguments)
    assert result == 0, f"{name}: CUDA error {result}"


class DeviceMemory:
    """Bytes on a device, freed with the object."""

    def __init__(self, size: int, device: int = 0) -> None:
        made = u64()
        call("cuMemAlloc_v2", ctypes.byref(made), size_t(size), on=device)
        self.address, self.size, self.device = made.value, size, device

    def __del__(self) -> None:
        driver().cuCtxSetCurrent(context(self.device))
        driver().cuMemFree_v2(u64(self.address))

    def write(self, data: Bytes) -> None:
        here = data.ctypes.data_as(ctypes.c_void_p)
        call("cuMemcpyHtoD_v2", u64(self.address), here, size_t(data.size), on=self.device)

    def read(self) -> Bytes:
        data = np.empty(self.size, np.uint8)
        here = data.ctypes.data_as(ctypes.c_void_p)
        call("cuMemcpyDtoH_v2", here, u64(self.address), size_t(self.size), on=self.device)
        return data

    def at(self, offset: int) -> Span:
        """The bytes from there on as a buffer for mpi4py, which keeps the memory."""
        return Span(self, offset)


class Span:
    """Device bytes, by the CUDA array interface."""

    def __init__(self, memory: DeviceMemory, offset: int) -> None:
        self.memory = memory
        self.__cuda_array_interface__ = {
            "shape": (memory.size - offset,),
            "typestr": "|u1",
            "data": (memory.address + offset, False),
            "version": 3,
        }
