"""Probes between trials of messages: a few rounds of a method that is not in use (csrc/choose/message_trials.c)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from message_rounds import (
    LIBRARY,
    OWN,
    STREAMED,
    Program,
    in_a_process,
    key_of,
    lib,
    settle_for_long,
    settled,
    times,
)


@pytest.fixture
def program() -> Iterator[Program]:
    with in_a_process() as made:
        yield made


@pytest.mark.parametrize("scale", [1000, 100_000])
@pytest.mark.parametrize("faster", [OWN, STREAMED])
def test_a_change_in_which_another_method_gains_alone_is_noticed_soon(
    program: Program, scale: int, faster: int
) -> None:
    """The rounds of the method in use do not tell."""
    key, program.streams = key_of(1), True
    settle_for_long(program, key, LIBRARY, times(5 * scale, 6 * scale, 6 * scale))
    nanoseconds = {LIBRARY: 5 * scale, OWN: 6 * scale, STREAMED: 6 * scale, faster: 3 * scale}
    assert settled(program.rounds(key, LIBRARY, nanoseconds.__getitem__, 3800)) == faster


@pytest.mark.parametrize("burst", [2, 3, 8])
def test_probes_of_bursts_compare_rounds(program: Program, burst: int) -> None:
    """Of all their messages, with rounds of as many."""
    key, seconds, trials = key_of(1), {LIBRARY: 50_000, OWN: 60_000}, 0

    def go_on(rounds: int) -> list[int]:
        ways = []
        for _ in range(rounds):
            ways.append([program.post(key, LIBRARY) for _ in range(burst)][-1])
            program.complete(seconds[ways[-1]])
        return ways

    while program.trials < 4 or lib.tempi_passing.trial_runs:
        go_on(1)
    trials = program.trials
    assert OWN in go_on(1000)
    assert program.trials == trials
    seconds[OWN] = 40_000
    assert settled(go_on(3000)) == OWN


@pytest.mark.parametrize("other", [1.0, 1.2, 2.0, 10.0])
def test_probes_lose_little(program: Program, other: float) -> None:
    key, seconds = key_of(1), times(10_000, 10_000 * other)
    settle_for_long(program, key, LIBRARY, seconds)
    start, trials = program.now[0], program.trials
    ways = program.rounds(key, LIBRARY, seconds, 3000)
    assert program.trials == trials
    assert OWN in ways or other > 2
    assert program.now[0] - start < 1.015 * 3000 * 10_000


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_probe_in_other_work_begins_no_trial(program: Program, every: int) -> None:
    """That some rounds contain, of either method."""
    key, now = key_of(1), itertools.count()

    def seconds(method: int) -> float:
        return (22e6 if method == OWN else 20e6) + 30e6 * (next(now) % every == 0)

    settle_for_long(program, key, LIBRARY, seconds)
    trials = program.trials
    program.rounds(key, LIBRARY, seconds, 2000)
    assert program.trials == trials


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_gain_is_seen_through_other_work(program: Program, every: int) -> None:
    """Which takes longer than the rounds, and not always as long."""
    key, now, gain = key_of(1), itertools.count(), [1.2]
    pauses = random.Random(every)

    def seconds(method: int) -> float:
        pause = pauses.uniform(0, 5e6) if next(now) % every == 0 else 0
        return 200e3 * (gain[0] if method == OWN else 1) + pause

    settle_for_long(program, key, LIBRARY, seconds)
    gain[0] = 0.7
    trials = program.trials
    for _ in range(1000):
        program.rounds(key, LIBRARY, seconds, 1)
        if program.trials > trials:
            break
    else:
        pytest.fail("no probe has begun a trial")
    assert settled(program.rounds(key, LIBRARY, seconds)) == OWN


def test_a_single_fast_round_promises_nothing(program: Program) -> None:
    key, now = key_of(1), itertools.count()

    def seconds(_: int) -> float:
        return 20e6 if next(now) % 9 else 5e6

    settle_for_long(program, key, LIBRARY, seconds)
    trials = program.trials
    program.rounds(key, LIBRARY, seconds, 3000)
    assert program.trials == trials


def test_a_probe_whose_messages_have_ended_gives_way_at_once(program: Program) -> None:
    key, seconds = key_of(1), times(10_000, 10_000)
    settle_for_long(program, key, LIBRARY, seconds)
    while not lib.tempi_passing.trial_runs:
        program.rounds(key, LIBRARY, seconds, 1)
    ways = program.rounds(key_of(2), LIBRARY, times(10_000, 5000), 60)
    assert OWN in ways
    assert program.post(key, LIBRARY) == LIBRARY
