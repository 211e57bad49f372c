"""Collectives of blocks in memory that the processes of the node map: MPI_Alloc_mem and tempi.empty."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import tempi
from pending import nonblocking, request_of
from world import MPI, carried, needs_host_memory, outcome, same_without, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Of each block: rows of so many bytes, so far apart.
SHAPES = {"short": (3000, 24, 40), "medium": (400, 200, 256), "long": (20, 4096, 5000)}
#: A new communicator has tried each way of copying three times by then. What it knows already from other blocks it
#: tries again in two of 32 exchanges, and what a nonblocking call offers may be withdrawn.
TURNS, MOST = 48, 1000


class Allocated:
    """Memory of MPI_Alloc_mem as an array."""

    def __init__(self, size: int) -> None:
        self.memory = MPI.Alloc_mem(size)
        self.array = np.frombuffer(cast("Any", self.memory), np.uint8)

    def free(self) -> None:
        del self.array
        MPI.Free_mem(self.memory)


class Emptied:
    def __init__(self, size: int) -> None:
        self.array = tempi.empty(size, np.uint8)

    def free(self) -> None:
        del self.array


SOURCES: dict[str, Callable[[int], Any]] = {"alloc_mem": Allocated, "empty": Emptied}


class Exchange:
    """Blocks of the same shape between all ranks, from mapped memory into ordinary memory."""

    def __init__(self, comm: Any, source: str, rows: int, run: int, stride: int) -> None:
        size = comm.size
        self.rank, self.shape, self.run = comm.rank, (size, rows, stride), run
        self.owner = SOURCES[source](size * rows * stride)
        self.into = np.zeros(self.shape, np.uint8)
        self.type = MPI.BYTE.Create_vector(rows, run, stride).Commit()
        spread = [[1] * size, [i * rows * stride for i in range(size)], [self.type] * size]
        self.arguments: Any = [self.owner.array, *spread], [self.into, *spread]

    def fill(self, turn: int) -> None:
        pattern = (np.arange(self.into.size) % 251).astype(np.uint8).reshape(self.shape)
        self.out[:] = pattern + np.uint8(16 * self.rank + turn)
        self.into[:] = 0xA5

    @property
    def out(self) -> Any:
        return self.owner.array.reshape(self.shape)

    def check(self, turn: int) -> None:
        pattern = (np.arange(self.into.size) % 251).astype(np.uint8).reshape(self.shape)
        for source in range(self.shape[0]):
            expected = pattern[self.rank] + np.uint8(16 * source + turn)
            assert (self.into[source, :, : self.run] == expected[:, : self.run]).all()
        assert (self.into[:, :, self.run :] == 0xA5).all()

    def free(self) -> None:
        self.type.Free()
        self.arguments = ()
        self.owner.free()


@contextlib.contextmanager
def call_of(comm: Any, form: str, e: Exchange) -> Iterator[Callable[[], None]]:
    """Makes one exchange."""
    if form != "persistent":
        call = comm.Alltoallw if form == "blocking" else nonblocking(comm, "Alltoallw")
        yield lambda: call(*e.arguments)
        return
    request = request_of(comm, "Alltoallw", *e.arguments)

    def start() -> None:
        request.Start()
        request.Wait()

    yield start
    request.Free()


@pytest.mark.parametrize(
    ("source", "form"), [("alloc_mem", "blocking"), ("empty", "nonblocking"), ("empty", "persistent")]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_arrive_whichever_way_they_take(ready: Any, shape: str, source: str, form: str) -> None:
    """All ways are tried in turn; some ranks are late, and what was sent is overwritten as soon as it may be."""
    needs_host_memory()
    e = Exchange(ready, source, *SHAPES[shape])
    before = snapshot()["mapped_bytes"]
    wanted = ready.size > 1 and carries(ready)
    with call_of(ready, form, e) as exchange:
        for turn in range(MOST):
            e.fill(turn % 16)
            if turn % 5 == ready.rank:
                time.sleep(0.003)
            elif turn % 5 == 4:
                ready.Barrier()
            exchange()
            e.out[:] = 0xEE
            e.check(turn % 16)
            if turn >= TURNS and ready.allreduce(snapshot()["mapped_bytes"] > before or not wanted, MPI.LAND):
                break
    assert snapshot()["mapped_bytes"] > before or not wanted
    e.free()


def carries(comm: Any) -> bool:
    """Whether the ranks of this communicator share a node."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    shares = node.size == comm.size
    node.Free()
    return shares


