"""Life cycle of datatypes: freed while in use, reused handles, duplicates, attributes, many types."""

from __future__ import annotations

import gc
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calls
import oracle
from examples import strided
from tempi import _engine
from world import MPI, Memory, acted, committed, idle, needs_host_memory, outcome, partners, snapshot

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
    if not committed_first:
        twin.Commit()
    with acted(packs=1):
        np.testing.assert_array_equal(pack(twin, memory), memory.packed)
    original.Free()
    with acted(packs=1):
        np.testing.assert_array_equal(pack(twin, memory), memory.packed)
    twin.Free()


@pytest.mark.parametrize("used_before", [False, True])
def test_a_duplicate_of_a_committed_type_is_committed(used_before: bool) -> None:
    """Also one of a duplicate, and one that outlives its original."""
    memory = Memory(strided(7), 2).fill(3)
    original = made(strided(7))
    if used_before:
        pack(original, memory)
    twin = original.Dup()
    original.Free()
    third = twin.Dup()
    with acted(packs=3, fallback_type=0):
        for datatype in (third, twin, third):
            np.testing.assert_array_equal(pack(datatype, memory), memory.packed)
    twin.Free()
    third.Free()


def test_a_duplicate_of_an_uncommitted_type_is_not_committed() -> None:
    needs_host_memory()
    memory = Memory(strided(7), 2).fill(3)
    original = oracle.as_mpi(strided(7), MPI)
    twin = original.Dup()
    with idle():
        outcome(lambda: pack(twin, memory))
    twin.Commit()
    with acted(packs=1, fallback_type=0):
        np.testing.assert_array_equal(pack(twin, memory), memory.packed)
    original.Free()
    twin.Free()


def test_duplicates_leave_nothing_behind() -> None:
    before = layouts()
    memory = Memory(strided(8), 1).fill(1)
    original = made(strided(8))
    pack(original, memory)
    for _ in range(100):
        twins = [original.Dup() for _ in range(10)]
        pack(twins[3], memory)
        for twin in twins:
            twin.Free()
    original.Free()
    assert layouts() == before


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


def test_types_are_counted_that_a_program_made() -> None:
    before = snapshot()["types"]
    for name in ("SHORT_INT", "UINT16_T", "INT"):
        tree = oracle.Named(name)
        pack(getattr(MPI, name), Memory(tree, 3).fill(1))
    assert snapshot()["types"] == before
    datatype = made(strided(13))
    pack(datatype, Memory(strided(13), 1).fill(1))
    assert snapshot()["types"] == before + 1
    datatype.Free()


def empty(depth: int, through_parents: bool) -> Any:
    """Structs of two empty members in one another, which has 2^depth ways to the innermost. `through_parents`:
    each is reached through two types that differ."""
    inner = MPI.INT.Create_contiguous(0)
    for _ in range(depth):
        left = inner.Create_contiguous(1) if through_parents else inner
        right = inner.Create_vector(1, 1, 1) if through_parents else inner
        outer = MPI.Datatype.Create_struct([1, 1], [0, 0], [left, right])
        for datatype in {left.handle: left, right.handle: right, inner.handle: inner}.values():
            datatype.Free()
        inner = outer
    return inner


@pytest.mark.parametrize("through_parents", [False, True])
def test_what_has_many_parents_is_decoded_once(through_parents: bool) -> None:
    nothing = empty(20, through_parents)
    datatype = MPI.Datatype.Create_struct([1, 1, 1], [0, 4, 12], [nothing, MPI.INT, MPI.INT]).Commit()
    memory = Memory(oracle.Struct((1, 1), (4, 12), (oracle.Named("INT"),) * 2), 1).fill(5)
    begun = time.perf_counter()
    with acted(packs=1):
        np.testing.assert_array_equal(pack(datatype, memory), memory.packed)
    assert time.perf_counter() - begun < 0.5
    datatype.Free()
    nothing.Free()


def test_a_million_leaves_of_twenty_types_are_packed() -> None:
    """Structs of two members {t, t}, one in another, with other gaps at each level."""
    datatype, places = MPI.INT.Dup(), np.zeros(1, np.int64)
    for level in range(20):
        apart = int(places[-1]) + 4 + 4 * (level % 3)
        outer = MPI.Datatype.Create_struct([1, 1], [0, apart], [datatype, datatype])
        datatype.Free()
        datatype, places = outer, np.concatenate([places, places + apart])
    datatype.Commit()
    memory, packed = np.arange(places[-1] // 4 + 1, dtype="i4"), np.zeros(len(places), "i4")
    begun = time.process_time()
    with acted(packs=1):
        datatype.Pack(memory, packed, 0, MPI.COMM_SELF)
    assert time.process_time() - begun < 2  # decoding each leaf took three times as long
    np.testing.assert_array_equal(packed, memory[places // 4])
    datatype.Free()


def test_copies_of_unlike_members_are_not_taken_for_one() -> None:
    """Made in the same way, of the same size and bounds, and by equal types of their own."""
    one, other = oracle.Hindexed((1, 2), (0, 16), _double), oracle.Hindexed((1, 2), (8, 16), _double)
    twice = [oracle.Resized(0, 32, tree) for tree in (one, other, one)]
    inner = oracle.Struct((1,) * 3, (0, 32, 64), tuple(twice))
    tree = oracle.Struct((1, 1, 2), (0, 96, 192), (inner, inner, oracle.Contiguous(1, twice[1])))
    memory = Memory(tree, 2).fill(4)
    with committed(tree) as datatype, acted(packs=1):
        np.testing.assert_array_equal(pack(datatype, memory), memory.packed)


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
    """They have a hole, so they are not dense, and need no commit."""
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
