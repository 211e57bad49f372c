"""MPI_Pack and MPI_Unpack against the type map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calls
import oracle
import tempi
from examples import COUNTEREXAMPLES, examples, strided
from strategies import counts, receive_trees, trees
from world import MPI, POISON, Memory, acted, committed, idle, needs_host_memory, outcome, placement, same_without

shifts = st.sampled_from([0, 1, 2, 4])
positions = st.sampled_from([0, 1, 7, 64])
prefixes = st.sampled_from(["MPI_", "PMPI_"])
sizes = st.sampled_from(["", "_c"])


def pack(memory: Memory, datatype: Any, position: int = 0, name: str = "MPI_Pack") -> Any:
    """Packs behind `position` poisoned bytes and in front of 9 more, which must stay."""
    size = memory.count * datatype.Get_size()
    out = np.full(position + size + 9, POISON, np.uint8)
    end = calls.pack(memory, datatype, out, position, MPI.COMM_WORLD, name)
    assert end == position + size
    assert (out[:position] == POISON).all()
    assert (out[end:] == POISON).all()
    return out[position:end]


@examples(150)
@given(trees(), counts, shifts, positions, prefixes, sizes)
def test_pack_gives_the_type_maps_bytes(
    tree: oracle.Tree, count: int, shift: int, position: int, prefix: str, size: str
) -> None:
    memory = Memory(tree, count, shift=shift).fill(count)
    with committed(tree) as datatype:
        packed = pack(memory, datatype, position, f"{prefix}Pack{size}")
    np.testing.assert_array_equal(packed, memory.packed)


@examples(150)
@given(receive_trees(count=5), counts, shifts, positions, prefixes, sizes)
def test_unpack_touches_the_type_maps_bytes_only(
    tree: oracle.Tree, count: int, shift: int, position: int, prefix: str, size: str
) -> None:
    memory = Memory(tree, count, shift=shift)
    source = np.arange(position + len(memory.packed) + 3, dtype=np.uint8)
    with committed(tree) as datatype:
        name = f"{prefix}Unpack{size}"
        end = calls.unpack(source, position, memory, datatype, MPI.COMM_WORLD, name)
    assert end == len(source) - 3
    memory.check(source[position:end])


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_named_counterexamples(name: str) -> None:
    tree = COUNTEREXAMPLES[name]
    memory = Memory(tree, 2).fill(3)
    with committed(tree) as datatype, acted(packs=1, unpacks=1):
        packed = pack(memory, datatype)
        np.testing.assert_array_equal(packed, memory.packed)
        back = Memory(tree, 2)
        calls.unpack(packed, 0, back, datatype, MPI.COMM_WORLD)
    back.check(packed)


def test_packing_is_counted() -> None:
    memory = Memory(strided(10), 3).fill(1)
    with committed(memory.tree) as datatype:
        with acted(calls_seen=1, packs=1, packed_bytes=240, unpacks=0, runs=30):
            packed = pack(memory, datatype)
        with acted(calls_seen=1, unpacks=1, unpacked_bytes=240, packs=0):
            calls.unpack(packed, 0, memory, datatype, MPI.COMM_WORLD)
        with placement.host():
            there = Memory(strided(10), 3).fill(1)
        with tempi.disabled(), idle():
            np.testing.assert_array_equal(pack(there, datatype), packed)


def test_packed_pieces_unpack_as_another_type_of_the_same_signature() -> None:
    count = 6
    one, other = strided(count), oracle.Hindexed((2, 1, 3), (200, 0, 96), oracle.Named("DOUBLE"))
    source, target = Memory(one, 2).fill(5), Memory(other, 1)
    buffer = np.zeros(2 * count * 8, np.uint8)
    with committed(one) as a, committed(other) as b, acted(packs=1, unpacks=2):
        calls.pack(source, a, buffer, 0, MPI.COMM_WORLD)
        position = calls.unpack(buffer, 0, target, b, MPI.COMM_WORLD)
        target.check(source.packed[: count * 8])
        assert calls.unpack(buffer, position, target, b, MPI.COMM_WORLD) == len(buffer)
    target.check(source.packed[count * 8 :])


@pytest.mark.parametrize("short", [1, 40, 79])
def test_a_buffer_that_is_too_small_is_left_to_the_library(comm: Any, short: int) -> None:
    def scenario() -> tuple[Any, list[int]]:
        memory = Memory(strided(10), 1).fill(4)
        out = np.full(80, POISON, np.uint8)
        end = outcome(lambda: calls.pack(memory, datatype, out[: 80 - short], 0, comm))
        assert (out[80 - short :] == POISON).all()
        return end, out.tolist()

    needs_host_memory()  # of a device's memory MPICH sees bytes, and packs as many as have room
    with committed(strided(10)) as datatype, idle():
        same_without(scenario)


def test_absolute_addresses_with_bottom() -> None:
    parts = [np.arange(5, dtype="d"), np.arange(7, dtype="i"), np.arange(3, dtype="d")]
    places = [MPI.Get_address(part) for part in parts]
    inner = [MPI.DOUBLE, MPI.INT, MPI.DOUBLE]
    datatype = MPI.Datatype.Create_struct([4, 5, 2], places, inner).Commit()
    out = np.zeros(datatype.Get_size(), np.uint8)
    expected = np.concatenate([parts[0][:4].view("B"), parts[1][:5].view("B"), parts[2][:2].view("B")])
    with acted(packs=1, unpacks=1):
        size, at = len(out), np.zeros(1, "i")
        calls.call("MPI_Pack", None, 1, datatype, out, size, at, MPI.COMM_WORLD)
        np.testing.assert_array_equal(out, expected)
        for part in parts:
            part[:] = -1
        at[:] = 0
        calls.call("MPI_Unpack", out, size, at, None, 1, datatype, MPI.COMM_WORLD)
    datatype.Free()
    assert parts[0].tolist() == [0, 1, 2, 3, -1]
    assert parts[1].tolist() == [0, 1, 2, 3, 4, -1, -1]
    assert parts[2].tolist() == [0, 1, -1]


def test_nothing_to_pack_moves_no_position() -> None:
    memory = Memory(strided(10), 0)
    empty = oracle.Contiguous(0, oracle.Named("INT"))
    with committed(memory.tree) as datatype, committed(empty) as nothing, idle():
        out = np.full(8, POISON, np.uint8)
        assert calls.pack(memory, datatype, out, 3, MPI.COMM_WORLD) == 3
        assert calls.pack(Memory(empty, 4), nothing, out, 5, MPI.COMM_WORLD) == 5
        assert (out == POISON).all()


@pytest.mark.parametrize("make", [lambda e: oracle.Contiguous(0, e), lambda e: oracle.Vector(3, 0, 2, e)])
def test_an_empty_type_is_unpacked_without_the_library_that_divides_by_its_size(make: Any) -> None:
    """MPICH 4.0.2 does."""
    empty = make(oracle.Named("INT"))
    with committed(empty) as nothing, idle():
        source = np.full(8, POISON, np.uint8)
        assert calls.unpack(source, 5, Memory(empty, 4), nothing, MPI.COMM_WORLD) == 5


def test_pair_types_pack_without_their_hole() -> None:
    tree = oracle.Contiguous(4, oracle.Named("DOUBLE_INT"))
    memory = Memory(tree, 2).fill(8)
    with committed(tree) as datatype, acted(packs=1):
        np.testing.assert_array_equal(pack(memory, datatype), memory.packed)


def test_a_type_that_tempi_check_skips_is_still_packed() -> None:
    """Under TEMPI_CHECK too (group "checked"): distributed arrays have no plain walk there."""
    tree = oracle.Darray(2, 1, (9, 7), ("CYCLIC", "BLOCK"), (2, None), (2, 1), oracle.Named("INT"))
    memory = Memory(tree, 2).fill(4)
    with committed(tree) as datatype:
        np.testing.assert_array_equal(pack(memory, datatype), memory.packed)
