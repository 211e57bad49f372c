"""The timing loops of ``bench/native`` (libtempi-bench.so, beside libtempi.so), by ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

Timer = Callable[[int], float]


class NativeError(RuntimeError):
    """The timing library is missing, or a timed call failed."""


class Transfer(ctypes.Structure):
    """struct bench_transfer"""

    _fields_ = (
        ("function", c_void_p),
        ("layout", c_void_p),
        ("type", c_size_t),
        ("comm", c_size_t),
        ("memory", c_void_p),
        ("packed", c_void_p),
        ("bytes", c_int64),
        ("count", c_int32),
    )


class Copy(ctypes.Structure):
    """struct bench_copy"""

    _fields_ = (
        *((name, c_void_p) for name in ("source_layout", "target_layout", "source", "target")),
        ("bytes", c_int64),
    )


class Message(ctypes.Structure):
    """struct bench_message"""

    _fields_ = (
        ("send", c_void_p),
        ("receive", c_void_p),
        ("type", c_size_t),
        ("byte_type", c_size_t),
        ("comm", c_size_t),
        ("layout", c_void_p),
        ("source", c_void_p),
        ("target", c_void_p),
        ("send_packed", c_void_p),
        ("receive_packed", c_void_p),
        ("bytes", c_int64),
        ("count", c_int32),
        ("peer", c_int32),
        ("tag", c_int32),
    )


class Parts(ctypes.Structure):
    """struct bench_parts"""

    _fields_ = (
        ("pack", c_void_p),
        ("unpack", c_void_p),
        ("send", c_void_p),
        ("receive", c_void_p),
        ("irecv", c_void_p),
        ("wait", c_void_p),
        ("layout", c_void_p),
        ("type", c_size_t),
        ("comm", c_size_t),
        ("source", c_void_p),
        ("target", c_void_p),
        ("send_packed", c_void_p),
        ("receive_packed", c_void_p),
        ("spent", c_void_p),
        ("bytes", c_int64),
        ("count", c_int32),
        ("peer", c_int32),
        ("tag", c_int32),
    )


class Calls(ctypes.Structure):
    """struct bench_calls"""

    _fields_ = (
        ("barrier", c_void_p),
        ("send", c_void_p),
        ("irecv", c_void_p),
        ("wait", c_void_p),
        ("waitall", c_void_p),
        ("type", c_size_t),
        ("sent_type", c_size_t),
        ("comm", c_size_t),
        ("source", c_void_p),
        ("target", c_void_p),
        ("requests", c_void_p),
        ("statuses", c_void_p),
        ("request_size", c_int32),
        ("count", c_int32),
        ("peer", c_int32),
        ("n", c_int32),
    )


class Once(ctypes.Structure):
    """struct bench_once"""

    _fields_ = (
        *((name, c_void_p) for name in ("make", "commit", "pack", "sendrecv", "free", "places")),
        *((name, c_size_t) for name in ("inner", "comm")),
        *((name, c_void_p) for name in ("memory", "packed")),
        *((name, ctypes.c_int32) for name in ("blocks", "length", "room")),
    )


ARGUMENTS = 11


class Call(ctypes.Structure):
    """struct bench_call"""

    _fields_ = (("function", c_void_p), ("arguments", c_size_t * ARGUMENTS))


class Sequence(ctypes.Structure):
    """struct bench_sequence"""

    _fields_ = (("calls", c_void_p), ("n", c_int64))


def sequence(*calls: tuple[int, tuple[int, ...]]) -> Sequence:
    """Calls functions by their addresses, with integers and addresses as arguments."""
    made = (Call * len(calls))(*(Call(function, (c_size_t * ARGUMENTS)(*values)) for function, values in calls))
    found = Sequence(ctypes.addressof(made), len(calls))
    found.owner = made  # alive as long as the structure that refers to it
    return found


def library_file() -> Path:
    from tempi import _engine

    return Path(_engine.library_path()).with_name("libtempi-bench.so")


@functools.cache
def load(path: Path | None = None) -> ctypes.CDLL:
    """The timing library. Raises `NativeError` if it was not built."""
    file = path or library_file()
    if not file.is_file():
        raise NativeError(f"{file}: no such file; it is built by `pip install .`")
    library = ctypes.CDLL(str(file))
    library.bench_time.restype = ctypes.c_double
    library.bench_time.argtypes = (c_void_p, c_void_p, c_int64)
    library.bench_waitall.restype = ctypes.c_double
    library.bench_waitall.argtypes = (c_void_p, c_int64)
    library.bench_first_use.restype = ctypes.c_double
    library.bench_first_use.argtypes = (c_void_p, c_void_p, c_int64)
    library.bench_bare_wrapper.restype = c_size_t
    library.bench_bare_wrapper.argtypes = (c_int, c_size_t, c_size_t)
    library.bench_spawn.restype = ctypes.c_double
    library.bench_spawn.argtypes = (c_char_p, c_void_p, c_int64)
    return library


def _checked(seconds: float, what: str) -> float:
    if seconds < 0:
        raise NativeError(f"{what} failed with code {-seconds:.0f}")
    return seconds


def timer(library: ctypes.CDLL, op: str, argument: ctypes.Structure) -> Timer:
    """Seconds of n calls of a bench_op, as a function of n. Keeps the argument alive."""
    function = ctypes.cast(getattr(library, op), c_void_p)
    address = ctypes.addressof(argument)

    def run(loops: int, _owner: Any = argument) -> float:
        return _checked(float(library.bench_time(function, address, loops)), op)

    return run


def bare_wrapper(library: ctypes.CDLL, which: int, function: int, lying_as: int) -> int:
    """The address of a wrapper of that function that does nothing, in the sets of the first cache in which an
    interposer's function lies (0: in any). There are two at a time, 0 and 1."""
    return int(library.bench_bare_wrapper(which, function, lying_as))


def waitall_timer(library: ctypes.CDLL, calls: Calls) -> Timer:
    """Seconds of n Waitalls alone, as a function of n."""
    address = ctypes.addressof(calls)

    def run(loops: int, _owner: Any = calls) -> float:
        return _checked(float(library.bench_waitall(address, loops)), "Waitall")

    return run


def spawn_timer(library: ctypes.CDLL, path: str, environment: dict[str, str]) -> Timer:
    """Seconds to run a program n times in that environment, as a function of n."""
    lines = [f"{name}={value}".encode() for name, value in environment.items()]
    block = (c_char_p * (len(lines) + 1))(*lines, None)

    def run(loops: int) -> float:
        return _checked(float(library.bench_spawn(path.encode(), block, loops)), path)

    return run


def first_use(library: ctypes.CDLL, datatype_layout: int, types: list[int]) -> float:
    """Seconds to make the layouts of all these new datatypes."""
    handles = (c_size_t * len(types))(*types)
    seconds = float(library.bench_first_use(datatype_layout, handles, len(types)))
    return _checked(seconds, "tempi_datatype_layout")
