"""Messages that the rule leaves to the library again and again: the last one is remembered (csrc/choose/repeated.h)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import oracle
import tempi
from world import MPI, Memory, committed, snapshot

pytestmark = pytest.mark.skipif(
    os.environ.get("TEMPI_MODEL") != "0" or "TEMPI_FORCE" in os.environ, reason="not by the built-in rule"
)
BYTE = oracle.Named("BYTE")
LEFT = oracle.Vector(16, 512, 1024, oracle.Named("DOUBLE"))  # 64 KiB in long runs: both libraries are faster
CARRIED = oracle.Vector(4096, 16, 32, BYTE)  # 64 KiB, which both take run by run
#: One run an element, and the numbers of elements that the rule leaves and carries.
ROW, FEW, MORE = (
    (oracle.Resized(0, 32, oracle.Contiguous(16, BYTE)), 64, 4096)
    if "Open MPI" in MPI.Get_library_version()
    else (oracle.Resized(0, 8192, oracle.Contiguous(4096, BYTE)), 16, 2)
)
MANY = 100  # more than are examined one by one


def to_oneself(datatype: Any, tree: oracle.Tree, count: int = 1) -> None:
    out, into = Memory(tree, count).fill(1), Memory(tree, count)
    request = MPI.COMM_SELF.Irecv(into.message(datatype), 0, 3)
    MPI.COMM_SELF.Send(out.message(datatype), 0, 3)
    request.Wait()
    into.check(out.packed)


@contextmanager
def moved(**expected: int) -> Iterator[None]:
    before = snapshot()
    yield
    after = snapshot()
    assert {name: after[name] - before[name] for name in expected} == expected


def test_each_is_counted_and_delivered() -> None:
    with committed(LEFT) as datatype, moved(calls_seen=2 * MANY, fallback_rule=2 * MANY, sends=0, recvs=0):
        for _ in range(MANY):
            to_oneself(datatype, LEFT)


def test_those_of_a_thread_that_disabled_tempi_are_counted_as_such() -> None:
    with committed(LEFT) as datatype:
        for _ in range(MANY):
            to_oneself(datatype, LEFT)
        with tempi.disabled(), moved(fallback_disabled=2, fallback_rule=0):
            to_oneself(datatype, LEFT)


def test_another_count_of_the_type_is_another_message() -> None:
    with committed(ROW) as datatype:
        with moved(fallback_rule=2 * MANY):
            for _ in range(MANY):
                to_oneself(datatype, ROW, FEW)
        with moved(sends=1, recvs=1, fallback_rule=0):
            to_oneself(datatype, ROW, MORE)


def test_a_new_type_in_the_place_of_the_old_one_is_examined() -> None:
    for _ in range(3):
        with committed(LEFT) as datatype:
            for _ in range(MANY):
                to_oneself(datatype, LEFT)
        with committed(CARRIED) as datatype, moved(sends=2, recvs=2, fallback_rule=0):
            for _ in range(2):
                to_oneself(datatype, CARRIED)
