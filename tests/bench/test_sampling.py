from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tempi.measure import sampling

pytestmark = pytest.mark.once


class FakeTimer:
    """A subject that takes `each` seconds a call and records the order of calls."""

    def __init__(self, name: str, each: float, log: list[tuple[str, int]]) -> None:
        self.name, self.each, self.log = name, each, log

    def __call__(self, loops: int) -> float:
        self.log.append((self.name, loops))
        return self.each * loops


@pytest.mark.parametrize("each", [1e-9, 3e-7, 1e-4, 0.5])
def test_a_sample_is_long_enough_and_not_much_longer(each: float) -> None:
    loops, seconds = sampling.calibrate(FakeTimer("a", each, []))
    assert seconds >= sampling.SAMPLE_SECONDS
    assert loops == 1 or seconds < 3 * sampling.SAMPLE_SECONDS


def test_samples_are_seconds_of_one_call() -> None:
    log: list[tuple[str, int]] = []
    taken = sampling.sample([FakeTimer("a", 1e-6, log), FakeTimer("b", 3e-6, log)], 0.05)
    assert all(value == pytest.approx(1e-6) for value in taken[0])
    assert all(value == pytest.approx(3e-6) for value in taken[1])
    assert len(taken[0]) == len(taken[1])


@pytest.mark.parametrize("subjects", [2, 3, 4, 5, 6, 7])
def test_each_subject_follows_each_other_one_equally_often(subjects: int) -> None:
    log: list[tuple[str, int]] = []
    names = "abcdefg"[:subjects]
    timers = [FakeTimer(name, 1.0, log) for name in names]
    rounds = subjects if subjects % 2 == 0 else 2 * subjects
    sampling.collect(timers, sampling.Plan((1,) * subjects, rounds))
    order = "".join(name for name, _ in log[1::2])
    found = [order[i : i + subjects] for i in range(0, len(order), subjects)]
    assert all(sorted(one) == list(names) for one in found)
    after = Counter(pair for one in found for pair in itertools.pairwise(one))
    assert set(after.values()) == {1 if subjects % 2 == 0 else 2}
    assert len(after) == subjects * (subjects - 1)


@pytest.mark.parametrize("loops", [1, 100])
def test_a_subject_warms_up_untimed(loops: int) -> None:
    log: list[tuple[str, int]] = []
    sampling.collect([FakeTimer("a", 1e-6, log)], sampling.Plan((loops,), 2))
    assert log == [("a", 1), ("a", loops), ("a", 1), ("a", loops)]


def test_rounds_pass_until_all_is_settled() -> None:
    log: list[tuple[str, int]] = []
    timers = [FakeTimer("a", 1.0, log), FakeTimer("b", 1.0, log)]
    left = iter((True, True))
    taken = sampling.sample(timers, 0.0, unsettled=lambda: next(left, False))
    assert [len(one) for one in taken] == [sampling.LEAST] * 2
    assert len(log) == 2 * (2 + 2 * (1 + sampling.LEAST + 1 + 1))  # planned twice with two calls each; a sample is two


def test_loops_are_those_of_the_settled_subjects() -> None:
    """One sample of few calls and one of many differ by what the first call takes."""

    class Adapts(FakeTimer):
        def __call__(self, loops: int) -> float:
            self.each = 1e-3 if len(self.log) < 20 else 1e-5
            return super().__call__(loops)

    log: list[tuple[str, int]] = []
    sampling.sample([Adapts("a", 0, log)], 0.0, unsettled=lambda: len(log) < 20)
    assert log[-1] == ("a", sampling.calibrate(FakeTimer("b", 1e-5, []))[0])


def test_rounds_pass_also_between_samples_and_in_later_ones() -> None:
    """What was settled may not be so a moment later."""
    log: list[tuple[str, int]] = []
    asked = iter(range(99))
    doubt = iter((True,))
    taken = sampling.sample(
        [FakeTimer("a", 1.0, log)],
        0.0,
        unsettled=lambda: next(asked) in (4, 5, 3 + sampling.LEAST),
        in_doubt=lambda _: next(doubt, False),
    )
    assert [len(one) for one in taken] == [2 * sampling.LEAST]
    assert next(asked) == 2 * sampling.LEAST + 4
    assert len(log) == 2 + 2 * (2 * sampling.LEAST + 3)


@pytest.mark.parametrize("doubts", [0, 2, 99])
def test_a_case_in_doubt_is_sampled_again(doubts: int) -> None:
    seen: list[int] = []
    answers: list[float] = []

    def in_doubt(taken: list[list[float]]) -> bool:
        seen.append(len(taken[0]))
        return len(seen) <= doubts

    def agree(value: float) -> float:
        answers.append(value)
        return value

    timers = [FakeTimer("a", 1.0, []), FakeTimer("b", 1.0, [])]
    taken = sampling.sample(timers, 0.0, agree, in_doubt=in_doubt)
    times = 1 + min(doubts, sampling.AGAIN)
    assert [len(one) for one in taken] == [times * sampling.LEAST] * 2
    assert seen == [i * sampling.LEAST for i in range(1, 1 + min(doubts + 1, sampling.AGAIN))]
    assert answers[-len(seen) :] == [float(i < doubts) for i in range(len(seen))]  # rank 0 decides


def test_the_budget_gives_the_number_of_samples() -> None:
    timers = [FakeTimer("a", 1e-3, []), FakeTimer("b", 1e-3, [])]
    assert sampling.make_plan(timers, 0.08).samples == 20
    assert sampling.make_plan(timers, 0.0).samples == sampling.LEAST
    assert sampling.make_plan(timers, 99.0).samples == sampling.MOST


def test_ranks_agree_on_loops_and_samples() -> None:
    """A slower rank uses rank 0's plan; otherwise the two would wait for each other forever."""
    broadcast: list[float] = []

    def first(value: float) -> float:
        broadcast.append(value)
        return value

    plan = sampling.make_plan([FakeTimer("a", 1e-6, [])], 0.01, first)
    replies = iter(broadcast)
    other = sampling.make_plan([FakeTimer("a", 9e-6, [])], 0.01, lambda _: next(replies))
    assert other == plan


def test_rounds_begin_at_random_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a round apart, at most; else what the machine does in turns meets the same subject again and again."""
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.0

    monkeypatch.setattr(sampling.random, "uniform", uniform)
    sampling.sample([FakeTimer("a", 1e-3, []), FakeTimer("b", 1e-3, [])], 0.0)
    assert asked == [(0.0, pytest.approx(4e-3))] * sampling.LEAST
    sampling.sample([FakeTimer("a", 1.0, [])], 0.0)
    assert asked[-1] == (0.0, sampling.PAUSE)


def test_no_subjects_give_no_samples() -> None:
    assert sampling.sample([], 1.0) == []
