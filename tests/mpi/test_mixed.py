"""Messages with bytes in several memories: MPI_BOTTOM with host and device addresses."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
import oracle
import tempi
from devices import DEVICES, EMULATED
from examples import strided
from transfers import Side, exchange
from world import MPI, Memory, acted, committed, outcome, partners

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

#: The library says that it takes device addresses; without a GPU it would fault on one.
AWARE = os.environ.get("TEMPI_CUDA_AWARE") == "1"
_double = oracle.Named("DOUBLE")
DENSE = oracle.Contiguous(100, _double)
IRREGULAR = oracle.Hindexed((3, 1, 2, 5), (400, 0, 64, 208), _double)
TREES = (DENSE, strided(57), IRREGULAR)


class Mixed:
    """Pieces of memory in several places as one message."""

    def __init__(self, places: Sequence[str], trees: Sequence[oracle.Tree]) -> None:
        self.pieces = [Memory(tree, 1, where=place) for place, tree in zip(places, trees, strict=True)]

    def fill(self, seed: int) -> Mixed:
        for i, piece in enumerate(self.pieces):
            piece.fill(100 * seed + i)
        return self

    def message(self, datatype: Any) -> list[Any]:
        return [MPI.BOTTOM, 1, datatype]

    @property
    def packed(self) -> Any:
        return np.concatenate([piece.packed for piece in self.pieces])

    def check(self, packed: Any) -> None:
        at = 0
        for piece in self.pieces:
            size = len(piece.packed)
            piece.check(packed[at : at + size])
            at += size

    @contextlib.contextmanager
    def datatype(self, base: int = 0) -> Iterator[Any]:
        inner = [oracle.as_mpi(piece.tree, MPI) for piece in self.pieces]
        places = [piece.address - base for piece in self.pieces]
        made = MPI.Datatype.Create_struct([1] * len(inner), places, inner).Commit()
        try:
            yield made
        finally:
            for one in (made, *(t for t in inner if not t.is_predefined)):
                one.Free()


PLACES = {
    "host and device": ("host", "device"),
    "device and host": ("device", "host"),
    "two devices": ("device", "device:1"),
    "all": ("pinned", "device", "host", "managed", "device:1", "mapped", "pool"),
}


def trees_for(places: Sequence[str]) -> list[oracle.Tree]:
    return [TREES[i % len(TREES)] for i in range(len(places))]


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("pair", [("Send", "Recv"), ("Isend", "Irecv"), ("Send_init", "Recv_init"), ("Bsend", "Mrecv"),
                                  ("Issend", "Imrecv")], ids="-".join)  # fmt: skip
@pytest.mark.usefixtures("buffered")
def test_sends_and_receives(comm: Any, places: tuple[str, ...], pair: tuple[str, str]) -> None:
    out, into = Mixed(places, trees_for(places)).fill(comm.rank), Mixed(places, trees_for(places))
    with out.datatype() as sent, into.datatype() as received, acted(sends=1, recvs=1, mixed=2):
        status = exchange(comm, pair[0], Side(out, sent), pair[1], Side(into, received))
    assert status.Get_count(MPI.BYTE) == len(out.packed)
    into.check(Mixed(places, trees_for(places)).fill(partners(comm)[1]).packed)


@pytest.mark.parametrize("receive", ["Recv", "Irecv", "Recv_init"])
def test_a_short_message_fills_the_first_pieces(comm: Any, receive: str) -> None:
    places = ("host", "device", "host", "device:1")
    trees = trees_for(places)
    out, into = Memory(oracle.Contiguous(110, _double), 1).fill(comm.rank), Mixed(places, trees)
    with into.datatype() as received:
        exchange(comm, "Isend", Side(out, MPI.DOUBLE.Create_contiguous(110).Commit()), receive, Side(into, received))
    came = Memory(oracle.Contiguous(110, _double), 1).fill(partners(comm)[1]).packed
    into.pieces[0].check(came[:800])
    expected = Memory(trees[1], 1).copy()
    whole = np.full(57 * 8, 0xA5, np.uint8)
    whole[:80] = came[800:]
    oracle.unpack(trees[1], 1, whole, expected, into.pieces[1].origin)
    np.testing.assert_array_equal(into.pieces[1].copy(), expected)
    into.pieces[2].check(np.full(len(into.pieces[2].packed), 0xA5, np.uint8))


@pytest.mark.parametrize("places", [("host", "device"), ("device", "device:1")], ids="-".join)
@pytest.mark.parametrize("tree", TREES, ids=["dense", "strided", "irregular"])
def test_equal_pieces_that_the_passes_join_are_told_apart(
    comm: Any, tree: oracle.Tree, places: tuple[str, str]
) -> None:
    """Two of a kind form one regular box, whatever lies between them."""
    out, into = Mixed(places, [tree] * 2).fill(comm.rank), Mixed(places, [tree] * 2)
    with out.datatype() as sent, into.datatype() as received, acted(mixed=2):
        exchange(comm, "Send", Side(out, sent), "Irecv", Side(into, received))
    into.check(Mixed(places, [tree] * 2).fill(partners(comm)[1]).packed)


def alternating(comm: Any, memories: Sequence[Memory], rows: Any) -> Any:
    """Runs of 16 bytes in turn from each memory."""
    n = len(memories)
    places = [memories[i % n].address + 16 * int(row) for i, row in enumerate(rows)]
    return MPI.BYTE.Create_hindexed([16] * len(rows), places).Commit()


def test_a_table_that_goes_back_and_forth(comm: Any) -> None:
    rows = np.random.default_rng(5).permutation(90)
    tree = oracle.Contiguous(16 * 90, oracle.Named("BYTE"))
    seeds = (partners(comm)[1], 7)
    outs = [Memory(tree, 1, where=w).fill(comm.rank + 10 * i) for i, w in enumerate(("host", "device"))]
    into = [Memory(tree, 1, where=w) for w in ("device", "host")]
    sent, received = alternating(comm, outs, rows), alternating(comm, into, rows)
    to, source = partners(comm)
    with acted(mixed=2):
        comm.Sendrecv([MPI.BOTTOM, 1, sent], to, 1, [MPI.BOTTOM, 1, received], source, 1)
    for i, memory in enumerate(into):
        expected = np.full(16 * 90, 0xA5, np.uint8)
        came = Memory(tree, 1).fill(seeds[0] + 10 * i).packed
        for k, row in enumerate(rows):
            if k % 2 == i:
                expected[16 * row : 16 * row + 16] = came[16 * row : 16 * row + 16]
        memory.check(expected)
    sent.Free()
    received.Free()


@pytest.mark.parametrize("packed_in", ["host", "pinned", "device", "device:1"])
def test_pack_and_unpack(comm: Any, packed_in: str) -> None:
    places = PLACES["all"]
    out, into = Mixed(places, trees_for(places)).fill(3), Mixed(places, trees_for(places))
    size = len(out.packed)
    between = Memory(oracle.Contiguous(size + 5, oracle.Named("BYTE")), 1, where=packed_in)
    at = np.array([5], "i")
    with out.datatype() as datatype, acted(packs=1):
        calls.call("MPI_Pack", None, 1, datatype, between, size + 5, at, comm)
    assert at[0] == size + 5
    np.testing.assert_array_equal(between.packed[5:], out.packed)
    at[0] = 5
    with into.datatype() as datatype, acted(unpacks=1):
        calls.call("MPI_Unpack", between, size + 5, at, None, 1, datatype, comm)
    into.check(out.packed)


@pytest.mark.skipif(
    "MPICH Version:\t4.0" in MPI.Get_library_version(), reason="MPICH 4.0.2 refuses a struct, and cuts bytes short"
)
def test_a_pack_without_room_ends_as_the_library_says(comm: Any) -> None:
    def pack_into_little(places: tuple[str, str]) -> Any:
        at = np.zeros(1, "i")
        small = np.zeros(99, np.uint8)
        with Mixed(places, (DENSE, DENSE)).fill(3).datatype() as datatype:
            return outcome(lambda: calls.call("MPI_Pack", None, 1, datatype, small, 99, at, comm))

    with tempi.disabled():
        plain = pack_into_little(("host", "host"))
    assert pack_into_little(("host", "device")) == plain


@pytest.mark.parametrize("places", [("host", "device"), ("device", "device"), ("device", "host")], ids="-".join)
@pytest.mark.parametrize("call", ["MPI_Pack", "MPI_Unpack"])
@pytest.mark.skipif(AWARE, reason="the library is given device addresses")
def test_packed_bytes_that_do_not_fit_on_a_device_are_left_to_the_library(
    comm: Any, places: tuple[str, str], call: str
) -> None:
    """MPICH packs or unpacks as many bytes as fit."""
    memory = Memory(strided(57), 1, where=places[0]).fill(1)
    little = Memory(oracle.Contiguous(10, _double), 1, where=places[1]).fill(2)
    at = np.zeros(1, "i")
    with committed(memory.tree) as datatype:
        if call == "MPI_Pack":
            came = outcome(lambda: calls.call(call, memory, 1, datatype, little, 80, at, comm))
        else:
            came = outcome(lambda: calls.call(call, little, 80, at, memory, 1, datatype, comm))
    assert came is None or "error" in came
    assert 0 <= int(at[0]) <= 80


def test_an_array_reached_from_anothers_address(comm: Any) -> None:
    """Not by the standard, but programs do it."""
    places = ("host", "device")
    out, into = Mixed(places, TREES[:2]).fill(comm.rank), Mixed(places, TREES[:2])
    to, source = partners(comm)
    with out.datatype(out.pieces[0].address) as sent, into.datatype(into.pieces[0].address) as received:
        send = comm.Isend([out.pieces[0].message(None)[0], 1, sent], to, 1)
        with acted(recvs=1, mixed=1):
            comm.Recv([into.pieces[0].message(None)[0], 1, received], source, 1)
        send.Wait()
    into.check(Mixed(places, TREES[:2]).fill(source).packed)


def test_absolute_addresses_of_one_memory_are_not_mixed(comm: Any) -> None:
    for place in ("host",) if AWARE else ("host", "device", "device:1"):
        out, into = Mixed([place] * 3, TREES).fill(comm.rank), Mixed([place] * 3, TREES)
        with out.datatype() as sent, into.datatype() as received, acted(mixed=0, sends=1, recvs=1):
            exchange(comm, "Isend", Side(out, sent), "Recv", Side(into, received))
        into.check(Mixed([place] * 3, TREES).fill(partners(comm)[1]).packed)


def test_many_elements(comm: Any) -> None:
    """The count is outside of the types: each element lies in both memories."""
    wide = oracle.Contiguous(300, _double)
    outs = [Memory(wide, 1, where=w).fill(comm.rank + i) for i, w in enumerate(("host", "device"))]
    into = [Memory(wide, 1, where=w) for w in ("host", "device")]

    def pairs(memories: Sequence[Memory]) -> Any:
        places = [m.address for m in memories]
        return MPI.DOUBLE.Create_hindexed([1, 1], places).Create_resized(0, 24).Commit()

    to, source = partners(comm)
    sent, received = pairs(outs), pairs(into)
    with acted(mixed=2):
        comm.Sendrecv([MPI.BOTTOM, 100, sent], to, 1, [MPI.BOTTOM, 100, received], source, 1)
    for i, memory in enumerate(into):
        came = Memory(wide, 1).fill(source + i).packed.reshape(-1, 24)
        expected = np.full_like(came, 0xA5)
        expected[:, :8] = came[:, :8]
        memory.check(expected.reshape(-1))
    sent.Free()
    received.Free()


def test_a_large_one(comm: Any) -> None:
    """Beyond a piece of the pipeline."""
    places, tree = ("device", "host", "device:1"), strided(100_000)
    out, into = Mixed(places, [tree] * 3).fill(comm.rank), Mixed(places, [tree] * 3)
    with out.datatype() as sent, into.datatype() as received, acted(mixed=2):
        exchange(comm, "Isend", Side(out, sent), "Irecv", Side(into, received))
    into.check(Mixed(places, [tree] * 3).fill(partners(comm)[1]).packed)


# -- functions that bounce ----------------------------------------------------------------------------------

COLLECTIVE = {"host and device": ("host", "device"), "device and host": ("device", "host"),
              "two devices": ("device", "device:1"),
              "all": ("pinned", "device", "host", "managed", "device:1", "pool")}  # fmt: skip
no_devices_there = pytest.mark.skipif(AWARE, reason="the library is given device addresses")


@no_devices_there
@pytest.mark.parametrize("call", ["Bcast", "Ibcast"])
@pytest.mark.parametrize("places", COLLECTIVE.values(), ids=COLLECTIVE)
def test_one_type_of_several_memories_is_broadcast(comm: Any, places: tuple[str, ...], call: str) -> None:
    trees = trees_for(places)
    mine, roots = Mixed(places, trees), Mixed(places, trees).fill(0)
    if comm.rank == 0:
        mine.fill(0)
    with mine.datatype() as datatype:
        request = getattr(comm, call)(mine.message(datatype), 0)
        if request is not None:
            request.Wait()
    np.testing.assert_array_equal(mine.packed, roots.packed)
    if comm.rank != 0:
        mine.check(roots.packed)


@no_devices_there
@pytest.mark.parametrize("places", COLLECTIVE.values(), ids=COLLECTIVE)
def test_a_collective_has_one_type_of_several_memories_on_both_sides(comm: Any, places: tuple[str, ...]) -> None:
    trees = trees_for(places)
    out, into = Mixed(places, trees).fill(comm.rank), Mixed(places, trees)
    doubles = len(out.packed) // 8
    whole = np.zeros((comm.size, doubles))
    with out.datatype() as sent, into.datatype() as received:
        comm.Allgather(out.message(sent), [whole, doubles, MPI.DOUBLE])
        comm.Scatter([whole, doubles, MPI.DOUBLE], into.message(received), 0)
    for rank, row in enumerate(whole):
        np.testing.assert_array_equal(row.view(np.uint8), Mixed(places, trees).fill(rank).packed)
    into.check(Mixed(places, trees).fill(comm.rank).packed)


@no_devices_there
def test_managed_memory_beside_another_devices_is_waited_for(comm: Any) -> None:
    """The program's copy into it may still be under way."""
    if comm.size < 2:
        pytest.skip("one entry for each rank")
    emulator = pytest.importorskip("tempi.emulator.array")
    n = 1 << 14
    managed = emulator.DeviceArray.from_numpy(np.zeros(n, np.int64), kind="managed")
    other = Memory(oracle.Contiguous(n, oracle.Named("INT64_T")), 1, where="device:1").fill(1)
    places = [managed.pointer] + [other.address] * (comm.size - 1)
    types = [MPI.INT64_T.Create_hindexed([n], [place]).Commit() for place in places]
    came = np.zeros((comm.size, n), np.int64)
    into = [came, [n] * comm.size, [8 * n * i for i in range(comm.size)], [MPI.INT64_T] * comm.size]
    for seed in range(10):
        source = emulator.DeviceArray.from_numpy(np.arange(n, dtype=np.int64) + seed)
        with emulator.current(0):
            target, origin = ctypes.c_uint64(managed.pointer), ctypes.c_uint64(source.pointer)
            stream = ctypes.c_void_p(emulator.LEGACY_STREAM)
            assert emulator.driver().cuMemcpyAsync(target, origin, ctypes.c_size_t(8 * n), stream) == 0
            comm.Alltoallw([MPI.BOTTOM, [1] * comm.size, [0] * comm.size, types], into)
        if comm.rank == 0:
            np.testing.assert_array_equal(came, np.tile(np.arange(n) + seed, (comm.size, 1)))
    for datatype in types:
        datatype.Free()
