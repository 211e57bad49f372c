"""``from tempi import MPI``: mpi4py's classes, and communicators that make their own kind."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import mpi4py.MPI as plain
import numpy as np
import pytest
from mpi4py.futures import MPICommExecutor
from mpi4py.util import pkl5

import tempi
from comms import graph, halves, ring
from tempi import MPI

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES = [
    "Comm",
    "Intracomm",
    "Topocomm",
    "Cartcomm",
    "Graphcomm",
    "Distgraphcomm",
    "Intercomm",
    "Message",
]


@pytest.fixture
def ours(comm: Any) -> MPI.Intracomm:
    """The test's communicator, as the drop-in has it by either entry."""
    return MPI.Intracomm(comm)


MAKERS: dict[str, tuple[type, Callable[[MPI.Intracomm], MPI.Comm]]] = {
    "Dup": (MPI.Intracomm, lambda c: c.Dup()),
    "Clone": (MPI.Intracomm, lambda c: c.Clone()),
    "Split": (MPI.Intracomm, lambda c: c.Split(c.rank % 2)),
    "Split_type": (MPI.Intracomm, lambda c: c.Split_type(MPI.COMM_TYPE_SHARED)),
    "Create": (MPI.Intracomm, lambda c: c.Create(c.group)),
    "Create_group": (MPI.Intracomm, lambda c: c.Create_group(c.group)),
    "Create_cart": (MPI.Cartcomm, lambda c: c.Create_cart([c.size], [True])),
    "Sub": (MPI.Cartcomm, lambda c: c.Create_cart([c.size, 1]).Sub([True, False])),
    "Create_cart.Dup": (MPI.Cartcomm, lambda c: c.Create_cart([c.size]).Dup()),
    "Create_graph": (MPI.Graphcomm, graph),
    "Create_dist_graph_adjacent": (
        MPI.Distgraphcomm,
        lambda c: c.Create_dist_graph_adjacent(*ring(c)),
    ),
    "Create_dist_graph": (
        MPI.Distgraphcomm,
        lambda c: c.Create_dist_graph([c.rank], [1], ring(c)[1]),
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_communicator_makes_its_own_kind(ours: MPI.Intracomm, name: str) -> None:
    kind, make = MAKERS[name]
    made = make(ours)
    assert type(made) is kind
    assert isinstance(made, getattr(plain, kind.__name__))
    made.Free()


def test_an_intercommunicator_is_of_our_kind_and_so_is_its_merger(ours: MPI.Intracomm) -> None:
    if ours.size < 2:
        pytest.skip("needs 2 ranks")
    inter = halves(ours)
    assert type(inter) is MPI.Intercomm
    merged = inter.Merge()
    assert type(merged) is MPI.Intracomm
    assert merged.size == ours.size
    merged.Free()
    inter.Free()


@pytest.mark.parametrize("convert", ["handle", "py2f"])
def test_a_communicator_from_a_handle_is_of_our_kind(ours: MPI.Intracomm, convert: str) -> None:
    made = MPI.Comm.fromhandle(ours.handle) if convert == "handle" else MPI.Comm.f2py(ours.py2f())
    assert type(made) is MPI.Intracomm
    assert made == ours


@pytest.mark.parametrize("name", CLASSES)
def test_mpi4pys_objects_are_instances_of_our_classes(name: str) -> None:
    mine, theirs = getattr(MPI, name), getattr(plain, name)
    assert isinstance(theirs(), mine)
    assert isinstance(mine(), theirs)
    assert issubclass(theirs, mine)
    assert issubclass(mine, theirs)
    assert mine.__module__ == "tempi.MPI"


def test_isinstance_still_tells_communicators_apart() -> None:
    assert not isinstance(plain.COMM_WORLD, MPI.Cartcomm)
    assert not isinstance(MPI.COMM_WORLD, MPI.Intercomm)
    assert isinstance(MPI.Cartcomm(), MPI.Intracomm)
    assert not isinstance(7, MPI.Comm)


def test_a_class_derived_from_ours_is_strict_and_makes_itself(ours: MPI.Intracomm) -> None:
    class Mine(MPI.Intracomm):
        pass

    mine = Mine(ours)
    again = mine.Dup()
    assert type(again) is Mine
    assert not isinstance(ours, Mine)
    assert isinstance(mine, MPI.Intracomm)
    again.Free()


def test_constructors_check_what_mpi4pys_check(ours: MPI.Intracomm) -> None:
    with pytest.raises(TypeError):
        MPI.Topocomm(ours)
    with pytest.raises(TypeError):
        MPI.Intercomm(ours)


@pytest.mark.parametrize("name", ["COMM_WORLD", "COMM_SELF", "COMM_NULL"])
def test_constants_equal_mpi4pys_and_pickle_to_themselves(name: str) -> None:
    constant = getattr(MPI, name)
    assert constant == getattr(plain, name)
    assert pickle.loads(pickle.dumps(constant)) is constant
    assert copy.deepcopy(constant) is constant
    constant.free()
    assert constant == getattr(plain, name)


def test_a_copy_of_a_constant_pickles_to_a_copy() -> None:
    again = pickle.loads(pickle.dumps(MPI.Intracomm(MPI.COMM_WORLD)))
    assert type(again) is MPI.Intracomm
    assert again == MPI.COMM_WORLD
    assert again is not MPI.COMM_WORLD


def test_other_communicators_refuse_to_pickle_and_to_hash(ours: MPI.Intracomm) -> None:
    with pytest.raises(ValueError, match="cannot serialize"):
        pickle.dumps(ours)
    with pytest.raises(TypeError):
        hash(ours)


def test_the_module_has_mpi4pys_names_and_no_others() -> None:
    own = {"__spec__", "__cached__", "__name__", "__builtins__", "__loader__"}
    assert set(vars(MPI)) - own == set(vars(plain)) - own
    assert MPI.Datatype is plain.Datatype
    assert MPI._typedict is plain._typedict
    assert MPI.__file__ == plain.__file__


def test_methods_keep_mpi4pys_documentation() -> None:
    for name in ("Send", "Recv", "Irecv", "Split", "Create_cart"):
        assert getattr(MPI.Cartcomm, name).__doc__ == getattr(plain.Cartcomm, name).__doc__


def test_matched_messages_are_of_our_kind(ours: MPI.Intracomm) -> None:
    request = ours.Isend(np.arange(8.0), ours.rank)
    message = ours.Mprobe(ours.rank)
    assert type(message) is MPI.Message
    got = np.zeros((8, 2))[:, 0]
    message.Recv(got)
    request.Wait()
    np.testing.assert_array_equal(got, np.arange(8.0))
    assert ours.Improbe(ours.rank) is None


def test_futures_work_on_our_communicators(ours: MPI.Intracomm) -> None:
    executor: Any
    with MPICommExecutor(ours) as executor:
        if executor is not None:
            assert list(executor.map(pow, [2, 3], [3, 2])) == [8, 9]


def test_pkl5_works_on_our_communicators(ours: MPI.Intracomm) -> None:
    wrapped = pkl5.Intracomm(ours)
    dest, source = (ours.rank + 1) % ours.size, (ours.rank - 1) % ours.size
    got = wrapped.sendrecv(np.full(5, ours.rank), dest, source=source)
    np.testing.assert_array_equal(got, np.full(5, source))


def test_describe_gives_the_layout_of_a_datatype() -> None:
    datatype = MPI.DOUBLE.Create_vector(10, 2, 5).Commit()
    layout = tempi.describe(datatype)
    assert isinstance(layout, tempi.Layout)
    assert (layout.size, layout.extent, layout.runs) == (160, (9 * 5 + 2) * 8, 10)
    datatype.Free()
    assert tempi.describe(MPI.INT).size == 4


def test_disabled_nests_and_leaves_messages_to_the_library(ours: MPI.Intracomm) -> None:
    def exchange() -> int:
        before = tempi.stats()["fallback_disabled"]
        got = np.zeros((64, 3))[:, 1]
        ours.Sendrecv(np.arange(192.0)[::3], ours.rank, 0, got, ours.rank)
        np.testing.assert_array_equal(got, np.arange(192.0)[::3])
        return tempi.stats()["fallback_disabled"] - before

    with tempi.disabled():
        with tempi.disabled():
            assert exchange() > 0
        assert exchange() > 0
    assert exchange() == 0
