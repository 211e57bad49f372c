"""Messages that the built-in rule leaves to Open MPI: short ones to oneself, where it is fast."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import oracle
import tempi
from world import MPI, committed

pytestmark = pytest.mark.skipif(
    os.environ.get("TEMPI_MODEL") != "0" or "TEMPI_FORCE" in os.environ, reason="not by the built-in rule"
)
OPEN_MPI = "Open MPI" in MPI.Get_library_version()


def carried(comm: Any, doubles: int, run: int = 1) -> int:
    """Messages that tempi carries when a rank sends itself one with gaps: two, sent and received, or none. `run`:
    contiguous doubles."""
    out, into = np.arange(3.0 * doubles), np.zeros(3 * doubles)
    names = ("sends", "recvs")
    with committed(oracle.Vector(doubles // run, run, 3 * run, oracle.Named("DOUBLE"))) as datatype:
        before = tempi.stats()
        request = comm.Irecv([into, 1, datatype], comm.rank, 3)
        comm.Send([out, 1, datatype], comm.rank, 3)
        request.Wait()
        after = tempi.stats()
    np.testing.assert_array_equal(into, np.where(np.arange(3 * doubles) // run % 3 == 0, out, 0.0))
    return sum(after[name] - before[name] for name in names)


def test_a_short_message_to_oneself_is_left_to_the_library(comm: Any) -> None:
    for over in (MPI.COMM_SELF, comm):
        assert carried(over, 16) == (0 if OPEN_MPI else 2)
        assert carried(over, 256) == (0 if OPEN_MPI else 2)


def test_with_runs_of_a_line_too(comm: Any) -> None:
    for over in (MPI.COMM_SELF, comm):
        assert carried(over, 32, 8) == (0 if OPEN_MPI else 2)
        assert carried(over, 256, 8) == (0 if OPEN_MPI else 2)
