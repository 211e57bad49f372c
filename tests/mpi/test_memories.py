"""Messages between memories of every kind, and methods that differ from rank to rank."""

from __future__ import annotations

import os
from typing import Any

import pytest

import oracle
import tempi
from devices import DEVICES, EMULATED, KINDS
from examples import strided
from transfers import Side, exchange
from world import METHODS, MPI, Memory, acted, committed, partners, snapshot

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

WHERE = ("host", *KINDS, "device:1", "managed:1")
TREE = strided(120)
LIST = oracle.Hindexed((3, 1, 2, 114), (4000, 0, 64, 1000), oracle.Resized(0, 16, oracle.Named("DOUBLE")))


@pytest.mark.parametrize("source", WHERE)
@pytest.mark.parametrize("target", WHERE)
def test_from_every_kind_to_every_kind(comm: Any, source: str, target: str) -> None:
    for pair in (("Send", "Irecv"), ("Isend", "Recv")):
        out, into = Memory(TREE, 1, where=source).fill(comm.rank), Memory(LIST, 1, where=target)
        with committed(TREE) as sent, committed(LIST) as received, acted(sends=1, recvs=1):
            exchange(comm, pair[0], Side(out, sent), pair[1], Side(into, received))
        into.check(Memory(TREE, 1).fill(partners(comm)[1]).packed)


@pytest.mark.parametrize("where", WHERE)
def test_kernels_run_where_the_memory_is_a_devices(comm: Any, where: str) -> None:
    """Pinned memory is the host's: it is packed there."""
    on_device = int(where not in ("host", "pinned"))
    out, into = Memory(TREE, 1, where=where).fill(comm.rank), Memory(TREE, 1, where=where)
    with committed(TREE) as datatype, acted(device_packs=on_device, device_unpacks=on_device):
        exchange(comm, "Isend", Side(out, datatype), "Irecv", Side(into, datatype))
    into.check(Memory(TREE, 1).fill(partners(comm)[1]).packed)


def test_memory_that_is_freed_and_comes_again_as_another_kind(comm: Any) -> None:
    """Addresses are reused: tempi queries a reused address again."""
    for turn in range(24):
        where = WHERE[turn % len(WHERE)]
        out, into = Memory(TREE, 1, where=where).fill(turn), Memory(TREE, 1, where=where)
        with committed(TREE) as datatype:
            exchange(comm, "Isend", Side(out, datatype), "Recv", Side(into, datatype))
        into.check(out.packed)
        del out, into


def test_memory_that_was_registered_comes_again_as_another_kind(comm: Any) -> None:
    """Until it is deregistered it is not queried; after that as ever."""
    for turn in range(24):
        out, into = (Memory(TREE, 1, where=WHERE[turn % len(WHERE)]) for _ in range(2))
        known = [memory.address for memory in (out, into) if memory.on_device]
        for address in known + known:
            tempi.register(address)
        with committed(TREE) as datatype:
            for seed in range(2):
                exchange(comm, "Isend", Side(out.fill(turn + seed), datatype), "Recv", Side(into, datatype))
        into.check(Memory(TREE, 1).fill(turn + 1).packed)
        for address in known + known:
            tempi.deregister(address)
        for address in known:
            with pytest.raises(tempi.ArgumentError):
                tempi.deregister(address)
        del out, into
    with pytest.raises(tempi.ArgumentError):
        tempi.register(Memory(TREE, 1, where="host").address)


@pytest.mark.skipif(not METHODS, reason="MPITEST_METHODS is not set")
@pytest.mark.parametrize("n", [120, 200_000])
def test_each_rank_has_its_own_method(comm: Any, n: int) -> None:
    method = METHODS[comm.rank % len(METHODS)]
    assert os.environ["TEMPI_METHOD"] == method
    staged = 2 * 8 * n if method in ("staged", "pipelined") else 0
    out, into = (Memory(strided(n), 1, where="device") for _ in range(2))
    before = snapshot()["staged_bytes"]
    with committed(strided(n)) as datatype:
        exchange(comm, "Isend", Side(out.fill(comm.rank), datatype), "Irecv", Side(into, datatype))
    assert snapshot()["staged_bytes"] - before == staged
    into.check(Memory(strided(n), 1).fill(partners(comm)[1]).packed)
    assert len(METHODS) == len(set(MPI.COMM_WORLD.allgather(method))) or comm.size < len(METHODS)
