"""Calls with a derived datatype of functions that tempi does not act in: counted by function, with their bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calls
import tempi
from bounces import Requests
from examples import strided
from world import MPI, committed, idle, partners

ROW = 6
BYTES = 8 * ROW  # of one element
WHOLE = strided(ROW)
ROOT = 0


@contextlib.contextmanager
def counted(**expected: tuple[int, int]) -> Iterator[None]:
    """In the block just these functions count so many calls and bytes, on this rank."""
    before = tempi.stats()
    yield
    after = tempi.stats()
    moved = {}
    for name, now in after.fallbacks.items():
        was = before.fallbacks.get(name)
        calls, size = (was.calls, was.bytes) if was else (0, 0)
        if now.calls != calls:
            moved[name.removeprefix("MPI_")] = (now.calls - calls, now.bytes - size)
    assert moved == expected
    assert after["fallback_function"] - before["fallback_function"] == sum(calls for calls, _ in expected.values())


def spread(comm: Any) -> Any:
    """Room for one element of each rank, and some."""
    return np.zeros(64 * ROW * (comm.size + 1))


@pytest.fixture
def kind() -> Iterator[Any]:
    with committed(WHOLE) as datatype:
        yield datatype


def test_a_rooted_collective_counts_what_the_process_takes_part_with(comm: Any, kind: Any) -> None:
    own, all_of_them = spread(comm), spread(comm)
    at_root = comm.rank == ROOT
    with counted(Bcast=(1, BYTES)):
        comm.Bcast([own, 1, kind], ROOT)
    with counted(Gather=(1, BYTES * (1 + comm.size * at_root))):
        comm.Gather([own, 1, kind], [all_of_them, 1, kind] if at_root else None, ROOT)
    expected = {"Scatter": (1, BYTES * comm.size)} if at_root else {}
    with counted(**expected):  # elsewhere the type is a predefined one
        comm.Scatter([all_of_them, 1, kind] if at_root else None, [own, ROW, MPI.DOUBLE], ROOT)


def test_collectives_count_all_their_pieces(comm: Any, kind: Any) -> None:
    own, others = spread(comm), spread(comm)
    counts = [1 + rank % 2 for rank in range(comm.size)]
    places = [2 * rank for rank in range(comm.size)]
    mine = 1 + comm.rank % 2
    with counted(Allgather=(1, BYTES * comm.size)):
        comm.Allgather([own, ROW, MPI.DOUBLE], [others, 1, kind])
    with counted(Allgatherv=(1, BYTES * (mine + sum(counts)))):
        comm.Allgatherv([own, mine, kind], [others, counts, places, kind])
    with counted(Allgather=(1, BYTES * comm.size)):
        comm.Allgather(MPI.IN_PLACE, [others, 1, kind])


def test_alltoallw_counts_the_derived_ones_among_its_types(comm: Any, kind: Any) -> None:
    own, others = spread(comm), spread(comm)
    n = comm.size
    ones, places = [1] * n, [8 * 64 * ROW * rank for rank in range(n)]
    plain = (others, [ROW] * n, places, [MPI.DOUBLE] * n)
    with counted(Alltoallw=(1, BYTES * n)):
        comm.Alltoallw((own, ones, places, [kind] * n), plain)
    with counted():
        comm.Alltoallw((own, [ROW] * n, places, [MPI.DOUBLE] * n), plain)
    with counted(Ialltoallw=(1, 2 * BYTES * n)):
        comm.Ialltoallw((own, ones, places, [kind] * n), (others, ones, places, [kind] * n)).Wait()


def test_neighbourhoods_count_their_neighbours(comm: Any, kind: Any) -> None:
    ring = comm.Create_cart([comm.size], periods=[True])
    own, others = spread(comm), spread(comm)
    ones, places = [1, 1], [0, 8 * 64 * ROW]
    buffers = (own, ones, places, [kind] * 2), (others, ones, places, [kind] * 2)
    try:
        with counted(Neighbor_alltoallw=(3, 3 * 4 * BYTES)):
            for _ in range(3):
                ring.Neighbor_alltoallw(*buffers)
    finally:
        ring.Free()


def test_a_call_that_the_library_does_wrong_is_counted_and_said_once(comm: Any, capfd: Any) -> None:
    grid = comm.Create_cart([comm.size, 1], periods=[True, True])
    own, got = np.arange(4) + 10 * comm.rank, np.zeros(4, int)
    ones, places, types = [1] * 4, [0, 8, 16, 24], [MPI.INT64_T] * 4
    before = tempi.stats()["fallback_quirk"]
    capfd.readouterr()
    for _ in range(3):
        grid.Ineighbor_alltoallw([own, ones, places, types], [got, ones, places, types]).Wait()
    grid.Neighbor_alltoallw([own, ones, places, types], [own.copy(), ones, places, types])
    wrong = got[2] == own[2]  # both of its neighbours there are the process itself
    assert tempi.stats()["fallback_quirk"] - before == 3 * wrong
    assert comm.allreduce(capfd.readouterr().err.count("MPI_Ineighbor_alltoallw: this library")) == wrong
    grid.Free()


def test_predefined_types_do_not_count(comm: Any) -> None:
    own, others = spread(comm), spread(comm)
    pairs = np.zeros(4, np.dtype([("value", np.float64), ("place", np.intc)], align=True))
    with counted():
        for _ in range(2):
            comm.Bcast([own, ROW, MPI.DOUBLE], ROOT)
            comm.Allreduce([own, ROW, MPI.DOUBLE], [others, ROW, MPI.DOUBLE])
            comm.Allreduce(MPI.IN_PLACE, [pairs, 4, MPI.DOUBLE_INT], MPI.MAXLOC)
            comm.Barrier()


@pytest.fixture(scope="module")
def xor() -> Iterator[Any]:
    """An operation for every datatype, on all bytes of its extent."""

    def apply(one: Any, other: Any, _datatype: Any) -> None:
        into = np.frombuffer(other, np.uint8)
        into ^= np.frombuffer(one, np.uint8)

    made = MPI.Op.Create(apply, commute=True)
    yield made
    made.Free()


#: For `n` ranks: the arguments between the buffers and the type, and those before the communicator.
REDUCTIONS: dict[str, Callable[[int], tuple[Any, list[Any]]]] = {
    "Allreduce": lambda n: (1, []),
    "Reduce": lambda n: (1, [ROOT]),
    "Reduce_scatter": lambda n: (np.ones(n, np.intc), []),
    "Reduce_scatter_block": lambda n: (1, []),
    "Scan": lambda n: (1, []),
    "Exscan": lambda n: (1, []),
}


def reduced_elements(comm: Any, name: str) -> int:
    """That the process passes and gets."""
    parts = {"Reduce": 1 + (comm.rank == ROOT)} | dict.fromkeys(
        ("Reduce_scatter", "Reduce_scatter_block"), comm.size + 1
    )
    return parts.get(name, 2)


@pytest.mark.parametrize("form", ["{}", "I{}", "{}_init"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_count_in_each_form(comm: Any, kind: Any, xor: Any, name: str, form: str) -> None:
    """Persistent ones when they are made."""
    full = form.format(name.lower() if form[0] == "I" else name)
    if not calls.has(f"MPI_{full}"):
        pytest.skip("new in MPI-4.0")
    count, root = REDUCTIONS[name](comm.size)
    request = Requests()
    added = {"{}": [], "I{}": [request.at()], "{}_init": [MPI.INFO_NULL, request.at()]}[form]
    own, others = spread(comm), spread(comm)
    with idle(), counted(**{full: (1, BYTES * reduced_elements(comm, name))}):
        calls.call(f"MPI_{full}", own, others, count, kind, xor, *root, comm, *added)
        for _ in range(2 * (form == "{}_init")):
            calls.call("MPI_Start", request.at())
            request.wait()
        if form == "{}_init":
            calls.call("MPI_Request_free", request.at())
        request.wait()


def test_nothing_counts_with_tempi_disabled(comm: Any, kind: Any) -> None:
    with tempi.disabled(), counted():
        comm.Bcast([spread(comm), 1, kind], ROOT)


def test_one_sided_operations_count_either_sides_type(comm: Any, kind: Any) -> None:
    window = MPI.Win.Create(spread(comm), 8, comm=comm)
    own = spread(comm)
    try:
        window.Fence()
        with counted(Put=(2, 2 * BYTES), Get=(1, BYTES)):
            window.Put([own, 1, kind], comm.rank, [0, ROW, MPI.DOUBLE])
            window.Fence()
            window.Put([own, ROW, MPI.DOUBLE], comm.rank, [0, 1, kind])
            window.Fence()
            window.Get([own, 1, kind], comm.rank, [0, ROW, MPI.DOUBLE])
            window.Fence()
        with counted():
            window.Put([own, ROW, MPI.DOUBLE], MPI.PROC_NULL, [0, ROW, MPI.DOUBLE])
        window.Fence()
    finally:
        window.Free()


#: Each into the memory of the process itself.
OPERATIONS: dict[str, Callable[[Any, Any, int, Any], object]] = {
    "Accumulate": lambda window, own, rank, other: window.Accumulate(own, rank, other),
    "Raccumulate": lambda window, own, rank, other: window.Raccumulate(own, rank, other).Wait(),
    "Rput": lambda window, own, rank, other: window.Rput(own, rank, other).Wait(),
    "Rget": lambda window, own, rank, other: window.Rget(own, rank, other).Wait(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_other_one_sided_operations_count_either_sides_type(comm: Any, kind: Any, name: str) -> None:
    window, own = MPI.Win.Create(spread(comm), 8, comm=comm), spread(comm)
    call = OPERATIONS[name]
    window.Lock(comm.rank)
    try:
        with counted(**{name: (2, 2 * BYTES)}):
            call(window, [own, 1, kind], comm.rank, [0, ROW, MPI.DOUBLE])
            call(window, [own, ROW, MPI.DOUBLE], comm.rank, [0, 1, kind])
            call(window, [own, ROW, MPI.DOUBLE], comm.rank, [0, ROW, MPI.DOUBLE])
    finally:
        window.Unlock(comm.rank)
        window.Free()


def test_files_count_the_programs_calls_alone(comm: Any, kind: Any, tmp_path: Path) -> None:
    path = comm.bcast(str(tmp_path / "data"), ROOT)
    comm.Barrier()
    data = spread(comm)
    with counted(File_write_at_all=(1, BYTES), File_read_at=(1, BYTES)):
        file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
        try:
            file.Write_at_all(BYTES * comm.rank, [data, 1, kind])
            file.Read_at(BYTES * comm.rank, [data, 1, kind])
            file.Write_at_all(BYTES * comm.rank, [data, ROW, MPI.DOUBLE])
        finally:
            file.Close()


@contextlib.contextmanager
def opened(comm: Any, tmp_path: Path, filetype: Any) -> Iterator[Any]:
    """A file of doubles that all ranks have open, with such a view."""
    path = comm.bcast(str(tmp_path / "viewed"), ROOT)
    comm.Barrier()
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
    try:
        file.Set_view(8 * 64 * ROW * comm.rank, MPI.DOUBLE, filetype)
        yield file
    finally:
        file.Close()


#: Of each kind of access one; those by a shared pointer need the same view on all ranks.
ACCESSES: dict[str, Callable[[Any, Any], object]] = {
    "File_write": lambda file, plain: file.Write(plain),
    "File_write_all": lambda file, plain: file.Write_all(plain),
    "File_iwrite_at": lambda file, plain: file.Iwrite_at(0, plain).Wait(),
    "File_read_at": lambda file, plain: file.Read_at(0, plain),
    "File_read_at_all": lambda file, plain: file.Read_at_all(0, plain),
    "File_iread_all": lambda file, plain: file.Iread_all(plain).Wait(),
    "File_read_at_all_begin": lambda file, plain: (file.Read_at_all_begin(0, plain), file.Read_at_all_end(plain)),
}


@pytest.mark.parametrize("name", ACCESSES)
def test_plain_memory_counts_if_the_view_of_the_file_is_derived(
    comm: Any, kind: Any, tmp_path: Path, name: str
) -> None:
    plain = [spread(comm), 2 * ROW, MPI.DOUBLE]
    with opened(comm, tmp_path, kind) as file:
        file.Write_at_all(0, [plain[0], 4 * ROW, MPI.DOUBLE])
        with counted(**{name: (1, 2 * BYTES)}):
            ACCESSES[name](file, plain)


def test_a_call_with_two_derived_layouts_counts_once(comm: Any, kind: Any, tmp_path: Path) -> None:
    with opened(comm, tmp_path, kind) as file, counted(File_write_at_all=(1, BYTES)):
        file.Write_at_all(0, [spread(comm), 1, kind])


def test_a_file_counts_only_while_its_view_is_derived(comm: Any, kind: Any, tmp_path: Path) -> None:
    plain = [spread(comm), ROW, MPI.DOUBLE]
    with opened(comm, tmp_path, kind) as viewed, opened(comm, tmp_path, MPI.DOUBLE) as other:
        with counted(File_write_at=(1, BYTES)):
            viewed.Write_at(0, plain)
            other.Write_at(0, plain)
            with tempi.disabled():
                viewed.Write_at(0, plain)
        viewed.Set_view(0, MPI.DOUBLE, MPI.DOUBLE)
        with counted():
            viewed.Write_at(0, plain)
        viewed.Set_view(0, kind, kind)
    with opened(comm, tmp_path, MPI.DOUBLE) as again, counted():  # its handle may be that of the closed one
        again.Write_at(0, plain)


def supported(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except NotImplementedError:
        pytest.skip("this library has no such function")


def test_calls_that_tempi_enters_but_never_carries_are_counted(comm: Any, kind: Any) -> None:
    own, others = spread(comm), spread(comm)
    with idle(), counted(Isendrecv=(1, 2 * BYTES)):
        supported(lambda: comm.Isendrecv([own, 1, kind], comm.rank, recvbuf=[others, 1, kind], source=comm.rank)).Wait()


def test_partitioned_messages_count_when_they_are_made(comm: Any, kind: Any) -> None:
    if comm.size == 1:
        pytest.skip("to itself Open MPI sends no partitions")
    to, source = partners(comm)
    own, others = spread(comm), spread(comm)
    with idle(), counted(Psend_init=(1, 2 * 3 * BYTES), Precv_init=(1, 2 * 3 * BYTES)):
        receive = supported(lambda: comm.Precv_init([others, 3, kind], 2, source, 1))
        send = comm.Psend_init([own, 3, kind], 2, to, 1)
        for _ in range(2):
            MPI.Prequest.Startall([receive, send])
            send.Pready_range(0, 1)
            MPI.Request.Waitall([receive, send])
        receive.Free()
        send.Free()


def test_messages_and_packs_do_not_count_as_such(comm: Any, kind: Any) -> None:
    own, others = spread(comm), spread(comm)
    with counted():
        request = comm.Irecv([others, 1, kind], comm.rank)
        comm.Send([own, 1, kind], comm.rank)
        request.Wait()
        kind.Pack(own, np.zeros(own.nbytes, np.uint8), 0, comm)
