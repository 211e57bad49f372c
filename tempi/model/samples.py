"""Decides when a point has enough samples, and gives its typical time, without assuming a distribution.

The interval of the median depends only on the order of the samples: of n independent ones, the k-th smallest
and the k-th largest enclose it with a probability from the binomial distribution. This needs independence,
which the runs test about the median checks (Wald and Wolfowitz): times that drift, or alternate between two
states, cross their median too seldom or too often. The permutation test of NIST SP 800-90B has this among its
eleven statistics; the others find patterns that matter to a random generator and not to a median, and its ten
thousand shuffles would cost more than the samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

__all__ = [
    "LEAST",
    "MOST",
    "TOLERANCE",
    "apart",
    "dependent",
    "interval",
    "median",
    "settled",
    "spread",
    "trouble",
    "typical",
]

LEAST, MOST = 7, 61
#: Half the width of the median's 95% interval, relative to the median.
TOLERANCE = 0.05
_TWO_SIDED_95, _TWO_SIDED_99 = 1.96, 2.58


def apart(visits: Sequence[Sequence[float]]) -> list[float]:
    """The values that count as independent: each round's median, since consecutive samples see the same machine state;
    for a single round all its samples."""
    return list(visits[0]) if len(visits) == 1 else [median(visit) for visit in visits]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the median; with fewer than six values, their whole range."""
    ordered = sorted(values)
    n = len(ordered)
    k = max(0, math.floor((n - _TWO_SIDED_95 * math.sqrt(n)) / 2)) if n >= 6 else 0
    return ordered[k], ordered[n - 1 - k]


def dependent(values: Sequence[float]) -> bool:
    """Whether the samples cross their median too seldom or too often to be independent (at 1%)."""
    middle = median(values)
    sides = [value > middle for value in values if value != middle]
    above = sum(sides)
    below = len(sides) - above
    n = len(sides)
    if above < 4 or below < 4:
        return False  # too few for the approximation
    runs = 1 + sum(a != b for a, b in pairwise(sides))
    mean = 1 + 2 * above * below / n
    variance = (mean - 1) * (mean - 2) / (n - 1)
    return abs(runs - mean) > _TWO_SIDED_99 * math.sqrt(variance)


def typical(values: Sequence[float]) -> float:
    """The geometric mean of the middle half. Like the median it ignores samples slowed by other work on the machine.
    But if the machine alternates between two speeds, like a core whose other hardware thread runs another job, the
    median is one of them by chance, and this mean lies between them."""
    ordered = sorted(values)
    aside = len(ordered) // 4
    middle = ordered[aside : len(ordered) - aside]
    return math.exp(math.fsum(map(math.log, middle)) / len(middle))


def spread(values: Sequence[float]) -> float:
    """Half the width of the interval, relative to the median."""
    low, high = interval(values)
    return (high - low) / 2 / median(values)


def settled(values: Sequence[float]) -> bool:
    """Whether there are enough samples: the median is known to `TOLERANCE`."""
    return len(values) >= LEAST and spread(values) <= TOLERANCE and not dependent(values)


def trouble(values: Sequence[float]) -> str | None:
    """Why the median is not reliable to `TOLERANCE`; None if it is."""
    if len(values) < LEAST:
        return f"measured {len(values)} times only"
    if dependent(values):
        return "samples depend on one another"
    wide = spread(values)
    return f"median known to {100 * wide:.0f}% only" if wide > TOLERANCE else None
