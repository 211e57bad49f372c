"""The life of datatypes: freed while in use, handles used again, duplicates, attributes, many of them."""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calls
import oracle
from examples import strided
from tempi import _engine
from world import MPI, Memory, acted, committed, idle, outcome, partners, snapshot

#: Shows in a duplicate's contents a copy of the original, which nobody committed: tempi then cannot
#: know that the duplicate is.
OPENMPI = "Open MPI" in MPI.Get_library_version()

_double = oracle.Named("DOUBLE")


def made(tree: oracle.Tree) -> Any:
    return oracle.as_mpi(tree, MPI).Commit()


def layouts() -> int:
    return int(_engine.lib.tempi_layout_alive())


def pack(datatype: Any, memory: Memory) -> Any:
    out = np.zeros(len(memory.packed), np.uint8)
    calls.pack(memory, datatype, out, 0, MPI.COMM_SELF)
    return out


def test_types_freed_while_requests_are_in_flight(comm: Any) -> None:
    to, source = partners(comm)
    tree = strided(20)
    into, out = [Memory(tree, 1) for _ in range(2)], Memory(tree, 1).fill(comm.rank)
    with acted(sends=2, recvs=2):
        datatype = made(tree)
        requests = [comm.Irecv(into[0].message(datatype), source, 1)]
        requests.append(comm.Recv_init(into[1].message(datatype), source, 2))
        requests.append(comm.Send_init(out.message(datatype), to, 2))
        requests.append(comm.Issend(out.message(datatype), to, 1))
        datatype.Free()
        MPI.Prequest.Startall(requests[1:3])
        MPI.Request.Waitall(requests)
    for memory in into:
        memory.check(Memory(tree, 1).fill(source).packed)
    for request in requests[1:3]:
        request.Free()


def test_a_handle_that_is_used_again_means_the_new_type() -> None:
    handles = set()
    for n in range(2, 60):
        tree = oracle.Vector(n, 1 + n % 3, 5, _double)
        memory = Memory(tree, 1).fill(n)
        datatype = made(tree)
        handles.add(datatype.handle)
        np.testing.assert_array_equal(pack(datatype, memory), memory.packed)
        datatype.Free()
    assert len(handles) < 58, "the library used no handle twice: this test shows nothing"


def test_a_freed_parent_does_not_take_its_child_along() -> None:
    child = made(strided(4))
    parent = child.Create_contiguous(2).Commit()
    memory = Memory(strided(4), 1).fill(1)
    pack(parent, Memory(oracle.Contiguous(2, strided(4)), 1))
    parent.Free()
    np.testing.assert_array_equal(pack(child, memory), memory.packed)
    child.Free()


def test_a_parent_outlives_its_freed_child() -> None:
    child = made(strided(4))
    parent = child.Create_hvector(3, 1, 500).Commit()
    child.Free()
    memory = Memory(oracle.Hvector(3, 1, 500, strided(4)), 2).fill(1)
    with acted(packs=1):
        np.testing.assert_array_equal(pack(parent, memory), memory.packed)
    parent.Free()


@pytest.mark.parametrize("committed_first", [True, False])
def test_duplicates_behave_like_their_original(committed_first: bool) -> None:
    memory = Memory(strided(7), 2).fill(3)
    original = MPI.DOUBLE.Create_vector(7, 1, 3)
    if committed_first:
        original.Commit()
    twin = original.Dup()
    if not committed_first or OPENMPI:
        twin.Commit()
    with acted(packs=1):
        np.testing.assert_array_equal(pack(twin, memory), memory.packed)
    original.Free()
    with acted(packs=1):
        np.testing.assert_array_equal(pack(twin, memory), memory.packed)
    twin.Free()


def test_a_duplicate_that_is_first_used_alone_is_right() -> None:
    """No library tells whether it was committed, so who packs it is left open."""
    memory = Memory(strided(7), 2).fill(3)
    original = made(strided(7))
    twin = original.Dup()
    original.Free()
    np.testing.assert_array_equal(pack(twin, memory), memory.packed)
    twin.Free()


