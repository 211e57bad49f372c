"""Memory of a CUDA device, emulated or real, for tests: the driver calls of a CUDA program, through ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "DEVICES",
    "EMULATED",
    "KINDS",
    "Calls",
    "DeviceMemory",
    "call",
    "context",
    "count",
    "driver",
    "failing",
    "live",
    "running_late",
]

Bytes = NDArray[np.uint8]
u64, size_t = ctypes.c_uint64, ctypes.c_size_t

#: Emulated devices of each process.
DEVICES = int(os.environ.get("TEMPI_EMULATOR_DEVICES", "1"))
EMULATED = os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"

#: Ways to allocate: cuMemAlloc, a stream-ordered pool, virtual memory in two mappings, managed, pinned.
KINDS = ("device", "pool", "mapped", "managed", "pinned")
GRANULE = 2 << 20  # of virtual memory


@functools.cache
def driver() -> ctypes.CDLL:
    """The driver's library, initialised: the emulated one if the run selects it, else the machine's."""
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
    """A driver call that must not fail, with that device's context current meanwhile."""
    before = ctypes.c_void_p()
    driver().cuCtxGetCurrent(ctypes.byref(before))
    if on is not None:
        assert driver().cuCtxSetCurrent(context(on)) == 0
    result = getattr(driver(), name)(*arguments)
    driver().cuCtxSetCurrent(before)
    assert result == 0, f"{name}: CUDA error {result}"


def count(name: str) -> int:
    """Calls of that driver function in this process so far. No version suffix."""
    found = driver().tempi_emulator_count
    found.restype = ctypes.c_uint64
    return int(found(name.encode()))


#: Functions that Calls counts one by one.
NAMES = ("CtxGetCurrent", "CtxPushCurrent", "CtxPopCurrent", "CtxGetDevice", "PointerGetAttribute",
         "PointerGetAttributes", "ThreadExchangeStreamCaptureMode", "LaunchKernel", "MemcpyAsync", "MemsetD8Async",
         "MemcpyBatchAsync", "StreamWriteValue32", "StreamQuery", "StreamIsCapturing", "StreamSynchronize",
         "StreamWaitEvent",
         "EventCreate", "EventRecord", "EventQuery", "EventSynchronize", "MemAlloc", "MemHostRegister",
         "ModuleGetFunction", "IpcGetMemHandle", "IpcOpenMemHandle")  # fmt: skip


class Calls:
    """Calls of the driver since then, by function."""

    def __init__(self) -> None:
        self.all, self.each = count(""), {name: count(f"cu{name}") for name in NAMES}

    def since(self) -> tuple[int, dict[str, int]]:
        now = {name: count(f"cu{name}") - n for name, n in self.each.items()}
        return count("") - self.all, {name: n for name, n in now.items() if n}


def live(kind: str) -> int:
    """Number of live objects of that kind: device, pool, host, stream, event, module ..."""
    found = driver().tempi_emulator_live
    found.restype = ctypes.c_int64
    return int(found(kind.encode()))


@contextlib.contextmanager
def failing(name: str, calls: int = 30, error: str = "") -> Iterator[None]:
    """Makes the next `calls` calls of that function fail within the block."""
    first = count(name) + 1
    rules = ",".join(f"{name}:{first + i}{error and ':'}{error}" for i in range(calls))
    assert driver().tempi_emulator_fail(rules.encode()) == 0
    try:
        yield
    finally:
        driver().tempi_emulator_fail(b"")


NEVER = 3600 * 10**9  # nanoseconds until work runs that no call waits for


@contextlib.contextmanager
def running_late() -> Iterator[None]:
    """Work runs only when a call waits for it."""
    delay = ctypes.c_uint64.in_dll(driver(), "tempi_emulator_delay_ns")
    before = delay.value
    driver().tempi_emulator_streams(b"deferred")
    delay.value = NEVER
    yield
    delay.value = before
    driver().tempi_emulator_streams(b"random")


def _allocate(kind: str, size: int, device: int) -> tuple[int, list[tuple[Any, ...]]]:
    """The address, and the calls that free it."""
    made = u64()
    out = ctypes.byref(made)
    if kind == "device":
        call("cuMemAlloc_v2", out, size_t(size), on=device)
        return made.value, [("cuMemFree_v2", made)]
    if kind == "pool":
        call("cuMemAllocAsync", out, size_t(size), None, on=device)
        call("cuStreamSynchronize", None, on=device)
        return made.value, [("cuMemFreeAsync", made, None)]
    if kind == "managed":
        call("cuMemAllocManaged", out, size_t(size), 1, on=device)
        return made.value, [("cuMemFree_v2", made)]
    if kind == "pinned":
        call("cuMemHostAlloc", out, size_t(size), 3, on=device)
        return made.value, [("cuMemFreeHost", made)]
    assert kind == "mapped"
    return _map(size, device)


def _map(size: int, device: int) -> tuple[int, list[tuple[Any, ...]]]:
    """The bytes lie in two mappings if possible."""
    base = u64()
    call("cuMemAddressReserve", ctypes.byref(base), size_t(2 * GRANULE), size_t(0), u64(0), u64(0), on=device)
    properties = (ctypes.c_int * 8)(1, 0, 1, device)
    undo: list[tuple[Any, ...]] = [("cuMemUnmap", base, size_t(2 * GRANULE))]
    for half in range(2):
        handle = u64()
        call("cuMemCreate", ctypes.byref(handle), size_t(GRANULE), properties, u64(0), on=device)
        call("cuMemMap", u64(base.value + half * GRANULE), size_t(GRANULE), size_t(0), handle, u64(0), on=device)
        undo.append(("cuMemRelease", handle))
    call("cuMemSetAccess", base, size_t(2 * GRANULE), (ctypes.c_int * 3)(1, device, 3), size_t(1), on=device)
    undo.append(("cuMemAddressFree", base, size_t(2 * GRANULE)))
    assert size // 2 <= GRANULE
    return base.value + GRANULE - size // 2 // 256 * 256, undo


class DeviceMemory:
    """Bytes of one of the KINDS on a device, freed with the object."""

    def __init__(self, size: int, device: int = 0, kind: str = "device") -> None:
        self.size, self.device = size, device
        self.address, self._undo = _allocate(kind, size, device)

    def __del__(self) -> None:
        before = ctypes.c_void_p()
        driver().cuCtxGetCurrent(ctypes.byref(before))
        driver().cuCtxSetCurrent(context(self.device))
        for name, *arguments in self._undo:
            getattr(driver(), name)(*arguments)
        driver().cuCtxSetCurrent(before)

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
