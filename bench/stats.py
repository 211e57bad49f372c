"""Medians, bootstrap intervals, and ratios of interleaved samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Enough for the second digit of a 95% interval; the fixed seed makes a table reproducible from its records.
_RESAMPLES = 1000
_SEED = 20211


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95% interval."""

    low: float
    value: float
    high: float

    @property
    def spread(self) -> float:
        """Width of the interval relative to the value."""
        return (self.high - self.low) / self.value if self.value else math.inf


def _resampled_medians(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    picks = np.random.default_rng(_SEED).integers(0, values.size, (_RESAMPLES, values.size))
    return np.asarray(np.median(values[picks], axis=1), dtype=np.float64)


def _interval(value: float, resampled: npt.NDArray[np.float64]) -> Interval:
    low, high = np.percentile(resampled, (2.5, 97.5))
    return Interval(min(float(low), value), value, max(float(high), value))


def median(values: Sequence[float]) -> Interval:
    """The median and its bootstrap interval. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("no samples")
    array = np.asarray(values, dtype=np.float64)
    return _interval(float(np.median(array)), _resampled_medians(array))


def ratio(over: Sequence[float], under: Sequence[float], *, offset: float = 0.0) -> Interval:
    """`(over - offset) / under` as median and interval.

    Samples of equal number were interleaved, so the i-th of both saw the same machine state: ratios are
    formed pair by pair. Otherwise it is the ratio of two medians, each resampled independently.
    """
    if not over or not under:
        raise ValueError("no samples")
    a = np.asarray(over, dtype=np.float64) - offset
    b = np.asarray(under, dtype=np.float64)
    if a.size == b.size:
        pairs = a / b
        return _interval(float(np.median(pairs)), _resampled_medians(pairs))
    value = float(np.median(a) / np.median(b))
    shuffled = np.random.default_rng(_SEED + 1).permutation(_resampled_medians(b))
    return _interval(value, _resampled_medians(a) / shuffled)


def difference(left: Sequence[float], right: Sequence[float]) -> Interval:
    """`left - right`, pair by pair, of interleaved samples."""
    if not left or len(left) != len(right):
        raise ValueError("samples were not taken in turns")
    pairs = np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64)
    return _interval(float(np.median(pairs)), _resampled_medians(pairs))


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive values; NaN if there are none."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def stability_warning(values: Sequence[float], *, limit: float = 0.1) -> str | None:
    """Why the median is not reliable to `limit`, or None."""
    if len(values) < 5:
        return f"only {len(values)} samples"
    spread = median(values).spread
    return f"95% interval {100 * spread:.0f}% wide" if spread > limit else None
