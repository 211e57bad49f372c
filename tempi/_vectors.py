"""Non-contiguous arrays in buffer specifications with counts: Gatherv, Alltoallv and others.

Counts and displacements are in elements, in the order of the array's indices, as of a contiguous array. Each rank's
part is of whole rows, entries of the first axis: the message has a datatype of one row.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from numpy import ndarray

from tempi._arrays import EACH_ROW, incoming, outgoing
from tempi._errors import ArrayError
from tempi._ordered import PLAIN, by_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

__all__ = ["array_of", "by_addresses", "with_counts"]

_SPECS = (list, tuple)


def array_of(buffer: Any) -> Any:
    """The array, or the first item of a specification."""
    return (buffer[0] if buffer else None) if type(buffer) in _SPECS else buffer


def _described(array: Any, sends: bool) -> tuple[Any, Sequence[int], np.dtype[Any]] | None:
    """The message of one row, the shape and the dtype; None for what mpi4py takes as it is."""
    if isinstance(array, ndarray):
        if array.flags.forc:
            return None
        return (outgoing if sends else incoming)(array, EACH_ROW), array.shape, array.dtype
    if type(array) in PLAIN or type(array) in _SPECS:
        return None
    return by_rows(array, sends)


def _unpacked(spec: Any) -> tuple[Any, Any, Any]:
    """Counts, displacements and datatype, each None if it is left out; as mpi4py reads them."""
    if type(spec) not in _SPECS or len(spec) == 1:
        return None, None, None
    if len(spec) == 4:
        return spec[1], spec[2], spec[3]
    if len(spec) > 4:
        raise ValueError("message: expecting 2 to 4 items")
    counts, datatype = spec[1], spec[2] if len(spec) == 3 else None
    if len(spec) == 2 and isinstance(counts, (str, MPI.Datatype)):
        return None, None, counts
    if isinstance(counts, tuple):
        counts, displacements = counts
        return counts, displacements, datatype
    return counts, None, datatype


def _check_datatype(datatype: Any, dtype: np.dtype[Any]) -> None:
    """It can only be that of the elements."""
    named = MPI._typedict.get(datatype) if isinstance(datatype, str) else datatype
    if datatype is not None and (named is None or not dtype.isnative or named.typestr != dtype.str[1:]):
        raise ArrayError(
            f"a non-contiguous array of {dtype} has the datatype of its elements in a collective: leave it out, "
            "or pass a contiguous array"
        )


def _in_rows(number: Any, shape: Sequence[int]) -> int:
    width = math.prod(shape[1:])
    rows, more = divmod(int(number), width)
    if more:
        raise ArrayError(
            f"counts and displacements of a non-contiguous array of shape {tuple(shape)} are whole rows, "
            f"multiples of {width} elements: {number} is not"
        )
    return rows


def _rows(numbers: Any, n: int, shape: Sequence[int]) -> list[int]:
    """One number for all parts, or one each."""
    each = [numbers] * n if isinstance(numbers, Integral) else list(numbers)
    if len(each) != n:
        raise ValueError(f"message: expecting {n} items, got {len(each)}")
    return [_in_rows(number, shape) for number in each]


def _counts(counts: Any, n: int, shape: Sequence[int]) -> list[int]:
    if counts is not None:
        return _rows(counts, n, shape)
    rows, more = divmod(shape[0], n) if n else (0, 0)
    if more:
        raise ArrayError(f"an array of shape {tuple(shape)} has no {n} equal parts along its first axis: give counts")
    return [rows] * n


def _displacements(displacements: Any, counts: list[int], shape: Sequence[int]) -> list[int]:
    if displacements is None:
        return [sum(counts[:i]) for i in range(len(counts))]
    if isinstance(displacements, Integral):
        return [i * _in_rows(displacements, shape) for i in range(len(counts))]
    return _rows(displacements, len(counts), shape)


def with_counts(buffer: Any, sends: bool, n: int) -> Any:
    """mpi4py's message for a buffer with counts for n parts. Raises ArrayError if it cannot be one."""
    found = _described(array_of(buffer), sends)
    if found is None:
        return buffer
    (first, _, row), shape, dtype = found
    given, displacements, datatype = _unpacked(buffer)
    _check_datatype(datatype, dtype)
    counts = _counts(given, n, shape)
    places = _displacements(displacements, counts, shape)
    for count, place in zip(counts, places, strict=True):
        if count and not 0 <= place <= place + count <= shape[0]:
            raise ArrayError(f"rows {place} to {place + count} are not in an array of shape {tuple(shape)}")
    return [first, counts, places, row]


def by_addresses(buffer: Any, sends: bool) -> Any:
    """The same for a buffer with datatypes and displacements in bytes."""
    if _described(array_of(buffer), sends) is not None:
        raise ArrayError(
            "displacements in bytes and datatypes say where the elements are, so the array must be contiguous: "
            "pass the one that this is a view of"
        )
    return buffer
