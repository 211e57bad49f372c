"""The binding to the engine in this process; the only module that uses cffi.

A process has one engine. If ``libtempi.so`` is already loaded (preloaded, or loaded by another package),
this module binds to that copy. Otherwise it loads the engine now, with RTLD_GLOBAL, so that an MPI
extension module that is loaded *later* binds its MPI symbols to it.

``ffi`` and ``lib`` are cffi's objects for ``tempi.h``; `check` turns a status into an exception.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempi import _errors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["abi_name", "check", "ffi", "items", "late", "lib", "library_path", "preloaded", "text"]

_PACKAGE = Path(__file__).resolve().parent
_ABI_NAMES = ("none", "mpich", "openmpi", "standard")


class _SymbolInfo(ctypes.Structure):
    """struct Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _loaded_path() -> str | None:
    """Path of the engine in the process's global symbol scope, or None."""
    scope = ctypes.CDLL(None)
    try:
        address = ctypes.cast(scope.tempi_version, ctypes.c_void_p)
    except AttributeError:
        return None
    info = _SymbolInfo()
    scope.dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_SymbolInfo))
    if not scope.dladdr(address, ctypes.byref(info)) or not info.file:
        return None
    return os.path.realpath(os.fsdecode(info.file))


def _wanted_path() -> str:
    """The library to load: TEMPI_LIBRARY, else the installed one of this package."""
    override = os.environ.get("TEMPI_LIBRARY")
    path = Path(override) if override else _PACKAGE / "lib" / "libtempi.so"
    if path.is_file():
        return str(path.resolve())
    if override:
        raise _errors.EngineNotFoundError(f"TEMPI_LIBRARY={override}: no such file")
    raise _errors.EngineNotFoundError(
        f"{path}: no such file; the engine is built by `pip install .`, or name a built libtempi.so in TEMPI_LIBRARY"
    )


def _declarations(header: str) -> str:
    """The header without its preprocessor lines and its C++ guard, for cffi."""
    lines: list[str] = []
    guarded = False
    for line in header.splitlines():
        if line.startswith("#"):
            guarded = line.startswith("#ifdef __cplusplus")
        elif not guarded:
            lines.append(line)
    return "\n".join(lines)


def _make_ffi() -> Any:
    """The declarations compiled at build time; in a source tree, parsed from the header."""
    try:
        return importlib.import_module("tempi._tempi_cffi").ffi
    except ImportError:
        header = _PACKAGE.parent / "csrc" / "tempi.h"
        if not header.is_file():
            raise _errors.EngineNotFoundError(
                "tempi._tempi_cffi is missing: this installation of tempi is incomplete"
            ) from None
        parsed = importlib.import_module("cffi").FFI()
        parsed.cdef(_declarations(header.read_text(encoding="utf-8")))
        return parsed


def _load() -> tuple[Any, Any, str, bool]:
    here = _loaded_path()
    path = here or _wanted_path()
    made = _make_ffi()
    try:
        return made, made.dlopen(path, os.RTLD_NOW | os.RTLD_GLOBAL), path, here is not None
    except OSError as error:
        raise _errors.EngineNotFoundError(f"cannot load the engine: {error}") from error


_mpi_first = "mpi4py.MPI" in sys.modules
ffi, lib, _path, preloaded = _load()
#: True if mpi4py's extension was loaded before the engine: its calls then bypass the engine.
late: bool = _mpi_first and not preloaded


def library_path() -> str:
    """Absolute path of the libtempi.so in use."""
    return _path


def text(pointer: Any) -> str | None:
    """A C string of the engine as str; None for NULL."""
    return None if pointer == ffi.NULL else os.fsdecode(ffi.string(pointer))


def check(status: int, *, doing: str) -> None:
    """Return if `status` is success; otherwise raise, with `doing` at the start of the message."""
    if status == lib.TEMPI_OK:
        return
    message = f"{doing}: {text(lib.tempi_status_string(status))}"
    if status == lib.TEMPI_ERR_MEMORY:
        raise MemoryError(message)
    if status == lib.TEMPI_ERR_OVERFLOW:
        raise OverflowError(message)
    kinds: dict[int, type[_errors.EngineError]] = {
        lib.TEMPI_ERR_ARG: _errors.ArgumentError,
        lib.TEMPI_ERR_UNSUPPORTED: _errors.UnsupportedError,
        lib.TEMPI_ERR_NO_MPI: _errors.NoMPIError,
    }
    raise kinds.get(status, _errors.EngineError)(message, status=status)


def abi_name(number: int) -> str:
    """Name of a TEMPI_ABI_* number: "none", "mpich", "openmpi" or "standard"."""
    return _ABI_NAMES[number] if 0 <= number < len(_ABI_NAMES) else f"unknown ({number})"


def items(table: str) -> Iterator[tuple[str, str, int]]:
    """Name, help and index of each row of the engine's table "stats" or "config"."""
    name = getattr(lib, f"tempi_{table}_name")
    help_of = getattr(lib, f"tempi_{table}_help")
    for index in range(getattr(lib, f"tempi_{table}_count")()):
        yield text(name(index)) or "", text(help_of(index)) or "", index
