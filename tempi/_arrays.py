"""NumPy views as MPI messages: the datatype of a view, made from its shape and strides.

A view goes out and comes in in the order of its indices (C order), so it pairs with a contiguous
array of the same shape on the other side. A message of a view is mpi4py's ``(buffer, 1, datatype)``
with the view's first element as the buffer. mpi4py keeps that message until the request completes:
the element keeps the array's memory alive, and the datatype is freed when its last user has gone.
"""

from __future__ import annotations

import atexit
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from tempi._errors import ArrayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Message = tuple[Array, int, MPI.Datatype]
    Key = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]

__all__ = ["clear", "incoming", "outgoing"]

#: Datatypes kept. A halo exchange of many fields uses some hundreds; one takes about a kilobyte.
#: With some 500 alive, those that they are made of included, MPICH 4.0.2 packs nothing of a new duplicate.
CACHE_SIZE = 64 if "MPICH Version:\t4.0" in MPI.Get_library_version() else 1024
#: Bound on the search for two indices with one address, for axes that do not nest (NumPy's unit).
_OVERLAP_WORK = 1_000_000


class _ViewType(MPI.Datatype):
    """A committed datatype that frees itself with its last reference, be that ours or a request's."""

    def __del__(self) -> None:
        if self and MPI.Is_initialized() and not MPI.Is_finalized():
            self.Free()


@dataclass(slots=True)
class _View:
    """What is kept for all views of one dtype, shape and strides."""

    datatype: _ViewType
    first: tuple[Any, ...]  # index of the first element, as an array of no dimensions
    refusal: str | None = None  # why it cannot be received into; None also while not looked at
    examined: bool = False  # whether `refusal` is known


_views: dict[Key, _View] = {}
_lock = threading.Lock()
_teardown_ready = False


def outgoing(array: Array) -> Message:
    """The message that sends this non-contiguous array. Raises ArrayError where it cannot be one."""
    view = _views.get((array.dtype, array.shape, array.strides)) or _make(array)
    return np.ndarray.__getitem__(array, view.first), 1, view.datatype


def incoming(array: Array) -> Message:
    """The message that receives into this array: it must be writable and not overlap itself."""
    view = _views.get((array.dtype, array.shape, array.strides)) or _make(array)
    if not view.examined:
        view.refusal = _overlap(array)
        view.examined = True
    if view.refusal is not None:
        raise ArrayError(view.refusal)
    if not array.flags.writeable:
        raise ArrayError("cannot receive into this array: it is read-only")
    return np.ndarray.__getitem__(array, view.first), 1, view.datatype


def clear() -> None:
    """Drop every datatype that no request holds."""
    with _lock:
        _views.clear()


def _make(array: Array) -> _View:
    key = (array.dtype, array.shape, array.strides)
    datatype = _datatype(*key)
    view = _View(datatype, (0,) * array.ndim + (Ellipsis,))
    with _lock:
        _prepare_teardown()
        while len(_views) >= CACHE_SIZE:  # the oldest goes; a request that uses it keeps it
            del _views[next(iter(_views))]
        return _views.setdefault(key, view)


def _prepare_teardown() -> None:
    """Have the datatypes freed in MPI_Finalize, whoever calls it, or at exit before mpi4py does."""
    global _teardown_ready
    if _teardown_ready:
        return
    atexit.register(clear)
    if MPI.Is_initialized():  # else there are only sessions, and no COMM_SELF
        keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: clear())
        MPI.COMM_SELF.Set_attr(keyval, None)
    _teardown_ready = True


def _element(dtype: np.dtype[Any]) -> tuple[MPI.Datatype, int]:
    """The MPI type of one element and how many of it: bytes where MPI has no such type."""
    if dtype.hasobject:
        raise ArrayError(f"an array of {dtype} cannot be a message: its elements are Python objects")
    if not dtype.isnative:
        raise ArrayError(
            f"an array of {dtype} cannot be a message: its byte order is not this machine's; "
            "use array.astype(array.dtype.newbyteorder('='))"
        )
    named = MPI._typedict.get(dtype.char) if dtype.fields is None else None
    if named is not None and named.Get_size() == dtype.itemsize:
        return named, 1
    return MPI.BYTE, dtype.itemsize


def _fold(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> list[tuple[int, int]]:
    """The axes as (count, stride), innermost first, without those of one entry.

    Neighbours that step through memory as one axis would are one, and so is a dense innermost axis
    and the element: that one comes as (count, itemsize).
    """
    axes: list[tuple[int, int]] = []
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count == 1:
            continue
        if axes and stride == axes[-1][0] * axes[-1][1]:
            axes[-1] = (axes[-1][0] * count, axes[-1][1])
        else:
            axes.append((count, stride))
    if not axes or axes[0][1] != itemsize:
        axes.insert(0, (1, itemsize))
    return axes


def _datatype(dtype: np.dtype[Any], shape: Sequence[int], strides: Sequence[int]) -> _ViewType:
    """A committed datatype of the elements in index order, relative to the first one's address."""
    named, repeat = _element(dtype)
    (run, _), *axes = _fold(shape, strides, dtype.itemsize)
    current = named.Create_contiguous(run * repeat)
    for count, stride in axes:
        inner = current
        try:
            current = inner.Create_hvector(count, 1, stride)
        finally:
            inner.Free()
    return _ViewType(current.Commit())


def _overlap(array: Array) -> str | None:
    """Why two indices share bytes, naming the axis; None if none do.

    If all axes nest, one's step outside the span of the finer ones, none do. If not, axis by axis:
    two indices that differ along it may be moved so that one of them has 0 there.
    """
    span = array.itemsize
    for stride, count in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if count > 1:
            if stride < span:
                break
            span += (count - 1) * stride
    else:
        return None
    for axis, (count, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        if count == 1:
            continue
        head = (slice(None),) * axis
        try:
            first, rest = array[(*head, slice(0, 1))], array[(*head, slice(1, None))]
            shared = np.shares_memory(first, rest, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]
            verdict = "share memory"
        except np.exceptions.TooHardError:
            shared, verdict = True, "cannot be shown not to share memory"
        if shared:
            return (
                f"cannot receive into this array: along axis {axis} ({count} entries, {stride} bytes "
                f"apart) elements {verdict}; receive into a copy"
            )
    return None
