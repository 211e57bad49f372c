"""Samples of several subjects in turns, until the median of each is known or the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tempi.bench import sampling

from tempi.model import samples

#: Seconds of n operations, and of their parts where they are timed apart.
Run = Callable[[int], tuple[float, ...]]

ROUND = 4  # samples between two looks at the intervals
FEWEST = 3  # samples of what is so slow that `LEAST` of them would take longer than the budget and than this:
GRACE = 0.1  # seconds


def _enough(taken: Mapping[str, Sequence[tuple[float, ...]]], until: float) -> bool:
    first = [[sample[0] for sample in found] for found in taken.values()]
    if min(map(len, first)) >= samples.MOST or time.monotonic() > until:
        return True
    return all(samples.settled(values) for values in first)


def _whole(run: Run) -> sampling.Timer:
    return lambda loops: run(loops)[0]


def measure(
    subjects: Mapping[str, Run], budget: float, agree: sampling.Agree = sampling.alone
) -> dict[str, list[tuple[float, ...]]]:
    """Seconds of one operation and of its parts, for each subject and sample.

    Several ranks that run the same subjects together pass an `agree` by which all take rank 0's word.
    """
    start = time.monotonic()
    until, latest = start + budget, start + max(budget, GRACE)
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in subjects}
    names = list(subjects)
    loops = {name: sampling.calibrate(_whole(run), agree)[0] for name, run in subjects.items()}
    turn, enough = 0, False
    while not enough:
        for _ in range(ROUND if turn else samples.LEAST):
            for step in range(len(names)):
                name = names[(step + turn) % len(names)]
                if loops[name] > 1:
                    subjects[name](1)
                taken[name].append(tuple(value / loops[name] for value in subjects[name](loops[name])))
            turn += 1
            if FEWEST <= turn < samples.LEAST and agree(float(time.monotonic() > latest)) != 0.0:
                return taken
        enough = agree(float(_enough(taken, until))) != 0.0
    return taken
