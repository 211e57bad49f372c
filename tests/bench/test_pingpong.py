"""When the ping-pong suite takes its samples (bench/workers/pingpong.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tempi
from tempi.bench.workers import pingpong
from tempi.measure import worker

pytestmark = pytest.mark.once


class Alone:
    """A communicator of one process, whose peer has a class all the same."""

    rank = 0

    def bcast(self, value: Any) -> Any:
        return value

    allreduce = bcast


class Program:
    """Whose trials end after so many calls in a class of the peer; a call takes `seconds`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ends: dict[str, int], seconds: float = 1e-6) -> None:
        self.ends, self.seconds = dict(ends), seconds
        self.peer = next(iter(ends))
        self.tuned = self.calls = 0
        monkeypatch.setattr(tempi, "peer", lambda *_: self.peer)
        monkeypatch.setattr(worker, "counter", lambda _: self.tuned)
        self.unsettled: Callable[[], bool] = pingpong.unsettled(self, Alone())
        self.calls = 0

    def __call__(self, loops: int) -> float:
        self.calls += loops
        before = self.ends[self.peer]
        self.ends[self.peer] -= loops
        self.tuned += before > 0 >= self.ends[self.peer]
        return self.seconds * loops

    def waits(self) -> int:
        """Rounds that pass before a sample."""
        rounds = 0
        while self.unsettled():
            rounds += 1
        return rounds


@pytest.mark.parametrize("ends", [1, 100, 500])
def test_samples_wait_for_the_trial(monkeypatch: pytest.MonkeyPatch, ends: int) -> None:
    program = Program(monkeypatch, {"same-node": ends})
    assert program.waits() == max(pingpong.SETTLED_LEAST, -(-(ends - 1) // pingpong.TOGETHER))
    assert program.waits() == 0


def test_samples_wait_for_a_trial_that_does_not_end_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch, {"same-node": 10**9})
    assert program.waits() == pingpong.SETTLED_MOST
    assert program.waits() == 0


def test_samples_wait_again_where_the_class_of_the_peer_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trial is another one; that of the class before is known later, too."""
    program = Program(monkeypatch, {"same-node": 300, "same-node-far": 500})
    assert program.waits() > pingpong.SETTLED_LEAST
    program.peer = "same-node-far"
    assert program.waits() == -(-500 // pingpong.TOGETHER)
    for peer in program.ends:
        program.peer = peer
        assert program.waits() == 0


def test_a_trial_of_long_messages_ends_before_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch, {"same-node": 20}, seconds=1.0)
    assert program.ends["same-node"] <= 0
    assert not program.unsettled()
