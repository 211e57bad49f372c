"""Arrays in the memory of a device, the emulated one or a GPU, for tests and demonstrations of mpi4py programs.

    x = DeviceArray.from_numpy(numpy.arange(12.0).reshape(3, 4))
    comm.Send(x[:, 1], 1)          # a strided view, through __cuda_array_interface__ or DLPack
    x.to_numpy()

The driver is the engine's: the emulated one with TEMPI_CUDA_DRIVER=emulated, else the machine's. Host code that
accesses the memory crashes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ._dlpack import capsule

__all__ = ["DeviceArray", "DriverError", "driver"]

LEGACY_STREAM = 1
KINDS = {"device": 2, "pinned": 3, "managed": 13}  # and their numbers in DLPack


class DriverError(Exception):
    """A function of the driver failed; `code` is its CUresult."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} failed with CUDA error {code} on the {'emulated ' * emulated()}device")
        self.code = code


def emulated() -> bool:
    """Whether TEMPI_CUDA_DRIVER selects the emulated driver."""
    return os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"


@cache
def driver() -> ctypes.CDLL:
    """The driver that the engine uses in this process, initialized."""
    if emulated():
        library = ctypes.CDLL(str(Path(__file__).resolve().parent.parent / "lib" / "libtempi-cuda.so"))
    else:
        library = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)  # the engine looks for it among the loaded ones
    call_in(library, "cuInit", ctypes.c_uint(0))
    return library


def call_in(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    code = int(getattr(library, function)(*arguments))
    if code:
        raise DriverError(function, code)


@cache
def context(device: int) -> ctypes.c_void_p:
    """The primary context of a device, kept for the life of the process."""
    found = ctypes.c_void_p()
    call_in(driver(), "cuDevicePrimaryCtxRetain", ctypes.byref(found), ctypes.c_int(device))
    return found


@contextmanager
def current(device: int) -> Iterator[None]:
    """Makes the device's context current."""
    call_in(driver(), "cuCtxPushCurrent_v2", context(device))
    try:
        yield
    finally:
        call_in(driver(), "cuCtxPopCurrent_v2", None)


class Memory:
    """One allocation, freed with its last reference."""

    def __init__(self, size: int, device: int, kind: str) -> None:
        self.device, self.kind, self.size = device, kind, max(1, size)
        found = ctypes.c_uint64()
        where, length = ctypes.byref(found), ctypes.c_size_t(self.size)
        with current(device):
            if kind == "device":
                call_in(driver(), "cuMemAlloc_v2", where, length)
            elif kind == "managed":
                call_in(driver(), "cuMemAllocManaged", where, length, ctypes.c_uint(1))
            else:
                call_in(driver(), "cuMemHostAlloc", where, length, ctypes.c_uint(3))
        self.pointer = int(found.value)

    def __del__(self) -> None:
        if not hasattr(self, "pointer"):
            return
        library = driver()
        free = library.cuMemFreeHost if self.kind == "pinned" else library.cuMemFree_v2
        # At process exit the driver may be unloaded, and the memory with it: ignore errors.
        if library.cuCtxPushCurrent_v2(context(self.device)) == 0:
            free(ctypes.c_uint64(self.pointer))
            library.cuCtxPopCurrent_v2(None)

    def copy(self, target: int, source: int, size: int) -> None:
        with current(self.device):
            addresses = ctypes.c_uint64(target), ctypes.c_uint64(source)
            call_in(driver(), "cuMemcpy", *addresses, ctypes.c_size_t(size))
            call_in(driver(), "cuStreamSynchronize", ctypes.c_void_p(LEGACY_STREAM))


class DeviceArray:
    """An n-dimensional array; slices are views. Strides are in bytes, as NumPy's."""

    def __init__(
        self, memory: Memory, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: npt.DTypeLike
    ) -> None:
        self.memory = memory
        self.offset = offset
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    @classmethod
    def empty(
        cls, shape: Sequence[int], dtype: npt.DTypeLike = float, *, device: int = 0, kind: str = "device"
    ) -> Self:
        """New memory of a device: "device", "managed" or "pinned"; its content is undefined."""
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r}: choose one of {', '.join(KINDS)}")
        like = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, np.zeros(len(shape), int).tolist())
        strides = [like.itemsize * int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
        return cls(Memory(like.nbytes, device, kind), 0, shape, strides, dtype)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any], *, device: int = 0, kind: str = "device") -> Self:
        """A copy of a NumPy array, in C order."""
        made = cls.empty(array.shape, array.dtype, device=device, kind=kind)
        made.set(array)
        return made

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return self.memory.pointer + self.offset

    @property
    def device(self) -> int:
        return self.memory.device

    def host(self) -> npt.NDArray[Any]:
        """A host copy of the whole allocation."""
        copy = np.empty(self.memory.size, np.uint8)
        self.memory.copy(copy.ctypes.data, self.memory.pointer, self.memory.size)
        return copy

    def view_of(self, data: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """This array's elements in a copy of its allocation."""
        return np.ndarray(self.shape, self.dtype, data.data, self.offset, self.strides)

    def to_numpy(self) -> npt.NDArray[Any]:
        """A copy of the elements on the host."""
        return self.view_of(self.host()).copy() if 0 not in self.shape else np.empty(self.shape, self.dtype)

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrites the elements and leaves the gaps between them unchanged."""
        if 0 in self.shape:
            return
        data = self.host()
        self.view_of(data)[...] = values
        self.memory.copy(self.memory.pointer, data.ctypes.data, self.memory.size)

    def __getitem__(self, index: Any) -> DeviceArray:
        # NumPy computes shape, strides and offset on memory that is never accessed.
        data = np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, self.strides)
        parts = index if isinstance(index, tuple) else (index,)
        if not all(part is None or part is ... or isinstance(part, int | slice) for part in parts):
            raise IndexError("only slices, integers, None and ... make views")
        view = data[parts if ... in parts else (*parts, ...)]  # with the ellipsis a single element is an array too
        start = view.ctypes.data - data.ctypes.data if view.size else 0
        return DeviceArray(self.memory, self.offset + start, view.shape, view.strides, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; uses are ordered by the legacy default stream."""
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self.pointer if 0 not in self.shape else 0, False),
            "stream": LEGACY_STREAM,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return KINDS[self.memory.kind], self.device

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, **_: object
    ) -> object:
        """A DLPack capsule; makes `stream` ordered after the legacy default stream by waiting for the latter."""
        with current(self.device):
            if stream != -1:
                call_in(driver(), "cuStreamSynchronize", ctypes.c_void_p(LEGACY_STREAM))
        versioned = max_version is not None and max_version[0] >= 1
        where = self.__dlpack_device__()
        return capsule(self, self.pointer, self.shape, self.strides, self.dtype, where, versioned=versioned)
