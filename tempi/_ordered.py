"""Messages of other libraries' arrays, ordered after the arrays' streams.

Call `depart` or `arrive` on the buffer, then mpi4py's method through `call`, which ends the ordering.
In between, packs and unpacks of this thread wait on the device for the stream that the array names, and the
host waits before the library itself reads a buffer (csrc/tempi.h, tempi_stream_begin). With ``wait=True``
the host waits at once, and the method may be called directly: for calls whose buffers the library may access
later (persistent ones), for two arrays with one stream each, and for collectives.
"""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from numpy import ndarray

from tempi import _engine
from tempi._arrays import EACH_ROW, incoming_foreign, outgoing_foreign
from tempi._foreign import LEGACY_STREAM, describe
from tempi._libraries import current_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from tempi._foreign import Foreign

__all__ = ["PLAIN", "arrive", "by_rows", "call", "depart"]

_lib = _engine.lib
_OUTGOING, _INCOMING = _lib.TEMPI_PACK, _lib.TEMPI_UNPACK
_SPECS = (list, tuple)

#: Buffer types that need no stream ordering and that mpi4py handles best. If there can be device memory,
#: a list or tuple may contain arrays that do.
PLAIN: frozenset[type] = frozenset(
    {bytes, bytearray, memoryview, array.array, int, str, type(None), type(MPI.BOTTOM), type(MPI.IN_PLACE), MPI.buffer}
    | (set() if _lib.tempi_gpu_possible() else set(_SPECS))
)


def call(method: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the method for a message prepared by `depart` or `arrive`, and ends the ordering."""
    try:
        return method(*arguments)
    finally:
        _lib.tempi_stream_end()


def depart(buffer: Any, *, wait: bool = False, parts: int = 0) -> Any:
    """The message for mpi4py to send for `buffer`. Raises ArrayError if it cannot be sent."""
    found = _describe(buffer)
    if found is None:
        return buffer
    message = buffer if found.contiguous or type(buffer) in _SPECS else outgoing_foreign(found, parts)
    _order(found, _OUTGOING, wait)
    return message


def arrive(buffer: Any, *, wait: bool = False, parts: int = 0) -> Any:
    """The message for mpi4py to receive into for `buffer`. Raises ArrayError if it cannot be received into."""
    found = _describe(buffer)
    if found is None:
        return buffer
    message = buffer if found.contiguous or type(buffer) in _SPECS else incoming_foreign(found, parts)
    _order(found, _INCOMING, wait)
    return message


def by_rows(buffer: Any, sends: bool) -> tuple[Any, Sequence[int], np.dtype[Any]] | None:
    """Of a non-contiguous array the message of one row, the shape and the dtype. Waits for any array's stream."""
    found = _describe(buffer)
    if found is None:
        return None
    as_it_is = found.contiguous or found.nbytes == 0
    message = None if as_it_is else (outgoing_foreign if sends else incoming_foreign)(found, EACH_ROW)
    _order(found, _OUTGOING if sends else _INCOMING, wait=True)
    return None if as_it_is else (message, found.shape, found.dtype)


def _describe(buffer: Any) -> Foreign | None:
    """The array, or the first item of an mpi4py buffer specification (a list or tuple)."""
    if type(buffer) in _SPECS:
        if not buffer or isinstance(buffer[0], ndarray) or type(buffer[0]) in PLAIN or type(buffer[0]) in _SPECS:
            return None
        buffer = buffer[0]
    return describe(buffer, current_stream(buffer) or LEGACY_STREAM)


def _order(found: Foreign, direction: int, wait: bool) -> None:
    if found.stream is None or not found.pointer:
        return
    address = _engine.ffi.cast("void *", found.pointer)
    if wait or _engine.late:
        status = _lib.tempi_stream_wait(address, found.stream)
    else:
        status = _lib.tempi_stream_begin(address, found.stream, direction)
    _engine.check(status, doing="waiting for the stream of an array")
