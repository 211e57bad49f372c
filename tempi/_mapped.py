"""NumPy arrays in memory that the other processes of the node map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi import _engine
from tempi._errors import ArrayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = ["empty"]


def empty(shape: int | Sequence[int], dtype: DTypeLike = float, *, order: str = "C") -> NDArray[Any]:
    """A NumPy array, zeroed, in memory that the other processes of this user on the node can map.

    Collectives between them read its blocks where they lie: one copy from layout to layout, instead of two through
    shared memory. Any part or view of it counts; the receiver's array may be any memory. The memory is given back
    with the last reference to the array and its views; each such array takes a file descriptor of the process, so
    allocate few large ones, not one for each call.

    `order` is "C" or "F", as in `numpy.empty`. MPI is not needed.

    Raises ArrayError (a ValueError) for a dtype of Python objects, MemoryError if the system has no memory or the
    process no descriptor for it (`ulimit -n`: at most a quarter is used).

        field = tempi.empty((nz, ny, nx), "f8")
        comm.Neighbor_alltoallw([field, ...], [ghosts, ...])
    """
    element = np.dtype(dtype)
    if element.hasobject:
        raise ArrayError(f"dtype {element}: Python objects cannot be in memory that other processes map")
    counts = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in counts):
        raise ArrayError(f"shape {counts}: negative dimensions are not allowed")
    size = max(math.prod(counts) * element.itemsize, 1)
    place = _engine.ffi.new("void **")
    _engine.check(_engine.lib.tempi_mapped_memory_allocate(size, place), doing="tempi.empty()")
    owner = _engine.ffi.gc(place[0], _engine.lib.tempi_mapped_memory_free, size)
    return np.ndarray(counts, element, _engine.ffi.buffer(owner, size), order="F" if order == "F" else "C")
