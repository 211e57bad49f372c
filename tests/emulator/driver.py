"""The emulated driver from Python, for tests: by ctypes, with errors as exceptions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

from tempi.emulator import compile_ptx

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, DEINITIALIZED = 0, 1, 2, 3, 4
UNAVAILABLE, NO_BINARY, INVALID_CONTEXT, INVALID_PTX, NEW_PTX = 46, 209, 201, 218, 222
INVALID_HANDLE, NOT_FOUND, NOT_READY, ILLEGAL_ADDRESS, MISALIGNED, LAUNCH_FAILED = 400, 500, 600, 700, 716, 719
NON_BLOCKING = 1
LEGACY, PER_THREAD = 1, 2


class CudaError(Exception):
    """A driver function returned something other than success."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {code}")
        self.code = code


def plain(value: object) -> object:
    """A Python integer goes as 64 bits, as pointers, sizes and handles do; `int32` says otherwise."""
    return ctypes.c_uint64(value) if isinstance(value, int) else value


int32 = ctypes.c_int32


class Driver:
    """One process has one driver; a test gets a fresh context of it."""

    def __init__(self, library: Path, modules: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.tempi_emulator_count.restype = ctypes.c_uint64
        self.library.tempi_emulator_live.restype = ctypes.c_int64
        self.modules = modules

    def result(self, function: str, *arguments: object) -> int:
        return int(getattr(self.library, function)(*map(plain, arguments)))

    def __call__(self, function: str, *arguments: object) -> None:
        code = self.result(function, *arguments)
        if code != SUCCESS:
            raise CudaError(function, code)

    def get(self, function: str, *arguments: object, kind: type = ctypes.c_uint64) -> int:
        """The value that the function stores through its first argument."""
        out = kind()
        self(function, ctypes.byref(out), *arguments)
        return int(out.value or 0)

    def streams(self, mode: str) -> None:
        assert self.library.tempi_emulator_streams(mode.encode()) == 0

    def fail(self, rule: str) -> None:
        assert self.library.tempi_emulator_fail(rule.encode()) == 0

    def count(self, name: str) -> int:
        return int(self.library.tempi_emulator_count(name.encode()))

    def live(self, name: str) -> int:
        return int(self.library.tempi_emulator_live(name.encode()))

    # ---- contexts and memory ----------------------------------------------------------------------

    def start(self, device: int = 0) -> int:
        """The device's primary context, current; initialises the driver."""
        self("cuInit", int32(0))
        context = self.get("cuDevicePrimaryCtxRetain", int32(device))
        self("cuCtxSetCurrent", context)
        return context

    def stop(self, device: int = 0) -> None:
        self("cuDevicePrimaryCtxReset_v2", int32(device))

    def alloc(self, size: int) -> int:
        return self.get("cuMemAlloc_v2", size)

    def upload(self, data: bytes) -> int:
        pointer = self.alloc(len(data))
        self.write(pointer, data)
        return pointer

    def write(self, pointer: int, data: bytes) -> None:
        self("cuMemcpyHtoD_v2", pointer, data, len(data))

    def read(self, pointer: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", out, pointer, size)
        return out.raw

    def free(self, pointer: int) -> None:
        self("cuMemFree_v2", pointer)

    # ---- kernels ------------------------------------------------------------------------------------

    def load(self, ptx: str) -> int:
        compile_ptx(ptx, self.modules)
        return self.get("cuModuleLoadData", ptx.encode())

    def function(self, module: int, name: str) -> int:
        return self.get("cuModuleGetFunction", module, name.encode())

    def launch(
        self,
        function: int,
        arguments: Sequence[object],
        *,
        grid: Sequence[int] = (1,),
        block: Sequence[int] = (1,),
        shared: int = 0,
        stream: int = 0,
    ) -> None:
        """Integers go as 64-bit parameters; other types are ctypes values."""
        values = [plain(argument) for argument in arguments]
        params = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))  # type: ignore[arg-type]
        sizes = [ctypes.c_uint(n) for n in ((*grid, 1, 1)[:3] + (*block, 1, 1)[:3])]
        self("cuLaunchKernel", function, *sizes, ctypes.c_uint(shared), stream, params, None)