@pytest.mark.parametrize("source", SOURCES)
def test_memory_that_was_freed_is_not_read_again(ready: Any, source: str) -> None:
    """The next one has the same address, often the same descriptor, and other bytes."""
    needs_host_memory()
    addresses = set()
    for turn in range(2 * TURNS):
        e = Exchange(ready, source, *SHAPES["short"])
        addresses.add(e.owner.array.ctypes.data)
        e.fill(turn)
        with carried(ready, "Alltoallw"):
            ready.Alltoallw(*e.arguments)
        e.check(turn)
        e.free()
    assert len(addresses) < TURNS
    assert len(others()) < 8


def others() -> list[str]:
    """Mappings of other processes' memory: read-only."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "/memfd:tempi" in line and line.split()[1].startswith("r--")]


def test_blocks_that_lie_only_partly_in_mapped_memory_are_not_read_there(ready: Any) -> None:
    """One nest of two runs, of which the second is in other memory."""
    needs_host_memory()
    size, run = ready.size, 1 << 16
    other, into = np.frombuffer(mmap.mmap(-1, run), np.uint8), np.zeros((size, 2 * run), np.uint8)
    mapped = [tempi.empty(run, np.uint8) for _ in range(8)]
    first = min(mapped, key=lambda array: int(array.ctypes.data))
    distance = other.ctypes.data - first.ctypes.data
    sent = MPI.BYTE.Create_hvector(2, run, distance).Commit()
    places = [2 * run * i for i in range(size)]
    first[:], other[:] = ready.rank + 1, ready.rank + 101
    for _ in range(TURNS):
        into[:] = 0
        ready.Alltoallw(
            [first, [1] * size, [0] * size, [sent] * size], [into, [2 * run] * size, places, [MPI.BYTE] * size]
        )
        for source in range(size):
            assert (into[source, :run] == source + 1).all()
            assert (into[source, run:] == source + 101).all()
    sent.Free()
    if ready.size > 1:
        assert distance > 0


def descriptors() -> int:
    """Of this process's own mapped memory."""
    gc.collect()
    return sum(is_mapped(entry) for entry in Path("/proc/self/fd").iterdir())


def is_mapped(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("/memfd:tempi (")
    except OSError:  # the listing's own
        return False


def test_an_array_takes_a_descriptor_until_its_last_view_is_gone(comm: Any) -> None:
    before = descriptors()
    array = tempi.empty((64, 64, 64), "f8")
    assert descriptors() == before + 1
    view = array[::2, :, 3]
    view[:] = 7
    del array
    assert descriptors() == before + 1
    assert (view == 7).all()
    del view
    assert descriptors() == before


def test_arrays_are_as_numpy_makes_them() -> None:
    array = tempi.empty((3, 4, 5), "f4", order="F")
    assert array.flags.f_contiguous
    assert array.flags.writeable
    assert tempi.empty(0).size == 0
    assert tempi.empty((5, 0, 2), complex).shape == (5, 0, 2)
    assert tempi.empty(7).dtype == np.float64
    assert tempi.empty(np.int64(5)).shape == (5,)
    assert tempi.empty((np.uint8(200), np.uint8(200)), "u1").size == 40_000
    assert tempi.empty((), "i4").shape == ()
    assert tempi.empty(3, "S").dtype == "S1"
    assert tempi.empty((3, 4), "f8", "f").flags.f_contiguous


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((3, object), "objects"),
        ((3, "f8", MPI.COMM_WORLD), "a communicator is not needed"),
        (((3, -1),), "negative"),
        ((3.0,), "integer"),
        ((None,), "NoneType"),
        (((1 << 40, 1 << 40),), "large"),
        ((1 << 63, "u1"), "exceeded"),
        ((3, "no such"), "no such"),
        ((3, "f8", "K"), "order"),
    ],
)
def test_arguments_that_numpy_refuses_are_refused(arguments: tuple[Any, ...], match: str) -> None:
    with pytest.raises(tempi.ArrayError, match=match):
        tempi.empty(*arguments)


