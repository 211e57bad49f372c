"""A process that shows whether MPI calls pass through the engine; `tempi doctor` starts it.

``python -m tempi.cli._probe load PATH``: load the MPI library at PATH as a linked program does, and
pack a strided type under the preloaded engine. ``python -m tempi.cli._probe mpi4py``: the same through
``from tempi import MPI``. One JSON object on stdout: {"abi", "library", "version", "packs", "aware", "error"},
and for ``load`` also "single_copy" (tempi.model.single_copy).

``python -m tempi.cli._probe memory``: whether one process may read another's memory: {"refused", "ptrace_scope"}.

``python -m tempi.cli._probe gpu``: the CUDA driver and devices, in a process that may crash:
{"driver", "emulated", "version", "devices": [...], "peers": [[device, device, access], ...], "error"}.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import sys
from typing import Any

from tempi import _engine, _stats
from tempi.measure.worker import WorkerError
from tempi.model import single_copy

__all__ = ["main"]

# MPI_BYTE of each ABI: MPICH's number; a symbol of Open MPI's; the standard's number (MPI-5.0, 20.4).
_BYTE_NUMBER = {"mpich": 0x4C00010D, "standard": 0x00000207}


def _type_of(abi: str, library: ctypes.CDLL) -> tuple[Any, Any]:
    """MPI_BYTE and the C type of a datatype handle."""
    if abi == "openmpi":
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, "ompi_mpi_byte"))), ctypes.c_void_p
    handle = ctypes.c_int if abi == "mpich" else ctypes.c_void_p
    return handle(_BYTE_NUMBER[abi]), handle


def _world(abi: str, library: ctypes.CDLL) -> Any:
    if abi == "openmpi":
        address = ctypes.addressof(ctypes.c_char.in_dll(library, "ompi_mpi_comm_world"))
        return ctypes.c_void_p(address)
    return ctypes.c_int(0x44000000) if abi == "mpich" else ctypes.c_void_p(0x00000101)


def _check(code: int, name: str) -> None:
    if code != 0:
        raise RuntimeError(f"{name} failed with MPI error code {code}")


def _pack(path: str, result: dict[str, object]) -> str:
    """Init, MPI_Pack of every other byte, Finalize, through the names that a linked program calls."""
    library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    program = ctypes.CDLL(None)
    first = single_copy.before_init(library, "openmpi" if hasattr(library, "ompi_mpi_byte") else "other")
    _check(program.MPI_Init(None, None), "MPI_Init")
    abi = _stats.stats().abi
    result["single_copy"] = first or single_copy.mechanism(library, abi)
    byte, handle = _type_of(abi, library)
    vector = handle()
    _check(program.MPI_Type_vector(64, 1, 2, byte, ctypes.byref(vector)), "MPI_Type_vector")
    _check(program.MPI_Type_commit(ctypes.byref(vector)), "MPI_Type_commit")
    source, packed = ctypes.create_string_buffer(bytes(range(128)), 128), ctypes.create_string_buffer(64)
    position = ctypes.c_int(0)
    arguments = (source, 1, vector, packed, 64, ctypes.byref(position), _world(abi, library))
    _check(program.MPI_Pack(*arguments), "MPI_Pack")
    if packed.raw != source.raw[::2]:
        raise RuntimeError("MPI_Pack of every other byte gave the wrong bytes")
    _check(program.MPI_Type_free(ctypes.byref(vector)), "MPI_Type_free")
    _check(program.MPI_Finalize(), "MPI_Finalize")
    return _version(library)


def _version(library: ctypes.CDLL) -> str:
    text, length = ctypes.create_string_buffer(16384), ctypes.c_int()
    library.MPI_Get_library_version(text, ctypes.byref(length))
    return _first_line(text.value.decode("utf-8", "replace"))


def _first_line(version: str) -> str:
    return " ".join(version.split("\n", 1)[0].split(", package", 1)[0].split())


def _pack_mpi4py() -> str:
    from tempi import MPI

    vector = MPI.BYTE.Create_vector(64, 1, 2).Commit()
    source, packed = bytearray(range(128)), bytearray(64)
    vector.Pack(source, packed, 0, MPI.COMM_SELF)
    vector.Free()
    if packed != source[::2]:
        raise RuntimeError("Pack of every other byte gave the wrong bytes")
    return _first_line(MPI.Get_library_version())


def _aware() -> int:
    """Whether the MPI library is CUDA-aware: 1 or 0, -1 if it was not asked."""
    info = _engine.ffi.new("tempi_engine_info *")
    _engine.check(_engine.lib.tempi_engine_query(info), doing="the probe")
    return int(info.cuda_aware)


def gpu() -> dict[str, object]:
    """The CUDA driver's answers. Loads the driver; creates no context on any device."""
    ffi, lib = _engine.ffi, _engine.lib
    info, device = ffi.new("tempi_gpu_info *"), ffi.new("tempi_gpu_device *")
    _engine.check(lib.tempi_gpu_query(info), doing="the probe")
    devices: list[dict[str, object]] = []
    for ordinal in range(info.devices):
        _engine.check(lib.tempi_gpu_device_query(ordinal, device), doing=f"device {ordinal}")
        devices.append(
            {
                "name": _engine.text(device.name),
                "capability": f"{device.capability // 10}.{device.capability % 10}",
                "multiprocessors": device.multiprocessors,
                "memory": device.memory,
                "kernels": _engine.text(device.kernels),
            }
        )
    return {
        "driver": _engine.text(info.driver),
        "emulated": bool(info.emulated),
        "version": f"{info.version // 1000}.{info.version % 1000 // 10}" if info.version else None,
        "devices": devices,
        "peers": _peers(len(devices)) if len(devices) > 1 else [],
        "error": _engine.text(info.error),
    }


def _peers(devices: int) -> list[tuple[int, int, bool]] | None:
    """Pairs of devices, and whether a kernel of each can access the other's memory; None if the driver does not say.
    `gpu` has initialized it."""
    from tempi.measure import cuda_driver

    try:
        card = cuda_driver.Card()
        found = []
        for one, other in itertools.combinations(range(devices), 2):
            each = [ctypes.c_int(), ctypes.c_int()]
            card.call("cuDeviceCanAccessPeer", ctypes.byref(each[0]), one, other)
            card.call("cuDeviceCanAccessPeer", ctypes.byref(each[1]), other, one)
            found.append((one, other, all(access.value for access in each)))
        return found
    except (WorkerError, AttributeError):
        return None


def main(arguments: list[str]) -> int:
    """Run the probe; exit status 0 if an answer was printed."""
    if arguments == ["gpu"]:
        sys.stdout.write(json.dumps(gpu()) + "\n")
        return 0
    if arguments == ["memory"]:
        state = {"refused": single_copy.refused(), "ptrace_scope": single_copy.ptrace_scope()}
        sys.stdout.write(json.dumps(state) + "\n")
        return 0
    result: dict[str, object] = {"version": None, "error": None}
    with contextlib.redirect_stdout(sys.stderr):
        try:
            result["version"] = _pack_mpi4py() if arguments == ["mpi4py"] else _pack(arguments[1], result)
        except (ImportError, OSError, RuntimeError, AttributeError, KeyError) as error:
            result["error"] = f"{type(error).__name__}: {error}"
        seen = _stats.stats()
    result |= {"abi": seen.abi, "library": seen.library, "packs": seen["packs"]}
    result |= {"reason": seen.reason, "aware": _aware()}
    result["engine"] = _engine.library_path()
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
