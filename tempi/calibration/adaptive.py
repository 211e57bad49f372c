"""Interleaved samples of several subjects, a few per round, until the typical time of each is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tempi.measure import sampling
from tempi.model import samples

#: Seconds of n operations, and of their parts if these are timed separately.
Run = Callable[[int], tuple[float, ...]]
#: Seconds of one operation and of its parts, by subject.
Taken = dict[str, list[tuple[float, ...]]]

ROUND = 4  # samples between two checks of the intervals
FEWEST = 3  # samples of a subject so slow that `LEAST` of them would exceed the budget and this many seconds:
GRACE = 0.1  # seconds


def timed(timer: sampling.Timer) -> Run:
    """A run without parts."""
    return lambda loops: (timer(loops),)


def _whole(run: Run) -> sampling.Timer:
    return lambda loops: run(loops)[0]


class Turns:
    """Subjects measured in turns. Ranks that run the same subjects together pass an `agree` that makes all follow
    rank 0's decisions."""

    def __init__(self, subjects: Mapping[str, Run], agree: sampling.Agree = sampling.alone) -> None:
        self._subjects, self._agree = dict(subjects), agree
        self._names = list(subjects)
        self._orders = sampling.orders(len(self._names))
        self._loops: dict[str, int] = {}
        self._taken: dict[str, list[list[float]]] = {name: [] for name in subjects}  # by round
        self._turn = 0

    @property
    def fewest(self) -> int:
        """Number of samples of the subject with the fewest."""
        return min(sum(map(len, visits)) for visits in self._taken.values())

    def settled(self) -> bool:
        """Whether all subjects are known well enough, by rank 0's samples."""
        apart = (samples.apart(visits) for visits in self._taken.values())
        known = self.fewest >= samples.MOST or all(map(samples.settled, apart))
        return self._agree(float(known)) != 0.0

    def take(self, most: int, seconds: float) -> Taken:
        """`most` samples of each subject; once they have taken longer than `seconds`, no more than FEWEST."""
        if not self._loops:
            for name, run in self._subjects.items():
                self._loops[name] = sampling.calibrate(_whole(run), self._agree)[0]
        until = time.monotonic() + seconds
        taken: Taken = {name: [] for name in self._names}
        for visits in self._taken.values():
            visits.append([])
        for number in range(most):
            if self.fewest >= FEWEST and number and self._agree(float(time.monotonic() > until)) != 0.0:
                break
            self._round(taken)
        return taken

    def _round(self, taken: Taken) -> None:
        """One sample of each, in the next of the balanced orders."""
        for which in self._orders[self._turn % len(self._orders)]:
            name = self._names[which]
            run, loops = self._subjects[name], self._loops[name]
            if loops > 1:
                run(1)
            sample = tuple(value / loops for value in run(loops))
            taken[name].append(sample)
            self._taken[name][-1].append(sample[0])
        self._turn += 1


def measure(subjects: Mapping[str, Run], budget: float, agree: sampling.Agree = sampling.alone) -> Taken:
    """Measures in a single round, until all subjects are settled or the time is up."""
    until = time.monotonic() + budget
    turns = Turns(subjects, agree)
    taken = turns.take(samples.LEAST, max(budget, GRACE))
    while turns.fewest >= samples.LEAST and not turns.settled() and agree(float(time.monotonic() > until)) == 0.0:
        for name, found in turns.take(ROUND, max(0.0, until - time.monotonic())).items():
            taken[name] += found
    return taken
