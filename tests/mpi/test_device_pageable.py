"""Device messages above TEMPI_STAGE_MAX=512K: their packed bytes are in pageable memory, and go there piece by piece
through pinned memory, while the device packs the next ones."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import oracle
from devices import DEVICES, EMULATED, Calls, context, count, driver, failing, live
from transfers import Side, exchange
from world import MPI, Memory, acted, committed, partners, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(os.environ.get("TEMPI_STAGE_MAX") != "512K", reason="TEMPI_STAGE_MAX is not 512K"),
    pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices"),
]

BOUND = 512 << 10  # a multiple of 16
KIB = 1 << 10
_byte, _int, _complex = oracle.Named("BYTE"), oracle.Named("INT"), oracle.Named("C_DOUBLE_COMPLEX")


def _rest(size: int) -> oracle.Tree:
    """The bytes behind a multiple of 16."""
    return oracle.Contiguous(size % 16, _byte)


def vector(size: int) -> oracle.Tree:
    n = size // 16
    return oracle.Struct((1, 1), (0, 40 * n), (oracle.Hvector(n, 1, 40, _complex), _rest(size)))


def unaligned(size: int) -> oracle.Tree:
    return oracle.Hvector(size // 4, 1, 7, _int)


def indexed(size: int) -> oracle.Tree:
    """Blocks of unequal lengths at unequal distances."""
    lengths, places, at, left = [], [], 0, size // 16
    rng = np.random.default_rng(1)
    while left:
        length = min(left, int(rng.integers(1, 60)))
        lengths.append(length)
        places.append(at)
        at, left = at + 16 * length + 8 * int(rng.integers(1, 50)), left - length
    inner = oracle.Hindexed(tuple(lengths), tuple(places), _complex)
    return oracle.Struct((1, 1), (0, at + 16), (inner, _rest(size)))


def several(size: int) -> oracle.Tree:
    """A few boxes, which take descriptors."""
    part = size // 48  # elements
    trees = (oracle.Hvector(part, 1, 40, _complex), oracle.Hvector(4 * part, 1, 9, _int),
             oracle.Hvector(size // 16 - 2 * part, 1, 24, _complex), _rest(size))  # fmt: skip
    return oracle.Struct((1, 1, 1, 1), (0, 40 * part, 80 * part, 80 * part + 2 * size), trees)


def dense(size: int) -> oracle.Tree:
    return oracle.Struct((1, 1), (0, size // 16 * 16), (oracle.Contiguous(size // 16, _complex), _rest(size)))


TREES = {"vector": vector, "unaligned": unaligned, "indexed": indexed, "several": several, "dense": dense}
SIZES = (BOUND - 8, BOUND, BOUND + 8, 2 * BOUND + 24)


def pieces_of(size: int) -> int:
    piece = max(64 * KIB, min(1024 * KIB, -(-(size // 16) // 4096) * 4096))
    return -(-size // piece)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", TREES)
def test_messages_around_the_bound(comm: Any, kind: str, size: int) -> None:
    tree = TREES[kind](size)
    out, into = Memory(tree, 1, where="device").fill(comm.rank), Memory(tree, 1, where="device")
    expected = Memory(tree, 1).fill(partners(comm)[1]).packed
    for send, receive in (("Send", "Irecv"), ("Issend", "Recv")):
        before = snapshot()
        with committed(tree) as datatype, acted(sends=1, recvs=1, fallback_stage=0):
            exchange(comm, send, Side(out, datatype), receive, Side(into, datatype))
        pieces = snapshot()["pageable_pieces"] - before["pageable_pieces"]
        assert pieces == 2 * pieces_of(size) if size > BOUND else pieces % pieces_of(size) == 0
    into.check(expected)


@pytest.mark.parametrize("kind", TREES)
def test_a_shorter_message_than_the_receive_allows_for(comm: Any, kind: str) -> None:
    (to, source), size = partners(comm), 3 * BOUND
    tree = TREES[kind](size)
    sent = np.random.default_rng(7 + comm.rank).integers(0, 256, size - 500_001, np.uint8)
    expected = np.random.default_rng(7 + source).integers(0, 256, len(sent), np.uint8)
    into, reference = Memory(tree, 1, where="device"), Memory(tree, 1)
    rest = reference.packed[len(sent) :]
    with committed(tree) as datatype:
        request = comm.Irecv(into.message(datatype), source, 1)
        comm.Send([sent, MPI.PACKED], to, 1)
        request.Wait()
    into.check(np.concatenate([expected, rest]))


def test_many_at_once_from_two_devices(comm: Any) -> None:
    """Their pieces take turns; each completes by Waitany, which tests."""
    to, source = partners(comm)
    trees = [TREES[kind](BOUND + 4096 * i) for i, kind in enumerate(TREES)]
    outs = [Memory(t, 1, where=f"device:{i % 2}").fill(10 * comm.rank + i) for i, t in enumerate(trees)]
    into = [Memory(t, 1, where=f"device:{i % 2}") for i, t in enumerate(trees)]
    types = [oracle.as_mpi(t, MPI).Commit() for t in trees]
    requests = [comm.Irecv(m.message(t), source, i) for i, (m, t) in enumerate(zip(into, types, strict=True))]
    requests += [comm.Isend(m.message(t), to, i) for i, (m, t) in enumerate(zip(outs, types, strict=True))]
    while MPI.Request.Waitany(requests) != MPI.UNDEFINED:
        pass
    for i, (memory, tree) in enumerate(zip(into, trees, strict=True)):
        memory.check(Memory(tree, 1).fill(10 * source + i).packed)
    for datatype in types:
        datatype.Free()


def test_a_message_in_several_memories(comm: Any) -> None:
    """Of each piece the device moves only its own part."""
    to, source = partners(comm)
    places = ("device", "host", "device:1")
    trees = (vector(2 * BOUND), indexed(BOUND), several(2 * BOUND))

    def mixed(seed: int | None) -> tuple[list[Memory], Any]:
        parts = [Memory(tree, 1, where=place) for tree, place in zip(trees, places, strict=True)]
        for i, part in enumerate(parts):
            if seed is not None:
                part.fill(seed + i)
        inner = [oracle.as_mpi(tree, MPI) for tree in trees]
        return parts, MPI.Datatype.Create_struct([1] * 3, [part.address for part in parts], inner).Commit()

    (_outs, sent), (into, received) = mixed(10 * comm.rank), mixed(None)
    before = snapshot()["pageable_pieces"]
    request = comm.Irecv([MPI.BOTTOM, 1, received], source, 1)
    comm.Send([MPI.BOTTOM, 1, sent], to, 1)
    request.Wait()
    for i, part in enumerate(into):
        part.check(Memory(trees[i], 1).fill(10 * source + i).packed)
    assert snapshot()["pageable_pieces"] > before
    sent.Free()
    received.Free()


@pytest.fixture
def at_once() -> Iterator[None]:
    driver().tempi_emulator_streams(b"immediate")
    driver().cuCtxSetCurrent(context(0))
    yield
    driver().cuCtxSetCurrent(None)
    driver().tempi_emulator_streams(b"random")


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("size", [BOUND + 8, 3 * BOUND])
@pytest.mark.usefixtures("at_once")
def test_a_piece_is_at_most_four_calls(comm: Any, kind: str, size: int) -> None:
    """Launch, descriptors if there are any, and the context for those that start together."""
    (to, source), tree = partners(comm), TREES[kind](size)
    if comm.size == 1:
        pytest.skip("a message to oneself is moved")
    out, into = (Memory(tree, 1, where="device").fill(comm.rank) for _ in range(2))
    with committed(tree) as datatype:
        for _ in range(3):
            ready = comm.Irecv(into.message(datatype), source, 1)
            comm.Barrier()
            before = Calls()
            comm.Send(out.message(datatype), to, 1)
            made, each = before.since()
            before = Calls()
            ready.Wait()
            received, of_each = before.since()
    most = 4 * pieces_of(size) + 4
    assert made <= most, str(each)
    assert received <= most, str(of_each)
    if kind == "unaligned":
        assert each["LaunchKernel"] == of_each["LaunchKernel"] == pieces_of(size)


@contextlib.contextmanager
def failing_later(name: str, skipped: int, calls: int) -> Iterator[None]:
    """Fails `calls` calls of the function after the next `skipped` ones."""
    first = count(name) + 1 + skipped
    rules = ",".join(f"{name}:{first + i}" for i in range(calls))
    assert driver().tempi_emulator_fail(rules.encode()) == 0
    try:
        yield
    finally:
        driver().tempi_emulator_fail(b"")


@pytest.mark.parametrize("late", [1, 3, 9])
def test_a_piece_that_fails_once_is_repeated(comm: Any, late: int) -> None:
    tree = indexed(3 * BOUND)
    out, into = Memory(tree, 1, where="device").fill(comm.rank), Memory(tree, 1, where="device")
    before = snapshot()["cuda_repeated"]
    with committed(tree) as datatype, failing_later("cuLaunchKernel", late, 1):
        exchange(comm, "Send", Side(out, datatype), "Irecv", Side(into, datatype))
    into.check(Memory(tree, 1).fill(partners(comm)[1]).packed)
    assert snapshot()["cuda_repeated"] > before


@pytest.mark.parametrize("late", [0, 5])
def test_a_receive_whose_pieces_fail_is_an_error(comm: Any, late: int) -> None:
    (to, source), tree = partners(comm), indexed(3 * BOUND)
    sent = np.zeros(3 * BOUND, np.uint8)
    into, again = (Memory(tree, 1, where="device") for _ in range(2))
    with committed(tree) as datatype:
        request = comm.Irecv(into.message(datatype), source, 1)
        comm.Send([sent, MPI.PACKED], to, 1)
        comm.Barrier()
        with failing_later("cuLaunchKernel", late, 25), pytest.raises(MPI.Exception):
            request.Wait()
        request = comm.Irecv(again.message(datatype), source, 1)
        comm.Send([sent + 7, MPI.PACKED], to, 1)
        request.Wait()
    again.check(sent + 7)


def test_a_driver_that_cannot_write_flags_records_events(comm: Any) -> None:
    """The last test of this file: the engine asks it no more."""
    tree, events = dense(3 * BOUND), live("event")
    with committed(tree) as datatype, failing("cuStreamWriteValue32", 1, "801"):
        for _ in range(2):
            out, into = Memory(tree, 1, where="device").fill(comm.rank), Memory(tree, 1, where="device")
            exchange(comm, "Isend", Side(out, datatype), "Recv", Side(into, datatype))
            into.check(Memory(tree, 1).fill(partners(comm)[1]).packed)
    assert live("event") > events
