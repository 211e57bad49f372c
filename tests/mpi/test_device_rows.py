"""Messages of device memory of few rows, which the driver copies (csrc/cuda/row_copies.h)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import oracle
from world import Memory, committed, partners, snapshot

BYTE = oracle.Named("BYTE")
ROWS = int(os.environ.get("TEMPI_COPY_ROWS", "0"))
pytestmark = pytest.mark.skipif(ROWS == 0, reason="TEMPI_COPY_ROWS is not set")


def exchange(comm: Any, tree: oracle.Tree, messages: int) -> dict[str, int]:
    """Each rank sends so many messages to the next one; what the counters say of it."""
    to, source = partners(comm)
    out = [Memory(tree, 1, where="device").fill(10 * i + comm.rank) for i in range(messages)]
    into = [Memory(tree, 1, where="device") for _ in range(messages)]
    before = snapshot()
    with committed(tree) as datatype:
        requests = [comm.Irecv(one.message(datatype), source, i) for i, one in enumerate(into)]
        if messages == 1:
            comm.Send(out[0].message(datatype), to)
        else:
            requests += [comm.Isend(one.message(datatype), to, i) for i, one in enumerate(out)]
        for request in requests:
            request.Wait()
    after = snapshot()
    for i, one in enumerate(into):
        wanted = Memory(tree, 1, where="host").fill(10 * i + source).packed
        np.testing.assert_array_equal(one.packed, wanted)
    return {name: int(after[name] - before[name]) for name in ("launches", "device_copies", "device_copied_bytes")}


@pytest.mark.parametrize("run", [40, 8192])
@pytest.mark.parametrize("rows", [2, ROWS, ROWS + 1])
def test_few_rows_are_copied(comm: Any, rows: int, run: int) -> None:
    """Of any length: those of more than 256 KiB would otherwise be staged."""
    if comm.size == 1:
        pytest.skip("a message to oneself is moved")
    counted = exchange(comm, oracle.Vector(rows, run, run + 32, BYTE), 1)
    if rows <= ROWS:
        assert counted == {"launches": 0, "device_copies": 2, "device_copied_bytes": 2 * run * rows}
    else:
        assert (counted["launches"], counted["device_copies"]) == (2, 2 if rows * run > 256 << 10 else 0)


def test_messages_that_are_sent_together_are_packed_by_a_launch(comm: Any) -> None:
    """They are received one by one."""
    if comm.size == 1:
        pytest.skip("messages to oneself are moved")
    messages = 6
    counted = exchange(comm, oracle.Vector(4, 40, 72, BYTE), messages)
    assert counted["device_copies"] <= messages + 1  # and the descriptors
    assert counted["launches"] >= 1
