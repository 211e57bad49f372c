"""Calls MPI functions by their C names, for arguments that mpi4py cannot pass unchanged.

``call("MPI_Pack", ...)`` calls the same function as a C program: tempi's entry. Plain names, ``_c``
names and ``PMPI_`` names are available. Arguments are numbers, NumPy arrays and mpi4py objects.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import tempi
from tempi import _engine
from world import MPI, Memory, placement

__all__ = ["call", "code_of", "has", "library_agrees", "pack", "unchecked", "unpack"]


#: An mpi4py built for an older MPI has no sessions.
HANDLES = (MPI.Datatype, MPI.Comm, MPI.Request, MPI.Op, MPI.Win, MPI.File, MPI.Info, getattr(MPI, "Session", MPI.Comm))


def _address(name: str) -> int:
    """tempi's entry, or the library's if tempi has none."""
    entry = _engine.lib.tempi_engine_entry(name.encode()) or _engine.lib.tempi_engine_symbol(name.encode())
    return int(_engine.ffi.cast("uintptr_t", entry))


def has(name: str) -> bool:
    """Whether the MPI library itself has that function."""
    found = _engine.lib.tempi_engine_symbol(name.encode())
    return bool(found != _engine.ffi.NULL)


def _converted(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, Memory):
        return ctypes.c_void_p(argument.address)
    if isinstance(argument, HANDLES):
        size = MPI._sizeof(argument)
        handle = argument.handle & ((1 << 8 * size) - 1)
        return ctypes.c_void_p(handle) if size == 8 else ctypes.c_uint(handle)
    return argument


def code_of(name: str, *arguments: Any) -> int:
    """The function's return code. Counts are C ints: wrap longer ones."""
    function = ctypes.CFUNCTYPE(ctypes.c_int)(_address(name))
    return int(function(*(_converted(argument) for argument in arguments)))


def call(name: str, *arguments: Any) -> None:
    """Raises MPI.Exception if the call returns an error."""
    code = code_of(name, *arguments)
    if code != MPI.SUCCESS:
        raise MPI.Exception(code)


def _number(name: str, value: int) -> Any:
    return ctypes.c_int64(value) if name.endswith("_c") else ctypes.c_int(value)


def pack(memory: Any, datatype: Any, out: Any, position: int, comm: Any, name: str = "MPI_Pack") -> int:
    """The position after the packed bytes. `out` must be contiguous."""
    at = _number(name, position)
    count, size = _number(name, memory.count), _number(name, len(out))
    call(name, memory, count, datatype, out, size, ctypes.byref(at), comm)
    return int(at.value)


def unpack(packed: Any, position: int, memory: Any, datatype: Any, comm: Any, name: str = "MPI_Unpack") -> int:
    """The position after the unpacked bytes."""
    at = _number(name, position)
    count, size = _number(name, memory.count), _number(name, len(packed))
    call(name, packed, size, ctypes.byref(at), memory, count, datatype, comm)
    return int(at.value)


def library_agrees(memory: Memory, datatype: Any) -> bool:
    """Whether the library alone packs and unpacks by the type map. Libraries get some types wrong."""
    with placement.host():
        here, back = Memory(memory.tree, memory.count).fill(1), Memory(memory.tree, memory.count)
    packed = here.packed
    out = np.zeros(len(packed), np.uint8)
    with tempi.disabled():
        pack(here, datatype, out, 0, MPI.COMM_SELF)
        unpack(packed, 0, back, datatype, MPI.COMM_SELF)
    return np.array_equal(out, packed) and np.array_equal(back.packed, packed)


def unchecked() -> bool:
    """Whether the library was built without argument checks; then a wrong argument has undefined results."""
    comm = MPI.COMM_SELF.Dup()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        comm.Send([np.zeros(1), 0, MPI.DOUBLE], MPI.PROC_NULL, -7)
    except MPI.Exception:
        return False
    finally:
        comm.Free()
    return True
