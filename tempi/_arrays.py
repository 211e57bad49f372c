"""Array views as MPI messages: builds the datatype of a view from its shape and strides.

A view is sent and received in the order of its indices (C order), so it matches a contiguous array of the
same shape at the peer. The message of a view is mpi4py's ``(buffer, 1, datatype)``, with the view's first
element as the buffer. mpi4py keeps that message until the request completes: the element keeps the array's
memory alive, and the datatype is freed with its last reference. In a collective with a part of the array for each
rank (`parts` of them, cut along the first axis) the datatype is that of one part.

Arrays of other libraries come as `Foreign` (see there). Their first element is represented by an object of
this module that holds its address. This module never touches elements: they may be in device memory.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from tempi._errors import ArrayError
from tempi._strides import fold, overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tempi._foreign import Foreign

    Array = NDArray[Any]
    Message = tuple[Any, int, MPI.Datatype]
    Key = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...], int]

__all__ = ["EACH_ROW", "clear", "incoming", "incoming_foreign", "outgoing", "outgoing_foreign"]

#: Cached datatypes. A halo exchange of many fields uses some hundreds; one takes about a kilobyte.
#: With some 500 datatypes alive, inner types included, MPICH 4.0.2 packs nothing for a new duplicate.
CACHE_SIZE = 64 if "MPICH Version:\t4.0" in MPI.Get_library_version() else 1024


#: In place of a number of parts: one is an entry of the first axis.
EACH_ROW = -1


class _ViewType(MPI.Datatype):
    """A committed datatype that frees itself with its last reference, whether ours or a request's."""

    def __del__(self) -> None:
        if self and MPI.Is_initialized() and not MPI.Is_finalized():
            self.Free()


@dataclass(slots=True)
class _View:
    """The cache entry for all views of one dtype, shape and strides."""

    datatype: _ViewType
    first: tuple[Any, ...]  # index of the first element, as a zero-dimensional array
    refusal: str | None = None  # why the view cannot be received into; None also before the check
    examined: bool = False  # whether `refusal` has been determined


_views: dict[Key, _View] = {}
_lock = threading.Lock()
_teardown_ready = False


class _Address(ctypes.Structure):
    """An address as a buffer, for mpi4py; `owner` keeps the memory alive."""

    _fields_ = (("byte", ctypes.c_char),)
    owner: object


def _first(array: Foreign) -> _Address:
    found: _Address = _Address.from_address(array.pointer)
    found.owner = array.owner
    return found


def outgoing(array: Array, parts: int = 0) -> Message:
    """The message that sends this non-contiguous array. Raises ArrayError if the array cannot be sent."""
    key = (array.dtype, array.shape, array.strides, parts)
    view = _views.get(key) or _make(key)
    return np.ndarray.__getitem__(array, view.first), 1, view.datatype


def outgoing_foreign(array: Foreign, parts: int = 0) -> Message:
    """The same for an array of another library."""
    key = (array.dtype, array.shape, array.strides, parts)
    view = _views.get(key) or _make(key)
    return _first(array), 1, view.datatype


def incoming(array: Array, parts: int = 0) -> Message:
    """The message that receives into this array, which must be writable and must not overlap itself."""
    key = (array.dtype, array.shape, array.strides, parts)
    view = _views.get(key) or _make(key)
    _check_writable(view, array, array.flags.writeable)
    return np.ndarray.__getitem__(array, view.first), 1, view.datatype


def incoming_foreign(array: Foreign, parts: int = 0) -> Message:
    """The same for an array of another library."""
    key = (array.dtype, array.shape, array.strides, parts)
    view = _views.get(key) or _make(key)
    _check_writable(view, array, not array.readonly)
    return _first(array), 1, view.datatype


def _check_writable(view: _View, array: Array | Foreign, writable: bool) -> None:
    """Raises ArrayError if the array cannot be received into."""
    if not view.examined:
        view.refusal = overlap(array if isinstance(array, np.ndarray) else array.stand_in())
        view.examined = True
    if view.refusal is not None:
        raise ArrayError(f"cannot receive into this array: {view.refusal}; receive into a copy")
    if not writable:
        raise ArrayError("cannot receive into this array: it is read-only")


