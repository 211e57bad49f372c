"""TEMPI_CHECK=1: a message that ends inside an element of the receive's datatype is reported."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import oracle
from world import MPI, Memory, committed, partners, snapshot

pytestmark = pytest.mark.skipif(os.environ.get("TEMPI_CHECK") != "1", reason="TEMPI_CHECK is not set")

INTS = oracle.Vector(8, 1, 3, oracle.Named("INT"))


@pytest.mark.parametrize(("came", "failures"), [(5, 1), (8, 0)])
@pytest.mark.parametrize("nonblocking", [False, True])
def test_another_signature_is_reported(
    comm: Any, mismatches: int, capfd: pytest.CaptureFixture[str], nonblocking: bool, came: int, failures: int
) -> None:
    to, source = partners(comm)
    into = Memory(INTS, 1)
    with committed(INTS) as datatype:
        request = comm.Irecv(into.message(datatype), source) if nonblocking else None
        sent = comm.Isend([np.zeros(came, np.uint8), came, MPI.BYTE], to)
        if request:
            request.Wait()
        else:
            comm.Recv(into.message(datatype), source)
        sent.Wait()
    assert snapshot()["check_failures"] == mismatches + failures
    said = f": {came} bytes arrived for a datatype (32 bytes in 8 leaves, extent 88), whose data is a multiple of 4"
    assert capfd.readouterr().err.count(said) == failures