def test_more_than_there_is_is_refused(comm: Any) -> None:
    with pytest.raises(MemoryError, match="ulimit"):
        tempi.empty(1 << 50, np.uint8)
    same_without(lambda: outcome(lambda: MPI.Free_mem(MPI.Alloc_mem(1 << 50))))


def in_child(action: Callable[[], None]) -> None:
    """As a child that forgets its reference and ends without a word."""
    child = os.fork()
    if child == 0:
        action()
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.parametrize("source", SOURCES)
def test_a_child_that_frees_its_memory_does_not_take_the_parents(source: str) -> None:
    owner = SOURCES[source](1 << 17)
    owner.array[:] = 7
    in_child(owner.free)
    assert (owner.array == 7).all()
    owner.free()


def test_a_child_keeps_the_memory_that_its_parent_frees() -> None:
    array = tempi.empty(1 << 17, np.uint8)
    array[:] = 7
    seen, told = os.pipe()
    done, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(done, 1)
        os.write(told, bytes([array.min()]))
        os._exit(0)
    del array
    gc.collect()
    os.write(go, b"x")
    assert os.read(seen, 1) == b"\7"
    os.waitpid(child, 0)
    for one in (seen, told, done, go):
        os.close(one)


def test_threads_without_mpi_allocate_and_free_at_once() -> None:
    """Below MPI_THREAD_MULTIPLE, too: these calls are none of MPI's."""
    before = descriptors()

    def allocate() -> None:
        for _ in range(300):
            tempi.empty(1 << 16)

    threads = [threading.Thread(target=allocate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert descriptors() == before


def test_a_descriptor_that_the_program_took_is_not_touched(tmp_path: Path) -> None:
    array = tempi.empty(1 << 16, np.uint8)
    (own,) = [int(one.name) for one in Path("/proc/self/fd").iterdir() if is_mapped(one)][-1:]
    with (tmp_path / "precious").open("wb+") as file:
        file.write(b"precious")
        file.flush()
        os.dup2(file.fileno(), own)
        del array
        gc.collect()
        assert os.pread(own, 8, 0) == b"precious"
        os.close(own)


def test_memory_with_an_info_is_the_librarys() -> None:
    info, before = MPI.Info.Create(), descriptors()
    info["mpi_minimum_memory_alignment"] = str(1 << 16)
    memory = MPI.Alloc_mem(1 << 17, info)
    assert descriptors() == before
    MPI.Free_mem(memory)
    info.Free()


def test_memory_beyond_the_limit_of_descriptors_is_the_librarys(comm: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    taken: list[Any] = []
    before = descriptors()
    try:
        for turn in range(100):
            taken.append(MPI.Alloc_mem(1 << 16))
            np.frombuffer(taken[-1], np.uint8)[:] = turn
        assert descriptors() <= 64
        taken += [tempi.empty(1 << 16, np.uint8) for _ in range(64 - descriptors())]
        with pytest.raises(MemoryError):
            tempi.empty(1 << 16, np.uint8)
        for turn in range(100):
            assert (np.frombuffer(taken[turn], np.uint8) == turn).all()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for memory in taken[:100]:
            MPI.Free_mem(memory)
        del taken[100:]
    assert descriptors() <= before + 8


def test_freed_memory_serves_the_next_of_its_size(comm: Any) -> None:
    """Programs that allocate and free in each step get no new pages; at most 8 of 32 MiB together stay."""
    seen, before = set(), descriptors()
    for _ in range(20):
        memory = MPI.Alloc_mem(1 << 20)
        seen.add(np.frombuffer(cast("Any", memory), np.uint8).ctypes.data)
        MPI.Free_mem(memory)
    assert len(seen) == 1 or descriptors() == before  # the library's: this rank knows no other
    assert descriptors() <= before + 1
    several = [MPI.Alloc_mem((1 << 16) + 4096 * i) for i in range(20)]
    for memory in several:
        MPI.Free_mem(memory)
    MPI.Free_mem(MPI.Alloc_mem(33 << 20))
    assert descriptors() <= before + 8


def test_short_memory_is_the_librarys(comm: Any) -> None:
    before = descriptors()
    memory = MPI.Alloc_mem(1000)
    assert descriptors() == before
    MPI.Free_mem(memory)