def clear() -> None:
    """Drop every cached datatype; those in use by a request live until it completes."""
    with _lock:
        _views.clear()


def _make(key: Key) -> _View:
    view = _View(_datatype(*key), (0,) * len(key[1]) + (Ellipsis,))
    with _lock:
        _prepare_teardown()
        while len(_views) >= CACHE_SIZE:  # evict the oldest; a request that uses it keeps it alive
            del _views[next(iter(_views))]
        return _views.setdefault(key, view)


def _prepare_teardown() -> None:
    """Arrange for the datatypes to be freed in MPI_Finalize, or at exit before mpi4py calls it."""
    global _teardown_ready
    if _teardown_ready:
        return
    atexit.register(clear)
    if MPI.Is_initialized():  # otherwise only sessions exist, and there is no COMM_SELF
        keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: clear())
        MPI.COMM_SELF.Set_attr(keyval, None)
    _teardown_ready = True


def _element(dtype: np.dtype[Any], strides: Sequence[int]) -> tuple[MPI.Datatype, int]:
    """The MPI type that elements at these strides are made of, and how many of it one is.

    Bytes if MPI has no such type. Open MPI carries some types wrongly whose elements do not lie at multiples of their
    size from one another, and complex ones with gaps (csrc/shim/type/quirks.c): it has views, too, in calls that tempi
    leaves to it.
    """
    if dtype.hasobject:
        raise ArrayError(f"an array of {dtype} cannot be a message: its elements are Python objects")
    if not dtype.isnative:
        raise ArrayError(
            f"an array of {dtype} cannot be a message: its byte order is not this machine's; "
            "use array.astype(array.dtype.newbyteorder('='))"
        )
    parts = 2 if dtype.kind == "c" else 1
    part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    named = MPI._typedict.get(part.char) if part.fields is None else None
    aligned = all(stride % part.itemsize == 0 for stride in strides)
    if named is not None and named.Get_size() == part.itemsize and aligned:
        return named, parts
    return MPI.BYTE, dtype.itemsize


def _datatype(dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int], parts: int = 0) -> _ViewType:
    """A committed datatype of the elements in index order, relative to the address of the first; or of one part."""
    if parts:
        return _part(dtype, shape, strides, max(shape[0], 1) if parts == EACH_ROW else parts)
    return _ViewType(_elements(dtype, shape, strides).Commit())


def _part(dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int], parts: int) -> _ViewType:
    """Its extent leads to the next part."""
    rows, more = divmod(shape[0], parts)
    if more:
        raise ArrayError(f"an array of shape {tuple(shape)} has no {parts} equal parts along its first axis")
    if strides[0] < 0:
        raise ArrayError("an array with a negative step along its first axis cannot have a part for each rank")
    one = _elements(dtype, (rows, *shape[1:]), strides)
    try:
        return _ViewType(one.Create_resized(0, rows * strides[0]).Commit())
    finally:
        one.Free()


def _elements(dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int]) -> MPI.Datatype:
    (run, _), *axes = fold(shape, strides, dtype.itemsize)
    named, repeat = _element(dtype, [stride for _, stride in axes])
    current = named.Create_contiguous(run * repeat)
    for count, stride in axes:
        inner = current
        try:
            current = _backwards(inner, count) if stride == -1 else inner.Create_hvector(count, 1, stride)
        finally:
            inner.Free()
    return current


def _backwards(inner: MPI.Datatype, count: int) -> MPI.Datatype:
    """So many, each a byte before the last one. Open MPI packs an hvector of that stride forwards, not one of pairs."""
    pair = inner.Create_hindexed_block(1, [0, -1])
    pairs = pair.Create_hvector(count // 2, 1, -2)
    pair.Free()
    if count % 2 == 0:
        return pairs
    try:
        return MPI.Datatype.Create_struct([1, 1], [0, 1 - count], [pairs, inner])
    finally:
        pairs.Free()
