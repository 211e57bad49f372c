"""TEMPI_CHECK=1 on device memory: every pack and unpack is checked by a plain loop over the type map."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import calls
import oracle
from devices import DEVICES, EMULATED
from examples import strided
from transfers import Side, exchange
from world import MPI, Memory, acted, committed, partners, snapshot

pytestmark = [
    pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices"),
    pytest.mark.skipif(os.environ.get("TEMPI_CHECK") != "1", reason="TEMPI_CHECK is not set"),
]

_double = oracle.Named("DOUBLE")
#: Bytes that a receive writes twice (invalid in MPI), the second time with other values.
TWICE = oracle.Hvector(6, 2, 8, _double)
LARGE = strided(60_000)  # more than a window of the check


@pytest.mark.parametrize("tree", [strided(100), LARGE, oracle.Contiguous(300, _double)], ids=["short", "long", "dense"])
@pytest.mark.parametrize("pair", [("Send", "Recv"), ("Isend", "Irecv"), ("Send_init", "Recv_init")], ids="-".join)
@pytest.mark.parametrize("where", ["device", "device:1", "managed"])
def test_both_sides_are_checked(comm: Any, tree: oracle.Tree, pair: tuple[str, str], where: str) -> None:
    out, into = Memory(tree, 1, where=where).fill(comm.rank), Memory(tree, 1, where=where)
    with committed(tree) as datatype, acted(checks=2, check_failures=0):
        exchange(comm, pair[0], Side(out, datatype), pair[1], Side(into, datatype))
    into.check(Memory(tree, 1).fill(partners(comm)[1]).packed)


@pytest.mark.parametrize("call", ["MPI_Recv", "a nonblocking receive", "MPI_Sendrecv"])
def test_a_mismatch_is_reported_with_type_and_call(
    comm: Any, mismatches: int, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    to, source = partners(comm)
    own = comm.Dup()
    into = Memory(TWICE, 1, where="device")
    sent = [np.random.default_rng(1).random(12), 12, MPI.DOUBLE]
    with committed(TWICE) as datatype:
        datatype.Set_name("twice the same")
        message = into.message(datatype)
        if call == "MPI_Sendrecv":
            own.Sendrecv(sent, to, 1, message, source, 1)
        else:
            request = own.Isend(sent, to, 1)
            own.Recv(message, source, 1) if call == "MPI_Recv" else own.Irecv(message, source, 1).Wait()
            request.Wait()
    own.Free()
    assert snapshot()["check_failures"] == mismatches + 1
    output = capfd.readouterr().err
    assert f"TEMPI_CHECK: {call}: byte " in output  # the byte depends on the order of the threads
    assert "twice the same (96 bytes in 6 leaves, extent 56)" in output


def test_a_move_to_oneself_is_checked(comm: Any, mismatches: int, capfd: pytest.CaptureFixture[str]) -> None:
    own = MPI.COMM_SELF.Dup()
    out, into = (Memory(tree, 1, where="device") for tree in (strided(12), TWICE))
    out.fill(3)
    with committed(out.tree) as sent, committed(TWICE) as received, acted(self_moves=1, checks=1):
        own.Sendrecv(out.message(sent), 0, 1, into.message(received), 0, 1)
    own.Free()
    assert snapshot()["check_failures"] == mismatches + 1
    assert "TEMPI_CHECK: MPI_Sendrecv: byte" in capfd.readouterr().err


@pytest.mark.parametrize("packed_in", ["host", "device", "pinned", "device:1"])
def test_pack_and_unpack_are_checked(comm: Any, packed_in: str) -> None:
    out, into = (Memory(LARGE, 1, where="device") for _ in range(2))
    between = Memory(oracle.Contiguous(8 * 60_000, oracle.Named("BYTE")), 1, where=packed_in)
    at = np.zeros(1, "i")
    with committed(LARGE) as datatype, acted(checks=2, packs=1, unpacks=1):
        calls.call("MPI_Pack", out.fill(2), 1, datatype, between, 480_000, at, comm)
        at[0] = 0
        calls.call("MPI_Unpack", between, 480_000, at, into, 1, datatype, comm)
    into.check(out.packed)
