"""When a point has been measured enough, and its typical time, without assuming how its times are distributed.

The interval of the median comes from the order of the samples alone: of n independent ones, the k-th
smallest and the k-th largest enclose it with a probability that the binomial distribution gives. That
needs independence, which is looked for by the runs test about the median (Wald and Wolfowitz): times
that drift, or alternate between two states, cross their median too seldom or too often. The permutation
test of NIST SP 800-90B has this among its eleven statistics; the others look for patterns that matter to
a random generator and not to a median, and its ten thousand shuffles would cost more than the samples.
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
#: Half the width of the median's 95% interval, over the median.
TOLERANCE = 0.05
_TWO_SIDED_95, _TWO_SIDED_99 = 1.96, 2.58


def apart(visits: Sequence[Sequence[float]]) -> list[float]:
    """What may count as independent: each visit's median, as samples that follow one another see the same machine; of
    one visit all its samples."""
    return list(visits[0]) if len(visits) == 1 else [median(visit) for visit in visits]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the median; of fewer than six values it is all of them."""
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
    """The geometric mean of the middle half. Other work on the machine adds time to some samples, which this leaves
    out as the median does. But where the machine goes back and forth between two speeds, as a core does whose other
    thread is somebody else's, the median is one speed or the other by chance, and this lies between them."""
    ordered = sorted(values)
    aside = len(ordered) // 4
    middle = ordered[aside : len(ordered) - aside]
    return math.exp(math.fsum(map(math.log, middle)) / len(middle))


def spread(values: Sequence[float]) -> float:
    """Half the width of the interval over the median."""
    low, high = interval(values)
    return (high - low) / 2 / median(values)


def settled(values: Sequence[float]) -> bool:
    """Enough samples: the median is known to `TOLERANCE`."""
    return len(values) >= LEAST and spread(values) <= TOLERANCE and not dependent(values)


def trouble(values: Sequence[float]) -> str | None:
    """Why the median is not to be trusted to `TOLERANCE`; None where it is."""
    if len(values) < LEAST:
        return f"measured {len(values)} times only"
    if dependent(values):
        return "samples depend on one another"
    wide = spread(values)
    return f"median known to {100 * wide:.0f}% only" if wide > TOLERANCE else None
