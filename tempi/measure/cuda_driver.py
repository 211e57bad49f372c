"""The CUDA driver API for measurements, through ctypes; the emulated driver if TEMPI_CUDA_DRIVER selects it.

Needs no CUDA toolkit and no Python package. Names and layouts are those of the CUDA driver API
reference. Addresses are integers; everything uses the primary context of one device.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from ctypes import c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tempi.measure import _native
from tempi.measure.worker import WorkerError

Bytes = npt.NDArray[np.uint8]

#: In the names of the emulated devices of `make gpu-rehearsal`, which are otherwise taken for GPUs.
REHEARSAL = "REHEARSAL"
HOST, DEVICE = 1, 2
PORTABLE_AND_MAPPED = 3
MAX_PITCH, MULTIPROCESSORS, L2_BYTES, MAJOR, MINOR = 11, 16, 38, 75, 76


class NoDeviceError(WorkerError):
    """There is no CUDA device to measure."""


def _sides(*fields: tuple[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The same fields for the source and for the destination."""
    return tuple((f"{side}_{name}", kind) for side in ("src", "dst") for name, kind in fields)


_MEMORY = (("type", c_uint), ("host", c_void_p), ("device", c_uint64), ("array", c_void_p))


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D"""

    _fields_ = (
        *_sides(("x", c_size_t), ("y", c_size_t), *_MEMORY, ("pitch", c_size_t)),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class Copy3D(ctypes.Structure):
    """CUDA_MEMCPY3D"""

    _fields_ = (
        *_sides(
            *((name, c_size_t) for name in ("x", "y", "z", "lod")),
            *_MEMORY,
            ("reserved", c_void_p),
            ("pitch", c_size_t),
            ("height", c_size_t),
        ),
        *((name, c_size_t) for name in ("width", "height", "depth")),
    )


@dataclass(frozen=True, slots=True)
class Pitched:
    """Runs of `width`, `height` of them at `pitch`, `depth` such planes at `plane`, starting at `offset`."""

    offset: int
    width: int
    pitch: int
    height: int
    plane: int = 0
    depth: int = 1

    @property
    def element(self) -> int:
        """Bytes of the largest word that divides all numbers."""
        numbers = self.offset | self.width | self.pitch | self.plane
        return min(8, numbers & -numbers)


def is_emulated() -> bool:
    """Whether this process's device is a test device, CUDA on the CPU."""
    return os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"


def _open() -> ctypes.CDLL:
    from tempi import _engine

    name = str(Path(_engine.library_path()).with_name("libtempi-cuda.so")) if is_emulated() else "libcuda.so.1"
    try:
        return ctypes.CDLL(name, ctypes.RTLD_LOCAL if is_emulated() else ctypes.RTLD_GLOBAL)
    except OSError as error:
        hint = "TEMPI_CUDA_DRIVER=emulated checks everything without a GPU"
        raise NoDeviceError(f"no NVIDIA GPU here: {error} ({hint})") from error


class Card:
    """A device as the driver describes it, without a context."""

    def __init__(self, ordinal: int = 0) -> None:
        self.library = _open()
        self.emulated = is_emulated()
        count, handle = c_int(), c_int()
        self._start("cuInit", c_uint(0))
        self._start("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise NoDeviceError("no NVIDIA GPU here: the CUDA driver has no device")
        self.ordinal = ordinal % count.value
        self.call("cuDeviceGet", ctypes.byref(handle), self.ordinal)
        self.handle = handle.value
        self.emulated = self.emulated or "EMULATED" in self.name  # however it was selected
        self.small = self.emulated or REHEARSAL in self.name  # too slow for the sizes that a GPU is measured with

    def _start(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise NoDeviceError(f"no NVIDIA GPU here: {name}: {self.error(code)}")

    def error(self, code: int) -> str:
        text = c_char_p()
        known = self.library.cuGetErrorName(code, ctypes.byref(text)) == 0
        return f"{(text.value or b'?').decode() if known else 'unknown error'} ({code})"

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise WorkerError(f"{name}: {self.error(code)}")

    def _made(self, name: str, *arguments: Any) -> int:
        found = c_void_p()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value or 0

    def address(self, name: str) -> int:
        """The address of a driver function, for the timing loops in C."""
        return ctypes.cast(getattr(self.library, name), c_void_p).value or 0

    def attribute(self, number: int) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self.handle)
        return value.value

    @functools.cached_property
    def name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), self.handle)
        return text.value.decode()


