"""Shapes and strides as arithmetic, for messages and for packing without MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["fold", "overlap"]

#: Work limit of the search for two indices with one address, for axes that do not nest (NumPy's unit).
_OVERLAP_WORK = 1_000_000


def fold(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> list[tuple[int, int]]:
    """The axes as (count, stride), innermost first, without axes of length one.

    Neighbouring axes that step through memory like a single axis are merged. A dense innermost axis is merged
    with the element and returned as (count, itemsize).
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


def overlap(array: NDArray[Any]) -> str | None:
    """Why two indices share bytes, naming the axis; None if none do.

    If all axes nest (the step of each is outside the span of the finer ones), none do. Otherwise test axis by
    axis: two indices that differ along an axis may be shifted so that one of them is 0 there.
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
            return f"along axis {axis} ({count} entries, {stride} bytes apart) elements {verdict}"
    return None
