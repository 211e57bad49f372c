"""Non-contiguous arrays in the collectives with counts for each rank: their parts are whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempi
from comms import FORMS, collect
from tempi import MPI

WIDTH = 6  # elements of a row


@pytest.fixture
def ours(comm: Any) -> MPI.Intracomm:
    return MPI.Intracomm(comm)


def rows(n: int, seed: int) -> Any:
    """A view of so many rows of 3 x 2 elements, with gaps everywhere."""
    whole = np.random.default_rng(seed).integers(0, 1 << 40, (2 * n, 3, 5))
    return whole[::2, :, 1:4:2]


def room(n: int) -> tuple[Any, Any]:
    """The same to receive into, and the array with its gaps."""
    whole = np.full((2 * n, 3, 5), -1, np.int64)
    return whole[::2, :, 1:4:2], whole


def only(view: Any, whole: Any) -> None:
    """Nothing is written beside the view."""
    assert np.count_nonzero(whole != -1) <= view.size
    assert (whole[1::2] == -1).all()
    assert (whole[:, :, ::2] == -1).all()


def count(source: int, dest: int) -> int:
    return (source + 2 * dest) % 3


def places(counts: list[int], gap: int = 0) -> list[int]:
    return [sum(counts[:i]) + gap * i for i in range(len(counts))]


def elements(numbers: list[int]) -> list[int]:
    return [WIDTH * number for number in numbers]


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_unlike_counts_go_all_to_all(ours: Any, form: str) -> None:
    size, rank = ours.size, ours.rank
    gives, takes = [count(rank, each) for each in range(size)], [count(each, rank) for each in range(size)]
    mine = rows(sum(gives), rank)
    got, whole = room(sum(takes) + size)
    spots = places(takes, 1)
    collect(ours, form, "Alltoallv", [mine, elements(gives)], [got, (elements(takes), elements(spots))])
    for source in range(size):
        theirs = [count(source, each) for each in range(size)]
        want = rows(sum(theirs), source)[places(theirs)[rank] :][: theirs[rank]]
        np.testing.assert_array_equal(got[spots[source] :][: takes[source]], want)
    only(got, whole)


@pytest.mark.parametrize("form", FORMS)
def test_views_receive_what_a_root_gathers_and_scatters(ours: Any, form: str) -> None:
    size, rank, root = ours.size, ours.rank, ours.size - 1
    counts = [1 + each for each in range(size)]
    got, whole = room(sum(counts))
    spec = [got, elements(counts), elements(places(counts)), MPI.INT64_T] if rank == root else None
    collect(ours, form, "Gatherv", rows(counts[rank], rank), spec, root)
    if rank == root:
        np.testing.assert_array_equal(got, np.concatenate([rows(n, each) for each, n in enumerate(counts)]))
    only(got, whole)
    got, whole = room(counts[rank])
    sent = rows(sum(counts), 9)
    collect(ours, form, "Scatterv", [sent, elements(counts)] if rank == root else None, got, root)
    np.testing.assert_array_equal(got, sent[places(counts)[rank] :][: counts[rank]])
    only(got, whole)


@pytest.mark.parametrize("form", FORMS)
def test_views_receive_what_all_gather(ours: Any, form: str) -> None:
    size, rank = ours.size, ours.rank
    counts = [each % 2 for each in range(size)]
    got, whole = room(max(sum(counts), 1))
    collect(ours, form, "Allgatherv", np.ascontiguousarray(rows(counts[rank], rank)), [got, elements(counts)])
    if sum(counts):
        np.testing.assert_array_equal(got, np.concatenate([rows(n, each) for each, n in enumerate(counts)]))
    only(got, whole)
    got, whole = room(2 * size)
    collect(ours, form, "Allgatherv", rows(2, rank), got)  # equal parts
    np.testing.assert_array_equal(got, np.concatenate([rows(2, each) for each in range(size)]))
    only(got, whole)


@pytest.mark.parametrize("form", FORMS)
def test_neighbours_exchange_views_by_counts(ours: Any, form: str) -> None:
    cart = ours.Create_cart([ours.size], [True])
    low, high = cart.Shift(0, 1)
    got, whole = room(5)
    collect(cart, form, "Neighbor_allgatherv", rows(2, cart.rank), [got, 2 * WIDTH])
    np.testing.assert_array_equal(got[:4], np.concatenate([rows(2, low), rows(2, high)]))
    only(got, whole)
    got, whole = room(5)
    into = [got, (elements([2, 1]), 3 * WIDTH)]
    collect(cart, form, "Neighbor_alltoallv", [rows(3, cart.rank), elements([1, 2])], into)
    np.testing.assert_array_equal(got[:2], rows(3, low)[1:])
    np.testing.assert_array_equal(got[3:4], rows(3, high)[:1])
    only(got, whole)
    cart.Free()


def test_counts_of_a_view_with_one_axis_are_elements(ours: Any) -> None:
    size, rank = ours.size, ours.rank
    whole = np.zeros(3 * 4 * size)
    got = whole[1::3]
    ours.Allgatherv(np.full(3, rank + 1.0), [got, ([3] * size, np.arange(size) * 4)])
    np.testing.assert_array_equal(got.reshape(size, 4), [[each + 1.0] * 3 + [0] for each in range(size)])
    assert not whole[::3].any()
    assert not whole[2::3].any()


def test_a_process_replaces_its_view_in_place(ours: Any) -> None:
    size, rank = ours.size, ours.rank
    got, whole = room(2 * size)
    got[2 * rank :][:2] = rows(2, rank)
    ours.Allgatherv(MPI.IN_PLACE, [got, 2 * WIDTH])
    np.testing.assert_array_equal(got, np.concatenate([rows(2, each) for each in range(size)]))
    only(got, whole)


def overlapping() -> Any:
    return np.lib.stride_tricks.as_strided(np.zeros(64), (4, 5), (8, 16))


REFUSED: dict[str, tuple[Any, str]] = {
    "half a row": (lambda: [room(4)[0], 9], "multiples of 6 elements: 9 is not"),
    "a place in a row": (lambda: [room(4)[0], (6, [2])], "multiples of 6 elements: 2 is not"),
    "too many": (lambda: [room(4)[0], ([12], [18])], "rows 3 to 5 are not in an array of shape"),
    "before it": (lambda: [room(4)[0], ([6], [-6])], "rows -1 to 0 are not in an array of shape"),
    "another datatype": (lambda: [room(4)[0], 6, MPI.DOUBLE], "leave it out"),
    "overlap": (lambda: [overlapping(), 20], "axis 0 .*share memory"),
    "backwards": (lambda: [np.zeros((4, 6))[::-1], 12], "negative step along its first axis"),
    "read-only": (lambda: [np.broadcast_to(np.zeros((4, 1)), (4, 1))[::2], 1], "read-only"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_specification_that_a_view_cannot_have_is_refused(name: str) -> None:
    spec, rule = REFUSED[name]
    before = tempi.stats().counters
    with pytest.raises(tempi.ArrayError, match=rule):
        MPI.COMM_SELF.Allgatherv(np.zeros(6), spec())
    assert tempi.stats().counters == before


def test_views_without_equal_parts_need_counts() -> None:
    graph = MPI.COMM_SELF.Create_dist_graph_adjacent([0, 0, 0], [0, 0, 0])
    with pytest.raises(tempi.ArrayError, match="no 3 equal parts along its first axis: give counts"):
        graph.Neighbor_alltoallv([np.zeros(3), 1], np.zeros((4, 6))[:, ::2])
    with pytest.raises(ValueError, match="expecting 3 items, got 2"):
        graph.Neighbor_alltoallv([np.zeros(3), 1], [np.zeros((4, 6))[:, ::2], [3, 3]])
    graph.Free()


@pytest.mark.parametrize("name", ["Alltoallw", "Neighbor_alltoallw"])
def test_datatypes_for_each_part_need_a_contiguous_array(ours: Any, name: str) -> None:
    made = ours.Create_cart([ours.size])
    n = made.size if name == "Alltoallw" else 2
    types, flat = [MPI.DOUBLE] * n, np.arange(8.0 * n)
    view = [np.zeros((n + 1, 4))[:, 1], [1] * n, [8 * each for each in range(n)], types]
    with pytest.raises(tempi.ArrayError, match="the array must be contiguous"):
        getattr(made, name)([flat, [1] * n, [0] * n, types], view)
    got = np.zeros(n)
    getattr(made, name)([flat, [1] * n, [0] * n, types], [got, [1] * n, [8 * each for each in range(n)], types])
    made.Free()