class Driver(Card):
    """One device, with its context current in the thread that created the object."""

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.handle)
        self.call("cuCtxSetCurrent", context)
        self.stream = self.new_stream()

    def new_stream(self, *, blocking: bool = False) -> int:
        return self._made("cuStreamCreate", 0 if blocking else 1)

    def describe(self) -> dict[str, Any]:
        """The device properties that measurements depend on."""
        version, total, free = c_int(), c_size_t(), c_size_t()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return {
            "name": self.name,
            "emulated": self.emulated,
            "capability": f"{self.attribute(MAJOR)}.{self.attribute(MINOR)}",
            "multiprocessors": self.attribute(MULTIPROCESSORS),
            "memory": total.value,
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        }

    def free_memory(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        found = c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(found), c_size_t(size))
        return found.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", c_uint64(address))

    def pinned(self, size: int) -> int:
        return self._made("cuMemHostAlloc", c_size_t(size), PORTABLE_AND_MAPPED)

    def managed(self, size: int) -> int:
        """Managed memory; released by `free`."""
        found = c_uint64()
        self.call("cuMemAllocManaged", ctypes.byref(found), c_size_t(size), c_uint(1))
        return found.value

    def free_pinned(self, address: int) -> None:
        self.call("cuMemFreeHost", c_void_p(address))

    def write(self, address: int, data: Bytes) -> None:
        self.call("cuMemcpyHtoD_v2", c_uint64(address), c_void_p(data.ctypes.data), c_size_t(data.size))
        self.call("cuCtxSynchronize")

    def read(self, address: int, size: int) -> Bytes:
        self.call("cuCtxSynchronize")
        data = np.empty(size, np.uint8)
        self.call("cuMemcpyDtoH_v2", c_void_p(data.ctypes.data), c_uint64(address), c_size_t(size))
        return data

    def copy(self, target: int, source: int, size: int) -> None:
        self.call("cuMemcpyDtoD_v2", c_uint64(target), c_uint64(source), c_size_t(size))
        self.call("cuCtxSynchronize")

    def fill(self, address: int, value: int, size: int) -> None:
        self.call("cuMemsetD8_v2", c_uint64(address), ctypes.c_ubyte(value), c_size_t(size))
        self.call("cuCtxSynchronize")

    # -- kernels -----------------------------------------------------------------------------------

    def function(self, image: bytes, name: str) -> int:
        """A kernel of a PTX module; the module stays loaded."""
        module = self._made("cuModuleLoadData", c_char_p(image))
        return self._made("cuModuleGetFunction", c_void_p(module), c_char_p(name.encode()))

    # -- time --------------------------------------------------------------------------------------

    def event(self) -> int:
        """An event without a time."""
        return self._made("cuEventCreate", 2)

    def record(self, event: int) -> None:
        self.call("cuEventRecord", c_void_p(event), c_void_p(self.stream))

    def synchronize(self) -> None:
        self.call("cuStreamSynchronize", c_void_p(self.stream))

    @functools.cached_property
    def _clock(self) -> tuple[int, int]:
        return self._made("cuEventCreate", 0), self._made("cuEventCreate", 0)

    def device_timer(self, sequence: _native.Sequence) -> _native.Timer:
        """Device seconds of n repetitions of calls that submit work to `stream`, as a function of n."""
        in_turn = _native.timer(_native.load(), "bench_calls_in_turn", sequence)
        return self.device_time_of(in_turn)

    def device_time_of(self, work: _native.Timer) -> _native.Timer:
        """Device seconds of `work` in `stream`, including idle time if the host is slower."""

        def run(loops: int) -> float:
            start, end = self._clock
            milliseconds = c_float()
            self.call("cuEventRecord", c_void_p(start), c_void_p(self.stream))
            work(loops)
            self.call("cuEventRecord", c_void_p(end), c_void_p(self.stream))
            self.synchronize()
            self.call("cuEventElapsedTime", ctypes.byref(milliseconds), c_void_p(start), c_void_p(end))
            return 1e-3 * milliseconds.value

        return run


def is_small() -> bool:
    """Whether the first device is measured with few and small shapes."""
    return is_emulated() or Card().small


def slug(name: str) -> str:
    """A card's name as a folder name: "NVIDIA H200" is nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def pitched_copy(
    strided: int, shape: Pitched, packed: int, *, unpack: bool = False, pinned: bool = False
) -> ctypes.Structure:
    """The driver's copy between pitched device memory at `strided` and packed bytes, on the device or pinned."""
    flat = shape.depth == 1
    made: Any = Copy2D() if flat else Copy3D()
    rows = shape.plane // shape.pitch if shape.plane else shape.height
    for side, is_packed in (("src", unpack), ("dst", not unpack)):
        on_host = is_packed and pinned
        values = {
            "type": HOST if on_host else DEVICE,
            "host": packed if on_host else None,
            "device": 0 if on_host else packed if is_packed else strided + shape.offset,
            "pitch": shape.width if is_packed else shape.pitch,
        }
        if not flat:
            values["height"] = shape.height if is_packed else rows
        for name, value in values.items():
            setattr(made, f"{side}_{name}", value)
    made.width, made.height = shape.width, shape.height
    if not flat:
        made.depth = shape.depth
    return made  # type: ignore[no-any-return]


def copy_call(driver: Driver, copy: ctypes.Structure) -> tuple[int, tuple[int, ...]]:
    """The call that starts a copy, for `_native.sequence`. The caller keeps `copy` alive."""
    name = "cuMemcpy2DAsync_v2" if isinstance(copy, Copy2D) else "cuMemcpy3DAsync_v2"
    return driver.address(name), (ctypes.addressof(copy), driver.stream)


def flat_copy_call(driver: Driver, target: int, source: int, size: int) -> tuple[int, tuple[int, ...]]:
    return driver.address("cuMemcpyDtoDAsync_v2"), (target, source, size, driver.stream)


def wait_call(driver: Driver, stream: int | None = None) -> tuple[int, tuple[int, ...]]:
    return driver.address("cuStreamSynchronize"), (driver.stream if stream is None else stream,)
