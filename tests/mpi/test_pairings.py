"""Every kind of send into every kind of receive, with derived types on either side or both."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calls
import oracle
from examples import examples, strided
from strategies import counts, receive_trees
from transfers import PAIRS, SENDS, Side, exchange, together
from world import MPI, Memory, acted, committed, disabled_if, partners, placement

if TYPE_CHECKING:
    from collections.abc import Iterator

_double = oracle.Named("DOUBLE")


pytestmark = pytest.mark.usefixtures("buffered")


def regular(n: int) -> oracle.Tree:
    return strided(n)


def irregular(n: int) -> oracle.Tree:
    """The same signature as `regular`, n doubles, elsewhere and in another order of memory."""
    lengths = (n - 3, 2, 1)
    places = (96, 0, 64)
    return oracle.Hindexed(lengths, places, oracle.Resized(0, 24, _double))


def plain(n: int) -> oracle.Tree:
    """The same doubles side by side: left to the library."""
    return oracle.Contiguous(n, _double)


def packed(n: int) -> oracle.Tree:
    return oracle.Contiguous(8 * n, oracle.Named("BYTE"))


@contextlib.contextmanager
def side(kind: Any, n: int, *, off: bool = False, seed: int | None = None) -> Iterator[tuple[Side, int]]:
    """One side of an exchange, and how many operations tempi has there. Without tempi it is host memory."""
    with placement.host(off):
        memory = Memory(kind(n), 1)
    if seed is not None:
        memory.fill(seed)
    if kind is packed:
        memory.count = 8 * n  # of MPI_PACKED, which is the tree's bytes
        tree = memory.tree
        memory.tree = oracle.Named("BYTE")
        yield Side(memory, MPI.PACKED), int(placement.device and not off)
        memory.tree = tree
        return
    with committed(memory.tree) as datatype:
        yield Side(memory, datatype, off), int((placement.device or kind is not plain) and not off)


KINDS = [(regular, regular), (regular, irregular), (regular, packed), (packed, irregular),
         (irregular, plain), (plain, regular)]  # fmt: skip
OFF = {"nobody": (False, False), "senders": (True, False), "receivers": (False, True)}


def swap(comm: Any, send: str, receive: str, kinds: Any, n: int, off: tuple[bool, bool]) -> None:
    source = partners(comm)[1]
    with (
        side(kinds[0], n, off=off[0], seed=comm.rank) as (out, sends),
        side(kinds[1], n, off=off[1]) as (into, recvs),
    ):
        with acted(sends=sends, recvs=recvs, sent_bytes=8 * n * sends, recv_bytes=8 * n * recvs):
            status = exchange(comm, send, out, receive, into, tag=5)
        assert (status.source, status.tag) == (source, 5)
        assert status.Get_count(MPI.BYTE) == 8 * n
        assert status.Get_count(into.datatype) == into.memory.count
        with side(kinds[0], n, seed=source) as (theirs, _):
            into.memory.check(theirs.memory.packed)


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize(("send", "receive"), PAIRS)
def test_pairing(comm: Any, send: str, receive: str, off: str) -> None:
    for kinds in KINDS:
        swap(comm, send, receive, kinds, 10, OFF[off])


@pytest.mark.parametrize(("send", "receive"), PAIRS)
def test_pairing_of_a_large_message(comm: Any, send: str, receive: str) -> None:
    swap(comm, send, receive, (regular, irregular), 20_000, OFF["nobody"])


@pytest.mark.parametrize(("send", "receive"), [("Isend", "Irecv"), ("Send", "Recv"), ("Issend", "Mrecv")])
def test_every_other_rank_without_tempi(comm: Any, send: str, receive: str) -> None:
    off = comm.rank % 2 == 0
    for kinds in KINDS:
        swap(comm, send, receive, kinds, 300, (off, off))


# -- combined calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("n", [10, 20_000])
def test_sendrecv(comm: Any, kinds: Any, off: str, n: int) -> None:
    to, source = partners(comm)
    with (
        side(kinds[0], n, off=OFF[off][0], seed=comm.rank) as (out, sends),
        side(kinds[1], n, off=OFF[off][0], seed=None) as (into, recvs),
        side(kinds[0], n, seed=source) as (theirs, _),
    ):
        status = MPI.Status()
        with acted(sends=sends, recvs=recvs), disabled_if(OFF[off][0]):
            comm.Sendrecv(out.message, to, 1, into.message, source, 1, status)
        into.memory.check(theirs.memory.packed)
        assert (status.source, status.tag, status.Get_count(MPI.BYTE)) == (source, 1, 8 * n)


@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("n", [10, 20_000])
def test_sendrecv_replace(comm: Any, off: bool, n: int) -> None:
    to, source = partners(comm)
    off = off and comm.rank % 2 == 0
    with (
        side(irregular, n, off=off, seed=comm.rank) as (mine, acts),
        side(irregular, n, seed=source) as (theirs, _),
    ):
        before = mine.memory.copy()
        status = MPI.Status()
        with acted(sends=acts, recvs=acts), disabled_if(off):
            comm.Sendrecv_replace(mine.message, to, 1, source, 1, status)
        mine.memory.check(theirs.memory.packed, before)
        assert (status.source, status.tag, status.Get_count(mine.datatype)) == (source, 1, 1)


@pytest.mark.parametrize("call", ["Sendrecv", "Sendrecv_replace"])
def test_half_a_combined_call_with_proc_null(comm: Any, call: str) -> None:
    """A chain instead of a ring: its ends have one partner each."""
    to = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
    source = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    with side(regular, 9, seed=comm.rank) as (out, _), side(regular, 9, seed=comm.rank) as (into, _):
        before = into.memory.copy()
        status = MPI.Status()
        if call == "Sendrecv":
            comm.Sendrecv(out.message, to, 1, into.message, source, 1, status)
        else:
            comm.Sendrecv_replace(into.message, to, 1, source, 1, status)
        with side(regular, 9, seed=source) if comm.rank else side(regular, 9, seed=0) as (theirs, _):
            into.memory.check(theirs.memory.packed, before)
        assert status.source == source
        assert status.Get_count(into.datatype) == (1 if comm.rank else 0)


# -- generated ------------------------------------------------------------------------------------------


@st.composite
def same_signature(draw: Any) -> tuple[oracle.Tree, oracle.Tree]:
    """Two types that both are k elements of one inner type, in different places."""
    inner = draw(receive_trees(depth=2, max_bytes=400))
    k = draw(st.sampled_from([2, 3, 4]))
    m = inner.type_map
    step = max(m.true_ub - m.true_lb, 1) + draw(st.sampled_from([0, 1, 8]))
    order = draw(st.permutations(range(k)))
    spread = oracle.Hindexed((1,) * k, tuple(i * step for i in order), inner)
    row = oracle.Hvector(k, 1, -step if draw(st.booleans()) else step, inner)
    return (spread, row) if draw(st.booleans()) else (row, spread)


@examples(120)
@given(
    same_signature(), counts, st.sampled_from(PAIRS), st.sampled_from([0, 1, 4]), st.booleans(), st.booleans()
)  # fmt: skip
def test_generated_types_in_every_pairing(
    trees: Any, count: int, pair: tuple[str, str], shift: int, send_off: bool, receive_off: bool
) -> None:
    comm = MPI.COMM_WORLD
    source = partners(comm)[1]
    # Elements of a message must not overlap where they are received.
    far = trees[1].type_map.true_ub - trees[1].type_map.true_lb
    into_tree = oracle.Resized(trees[1].type_map.lb, far, trees[1])
    with placement.host(send_off):
        out = Memory(trees[0], count).fill(comm.rank)
    with placement.host(receive_off):
        into = Memory(into_tree, count, shift=shift)
    theirs = Memory(trees[0], count).fill(source)
    with committed(trees[0]) as a, committed(into_tree) as b:
        send_off = send_off and calls.library_agrees(out, a)
        receive_off = receive_off and calls.library_agrees(Memory(into_tree, count).fill(1), b)
        sending, receiving = Side(out, a, send_off), Side(into, b, receive_off)

        def one() -> None:
            exchange(comm, pair[0], sending, pair[1], receiving)
            into.check(theirs.packed)

        together(comm, one)


@pytest.mark.parametrize("kind", [regular, irregular])
def test_what_is_received_into_does_not_overlap(kind: Any) -> None:
    assert not oracle.overlaps(kind(10))


def test_all_sends_are_paired() -> None:
    assert {send for send, _ in PAIRS} == set(SENDS)
    assert len(SENDS) == 12
