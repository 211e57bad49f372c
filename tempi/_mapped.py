"""NumPy arrays in memory that the other processes of the node map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np

from tempi import _engine
from tempi._errors import ArrayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = ["empty"]


def _checked(
    shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike, order: str
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """By NumPy's rules."""
    if order not in ("C", "F", "c", "f"):
        more = "" if isinstance(order, str) else "; a communicator is not needed: any process of the node can map it"
        raise ArrayError(f"order {order!r}: must be 'C' or 'F'{more}")
    try:
        model = np.broadcast_to(np.empty((), dtype), cast("Any", shape))
    except (TypeError, ValueError) as error:
        raise ArrayError(f"shape {shape!r}, dtype {dtype!r}: {error}") from None
    if model.dtype.hasobject:
        raise ArrayError(f"dtype {model.dtype}: Python objects cannot be in memory that other processes map")
    return model.shape, model.dtype


def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float, order: str = "C") -> NDArray[Any]:
    """A NumPy array, its elements undefined, in memory that the other processes of this user on the node can map.

    Collectives between them read its blocks where they lie: one copy from layout to layout, instead of two through
    shared memory. Any part or view of it counts; the receiver's array may be any memory. The memory is given back
    with the last reference to the array and its views; each such array takes a file descriptor of the process, and
    making it takes some microseconds, so allocate few large ones, not one for each call. Child processes of a fork
    share it.

    Arguments as of `numpy.empty`; `order` is "C" or "F". MPI is not needed.

    Raises ArrayError (a ValueError) for arguments that NumPy refuses and a dtype of Python objects, MemoryError if the
    system has no memory or the process no descriptor for it (`ulimit -n`: at most a quarter is used).

        field = tempi.empty((nz, ny, nx), "f8")
        comm.Neighbor_alltoallw([field, ...], [ghosts, ...])
    """
    counts, element = _checked(shape, dtype, order)
    size = max(math.prod(counts) * element.itemsize, 1)
    place = _engine.ffi.new("void **")
    try:
        _engine.check(_engine.lib.tempi_mapped_memory_allocate(size, place), doing="tempi.empty()")
    except MemoryError:
        text = "no memory, or no file descriptor: at most a quarter of the process's is used (ulimit -n)"
        raise MemoryError(f"tempi.empty() of {size} bytes: {text}") from None
    owner = _engine.ffi.gc(place[0], _engine.lib.tempi_mapped_memory_free, size)
    return np.ndarray(counts, element, _engine.ffi.buffer(owner, size), order="F" if order in "Ff" else "C")
