"""Interleaved samples of several subjects.

1. Each subject runs a few times, to warm up and to find the number of loops that makes a sample long
   enough for the clock; once more when what adapts to the program has settled, whose first calls take longer: of
   fewer loops than its rivals' more is spent on the start of a sample.
2. That and the budget give the number of samples.
3. In each round every subject gives one sample. The order of a round is a row of a Williams design: each
   subject follows each other one equally often, and runs once untimed before each sample, because it finds
   the caches as its predecessor left them: a median of samples after unlike predecessors falls to either.
   Rounds begin at random moments, or one subject would meet a neighbour of the machine more often than another.
4. While the samples leave the question in doubt, as many are taken again, a few times.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Timer = Callable[[int], float]
Agree = Callable[[float], float]

SAMPLE_SECONDS = 200e-6
LEAST, MOST = 7, 41
PAUSE = 5e-3  # seconds
AGAIN = 6  # times that a case in doubt is sampled once more


def alone(value: float) -> float:
    """The `agree` of a single process: its own value."""
    return value


@dataclass(frozen=True, slots=True)
class Plan:
    """Loops of each subject per sample, and the number of samples of each."""

    loops: tuple[int, ...]
    samples: int
    pause: float = 0.0  # seconds before a round, at most


def calibrate(timer: Timer, agree: Agree = alone) -> tuple[int, float]:
    """Loops per sample, and its approximate duration (seconds)."""
    timer(1)
    loops = 1
    while True:
        seconds = agree(timer(loops))
        if seconds >= SAMPLE_SECONDS:
            return loops, seconds
        short = SAMPLE_SECONDS / max(seconds, 1e-9)
        loops = max(loops + 1, int(loops * min(1.2 * short, 64.0)))


def make_plan(timers: Sequence[Timer], budget: float, agree: Agree = alone, most: int = MOST) -> Plan:
    """`agree` makes all ranks use rank 0's number, if several run the loops together."""
    found = [calibrate(timer, agree) for timer in timers]
    once = sum(seconds * (1 + 1 / loops) for loops, seconds in found)
    samples = int(agree(min(max(budget / once, LEAST), most)))
    return Plan(tuple(loops for loops, _ in found), samples, min(once, PAUSE))


def orders(subjects: int) -> list[list[int]]:
    """Orders of so many subjects in which each follows each other one once, or twice if the number is odd."""
    zigzag = [(step + 1) // 2 if step % 2 else (subjects - step // 2) % subjects for step in range(subjects)]
    rows = [[(which + shift) % subjects for which in zigzag] for shift in range(subjects)]
    return rows if subjects % 2 == 0 else rows + [row[::-1] for row in rows]


def _pause(seconds: float) -> None:
    """Waits without leaving the processor, whose clock would fall."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _round(timers: Sequence[Timer], loops: Sequence[int], order: Sequence[int]) -> dict[int, float]:
    """Seconds of one operation of each subject."""
    taken = {}
    for which in order:
        timers[which](1)
        taken[which] = timers[which](loops[which]) / loops[which]
    return taken


def settled() -> bool:
    """The `unsettled` of subjects that do not adapt."""
    return False


def _settle(timers: Sequence[Timer], loops: Sequence[int], unsettled: Callable[[], bool]) -> bool:
    """Rounds that are not recorded; whether there were any."""
    any_passed = False
    while unsettled():
        _round(timers, loops, orders(len(timers))[0])
        any_passed = True
    return any_passed


def collect(timers: Sequence[Timer], plan: Plan, unsettled: Callable[[], bool] = settled) -> list[list[float]]:
    """Seconds of one operation, for each subject and sample."""
    taken: list[list[float]] = [[] for _ in timers]
    rows = orders(len(timers))
    for sample in range(plan.samples):
        _settle(timers, plan.loops, unsettled)
        _pause(random.uniform(0.0, plan.pause))
        for which, seconds in _round(timers, plan.loops, rows[sample % len(rows)]).items():
            taken[which].append(seconds)
    return taken


def sample(
    timers: Sequence[Timer],
    budget: float,
    agree: Agree = alone,
    unsettled: Callable[[], bool] = settled,
    in_doubt: Callable[[list[list[float]]], bool] = lambda _: False,
    most: int = MOST,
) -> list[list[float]]:
    """Plans and collects: `budget` seconds for all subjects together, `most` samples of each, and AGAIN times more at
    most while `in_doubt`.

    Before each round that is recorded others pass while `unsettled`; they are like it, so that what adapts to the
    program does not see another one then.
    """
    if not timers:
        return []
    plan = make_plan(timers, budget, agree, most)
    if _settle(timers, plan.loops, unsettled):
        plan = make_plan(timers, budget, agree, most)
    taken = collect(timers, plan, unsettled)
    for _ in range(AGAIN):
        if not agree(float(in_doubt(taken))):
            break
        for own, more in zip(taken, collect(timers, plan, unsettled), strict=True):
            own += more
    return taken
