"""Persistent requests whose starts go both ways, in trials (csrc/shim/p2p/persistent_choice.h)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import oracle
import tempi
from world import MPI, Memory, committed, outcome, partners, snapshot

pytestmark = pytest.mark.skipif(
    os.environ.get("TEMPI_MODEL") != "0" or "TEMPI_FORCE" in os.environ, reason="not by the built-in rule"
)
DOUBLE = oracle.Named("DOUBLE")
COUNTED = ("sends", "recvs", "fallback_rule")
TOGETHER = 8  # starts without a check between them: a round of little else than its messages
PATIENCE = 20.0  # seconds: the trial of the test before may first have to end


def rows(number: int) -> oracle.Tree:
    """`number` rows of two doubles. Each test has its own: a shape that was tried is not tried again soon."""
    return oracle.Vector(number, 2, 5, DOUBLE)


def counted(before: dict[str, int] | None = None) -> dict[str, int]:
    now = snapshot()
    return {key: now[key] - (before[key] if before else 0) for key in COUNTED}


def both_ways(comm: Any, scenario: Callable[[int], None]) -> int:
    """Repeats it until sends and receives have gone both ways, on each rank. Returns how often."""
    before, turn = counted(), 0
    end = comm.allreduce(time.monotonic(), MPI.MIN) + PATIENCE
    while comm.allreduce(time.monotonic(), MPI.MIN) < end:
        scenario(turn)
        turn += 1
        moved = counted(before)
        packed, left = min(moved["sends"], moved["recvs"]), moved["fallback_rule"]
        if comm.allreduce(min(packed, left), MPI.MIN) > TOGETHER:
            return turn
    pytest.fail(f"all went one way: {moved}")


def by_wait(requests: list[Any]) -> None:
    for request in requests:
        request.Wait()


def by_waitany(requests: list[Any]) -> None:
    while MPI.Request.Waitany(requests) != MPI.UNDEFINED:
        pass


def by_testsome(requests: list[Any]) -> None:
    while MPI.Request.Testsome(requests) is not None:
        pass


def by_testall(requests: list[Any]) -> None:
    while not MPI.Request.Testall(requests):
        pass


def by_status(requests: list[Any]) -> None:
    while not all(request.Get_status() for request in requests):
        pass
    MPI.Request.Waitall(requests)


#: Of each mode of sending one way to complete.
ENDS: dict[str, Callable[[list[Any]], None]] = {
    "Send_init": by_wait,
    "Ssend_init": by_waitany,
    "Bsend_init": by_testsome,
    "Rsend_init": by_testall,
    "Send_init, again": by_status,
}


@contextmanager
def buffered(size: int) -> Iterator[None]:
    MPI.Attach_buffer(bytearray(size))
    try:
        yield
    finally:
        MPI.Detach_buffer()


@pytest.mark.parametrize("mode", ENDS)
def test_each_start_brings_its_bytes(comm: Any, mode: str) -> None:
    to, source = partners(comm)
    kind = rows(300 + 17 * list(ENDS).index(mode))
    out, into = Memory(kind, 1), Memory(kind, 1)
    with committed(kind) as datatype, buffered(1 << 20):
        receive = comm.Recv_init(into.message(datatype), source, 4)
        send = getattr(comm, mode.removesuffix(", again"))(out.message(datatype), to, 4)

    def scenario(turn: int) -> None:
        seed, before = 10 * turn + comm.rank, into.copy()
        for _ in range(TOGETHER):
            out.fill(seed)
            receive.Start()
            if mode == "Rsend_init":
                comm.Barrier()
            send.Start()
            ENDS[mode]([send, receive])
            assert send != MPI.REQUEST_NULL
            assert receive != MPI.REQUEST_NULL
        into.check(Memory(kind, 1).fill(10 * turn + source).packed, before)

    before = counted()
    with buffered(1 << 20):
        turns = both_ways(comm, scenario)
    assert sum(counted(before).values()) == 2 * TOGETHER * turns
    receive.Free()
    send.Free()


def test_type_and_communicator_are_freed_before_the_first_start(comm: Any) -> None:
    to, source = partners(comm)
    kind = rows(430)
    out, into = Memory(kind, 1), Memory(kind, 1)
    passing = comm.Dup()
    with committed(kind) as datatype:
        requests = [
            passing.Recv_init(into.message(datatype), source, 4),
            passing.Send_init(out.message(datatype), to, 4),
        ]
    passing.Free()

    def scenario(turn: int) -> None:
        before = into.copy()
        out.fill(10 * turn + comm.rank)
        for _ in range(TOGETHER):
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
        into.check(Memory(kind, 1).fill(10 * turn + source).packed, before)

    both_ways(comm, scenario)
    for request in requests:
        request.Free()


@pytest.mark.parametrize("came", ["less", "more"])
def test_a_message_of_another_length_ends_as_without_tempi(comm: Any, came: str) -> None:
    """Open MPI frees the request that was cut short, with its handle. Longer messages it writes behind a contiguous
    receive (csrc/shim/p2p/wire.h), but tempi's buffer has some room there."""
    to, source = partners(comm)
    number = 470 if came == "less" else 490
    kind = rows(number)
    data = np.arange(160 if came == "less" else 16 * number + 160, dtype=np.uint8)

    def end(datatype: Any) -> tuple[Any, bool, int]:
        into = Memory(kind, 1)
        receive = comm.Recv_init(into.message(datatype), source, 4)
        status = MPI.Status()
        receive.Start()
        send = comm.Isend([data, len(data), MPI.PACKED], to, 4)
        result = outcome(lambda: receive.Wait(status) and None)
        alive = receive != MPI.REQUEST_NULL
        if came == "less":
            into.check(data)
        elif alive:  # whole again
            out = Memory(kind, 1).fill(comm.rank)
            before = into.copy()
            receive.Start()
            comm.Send(out.message(datatype), to, 4)
            receive.Wait()
            into.check(Memory(kind, 1).fill(source).packed, before)
        send.Wait()
        if alive:
            receive.Free()
        return result, alive, status.Get_count(MPI.BYTE) if came == "less" else 0

    with committed(kind) as datatype:
        with tempi.disabled():
            expected = end(datatype)
        out, into = Memory(kind, 1).fill(comm.rank), Memory(kind, 1)

        def scenario(turn: int) -> None:
            for _ in range(TOGETHER):  # these have the trial
                receiving = comm.Irecv(into.message(datatype), source, 5)
                comm.Send(out.message(datatype), to, 5)
                receiving.Wait()
            assert end(datatype) == expected

        both_ways(comm, scenario)


