"""The first messages of a type whose blocks are listed are the library's: often its only ones."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import calls
import oracle
import tempi
from astray import ASTRAY
from world import MPI, Memory, committed, is_on_several_hosts, partners, snapshot

pytestmark = pytest.mark.skipif(
    os.environ.get("TEMPI_MODEL") != "0" or "TEMPI_FORCE" in os.environ, reason="not by the built-in rule"
)
OPENMPI5 = "Open MPI v5" in MPI.Get_library_version()
FIRST = 8  # messages, the library's
INT, DOUBLE = oracle.Named("INT"), oracle.Named("DOUBLE")


def random_blocks(n: int, seed: int = 1) -> oracle.Tree:
    places = np.cumsum(np.random.default_rng(seed).integers(3, 9, n))
    return oracle.IndexedBlock(2, tuple(map(int, places)), DOUBLE)


def pack(datatype: Any, memory: Memory) -> None:
    out = np.zeros(len(memory.packed), np.uint8)
    calls.pack(memory, datatype, out, 0, MPI.COMM_SELF)
    np.testing.assert_array_equal(out, memory.packed)


class Moved:
    """The changes of the counters since its creation."""

    def __init__(self) -> None:
        self.before = snapshot()

    def by(self, name: str) -> int:
        return snapshot()[name] - self.before[name]


@pytest.fixture
def moved() -> Moved:
    return Moved()


PAIR = oracle.Struct((1, 1), (0, 8), (DOUBLE, INT))


@pytest.mark.parametrize("tree", [random_blocks(100), random_blocks(3), PAIR], ids=["100 blocks", "3 blocks", "struct"])
def test_tempi_does_the_packs_after_the_first_ones(tree: oracle.Tree, moved: Moved) -> None:
    memory = Memory(tree, 1).fill(1)
    with committed(tree) as datatype:
        for _ in range(FIRST):
            pack(datatype, memory)
        assert (moved.by("fallback_first"), moved.by("packs"), moved.by("types")) == (FIRST, 0, 0)
        pack(datatype, memory)
        pack(datatype, memory)
        assert (moved.by("fallback_first"), moved.by("packs"), moved.by("types")) == (FIRST, 2, 1)


@pytest.mark.parametrize("blocks", [3, 60])
def test_types_that_are_used_once_are_not_decoded(blocks: int, moved: Moved) -> None:
    layouts = tempi._engine.lib.tempi_layout_alive()
    for seed in range(20):
        tree = random_blocks(blocks, seed)
        with committed(tree) as datatype:
            pack(datatype, Memory(tree, 1).fill(seed))
    assert (moved.by("fallback_first"), moved.by("types")) == (20, 0)
    assert tempi._engine.lib.tempi_layout_alive() == layouts


def test_types_that_are_received_and_sent_once_are_not_decoded(moved: Moved) -> None:
    for seed in range(20):
        tree = random_blocks(60, seed)
        out, into = Memory(tree, 1).fill(seed), Memory(tree, 1)
        with committed(tree) as datatype:
            request = MPI.COMM_SELF.Irecv(into.message(datatype), 0, 1)
            MPI.COMM_SELF.Send(out.message(datatype), 0, 1)
            request.Wait()
        into.check(out.packed)
    assert (moved.by("fallback_first"), moved.by("types"), moved.by("calls_seen")) == (40, 0, 40)


def test_a_duplicate_of_a_type_that_was_used_counts_as_used(moved: Moved) -> None:
    tree = random_blocks(100)
    memory = Memory(tree, 1).fill(1)
    with committed(tree) as datatype:
        for _ in range(FIRST):
            pack(datatype, memory)
        twin = datatype.Dup()
        pack(twin, memory)
        assert (moved.by("fallback_first"), moved.by("packs")) == (FIRST, 1)
        twin.Free()


def test_tempi_does_the_first_pack_of_a_type_without_a_list(moved: Moved) -> None:
    tree = oracle.Subarray((10, 10, 10), (8, 8, 1), (1, 1, 4), DOUBLE)
    with committed(tree) as datatype:
        pack(datatype, Memory(tree, 1).fill(1))
    assert (moved.by("fallback_first"), moved.by("types")) == (0, 1)


def test_tempi_does_a_long_first_pack(moved: Moved) -> None:
    tree = random_blocks(100)
    memory = Memory(tree, 400).fill(1)
    with committed(tree) as datatype:
        pack(datatype, memory)
    assert (moved.by("fallback_first"), moved.by("packs")) == (0, 1)


def test_tempi_does_a_long_pack_after_a_short_one(moved: Moved) -> None:
    tree = random_blocks(100)
    with committed(tree) as datatype:
        pack(datatype, Memory(tree, 1).fill(1))
        pack(datatype, Memory(tree, 400).fill(1))
    assert (moved.by("fallback_first"), moved.by("packs")) == (1, 1)


def test_a_persistent_request_decodes_its_type_at_once(moved: Moved) -> None:
    tree = random_blocks(100)
    out, into = Memory(tree, 1).fill(1), Memory(tree, 1)
    with committed(tree) as datatype:
        send = MPI.COMM_SELF.Send_init(out.message(datatype), 0, 1)
        receive = MPI.COMM_SELF.Recv_init(into.message(datatype), 0, 1)
        assert (moved.by("fallback_first"), moved.by("types")) == (0, 1)
        MPI.Prequest.Startall([receive, send])
        MPI.Request.Waitall([receive, send])
        into.check(out.packed)
        send.Free()
        receive.Free()


WRONG = {
    "elements astray": (oracle.HindexedBlock(4, tuple(17 * i for i in range(0, 120, 3)), INT), 20),
    "complex with gaps": (
        oracle.HindexedBlock(1, tuple(12 * i + i * i % 8 for i in range(40)), oracle.F90Complex(6, 37)),
        20,
    ),
    "astray in a struct": (
        oracle.Struct((1, 1), (0, 4), (DOUBLE, oracle.Resized(0, 4000, random_blocks(40)))),
        9,
    ),
    "inside regular ones": (
        oracle.Contiguous(2, oracle.Resized(0, 1001, oracle.HindexedBlock(1, tuple(range(0, 800, 20)), INT))),
        40,
    ),
    **{name: (tree, count) for name, (tree, count, _) in ASTRAY.items()},
}


@pytest.mark.parametrize("name", WRONG)
def test_tempi_does_the_first_pack_of_a_type_with_a_quirk(name: str, moved: Moved) -> None:
    tree, count = WRONG[name]
    out, into = Memory(tree, count).fill(1), Memory(tree, count)
    with committed(tree) as datatype:
        MPI.COMM_SELF.Sendrecv(out.message(datatype), 0, 1, into.message(datatype), 0, 1)
    into.check(out.packed)
    if OPENMPI5:
        assert (moved.by("fallback_first"), moved.by("quirks")) == (0, 2)


def test_empty_messages_and_disabled_threads_are_as_before(moved: Moved) -> None:
    nothing = oracle.HindexedBlock(0, tuple(range(0, 400, 8)), INT)
    with committed(nothing) as datatype:
        pack(datatype, Memory(nothing, 1))
        calls.unpack(np.zeros(8, np.uint8), 0, Memory(nothing, 1), datatype, MPI.COMM_SELF)
    tree = random_blocks(100)
    with committed(tree) as datatype, tempi.disabled():
        pack(datatype, Memory(tree, 1).fill(1))
    assert moved.by("fallback_first") == 0


#: Those that were found in a program.
NAMED = ("three hvectors of floats, 10 bytes apart", "ints, 26 bytes apart, under a duplicate")


def arrives(comm: Any, name: str) -> bool:
    """From another rank, as the type map says? In several pieces, between which some bytes go astray."""
    tree, count, _ = ASTRAY[name]
    count *= 30
    to, source = partners(comm)
    out, into = Memory(tree, count).fill(1), Memory(tree, count)
    with committed(tree) as datatype:
        comm.Sendrecv(out.message(datatype), to, 1, into.message(datatype), source, 1)
    try:
        into.check(out.packed)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", NAMED)
def test_tempi_does_the_first_message_of_a_type_with_a_quirk(comm: Any, name: str, moved: Moved) -> None:
    assert arrives(comm, name)
    assert moved.by("quirks") == (2 if OPENMPI5 else 0)
    assert not OPENMPI5 or moved.by("fallback_first") == 0


@pytest.mark.skipif(
    not OPENMPI5 or MPI.COMM_WORLD.size < 2 or is_on_several_hosts(MPI.COMM_WORLD),
    reason="another library's quirk, or only probably, or by TCP, which has none",
)
def test_the_library_alone_still_carries_elements_astray_wrong_between_ranks(comm: Any) -> None:
    """When this fails, a version has fixed the class: update quirks.c. To oneself it is wrong only probably."""
    with tempi.disabled():
        assert not arrives(comm, NAMED[0])
