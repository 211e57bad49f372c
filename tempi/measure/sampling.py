"""Samples of several subjects, taken in turns.

1. Each subject runs a few times, to warm up and to find how often it has to run until a sample lasts
   long enough for the clock.
2. From that and the budget comes the number of samples.
3. Round after round each subject gives one sample; the order rotates, so that none always follows
   the same neighbour. A subject whose sample is short runs once untimed before it, because the others
   have been in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Timer = Callable[[int], float]
Agree = Callable[[float], float]

SAMPLE_SECONDS = 200e-6
LEAST, MOST = 7, 41


def alone(value: float) -> float:
    """What one process decides is decided."""
    return value


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each subject runs in a sample, and how many samples there will be."""

    loops: tuple[int, ...]
    samples: int


def calibrate(timer: Timer, agree: Agree = alone) -> tuple[int, float]:
    """Loops of one sample, and about how long it takes (seconds)."""
    timer(1)
    loops = 1
    while True:
        seconds = agree(timer(loops))
        if seconds >= SAMPLE_SECONDS:
            return loops, seconds
        short = SAMPLE_SECONDS / max(seconds, 1e-9)
        loops = max(loops + 1, int(loops * min(1.2 * short, 64.0)))


def make_plan(timers: Sequence[Timer], budget: float, agree: Agree = alone) -> Plan:
    """`agree` makes all ranks take rank 0's number, where several run the loops together."""
    found = [calibrate(timer, agree) for timer in timers]
    once = sum(seconds * (1 + 1 / loops) for loops, seconds in found)
    samples = int(agree(min(max(budget / once, LEAST), MOST)))
    return Plan(tuple(loops for loops, _ in found), samples)


def collect(timers: Sequence[Timer], plan: Plan) -> list[list[float]]:
    """Seconds of one operation, for each subject and sample."""
    taken: list[list[float]] = [[] for _ in timers]
    for sample in range(plan.samples):
        for turn in range(len(timers)):
            which = (turn + sample) % len(timers)
            loops = plan.loops[which]
            if loops > 1:
                timers[which](1)
            taken[which].append(timers[which](loops) / loops)
    return taken


def sample(timers: Sequence[Timer], budget: float, agree: Agree = alone) -> list[list[float]]:
    """Plan and collect: `budget` seconds for all subjects together."""
    return collect(timers, make_plan(timers, budget, agree)) if timers else []
