"""Messages of arrays that are not NumPy's, in the order of their streams.

`depart` or `arrive` of the buffer, then the call of mpi4py's method by `call`, which ends the order:
between them this thread's packs and unpacks wait, on the device, for the stream that the array names,
and what the library gets to read itself is waited for by the host (csrc/tempi.h, tempi_stream_begin).
With ``wait=True`` the host waits at once, and the method may be called as it is: for calls whose
buffers the library may touch later (persistent ones), for two arrays with a stream each, for collectives.
"""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from numpy import ndarray

from tempi import _engine
from tempi._arrays import incoming_foreign, outgoing_foreign
from tempi._foreign import LEGACY_STREAM, look
from tempi._libraries import current_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tempi._foreign import Foreign

__all__ = ["PLAIN", "arrive", "call", "depart"]

_lib = _engine.lib
_OUTGOING, _INCOMING = _lib.TEMPI_PACK, _lib.TEMPI_UNPACK
_SPECS = (list, tuple)

#: The types of buffers that no stream concerns and that mpi4py knows best. Where there can be device
#: memory at all, a list or tuple may name some.
PLAIN: frozenset[type] = frozenset(
    {bytes, bytearray, memoryview, array.array, int, str, type(None), type(MPI.BOTTOM), type(MPI.IN_PLACE), MPI.buffer}
    | (set() if _lib.tempi_gpu_possible() else set(_SPECS))
)


def call(method: Callable[..., Any], *arguments: Any) -> Any:
    """The call of a message that has departed or arrived, and the end of its order."""
    try:
        return method(*arguments)
    finally:
        _lib.tempi_stream_end()


def depart(buffer: Any, *, wait: bool = False) -> Any:
    """What mpi4py is to send for `buffer`. Raises ArrayError where it cannot be a message."""
    found = _look(buffer)
    if found is None:
        return buffer
    message = buffer if found.contiguous or type(buffer) in _SPECS else outgoing_foreign(found)
    _order(found, _OUTGOING, wait)
    return message


def arrive(buffer: Any, *, wait: bool = False) -> Any:
    """What mpi4py is to receive into for `buffer`. Raises ArrayError where it cannot be received into."""
    found = _look(buffer)
    if found is None:
        return buffer
    message = buffer if found.contiguous or type(buffer) in _SPECS else incoming_foreign(found)
    _order(found, _INCOMING, wait)
    return message


def _look(buffer: Any) -> Foreign | None:
    """The array, or the one that an mpi4py specification (a list or tuple) starts with."""
    if type(buffer) in _SPECS:
        if not buffer or isinstance(buffer[0], ndarray) or type(buffer[0]) in PLAIN or type(buffer[0]) in _SPECS:
            return None
        buffer = buffer[0]
    return look(buffer, current_stream(buffer) or LEGACY_STREAM)


def _order(found: Foreign, direction: int, wait: bool) -> None:
    if found.stream is None or not found.pointer:
        return
    address = _engine.ffi.cast("void *", found.pointer)
    if wait or _engine.late:
        status = _lib.tempi_stream_wait(address, found.stream)
    else:
        status = _lib.tempi_stream_begin(address, found.stream, direction)
    _engine.check(status, doing="waiting for the stream of an array")
