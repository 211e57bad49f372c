"""Without a calibration messages go both ways in trials, and all bytes are right (csrc/choose/message_trials.h)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import oracle
from world import MPI, Memory, committed, snapshot

pytestmark = pytest.mark.skipif(
    os.environ.get("TEMPI_MODEL") != "0" or "TEMPI_FORCE" in os.environ, reason="not by the built-in rule"
)
COUNTED = ("calls_seen", "sends", "recvs", "fallback_rule")
STREAMED_FIRST = 16 << 10  # bytes; shorter ones are not packed past the caches
TOGETHER = 4  # rounds without a check between them: a round of little else than its messages
ROUNDS = 52  # between two looks whether a trial is over
#: Seconds for one. The peer's class may change, which begins another one; and a process that got no core for a while
#: gives up the trial of the test before late: its lease lasts 2 seconds (PATIENCE).
PATIENCE = 60.0
BYTE, DOUBLE = oracle.Named("BYTE"), oracle.Named("DOUBLE")
Exchange = Callable[[Memory, Memory, Any, int], None]


def blocking(out: Memory, into: Memory, datatype: Any, peer: int) -> None:
    comm = MPI.COMM_WORLD
    for turn in (0, 1):
        if comm.rank % 2 == turn:
            comm.Send(out.message(datatype), peer, 5)
        else:
            comm.Recv(into.message(datatype), peer, 5)


def nonblocking(out: Memory, into: Memory, datatype: Any, peer: int) -> None:
    comm = MPI.COMM_WORLD
    requests = [
        comm.Irecv(into.message(datatype), peer, 6),
        comm.Isend(out.message(datatype), peer, 6),
    ]
    MPI.Request.Waitall(requests)


def polled(out: Memory, into: Memory, datatype: Any, peer: int) -> None:
    comm = MPI.COMM_WORLD
    requests = [
        comm.Irecv(into.message(datatype), peer, 8),
        comm.Isend(out.message(datatype), peer, 8),
    ]
    while not MPI.Request.Testall(requests):
        pass


def combined(out: Memory, into: Memory, datatype: Any, peer: int) -> None:
    MPI.COMM_WORLD.Sendrecv(out.message(datatype), peer, 7, into.message(datatype), peer, 7)


#: Of each its own type: one that was tried by one exchange is not tried again soon by another.
EXCHANGES: dict[Exchange, oracle.Tree] = {
    blocking: oracle.Vector(700, 2, 90, DOUBLE),
    nonblocking: oracle.Vector(800, 3, 70, DOUBLE),
    polled: oracle.Vector(900, 5, 60, DOUBLE),
    combined: oracle.Vector(1000, 44, 100, BYTE),
}


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
def test_both_ways_carry_the_same_bytes(exchange: Exchange) -> None:
    comm = MPI.COMM_WORLD
    peer = comm.rank ^ 1
    kind = EXCHANGES[exchange]
    before = snapshot()
    out = Memory(kind, 1).fill(comm.rank)
    expected = Memory(kind, 1).fill(peer).packed
    long = len(expected) >= STREAMED_FIRST
    seen, rounds, until = False, 0, MPI.Wtime() + PATIENCE

    def moved(*names: str) -> dict[str, int]:
        after = snapshot()
        return {name: after[name] - before[name] for name in names}

    with committed(kind) as datatype:
        # A trial ends at once if its messages are a small part of a round, as where a rank gets no core for a while.
        while not seen and comm.allreduce(MPI.Wtime() < until, MPI.LAND):
            for _ in range(ROUNDS // TOGETHER):
                into = Memory(kind, 1)
                for _ in range(TOGETHER):
                    exchange(out, into, datatype, peer)
                into.check(expected)
            rounds += ROUNDS
            streamed, tuned = (comm.allreduce(moved(name)[name]) for name in ("messages_streamed", "messages_tuned"))
            both = comm.allreduce(all(moved("sends", "recvs", "fallback_rule").values()), MPI.LAND)
            seen = both and tuned >= 1 and (streamed > 0) == long
    assert (streamed > 0) == long
    assert tuned >= 1
    counts = moved("sends", "recvs", "fallback_rule")
    assert all(counts.values()), counts
    assert sum(counts.values()) == 2 * rounds


@pytest.mark.parametrize("runs", [150, 2500])
def test_trials_are_repeated_though_most_messages_pass_unexamined(runs: int) -> None:
    """choose/repeated.h. Each message is counted once, the longer ones also where they are packed past the caches."""
    comm = MPI.COMM_WORLD
    kind = oracle.Vector(runs, 1, 3, DOUBLE)
    out, into = Memory(kind, 1).fill(comm.rank), Memory(kind, 1)
    before = after = snapshot()
    tuned, rounds = 0, 0
    with committed(kind) as datatype:
        while tuned < 2 and rounds < 200_000:  # another test's trial must end before the first one
            for _ in range(2000):
                blocking(out, into, datatype, comm.rank ^ 1)
            rounds += 2000
            after = snapshot()
            tuned = comm.allreduce(after["messages_tuned"] - before["messages_tuned"])
    moved = {key: after[key] - before[key] for key in COUNTED}
    assert tuned >= 2
    assert moved["sends"] + moved["recvs"] + moved["fallback_rule"] == moved["calls_seen"] == 2 * rounds
    into.check(Memory(kind, 1).fill(comm.rank ^ 1).packed)
