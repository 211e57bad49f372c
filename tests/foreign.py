"""Stand-ins for arrays of other libraries, by their protocols, in memory of a device, emulated or real.

`Interface` stands for CuPy and Numba (by version and stream), `Pack` for PyTorch and other libraries with DLPack
only. `overwrite` within `patient` is late work in a stream of the program: on the emulated device it runs only when
a call waits for it, on a GPU it starts after a delay, so that a missing wait gives a wrong answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi.emulator import _dlpack
from tempi.emulator.array import DeviceArray, call_in, current, driver, emulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["HostPack", "Interface", "Pack", "Stream", "on_device", "overwrite", "patient"]

LEGACY, PER_THREAD, NON_BLOCKING = 1, 2, 1
#: Seconds by which `overwrite` is late on a GPU, within `patient`.
LATE = [0.0]


def on_device(array: NDArray[Any], kind: str = "device") -> DeviceArray:
    return DeviceArray.from_numpy(array, kind=kind)


class Interface:
    """``__cuda_array_interface__`` alone, of that version; `changes` are entries of it."""

    def __init__(self, array: DeviceArray, *, version: int = 3, **changes: Any) -> None:
        self.array = array
        said = dict(array.__cuda_array_interface__)
        if version < 3:
            del said["stream"]
        self.__cuda_array_interface__ = {**said, "version": version, **changes}


class Pack:
    """DLPack alone: of DLPack 1.x, or of 0.x with `old`; its work is in `stream`."""

    def __init__(self, array: DeviceArray, *, old: bool = False, stream: int = LEGACY, readonly: bool = False) -> None:
        self.array, self.stream, self.readonly = array, stream, readonly
        self.asked: list[int | None] = []
        self.__dlpack__ = self._old if old else self._new

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def _old(self, *, stream: int | None = None) -> object:
        return self._export(stream, versioned=False)

    def _new(self, *, stream: int | None = None, max_version: tuple[int, int], copy: bool | None = None) -> object:
        assert copy is False
        return self._export(stream, versioned=max_version[0] >= 1)

    def _export(self, stream: int | None, *, versioned: bool) -> object:
        self.asked.append(stream)
        if stream != -1:
            order(self.array.device, self.stream, stream or LEGACY)
        a = self.array
        where = a.__dlpack_device__()
        return _dlpack.capsule(
            a, a.pointer, a.shape, a.strides, a.dtype, where, versioned=versioned, readonly=self.readonly
        )


class HostPack:
    """DLPack alone, of host memory, as a PyTorch tensor on the CPU."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, *, stream: None = None, max_version: tuple[int, int] = (0, 8), **_: object) -> object:
        assert stream is None
        a = self.array
        versioned = max_version[0] >= 1
        return _dlpack.capsule(a, a.ctypes.data, a.shape, a.strides, a.dtype, (1, 0), versioned=versioned)


# ---- streams ------------------------------------------------------------------------------------------


def order(device: int, first: int, then: int) -> None:
    """Makes `then` wait for the work in `first`."""
    event = ctypes.c_void_p()
    with current(device):
        call_in(driver(), "cuEventCreate", ctypes.byref(event), ctypes.c_uint(2))
        call_in(driver(), "cuEventRecord", event, ctypes.c_void_p(first))
        call_in(driver(), "cuStreamWaitEvent", ctypes.c_void_p(then), event, ctypes.c_uint(0))
        call_in(driver(), "cuEventDestroy_v2", event)


class Stream:
    """A stream of the program that does not synchronize with the default stream; `ptr` is its handle."""

    def __init__(self, device: int = 0) -> None:
        self.device = device
        made = ctypes.c_void_p()
        with current(device):
            call_in(driver(), "cuStreamCreate", ctypes.byref(made), ctypes.c_uint(NON_BLOCKING))
        self.ptr = int(made.value or 0)

    def synchronize(self) -> None:
        with current(self.device):
            call_in(driver(), "cuStreamSynchronize", ctypes.c_void_p(self.ptr))

    def is_done(self) -> bool:
        with current(self.device):
            return int(driver().cuStreamQuery(ctypes.c_void_p(self.ptr))) == 0

    def may_be_late(self) -> bool:
        """False where its work must have run: in a rehearsal the emulated driver runs it whenever it likes."""
        return not self.is_done() or "_TEMPI_REHEARSAL" in os.environ

    def __del__(self) -> None:
        with current(self.device):
            driver().cuStreamDestroy_v2(ctypes.c_void_p(self.ptr))


def overwrite(array: DeviceArray, values: Any, stream: int, *, later: int = 1) -> DeviceArray:
    """Enqueues a copy of `values` over the array's whole allocation into the stream; it has not run on return. On a GPU
    it starts `later` times the delay of `patient` late. Returns its source, which must live until then."""
    source = DeviceArray.from_numpy(np.broadcast_to(values, array.memory.size).astype(np.uint8))
    with current(array.device):
        if LATE[0] and not emulated():  # usleep takes its argument as a host function takes its data
            sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
            delay = ctypes.c_void_p(int(1e6 * later * LATE[0]))
            call_in(driver(), "cuLaunchHostFunc", ctypes.c_void_p(stream), sleep, delay)
        addresses = ctypes.c_uint64(array.memory.pointer), ctypes.c_uint64(source.pointer)
        size = ctypes.c_size_t(array.memory.size)
        call_in(driver(), "cuMemcpyDtoDAsync_v2", *addresses, size, ctypes.c_void_p(stream))
    return source


@contextlib.contextmanager
def patient(seconds: float = 0.02) -> Iterator[None]:
    """Within the block, stream work runs only when a call waits for it; on a GPU, `overwrite` starts `seconds` late."""
    if not emulated():
        before, LATE[0] = LATE[0], seconds
        try:
            yield
        finally:
            LATE[0] = before
        return
    with _unhurried(driver()):
        yield


@contextlib.contextmanager
def _unhurried(library: ctypes.CDLL) -> Iterator[None]:
    delay = ctypes.c_int64.in_dll(library, "tempi_emulator_delay_ns")
    before = delay.value
    assert library.tempi_emulator_streams(b"deferred") == 0
    delay.value = 30_000_000_000
    try:
        yield
    finally:
        delay.value = before
        assert library.tempi_emulator_streams(os.environ.get("TEMPI_EMULATOR_STREAMS", "deferred").encode()) == 0
