"""Shared by the measuring programs: the engine's entry points, buffers, records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tempi import TempiError, _engine, empty
from tempi.measure import launch
from tempi.measure._native import NativeError
from tempi.measure.records import Record, machine

Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 4096


class WorkerError(RuntimeError):
    """The measurement cannot be made here."""


def library_function(name: str) -> int:
    """Address of the MPI library's own function."""
    return _address(_engine.lib.tempi_engine_symbol(name.encode()), name)


def tempi_function(name: str) -> int | None:
    """Address of tempi's entry for that MPI name; None if tempi leaves the name to the library."""
    pointer = _engine.lib.tempi_engine_entry(name.encode())
    return None if pointer == _engine.ffi.NULL else _address(pointer, name)


def engine_function(name: str) -> int:
    """Address of a function of the engine."""
    return int(_engine.ffi.cast("uintptr_t", _engine.ffi.addressof(_engine.lib, name)))


def _address(pointer: Any, name: str) -> int:
    if pointer == _engine.ffi.NULL:
        raise WorkerError(f"the MPI library has no {name}")
    return int(_engine.ffi.cast("uintptr_t", pointer))


def active() -> bool:
    """Whether tempi acts in this process. Reports on stderr why not."""
    info = _engine.ffi.new("tempi_engine_info *")
    _engine.check(_engine.lib.tempi_engine_query(info), doing="tempi bench")
    if not info.active or _engine.late:
        reason = _engine.text(info.reason) or "imported too late"
        sys.stderr.write(f"tempi bench: no subject tempi: {reason}\n")
    return bool(info.active) and not _engine.late


def two_ranks(mpi: Any) -> str:
    """The peer class of the other of two ranks, in both of which tempi must act; raises WorkerError otherwise."""
    comm = mpi.COMM_WORLD
    if comm.size != 2:
        raise WorkerError(f"two ranks are needed, not {comm.size}")
    if not comm.allreduce(active(), mpi.LAND):
        raise WorkerError("tempi does not act in this program")
    names = comm.allgather(mpi.Get_processor_name())
    return "node" if names[0] == names[1] else "other"


def handle(mpi: Any, thing: Any) -> int:
    """An MPI handle as the engine expects it: zero-extended (mpi4py sign-extends MPICH's ints)."""
    bits = 8 * int(mpi._sizeof(thing))
    return int(thing.handle) & ((1 << bits) - 1)


def layout(datatype: int) -> int:
    """Address of the datatype's layout."""
    out = _engine.ffi.new("tempi_layout const **")
    _engine.check(_engine.lib.tempi_datatype_layout(datatype, out), doing="layout of a datatype")
    return int(_engine.ffi.cast("uintptr_t", out[0]))


def counter(name: str) -> int:
    """The value of one of the engine's counters."""
    for known, _, index in _engine.items("stats"):
        if known == name:
            return int(_engine.lib.tempi_stats_value(index))
    raise WorkerError(f"the engine has no counter {name}")


def isa_name() -> str | None:
    return _engine.text(_engine.lib.tempi_isa_name())


def arena(size: int, mapped: bool = False) -> Bytes:
    """`size` page-aligned bytes, every page touched and no two lines alike; `mapped`: of tempi.empty."""
    raw = empty(size + ALIGNMENT, np.uint8) if mapped else np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    buffer = raw[start : start + size]
    words = buffer[: size // 8 * 8].view(np.uint64)
    block = 1 << 20
    for first in range(0, words.size, block):
        part = words[first : first + block]
        part[:] = np.arange(first, first + part.size, dtype=np.uint64)
        part *= np.uint64(0x9E3779B97F4A7C15)
    buffer[size // 8 * 8 :] = 0xA5
    return buffer


def mpi_version(mpi: Any) -> str:
    """The first line of the library's version string."""
    first = mpi.Get_library_version().strip("\0 \n").splitlines()[0]
    return " ".join(first.split())


def describe(mpi: Any) -> dict[str, Any]:
    """The metadata in every record of this process."""
    return {"mpi": mpi_version(mpi), "cpu_level": isa_name(), "machine": machine()}


def emit(records: Iterator[Record], rank: int) -> None:
    """Prints rank 0's records as they arrive; the other ranks only take part.

    An error on one rank aborts all: the others may be waiting for it.
    """
    try:
        for record in records:
            if rank == 0:
                sys.stdout.write(record.line() + "\n")
                sys.stdout.flush()
    except (WorkerError, NativeError, TempiError) as error:
        from mpi4py import MPI

        launch.report_error(f"rank {rank}: {error}")
        MPI.COMM_WORLD.Abort(1)
