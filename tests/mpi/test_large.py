"""Messages of more than INT_MAX bytes, through plain functions and through ``_c`` ones.

The messages themselves need some 10 GiB a rank: they run where MPITEST_BIG=1 says so. What is decided
about them runs everywhere.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calls
import oracle
from world import MPI, Memory, acted, committed, idle

INT_MAX = 2**31 - 1
GIB = 1 << 30


def available() -> int:
    """Bytes of memory that could be used now."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def big(needed: int) -> None:
    if os.environ.get("MPITEST_BIG") != "1":
        pytest.skip("takes minutes and much memory: set MPITEST_BIG=1")
    if MPI.COMM_WORLD.size > 1:
        pytest.skip("runs on one rank: memory")
    if available() < needed:
        pytest.skip(f"needs {needed / GIB:.0f} GiB of memory")


def rows(n: int) -> Any:
    """n rows of 64 KiB, every second one: long runs, so that a large message is quickly made."""
    return MPI.BYTE.Create_vector(n, 1 << 16, 1 << 17).Commit()


def test_more_than_int_max_bytes_are_not_staged(comm: Any) -> None:
    """Above the staging limit: left to the library, and no message is sent."""
    datatype = rows(1 << 15)
    assert datatype.Get_size() == INT_MAX + 1
    memory = np.zeros(1, np.uint8)
    with idle(), acted(fallback_stage=1):
        request = comm.Irecv([memory, 1, datatype], comm.rank, 1)
    request.Cancel()
    request.Wait()
    datatype.Free()


@pytest.mark.skipif(not calls.has("MPI_Pack_c"), reason="the library has no large counts to pass on to")
@pytest.mark.parametrize("count", [INT_MAX + 1, 1 << 40, (1 << 62) + 1])
def test_large_counts_of_nothing(comm: Any, count: int) -> None:
    """`_c` functions take counts beyond int and hand them on."""
    empty = MPI.DOUBLE.Create_contiguous(0).Commit()
    data = np.zeros(8)
    big_count, at = ctypes.c_int64(count), ctypes.c_int64(3)
    with idle():
        calls.call("MPI_Pack_c", data, big_count, empty, data, ctypes.c_int64(64), ctypes.byref(at), comm)
    assert at.value == 3
    empty.Free()


def test_a_product_that_overflows_is_left_to_the_library(comm: Any) -> None:
    datatype = rows(1 << 20)  # 64 GiB
    memory = np.zeros(1, np.uint8)
    with idle():
        status = MPI.Status()
        comm.Recv([memory, 1 << 30, datatype], MPI.PROC_NULL, 1, status)
    assert status.Get_count(datatype) == 0
    datatype.Free()


def test_large_message_by_one_count(comm: Any) -> None:
    """2 GiB + 64 KiB in one element, staged if the bound is raised, else by the library."""
    big(10 * GIB)
    n = (1 << 15) + 1
    datatype = rows(n)
    memory = np.zeros((n, 1 << 17), np.uint8)
    memory[:, 0] = np.arange(n) % 251
    memory[:, (1 << 16) - 1] = np.arange(n) % 241
    target = np.zeros_like(memory)
    request = comm.Irecv([target, 1, datatype], comm.rank, 1)
    comm.Isend([memory, 1, datatype], comm.rank, 1).Wait()
    status = MPI.Status()
    request.Wait(status)
    np.testing.assert_array_equal(target[:, : 1 << 16], memory[:, : 1 << 16])
    assert not target[:, 1 << 16 :].any()
    assert status.Get_count(datatype) == 1
    datatype.Free()


def test_large_pack_by_c_function(comm: Any) -> None:
    big(10 * GIB)
    n = (1 << 15) + 1
    datatype = rows(n)
    memory = np.zeros((n, 1 << 17), np.uint8)
    memory[:, 5] = np.arange(n) % 251
    out = np.zeros(n << 16, np.uint8)
    at = ctypes.c_int64(0)
    one, room = ctypes.c_int64(1), ctypes.c_int64(len(out))
    with acted(packs=1, packed_bytes=len(out)):
        calls.call("MPI_Pack_c", memory, one, datatype, out, room, ctypes.byref(at), comm)
    assert at.value == len(out)
    np.testing.assert_array_equal(out.reshape(n, 1 << 16)[:, 5], memory[:, 5])
    datatype.Free()


def test_many_elements_with_a_count_beyond_int_of_bytes(comm: Any) -> None:
    """Count times extent passes 2^31 while the message is small: offsets are 64 bits wide."""
    tree = oracle.Resized(0, 1 << 26, oracle.Vector(2, 1, 2, oracle.Named("INT")))
    big(4 * GIB)
    memory = Memory(tree, 40)
    memory.fill(1)
    with committed(tree) as datatype, acted(packs=1):
        out = np.zeros(len(memory.packed), np.uint8)
        calls.pack(memory, datatype, out, 0, comm)
    np.testing.assert_array_equal(out, memory.packed)
