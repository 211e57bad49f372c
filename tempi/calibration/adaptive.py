"""Samples of several subjects in turns: some at each visit, until the typical time of each is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tempi.measure import sampling
from tempi.model import samples

#: Seconds of n operations, and of their parts where they are timed apart.
Run = Callable[[int], tuple[float, ...]]
#: Seconds of one operation and of its parts, by subject.
Taken = dict[str, list[tuple[float, ...]]]

ROUND = 4  # samples between two looks at the intervals
FEWEST = 3  # samples of what is so slow that `LEAST` of them would take longer than the budget and than this:
GRACE = 0.1  # seconds


def timed(timer: sampling.Timer) -> Run:
    """One without parts."""
    return lambda loops: (timer(loops),)


def _whole(run: Run) -> sampling.Timer:
    return lambda loops: run(loops)[0]


class Turns:
    """Subjects that take turns. Several ranks that run the same ones together pass an `agree` by which all take
    rank 0's word."""

    def __init__(self, subjects: Mapping[str, Run], agree: sampling.Agree = sampling.alone) -> None:
        self._subjects, self._agree = dict(subjects), agree
        self._names = list(subjects)
        self._loops: dict[str, int] = {}
        self._taken: dict[str, list[list[float]]] = {name: [] for name in subjects}  # by visit
        self._turn = 0

    @property
    def fewest(self) -> int:
        """Samples of the subject that has the fewest."""
        return min(sum(map(len, visits)) for visits in self._taken.values())

    def settled(self) -> bool:
        """Whether all are known well enough, by rank 0's samples."""
        apart = (samples.apart(visits) for visits in self._taken.values())
        known = self.fewest >= samples.MOST or all(map(samples.settled, apart))
        return self._agree(float(known)) != 0.0

    def take(self, most: int, seconds: float) -> Taken:
        """`most` samples of each, or less: once they have taken longer than `seconds`, no more than FEWEST."""
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
        """One sample of each. The order rotates, so that none always follows the same neighbour."""
        for step in range(len(self._names)):
            name = self._names[(step + self._turn) % len(self._names)]
            run, loops = self._subjects[name], self._loops[name]
            if loops > 1:
                run(1)
            sample = tuple(value / loops for value in run(loops))
            taken[name].append(sample)
            self._taken[name][-1].append(sample[0])
        self._turn += 1


def measure(subjects: Mapping[str, Run], budget: float, agree: sampling.Agree = sampling.alone) -> Taken:
    """In one visit: until all are settled or the time is up."""
    until = time.monotonic() + budget
    turns = Turns(subjects, agree)
    taken = turns.take(samples.LEAST, max(budget, GRACE))
    while turns.fewest >= samples.LEAST and not turns.settled() and agree(float(time.monotonic() > until)) == 0.0:
        for name, found in turns.take(ROUND, max(0.0, until - time.monotonic())).items():
            taken[name] += found
    return taken
