"""tempi makes MPI derived datatypes fast, for any MPI and without a change to the application.

``from tempi import MPI`` is mpi4py's MPI on top of the engine. `describe` shows the layout of a
datatype, `stats` reports what was accelerated, ``with disabled():`` turns tempi off for the calling thread,
`set_stream` sets the CUDA stream after which a communicator's messages are ordered, `register` saves the driver's
queries for memory that stays, `empty` makes arrays that collectives copy once within a node, and `peer` returns the
peer class of a rank. `pack` and `unpack` run the kernels alone, on NumPy or device arrays, without MPI.

Importing this package loads the engine. It neither needs nor loads an MPI library.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

from tempi._errors import (
    ArgumentError,
    ArrayError,
    EngineError,
    EngineNotFoundError,
    NoMPIError,
    TempiError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpi4py.MPI import Comm, Datatype

    from tempi import MPI
    from tempi._mapped import empty
    from tempi._packing import pack, unpack
    from tempi._stats import Stats, stats
    from tempi.layout import Layout

__version__ = "0.1.0"

__all__ = [
    "MPI",
    "ArgumentError",
    "ArrayError",
    "EngineError",
    "EngineNotFoundError",
    "Layout",
    "NoMPIError",
    "Stats",
    "TempiError",
    "UnsupportedError",
    "__version__",
    "deregister",
    "describe",
    "disabled",
    "empty",
    "pack",
    "peer",
    "register",
    "set_stream",
    "stats",
    "unpack",
]

# Imported on first use: MPI needs mpi4py and an MPI library, Layout needs NumPy.
_LAZY = {
    "Layout": "tempi.layout",
    "Stats": "tempi._stats",
    "empty": "tempi._mapped",
    "pack": "tempi._packing",
    "stats": "tempi._stats",
    "unpack": "tempi._packing",
}


def __getattr__(name: str) -> Any:
    if name == "MPI":
        return importlib.import_module("tempi.MPI")
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tempi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def describe(datatype: Datatype | int) -> Layout:
    """The canonical layout of a committed MPI datatype (an mpi4py Datatype or its handle).

    Raises NoMPIError before MPI_Init or if the engine does not interpose this process's MPI.
    """
    from tempi import _engine, layout

    handle = datatype if isinstance(datatype, int) else _handle(datatype)
    out = _engine.ffi.new("tempi_layout const **")
    _engine.check(_engine.lib.tempi_datatype_layout(handle, out), doing="tempi.describe()")
    return layout.from_engine(out[0])


def _handle(thing: Datatype | Comm) -> int:
    """The handle as the engine expects it: zero-extended (mpi4py sign-extends MPICH's ints)."""
    from mpi4py.MPI import _sizeof

    return thing.handle & ((1 << 8 * _sizeof(thing)) - 1)


def set_stream(comm: Comm | int, stream: Any) -> None:
    """Order the communicator's messages of device memory after a CUDA stream of the program, instead of
    after the legacy default stream.

    `stream` is the integer value of a CUstream, or an object that provides it: by ``__cuda_stream__``, as `ptr`
    (CuPy) or as `cuda_stream` (PyTorch). 0 or None restores the default. The stream must live as long as it is
    used. Duplicates of the communicator do not inherit it.

    Raises NoMPIError before MPI_Init or if the engine does not interpose this process's MPI.
    """
    from tempi import _engine

    handle = comm if isinstance(comm, int) else _handle(comm)
    _engine.check(_engine.lib.tempi_comm_set_stream(handle, _stream(stream)), doing="tempi.set_stream()")


def register(buffer: Any) -> None:
    """Promise that the CUDA allocation of `buffer` is not freed before `deregister`, called as often as this.

    Messages from and into a registered allocation need no query of the driver; an exchange of many allocations has
    one for each of the others. `buffer` is an address, or an array with ``__cuda_array_interface__`` or `data_ptr`
    (CuPy, Numba, PyTorch), any part of the allocation. Arrays of a memory pool share its allocations, which the pool
    may free: keep such an array, or register none.

    Raises ArgumentError if the memory is no allocation of CUDA's. MPI is not needed.
    """
    from tempi import _engine

    _engine.check(_engine.lib.tempi_memory_register(_address(buffer)), doing="tempi.register()")


def deregister(buffer: Any) -> None:
    """End one `register` of the allocation of `buffer`: before it is freed. Raises ArgumentError without one."""
    from tempi import _engine

    _engine.check(_engine.lib.tempi_memory_deregister(_address(buffer)), doing="tempi.deregister()")


def _address(buffer: Any) -> Any:
    from tempi import _engine

    if hasattr(buffer, "__cuda_array_interface__"):
        number = buffer.__cuda_array_interface__["data"][0]
    else:
        number = buffer.data_ptr() if hasattr(buffer, "data_ptr") else buffer
    return _engine.ffi.cast("void *", int(number))


def peer(comm: Comm | int, rank: int) -> str:
    """The peer class of a rank of the communicator, as the model uses it: "self", "same-node", "same-node-far" (same
    node, other last-level cache, as probed so far) or "other-node".

    In an intercommunicator `rank` is a rank of the remote group. A negative rank, such as MPI.ANY_SOURCE, gives the
    most distant class. Ranks of unknown location are treated as on another node.

    Raises NoMPIError before MPI_Init or if the engine does not interpose this process's MPI.
    """
    from tempi import _engine
    from tempi.model.peers import PEERS

    handle = comm if isinstance(comm, int) else _handle(comm)
    out = _engine.ffi.new("int *")
    _engine.check(_engine.lib.tempi_comm_peer(handle, rank, out), doing="tempi.peer()")
    return PEERS[out[0]].word


def _stream(stream: Any) -> int:
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("ptr", "cuda_stream"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Pass the calling thread's MPI calls to the library; nests.

    Requests already tracked are still completed, and collectives within a node carried: the other ranks are in them.
    """
    from tempi import _engine

    _engine.lib.tempi_disable()
    try:
        yield
    finally:
        _engine.lib.tempi_enable()


def _start() -> None:
    """Load the engine now, before any MPI library; an engine that cannot be loaded is reported on first use."""
    try:
        from tempi import _engine
    except EngineNotFoundError:
        return
    if _engine.late:
        sys.stderr.write(
            "tempi: NOT INTERPOSED: mpi4py.MPI was imported before tempi, so its MPI calls bypass "
            "the engine; import tempi first, or start the program with `tempi run`\n"
        )


_start()
