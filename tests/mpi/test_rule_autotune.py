"""Without a calibration the first MPI_Pack and MPI_Unpack calls of a type go both ways, and all bytes are right."""

from __future__ import annotations

import os

import numpy as np
import pytest

import calls
import oracle
from world import MPI, Memory, committed, snapshot

pytestmark = pytest.mark.skipif(
    os.environ.get("TEMPI_MODEL") != "0" or "TEMPI_FORCE" in os.environ, reason="not by the built-in rule"
)
ENOUGH = 400  # calls, after which each trial is over (csrc/choose/autotune.c)
FLOAT, DOUBLE = oracle.Named("FLOAT"), oracle.Named("DOUBLE")
TYPES = {
    "far lines": oracle.Vector(256, 2, 128, DOUBLE),
    "competing lines": oracle.Vector(512, 16, 1024, FLOAT),
    "close runs": oracle.Vector(4096, 1, 2, DOUBLE),
    "irregular": oracle.IndexedBlock(3, tuple(range(0, 4000, 5)), FLOAT),
}


@pytest.mark.parametrize("name", TYPES)
def test_both_ways_move_the_same_bytes(name: str) -> None:
    memory = Memory(TYPES[name], 1).fill(3)
    before = snapshot()
    with committed(TYPES[name]) as datatype:
        for _ in range(ENOUGH):
            out = np.zeros(len(memory.packed), np.uint8)
            calls.pack(memory, datatype, out, 0, MPI.COMM_SELF)
            np.testing.assert_array_equal(out, memory.packed)
        blank = Memory(TYPES[name], 1)
        for _ in range(ENOUGH):
            calls.unpack(memory.packed, 0, blank, datatype, MPI.COMM_SELF)
            blank.check(memory.packed)
    after = snapshot()
    moved = {
        key: after[key] - before[key] for key in ("packs", "unpacks", "packs_tuned", "fallback_rule", "calls_seen")
    }
    assert moved["packs_tuned"] == 2
    assert moved["packs"] > 0
    assert moved["unpacks"] > 0
    assert moved["fallback_rule"] > 0
    assert moved["calls_seen"] >= 2 * ENOUGH - 2
