"""Deferred sends, which wait for their pack (TEMPI_TEST_DELAY): order, completion, and calls in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from examples import strided
from world import DELAY, MPI, Memory, acted, committed, partners

pytestmark = pytest.mark.skipif(DELAY == 0, reason="packs are done at once: TEMPI_TEST_DELAY is not set")

N = 25


def out(seed: int) -> Memory:
    return Memory(strided(N), 1).fill(seed)


def receive_in_order(comm: Any, datatype: Any, source: int, seeds: list[int | None], tag: int = 1) -> None:
    """Messages of one tag, one after the other; None: a contiguous one."""
    for seed in seeds:
        if seed is None:
            plain = np.zeros(3)
            comm.Recv(plain, source, tag)
            assert plain.tolist() == [1, 2, 3]
            continue
        into = Memory(strided(N), 1)
        comm.Recv(into.message(datatype), source, tag)
        into.check(out(seed).packed)


def test_a_single_send_is_deferred_and_completes_by_wait(comm: Any) -> None:
    to, source = partners(comm)
    with committed(strided(N)) as datatype, acted(deferred=1, sends=1):
        request = comm.Isend(out(1).message(datatype), to, 1)
        if comm.size == 1:  # no other rank makes progress
            assert not request.Get_status() or DELAY == 1
        into = Memory(strided(N), 1)
        comm.Recv(into.message(datatype), source, 1)
        request.Wait()
        into.check(out(1).packed)


@pytest.mark.parametrize("second", ["Isend", "Issend", "Send", "Bsend", "plain Isend", "plain Send", "Send_init"])
@pytest.mark.usefixtures("buffered")
def test_no_later_message_overtakes(comm: Any, second: str) -> None:
    to, source = partners(comm)
    plain = np.array([1.0, 2.0, 3.0])
    with committed(strided(N)) as datatype:
        # Receives for all but the last are there first, so that a blocking send can end.
        into = [Memory(strided(N), 1) for _ in range(2)]
        early = [comm.Irecv(m.message(datatype), source, 1) for m in into]
        last = Memory(strided(N), 1)
        late_plain = np.zeros(3)
        is_plain = second.startswith("plain")
        early.append(comm.Irecv(late_plain if is_plain else last.message(datatype), source, 1))
        requests = [comm.Isend(out(i).message(datatype), to, 1) for i in range(2)]
        call = second.split()[-1]
        made = getattr(comm, call)(plain if is_plain else out(2).message(datatype), to, 1)
        if call == "Send_init":
            made.Start()
        if made is not None:
            requests.append(made)
        MPI.Request.Waitall([*early, *requests])
        if call == "Send_init":
            made.Free()
        for i, memory in enumerate(into):
            memory.check(out(i).packed)
        if is_plain:
            np.testing.assert_array_equal(late_plain, plain)
        else:
            last.check(out(2).packed)


def test_many_tags_and_modes_stay_in_order(comm: Any) -> None:
    to, source = partners(comm)
    seeds: list[int | None] = [1, 2, None, 3, 4, 5, None, 6]
    with committed(strided(N)) as datatype, acted(deferred=6):
        requests = []
        for i, seed in enumerate(seeds):
            if seed is None:
                requests.append(comm.Isend(np.array([1.0, 2.0, 3.0]), to, 1))
            else:
                call = comm.Issend if i % 3 == 0 else comm.Isend
                requests.append(call(out(seed).message(datatype), to, 1))
        receive_in_order(comm, datatype, source, seeds)
        MPI.Request.Waitall(requests)


BLOCKING = {
    "Barrier": lambda comm: comm.Barrier(),
    "Bcast": lambda comm: comm.Bcast(np.zeros(2), comm.size - 1),  # the root itself need not wait
    "Allreduce": lambda comm: comm.Allreduce(np.zeros(2), np.zeros(2)),
    "Alltoall": lambda comm: comm.Alltoall(np.zeros(comm.size), np.zeros(comm.size)),
    "Dup": lambda comm: comm.Dup().Free(),
    "Split": lambda comm: comm.Split(0).Free(),
}


@pytest.mark.parametrize("call", BLOCKING)
def test_sends_leave_before_a_call_that_waits_for_all(comm: Any, call: str) -> None:
    """Rank 0 goes into the collective at once; the others only after they have its message."""
    with committed(strided(N)) as datatype:
        if comm.rank == 0:
            requests = [comm.Isend(out(r).message(datatype), r, 1) for r in range(1, comm.size)]
            BLOCKING[call](comm)
            MPI.Request.Waitall(requests)
        else:
            into = Memory(strided(N), 1)
            comm.Recv(into.message(datatype), 0, 1)
            BLOCKING[call](comm)
            into.check(out(comm.rank).packed)


@pytest.mark.parametrize("call", ["Recv", "Probe", "Mprobe", "Sendrecv", "Ssend", "Wait"])
def test_sends_leave_before_a_call_that_waits_for_another(comm: Any, call: str) -> None:
    """Rank 0 waits for an answer that comes only after its deferred message."""
    if comm.rank == 0:
        peer = comm.size - 1
        with committed(strided(N)) as datatype:
            answer = np.zeros(1)
            early = [comm.Irecv(Memory(strided(N), 1).message(datatype), 0, 1)] if peer == 0 else []
            request = comm.Isend(out(3).message(datatype), peer, 1)
            if peer == 0:
                early.append(comm.Isend(np.ones(1), 0, 2))
            if call == "Recv":
                comm.Recv(answer, peer, 2)
            elif call == "Probe":
                comm.Probe(peer, 2)
                comm.Recv(answer, peer, 2)
            elif call == "Mprobe":
                comm.Mprobe(peer, 2).Recv(answer)
            elif call == "Sendrecv":
                comm.Sendrecv(np.zeros(0), MPI.PROC_NULL, 0, answer, peer, 2)
            elif call == "Ssend":
                if peer == 0:
                    early.append(comm.Irecv(np.zeros(1), 0, 3))
                comm.Ssend(np.zeros(1), peer, 3)
                comm.Recv(answer, peer, 2)
            else:
                comm.Irecv(answer, peer, 2).Wait()
            MPI.Request.Waitall([request, *early])
            assert answer[0] == 1
    elif comm.rank == comm.size - 1:
        with committed(strided(N)) as datatype:
            into = Memory(strided(N), 1)
            comm.Recv(into.message(datatype), 0, 1)
            if call == "Ssend":
                comm.Recv(np.zeros(1), 0, 3)
            comm.Send(np.ones(1), 0, 2)
            into.check(out(3).packed)


def test_testing_something_else_makes_progress(comm: Any) -> None:
    """A program that only tests a receive still sends its deferred messages."""
    to, source = partners(comm)
    with committed(strided(N)) as datatype:
        into = Memory(strided(N), 1)
        receive = comm.Irecv(into.message(datatype), source, 1)
        send = comm.Isend(out(comm.rank).message(datatype), to, 1)
        while not receive.Test():
            pass
        into.check(out(source).packed)
        send.Wait()


def test_polling_a_probe_makes_progress(comm: Any) -> None:
    to, source = partners(comm)
    with committed(strided(N)) as datatype:
        send = comm.Isend(out(comm.rank).message(datatype), to, 1)
        while not comm.Iprobe(source, 1):
            pass
        into = Memory(strided(N), 1)
        comm.Recv(into.message(datatype), source, 1)
        into.check(out(source).packed)
        send.Wait()


def test_a_freed_proxy_is_still_sent(comm: Any) -> None:
    to, source = partners(comm)
    with committed(strided(N)) as datatype, acted(deferred=2, orphans=2):
        for seed in (1, 2):
            comm.Isend(out(seed).message(datatype), to, 1).Free()
        receive_in_order(comm, datatype, source, [1, 2])


def test_a_cancelled_proxy_ends_one_way_or_the_other(comm: Any) -> None:
    """Sends can seldom be cancelled: the status says whether the message still arrives."""
    to, source = partners(comm)
    with committed(strided(N)) as datatype, acted(deferred=1):
        request = comm.Isend(out(1).message(datatype), to, 1)
        request.Cancel()
        status = MPI.Status()
        if comm.size == 1:
            into = Memory(strided(N), 1)
            receive = comm.Irecv(into.message(datatype), source, 1)
            request.Wait(status)
            if status.Is_cancelled():
                receive.Cancel()
            receive.Wait()
            return
        cancelled = np.zeros(1, "i")
        receive = comm.Irecv(Memory(strided(N), 1).message(datatype), source, 1)
        request.Wait(status)
        comm.Sendrecv(np.array([status.Is_cancelled()], "i"), to, 2, cancelled, source, 2)
        if cancelled[0]:
            receive.Cancel()
        receive.Wait()


def test_a_proxy_has_no_status_before_its_time(comm: Any) -> None:
    """Get_status answers for the real send: an Issend is not complete before it is received."""
    to, source = partners(comm)
    with committed(strided(N)) as datatype:
        request = comm.Issend(out(4).message(datatype), to, 1)
        for _ in range(3 * DELAY):
            assert not request.Get_status()
            assert not request.Test()
            assert MPI.Request.Testany([request]) == (MPI.UNDEFINED, False)
            assert MPI.Request.Testsome([request]) == []
            assert not MPI.Request.Testall([request, MPI.REQUEST_NULL])
        comm.Barrier()
        into = Memory(strided(N), 1)
        receive = comm.Irecv(into.message(datatype), source, 1)
        request.Wait()
        receive.Wait()
        into.check(out(4).packed)


def test_a_type_freed_while_its_send_is_deferred(comm: Any) -> None:
    to, source = partners(comm)
    with committed(strided(N)) as datatype:
        with committed(strided(N)) as gone:
            request = comm.Isend(out(6).message(gone), to, 1)
        receive_in_order(comm, datatype, source, [6])
        request.Wait()


@pytest.mark.parametrize("peers", [1, 3])
def test_a_burst_to_several_peers(comm: Any, peers: int) -> None:
    """Twenty messages each, waited for by Waitsome."""
    with committed(strided(N)) as datatype, acted(deferred=20 * peers, sends=20 * peers, recvs=20 * peers):
        requests, memories = [], []
        for step in range(peers):
            source = (comm.rank - step) % comm.size
            for tag in range(20):
                memories.append((Memory(strided(N), 1), 100 * step + tag))
                requests.append(comm.Irecv(memories[-1][0].message(datatype), source, 100 * step + tag))
        for step in range(peers):
            for tag in range(20):
                to = (comm.rank + step) % comm.size
                requests.append(comm.Isend(out(100 * step + tag).message(datatype), to, 100 * step + tag))
        while (done := MPI.Request.Waitsome(requests)) is not None:
            assert done
        for memory, seed in memories:
            memory.check(out(seed).packed)
