"""Short messages that tempi carries again and again are not planned each time (csrc/shim/p2p/unplanned.h)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import oracle
import tempi
from world import MPI, Memory, committed, snapshot

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size != 2, reason="needs 2 ranks")
SHORT = oracle.Vector(64, 4, 24, oracle.Named("BYTE"))
LONGER = oracle.Vector(128, 4, 24, oracle.Named("BYTE"))
EXAMINED = 40  # messages, after which the next ones need not be planned
MANY = 150  # of which most are not planned


def turn(out: Memory, into: Memory, types: tuple[Any, Any], source: int | None = None) -> MPI.Status:
    """One message there, and one back."""
    comm, status = MPI.COMM_WORLD, MPI.Status()
    peer = 1 - comm.rank
    if comm.rank == 0:
        comm.Send(out.message(types[0]), peer, 5)
    comm.Recv(into.message(types[1]), peer if source is None else source, 5, status)
    if comm.rank == 1:
        comm.Send(out.message(types[0]), peer, 5)
    return status


@contextmanager
def repeated(tree: oracle.Tree = SHORT) -> Iterator[Any]:
    with committed(tree) as datatype:
        out, into = Memory(tree, 1).fill(1), Memory(tree, 1)
        for _ in range(EXAMINED):
            turn(out, into, (datatype, datatype))
        yield datatype


def test_each_delivers_its_own_bytes_and_is_counted() -> None:
    with repeated() as datatype:
        before = snapshot()
        for seed in range(MANY):
            out, into = Memory(SHORT, 1).fill(seed + 7 * MPI.COMM_WORLD.rank), Memory(SHORT, 1)
            status = turn(out, into, (datatype, datatype))
            into.check(Memory(SHORT, 1).fill(seed + 7 * (1 - MPI.COMM_WORLD.rank)).packed)
            assert (status.source, status.tag, status.Get_count(MPI.BYTE)) == (1 - MPI.COMM_WORLD.rank, 5, 256)
        moved = {name: count - before[name] for name, count in snapshot().items()}
        assert (moved["calls_seen"], moved["sends"], moved["recvs"]) == (2 * MANY, MANY, MANY)
        assert (moved["sent_bytes"], moved["recv_bytes"], moved["runs"]) == (256 * MANY, 256 * MANY, 64 * 2 * MANY)


def test_a_message_of_fewer_bytes_leaves_the_rest_alone() -> None:
    half = oracle.Vector(32, 4, 24, oracle.Named("BYTE"))
    with repeated() as datatype, committed(half) as shorter:
        before = snapshot()
        for seed in range(MANY):
            out, into = Memory(half, 1).fill(seed), Memory(SHORT, 1)
            status = turn(out, into, (shorter, datatype))
            assert status.Get_count(MPI.BYTE) == 128
            expected = np.full(256, 0xA5, np.uint8)
            expected[:128] = out.packed
            into.check(expected)
        after = snapshot()
        assert after["recv_bytes"] - before["recv_bytes"] == 128 * (after["recvs"] - before["recvs"])


def test_a_longer_message_is_an_error_and_the_next_one_is_right() -> None:
    comm, before = MPI.COMM_WORLD, snapshot()
    with repeated() as datatype, committed(LONGER) as longer:
        for seed in range(3):
            into, sent = Memory(SHORT, 1), Memory(SHORT, 1).fill(seed)
            if comm.rank == 0:
                comm.Send(Memory(LONGER, 1).fill(1).message(longer), 1, 5)
                comm.Send(sent.message(datatype), 1, 5)
                continue
            with pytest.raises(MPI.Exception) as error:
                comm.Recv(into.message(datatype), 0, 5)
            assert error.value.Get_error_class() == MPI.ERR_TRUNCATE
            into = Memory(SHORT, 1)
            comm.Recv(into.message(datatype), 0, 5)
            into.check(sent.packed)
        moved = {name: count - before[name] for name, count in snapshot().items()}
        assert moved["calls_seen"] >= moved["sends"] + moved["recvs"] > 0


def test_those_of_any_source_and_to_nobody_are_as_before() -> None:
    comm = MPI.COMM_WORLD
    with repeated() as datatype:
        for seed in range(MANY):
            out, into = Memory(SHORT, 1).fill(seed), Memory(SHORT, 1)
            turn(out, into, (datatype, datatype), MPI.ANY_SOURCE)
            into.check(out.packed)
        for _ in range(MANY):
            comm.Send(out.message(datatype), MPI.PROC_NULL, 7)
            status = MPI.Status()
            comm.Recv(into.message(datatype), MPI.PROC_NULL, 7, status)
            assert (status.source, status.Get_count(MPI.BYTE)) == (MPI.PROC_NULL, 0)


def test_a_process_sends_to_itself_as_before() -> None:
    """Also one that is too long, which Open MPI would cut without an error if it had no gap (wire.h)."""
    comm = MPI.COMM_WORLD
    with committed(SHORT) as datatype, committed(LONGER) as longer:
        before = snapshot()
        for seed in range(MANY):
            out, own = Memory(LONGER, 1).fill(seed), Memory(LONGER, 1)
            request = comm.Irecv(own.message(longer), comm.rank, 6)
            comm.Send(out.message(longer), comm.rank, 6)
            request.Wait()
            own.check(out.packed)
        assert snapshot()["sends"] - before["sends"] == MANY
        request = comm.Irecv(Memory(SHORT, 1).message(datatype), comm.rank, 6)
        comm.Send(out.message(longer), comm.rank, 6)
        with pytest.raises(MPI.Exception) as error:
            request.Wait()
        assert error.value.Get_error_class() == MPI.ERR_TRUNCATE


@pytest.mark.parametrize("early", [False, True], ids=["posted before", "arrived before"])
@pytest.mark.parametrize("mode", ["Isend", "Issend", "Irsend"])
def test_with_requests(mode: str, early: bool) -> None:
    """Receives that are posted before their message is sent, or after it has arrived."""
    comm, peer, statuses = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank, [MPI.Status(), MPI.Status()]
    if early and mode != "Isend":
        pytest.skip("such a message is sent when its receive is posted")
    with repeated() as datatype:
        before = snapshot()
        for seed in range(MANY):
            out, into = Memory(SHORT, 1).fill(seed + 7 * comm.rank), Memory(SHORT, 1)
            if not early:
                receive = comm.Irecv(into.message(datatype), peer, 6)
                comm.Barrier()
            send = getattr(comm, mode)(out.message(datatype), peer, 6)
            if early:
                comm.Probe(peer, 6)
                receive = comm.Irecv(into.message(datatype), peer, 6)
            MPI.Request.Waitall([receive, send], statuses)
            into.check(Memory(SHORT, 1).fill(seed + 7 * peer).packed)
            assert (statuses[0].source, statuses[0].tag, statuses[0].Get_count(MPI.BYTE)) == (peer, 6, 256)
        moved = {name: count - before[name] for name, count in snapshot().items()}
        assert (moved["calls_seen"], moved["sends"], moved["recvs"]) == (2 * MANY, MANY, MANY)
        assert (moved["sent_bytes"], moved["recv_bytes"], moved["runs"]) == (256 * MANY, 256 * MANY, 64 * 2 * MANY)


@pytest.mark.parametrize("early", [False, True], ids=["posted before", "arrived before"])
@pytest.mark.parametrize("wait", ["Wait", "Test", "Waitany", "Waitall"])
def test_with_a_request_and_more_or_fewer_bytes(early: bool, wait: str) -> None:
    comm, peer = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank
    half = oracle.Vector(32, 4, 24, oracle.Named("BYTE"))

    def end(request: MPI.Request, status: MPI.Status) -> None:
        if wait == "Test":
            while not request.Test(status):
                pass
        elif wait == "Waitany":
            assert MPI.Request.Waitany([request], status) == 0
        elif wait == "Waitall":
            MPI.Request.Waitall([request], [status])
        else:
            request.Wait(status)

    with repeated() as datatype, committed(half) as shorter, committed(LONGER) as longer:
        for seed, (tree, sent) in enumerate(((half, shorter), (LONGER, longer), (SHORT, datatype)) * 3):
            out, into, status = Memory(tree, 1).fill(seed), Memory(SHORT, 1), MPI.Status()
            if not early:
                receive = comm.Irecv(into.message(datatype), peer, 6)
                comm.Barrier()
            send = comm.Isend(out.message(sent), peer, 6)
            if early:
                comm.Probe(peer, 6)
                receive = comm.Irecv(into.message(datatype), peer, 6)
            if tree is LONGER:
                with pytest.raises(MPI.Exception) as error:
                    end(receive, status)
                code = status.error if error.value.Get_error_class() == MPI.ERR_IN_STATUS else error.value.error_code
                assert MPI.Get_error_class(code) == MPI.ERR_TRUNCATE
            else:
                end(receive, status)
                expected = np.full(256, 0xA5, np.uint8)
                expected[: len(out.packed)] = out.packed
                into.check(expected)
                assert status.Get_count(MPI.BYTE) == len(out.packed)
            send.Wait()


@pytest.mark.parametrize("replaced", [False, True])
def test_in_combined_calls(replaced: bool) -> None:
    comm, peer, status = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank, MPI.Status()
    half = oracle.Vector(32, 4, 24, oracle.Named("BYTE"))
    with repeated() as datatype, committed(half) as shorter:
        before = snapshot()
        for seed in range(MANY):
            out, into = Memory(SHORT, 1).fill(seed + 7 * comm.rank), Memory(SHORT, 1)
            expected = Memory(SHORT, 1).fill(seed + 7 * peer).packed
            if replaced:
                between = out.copy()
                comm.Sendrecv_replace(out.message(datatype), peer, 6, peer, 6, status)
                out.check(expected, between)
            else:
                comm.Sendrecv(out.message(datatype), peer, 6, into.message(datatype), peer, 6, status)
                into.check(expected)
            assert (status.source, status.tag, status.Get_count(MPI.BYTE)) == (peer, 6, 256)
        moved = {name: count - before[name] for name, count in snapshot().items()}
        assert (moved["calls_seen"], moved["sends"], moved["recvs"]) == (2 * MANY, MANY, MANY)
        assert (moved["sent_bytes"], moved["recv_bytes"]) == (256 * MANY, 256 * MANY)
        out, into = Memory(half, 1).fill(comm.rank), Memory(SHORT, 1)
        comm.Sendrecv(out.message(shorter), peer, 6, into.message(datatype), peer, 6, status)
        assert status.Get_count(MPI.BYTE) == 128
        expected = np.full(256, 0xA5, np.uint8)
        expected[:128] = Memory(half, 1).fill(peer).packed
        into.check(expected)


def test_in_each_mode_of_sending() -> None:
    comm = MPI.COMM_WORLD
    buffer = MPI.Alloc_mem(256 + MPI.BSEND_OVERHEAD)
    with repeated() as datatype:
        MPI.Attach_buffer(buffer)
        before = snapshot()
        for seed in range(MANY):
            for mode in (comm.Ssend, comm.Rsend, comm.Bsend):
                out, into = Memory(SHORT, 1).fill(seed), Memory(SHORT, 1)
                request = comm.Irecv(into.message(datatype), 1 - comm.rank, 6)
                comm.Barrier()  # all is received into: a ready send may begin
                mode(out.message(datatype), 1 - comm.rank, 6)
                request.Wait()
                into.check(out.packed)
            MPI.Detach_buffer()  # the buffer is empty again
            MPI.Attach_buffer(buffer)
        moved = {name: count - before[name] for name, count in snapshot().items()}
        assert (moved["sends"], moved["sent_bytes"]) == (3 * MANY, 3 * MANY * 256)
        MPI.Detach_buffer()
    MPI.Free_mem(buffer)


def test_those_of_a_thread_that_disabled_tempi_are_the_library_s() -> None:
    with repeated() as datatype:
        before = snapshot()
        with tempi.disabled():
            for seed in range(MANY):
                out, into = Memory(SHORT, 1).fill(seed), Memory(SHORT, 1)
                turn(out, into, (datatype, datatype))
                into.check(out.packed)
        moved = {name: count - before[name] for name, count in snapshot().items()}
        assert (moved["sends"], moved["recvs"], moved["fallback_disabled"]) == (0, 0, 2 * MANY)


def test_a_communicator_in_the_place_of_the_old_one_may_have_other_ranks() -> None:
    """The process that was the other one may be this one in it, as handles are used again."""
    comm = MPI.COMM_WORLD
    with committed(SHORT) as datatype, committed(LONGER) as longer:
        for turn_around in (False, True) * 4:
            own = comm.Split(0, -comm.rank if turn_around else comm.rank)
            peer = comm.size - 1  # the other one for one of the two, this process for the other one
            for seed in range(MANY):
                out, into = Memory(LONGER, 1).fill(seed), Memory(LONGER, 1)
                request = own.Irecv(into.message(longer), peer, 6) if own.rank == peer else None
                own.Send(out.message(longer), peer, 6)
                if request:
                    request.Wait()
                    into.check(out.packed)
                    own.Recv(into.message(longer), 1 - peer, 6)
                    into.check(out.packed)
            if own.rank == peer:
                request = own.Irecv(Memory(SHORT, 1).message(datatype), peer, 7)
                own.Send(Memory(LONGER, 1).fill(1).message(longer), peer, 7)
                with pytest.raises(MPI.Exception) as error:
                    request.Wait()
                assert error.value.Get_error_class() == MPI.ERR_TRUNCATE
            own.Free()