def test_uncommitted_types_are_left_to_the_library(comm: Any) -> None:
    datatype = MPI.DOUBLE.Create_vector(7, 1, 3)
    with idle():
        outcome(lambda: comm.Isend([np.zeros(21), 1, datatype], MPI.PROC_NULL, 1))
        outcome(lambda: pack(datatype, Memory(strided(7), 1)))
    datatype.Commit()
    with acted(packs=1):
        pack(datatype, Memory(strided(7), 1))
    datatype.Free()


def test_committing_twice_is_once() -> None:
    before = snapshot()["types"]
    datatype = made(strided(9))
    datatype.Commit()
    pack(datatype, Memory(strided(9), 1))
    datatype.Commit()
    pack(datatype, Memory(strided(9), 1))
    assert snapshot()["types"] == before + 1
    datatype.Free()


def test_a_programs_own_attributes_and_names_are_left_alone() -> None:
    deleted = []
    keyval = MPI.Datatype.Create_keyval(delete_fn=lambda *args: deleted.append(args[2]))
    datatype = made(strided(5))
    datatype.Set_attr(keyval, "mine")
    datatype.Set_name("column")
    pack(datatype, Memory(strided(5), 1))
    twin = datatype.Dup()
    assert (datatype.Get_attr(keyval), datatype.Get_name()) == ("mine", "column")
    assert twin.Get_attr(keyval) is None
    twin.Free()
    datatype.Free()
    assert deleted == ["mine"]
    MPI.Datatype.Free_keyval(keyval)


def test_the_envelope_is_what_the_program_made() -> None:
    datatype = MPI.DOUBLE.Create_vector(5, 1, 3).Commit()
    pack(datatype, Memory(strided(5), 1))
    assert datatype.combiner == MPI.COMBINER_VECTOR
    inner, combiner, arguments = datatype.decode()
    assert (inner, combiner) == (MPI.DOUBLE, "VECTOR")
    assert arguments == {"count": 5, "blocklength": 1, "stride": 3}
    datatype.Free()


def test_ten_thousand_types_leave_nothing_behind() -> None:
    def turn(first: int) -> None:
        for n in range(first, first + 2500):
            datatype = MPI.DOUBLE.Create_hindexed([1, 2], [0, 16 + 8 * (n % 997)]).Commit()
            calls.pack(memory, datatype, out, 0, MPI.COMM_SELF)
            datatype.Free()

    memory, out = Memory(oracle.Contiguous(2000, _double), 1), np.zeros(24, np.uint8)
    memory.count = 1
    turn(0)
    gc.collect()
    before, pages = layouts(), resident()
    turn(2500)
    turn(5000)
    turn(7500)
    assert layouts() == before
    assert resident() - pages < 8 << 20


def resident() -> int:
    """Bytes of memory in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_equal_types_share_their_layout() -> None:
    one = made(oracle.Vector(11, 1, 3, _double))
    other = made(oracle.HindexedBlock(1, tuple(24 * i for i in range(11)), _double))
    other_resized = other.Create_resized(0, one.Get_extent()[1]).Commit()
    for datatype in (one, other_resized):
        pack(datatype, Memory(strided(11), 1))
    handle = (1 << 8 * MPI._sizeof(MPI.Datatype)) - 1
    found = []
    for datatype in (one, other_resized):
        out = _engine.ffi.new("tempi_layout const **")
        assert _engine.lib.tempi_datatype_layout(datatype.handle & handle, out) == _engine.lib.TEMPI_OK
        found.append(out[0])
    assert found[0] == found[1]
    for datatype in (one, other, other_resized):
        datatype.Free()


def test_predefined_pair_types_act_without_a_commit(comm: Any) -> None:
    """They have a hole, so they are not dense; nobody commits them."""
    to, source = partners(comm)
    tree = oracle.Named("SHORT_INT")
    into, out = Memory(tree, 5), Memory(tree, 5).fill(comm.rank)
    request = comm.Irecv(into.message(MPI.SHORT_INT), source, 1)
    comm.Send(out.message(MPI.SHORT_INT), to, 1)
    request.Wait()
    into.check(Memory(tree, 5).fill(source).packed)


def test_generated_contents_with_shared_children() -> None:
    with committed(oracle.Struct((1, 1), (0, 400), (strided(4), strided(4)))) as datatype:
        memory = Memory(oracle.Struct((1, 1), (0, 400), (strided(4), strided(4))), 3).fill(2)
        np.testing.assert_array_equal(pack(datatype, memory), memory.packed)