def test_a_cancelled_start_writes_nothing_and_the_next_one_does(comm: Any) -> None:
    to, source = partners(comm)
    kind = rows(510)
    out, into = Memory(kind, 1).fill(comm.rank), Memory(kind, 1)
    with committed(kind) as datatype:
        receive, send = comm.Recv_init(into.message(datatype), source, 4), comm.Send_init(out.message(datatype), to, 4)

    def scenario(turn: int) -> None:
        status = MPI.Status()
        before = into.copy()
        receive.Start()
        receive.Cancel()
        receive.Wait(status)
        assert status.Is_cancelled()
        np.testing.assert_array_equal(into.copy(), before)
        comm.Barrier()
        for _ in range(TOGETHER):
            MPI.Prequest.Startall([receive, send])
            MPI.Request.Waitall([receive, send])
        into.check(Memory(kind, 1).fill(source).packed, before)

    both_ways(comm, scenario)
    receive.Free()
    send.Free()


def test_freed_while_active_both_still_arrive(comm: Any) -> None:
    to, source = partners(comm)
    kind = rows(530)
    with committed(kind) as datatype:
        out, again = Memory(kind, 1), Memory(kind, 1)

        def scenario(turn: int) -> None:
            into = Memory(kind, 1)
            out.fill(comm.rank + 10 * turn)
            receive = comm.Recv_init(into.message(datatype), source, 5)
            send = comm.Send_init(out.message(datatype), to, 5)
            receive.Start()
            comm.Barrier()
            send.Start()
            receive.Free()
            send.Free()
            for _ in range(TOGETHER):
                receiving = comm.Irecv(again.message(datatype), source, 6)
                comm.Send(out.message(datatype), to, 6)
                receiving.Wait()
            comm.Barrier()
            comm.Iprobe()
            into.check(Memory(kind, 1).fill(source + 10 * turn).packed)

        both_ways(comm, scenario)


def test_many_are_started_at_once_with_others_among_them(comm: Any) -> None:
    """More than one part of MPI_Startall, of which every third is contiguous."""
    to, source = partners(comm)
    kind = rows(256)
    many = 45
    outs, into = [Memory(kind, 1) for _ in range(many)], [Memory(kind, 1) for _ in range(many)]
    plain_out, plain_into = np.zeros((many, 64)), np.zeros((many, 64))
    requests: list[Any] = []
    with committed(kind) as datatype:
        for i in range(many):
            requests += [
                comm.Recv_init(into[i].message(datatype), source, i),
                comm.Send_init(outs[i].message(datatype), to, i),
                comm.Recv_init(plain_into[i], source, many + i)
                if i % 2
                else comm.Send_init(plain_out[i], to, many + i + 1),
            ]
    # the last plain send has no receive
    idle = requests.pop()

    def scenario(turn: int) -> None:
        before = [m.copy() for m in into]
        plain_out[:] = comm.rank + turn
        for i, m in enumerate(outs):
            m.fill(comm.rank + 10 * turn + i)
        for _ in range(2):
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
        for i, m in enumerate(into):
            m.check(Memory(kind, 1).fill(source + 10 * turn + i).packed, before[i])
        np.testing.assert_array_equal(plain_into[1::2], np.full((many // 2, 64), float(source + turn)))

    both_ways(comm, scenario)
    for request in [*requests, idle]:
        request.Free()


def test_a_thread_that_disabled_tempi_starts_the_librarys_own(comm: Any) -> None:
    to, source = partners(comm)
    kind = rows(550)
    out, into = Memory(kind, 1).fill(comm.rank), Memory(kind, 1)
    with committed(kind) as datatype:
        requests = [comm.Recv_init(into.message(datatype), source, 4), comm.Send_init(out.message(datatype), to, 4)]
    before = counted()
    with tempi.disabled():
        for _ in range(100):
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
    into.check(Memory(kind, 1).fill(source).packed)
    assert counted(before) == {"sends": 0, "recvs": 0, "fallback_rule": 200}
    for request in requests:
        request.Free()
