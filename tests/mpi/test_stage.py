"""The limit on staging memory, TEMPI_STAGE_MAX=1M: messages above it go to the library, and are counted."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import oracle
from examples import strided
from world import MPI, Memory, acted, committed, idle, partners, snapshot

pytestmark = pytest.mark.skipif(os.environ.get("TEMPI_STAGE_MAX") != "1M", reason="TEMPI_STAGE_MAX is not 1M")

BOUND = 1 << 20
SMALL, LARGE = 60_000, 140_000  # doubles: 480 kB, of which one fits; 1120 kB, of which none does


@pytest.mark.parametrize("receive", ["Recv", "Irecv", "Recv_init", "Imrecv"])
def test_larger_messages_are_the_librarys_and_right(comm: Any, receive: str) -> None:
    to, source = partners(comm)
    with committed(strided(LARGE)) as datatype, idle(), acted(fallback_stage=2):
        out, into = Memory(strided(LARGE), 1).fill(comm.rank), Memory(strided(LARGE), 1)
        if receive in ("Irecv", "Recv_init"):
            request = getattr(comm, receive)(into.message(datatype), source, 1)
            if receive == "Recv_init":
                request.Start()
            comm.Send(out.message(datatype), to, 1)
        else:
            send = comm.Isend(out.message(datatype), to, 1)
            if receive == "Imrecv":
                request = comm.Mprobe(source, 1).Irecv(into.message(datatype))
            else:
                comm.Recv(into.message(datatype), source, 1)
                request = MPI.REQUEST_NULL
            send.Wait()
        request.Wait()
        if receive == "Recv_init":
            request.Free()
        into.check(Memory(strided(LARGE), 1).fill(source).packed)


def test_a_receive_of_a_huge_maximum_takes_no_staging(comm: Any) -> None:
    """The program allows for 2^40 elements; the message is small."""
    to, source = partners(comm)
    peak = snapshot()["stage_peak"]
    with committed(strided(10)) as datatype, acted(recvs=0, fallback_stage=1):
        into, out = Memory(strided(10), 2), Memory(strided(10), 2).fill(comm.rank)
        message = [into.message(datatype)[0], 1 << (40 if MPI.VERSION >= 4 else 30), datatype]
        request = comm.Irecv(message, source, 1)
        comm.Send(out.message(datatype), to, 1)
        request.Wait()
        into.check(Memory(strided(10), 2).fill(source).packed)
    assert snapshot()["stage_peak"] <= max(peak, 4096)


def test_requests_share_the_bound_and_give_it_back(comm: Any) -> None:
    """Of four sends of half the limit each, one or two are staged; afterwards staging memory is free again."""
    to, source = partners(comm)
    with committed(strided(SMALL)) as datatype:
        for _ in range(3):
            before = snapshot()
            outs = [Memory(strided(SMALL), 1).fill(4 * comm.rank + i) for i in range(4)]
            into = [Memory(strided(SMALL), 1) for _ in range(4)]
            requests = [comm.Irecv(m.message(datatype), source, i) for i, m in enumerate(into)]
            requests += [comm.Issend(m.message(datatype), to, i) for i, m in enumerate(outs)]
            MPI.Request.Waitall(requests)
            moved = {name: value - before[name] for name, value in snapshot().items()}
            assert moved["sends"] + moved["recvs"] + moved["fallback_stage"] == 8
            assert 1 <= moved["sends"] + moved["recvs"] < 8
            for i, memory in enumerate(into):
                memory.check(Memory(strided(SMALL), 1).fill(4 * source + i).packed)
    assert snapshot()["stage_peak"] <= BOUND


def test_freed_and_persistent_requests_give_their_staging_back(comm: Any) -> None:
    to, source = partners(comm)
    with committed(strided(SMALL)) as datatype:
        for turn in range(6):
            into = Memory(strided(SMALL), 1)
            out = Memory(strided(SMALL), 1).fill(turn + comm.rank)
            with acted(fallback_stage=0, recvs=1):
                request = comm.Recv_init(into.message(datatype), source, 1)
                request.Start()
                comm.Send([out.packed, MPI.PACKED], to, 1)
                request.Wait()
                request.Free()
            into.check(Memory(strided(SMALL), 1).fill(turn + source).packed)
            with acted(fallback_stage=0):
                request = comm.Irecv(into.message(datatype), source, 2)
                request.Cancel()
                request.Wait()


def test_packing_needs_no_staging(comm: Any) -> None:
    import calls

    memory = Memory(strided(LARGE), 1).fill(1)
    out = np.zeros(8 * LARGE, np.uint8)
    with committed(strided(LARGE)) as datatype, acted(packs=1, fallback_stage=0):
        calls.pack(memory, datatype, out, 0, comm)
    np.testing.assert_array_equal(out, memory.packed)


def test_sendrecv_replace_takes_both_or_none(comm: Any) -> None:
    """Two halves of the bound would fit alone, not together with a third."""
    to, source = partners(comm)
    n = 80_000  # 640 kB: one fits, two do not
    memory = Memory(oracle.Vector(n, 1, 2, oracle.Named("DOUBLE")), 1).fill(comm.rank)
    before = memory.copy()
    with committed(memory.tree) as datatype, idle(), acted(fallback_stage=1):
        comm.Sendrecv_replace(memory.message(datatype), to, 1, source, 1)
    memory.check(Memory(memory.tree, 1).fill(source).packed, before)
