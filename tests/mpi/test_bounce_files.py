"""MPI-IO with device memory: every way to read and to write, and short reads."""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
import tempi
from bounces import MPICH_4, MPICH_4_OR_INTEL, PLACES, TYPES, Kit, Requests, bouncing, committed_plainly, same_on_device
from devices import DeviceMemory
from world import MPI, committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N = 5
#: MPICH 4.0's ROMIO aborts on datatypes of the _c functions, and moves other bytes than those of a type that
#: was resized to another lower bound.
making = committed_plainly if MPICH_4 else committed
OF_FILES = [name for name in TYPES if not (MPICH_4_OR_INTEL and name == "below")]
#: Name without MPI_File_, and how the position in the file is given: by the file pointer, an offset, or the
#: shared pointer.
POINTER, OFFSET, SHARED = "pointer", "offset", "shared"
KINDS = {
    "read": POINTER,
    "read_all": POINTER,
    "read_at": OFFSET,
    "read_at_all": OFFSET,
    "read_shared": SHARED,
    "read_ordered": SHARED,
}
BLOCKING = KINDS | {name.replace("read", "write"): kind for name, kind in KINDS.items()}
NONBLOCKING = {f"i{name}": kind for name, kind in BLOCKING.items() if "ordered" not in name}
SPLIT = {name: kind for name, kind in BLOCKING.items() if "all" in name or "ordered" in name}


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    comm = MPI.COMM_WORLD
    made = ""
    if comm.rank == 0:
        handle, made = tempfile.mkstemp(prefix="tempi-bounce-")
        os.close(handle)
    made = comm.bcast(made)
    yield made
    comm.Barrier()
    if comm.rank == 0:
        Path(made).unlink()


def content(comm: Any, path: str, size: int) -> None:
    """The file holds so many known bytes."""
    comm.Barrier()
    if comm.rank == 0:
        np.random.default_rng(5).integers(0, 256, size, np.uint8).tofile(path)
    comm.Barrier()


def bytes_each(k: Kit) -> int:
    return int(N * k.tree.type_map.size)


def place(k: Kit, kind: str, file: Any) -> list[Any]:
    """Each rank has its part of the file; the shared pointer finds it by itself."""
    if kind == OFFSET:
        return [ctypes.c_int64(k.rank * bytes_each(k))]
    if kind == POINTER:
        file.Seek(k.rank * bytes_each(k))
    return []


def performed(path: str, name: str, kind: str, form: str, short: int = 0) -> Callable[[Kit], Any]:
    """`short`: so many bytes are missing at the file's end."""

    def run(k: Kit) -> Any:
        suffix = "_c" if k.large else ""
        total = bytes_each(k) * k.size
        content(k.comm, path, total - short)
        file = MPI.File.Open(k.comm, path, MPI.MODE_RDWR)
        file.Set_errhandler(MPI.ERRORS_RETURN)
        memory = k.recv(N) if "read" in name else k.input(N)
        arguments = [file, *place(k, kind, file), memory, k.n(N), k.datatype]
        status = np.zeros(64, np.uint8)
        if form == "blocking":
            calls.call(f"MPI_File_{name}{suffix}", *arguments, status)
        elif form == "nonblocking":
            requests = Requests()
            calls.call(f"MPI_File_{name}{suffix}", *arguments, requests.at())
            requests.wait()
        else:
            calls.call(f"MPI_File_{name}_begin{suffix}", *arguments)
            calls.call(f"MPI_File_{name}_end", file, memory, status)
        file.Sync()
        file.Close()
        k.comm.Barrier()
        found = k.contents()
        if kind == SHARED and "ordered" not in name:
            return unordered(k, path, name)
        return [*found, np.fromfile(path, np.uint8)]

    return run


def unordered(k: Kit, path: str, name: str) -> list[Any]:
    """The order of the ranks is arbitrary: compares their data as a set."""
    (memory,) = k.memories
    parts = sorted(k.comm.allgather(memory.packed.tobytes()))
    whole = np.fromfile(path, np.uint8)
    pieces = sorted(whole[i : i + bytes_each(k)].tobytes() for i in range(0, len(whole), bytes_each(k)))
    joined = [np.frombuffer(part, np.uint8) for part in (*parts, *pieces)]
    return joined


def every_way(comm: Any, path: str, name: str, kind: str, form: str, short: int = 0) -> None:
    """Of a type with gaps, MPICH's ROMIO brings whatever was in its own buffer for what a file lacks."""
    for i, tree in enumerate(("plain",) if short else OF_FILES):
        for places in PLACES:
            run = performed(path, name, kind, form, short)
            same_on_device(comm, run, tree, places, making=making, large=i % 2 == 0)


@pytest.mark.parametrize("name", BLOCKING)
def test_blocking(comm: Any, path: str, name: str) -> None:
    every_way(comm, path, name, BLOCKING[name], "blocking")


@pytest.mark.parametrize("name", NONBLOCKING)
def test_nonblocking(comm: Any, path: str, name: str) -> None:
    every_way(comm, path, name, NONBLOCKING[name], "nonblocking")


@pytest.mark.parametrize("name", SPLIT)
def test_in_two_halves(comm: Any, path: str, name: str) -> None:
    every_way(comm, path, name, SPLIT[name], "split")


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name] is not SHARED])
def test_bytes_that_the_file_lacks_stay_unchanged(comm: Any, path: str, name: str) -> None:
    every_way(comm, path, name, KINDS[name], "blocking", short=10)


@pytest.mark.parametrize("name", ["read_at", "read_at_all"])
def test_short_nonblocking_read(comm: Any, path: str, name: str) -> None:
    if "Open MPI" in MPI.Get_library_version():
        pytest.skip("Open MPI 5.0 never completes a nonblocking read past the end of a file")
    every_way(comm, path, f"i{name}", OFFSET, "nonblocking", short=10)


def test_the_status_has_the_bytes_that_came(comm: Any, path: str) -> None:
    content(comm, path, 10)
    file = MPI.File.Open(comm, path, MPI.MODE_RDONLY)
    memory = DeviceMemory(64)
    memory.write(np.full(64, 9, np.uint8))
    status = MPI.Status()
    file.Read_at(0, [memory.at(0), 64, MPI.BYTE], status)
    file.Close()
    assert status.Get_count(MPI.BYTE) == 10
    np.testing.assert_array_equal(memory.read()[:10], np.fromfile(path, np.uint8))
    assert (memory.read()[10:] == 9).all()


def test_calls_with_a_derived_datatype_count_as_without_a_device(comm: Any, path: str) -> None:
    content(comm, path, 64)
    file = MPI.File.Open(comm, path, MPI.MODE_RDWR)
    before = tempi.stats().fallbacks
    with committed(TYPES["strided"]) as strided:
        file.Read_at_all(0, [np.zeros(64, np.uint8), 1, strided])
        file.Set_view(0, MPI.INT, strided)
        file.Write_at_all(0, [np.zeros(4, np.intc), 4, MPI.INT])
    file.Close()
    after = tempi.stats().fallbacks
    moved = {name: now.bytes - (before[name].bytes if name in before else 0) for name, now in after.items()}
    assert {name: size for name, size in moved.items() if size} == {
        "MPI_File_read_at_all": 12,
        "MPI_File_write_at_all": 16,
    }


def test_two_files_have_a_collective_under_way(comm: Any, path: str) -> None:
    content(comm, path, 64)
    files = [MPI.File.Open(comm, path, MPI.MODE_RDONLY) for _ in range(2)]
    memories = [DeviceMemory(64) for _ in files]
    messages = [[memory.at(0), 64, MPI.BYTE] for memory in memories]
    for file, message in zip(files, messages, strict=True):
        file.Read_at_all_begin(0, message)
    for file, message in zip(reversed(files), reversed(messages), strict=True):
        file.Read_at_all_end(message)
    for file, memory in zip(files, memories, strict=True):
        np.testing.assert_array_equal(memory.read(), np.fromfile(path, np.uint8))
        file.Close()


def test_every_function_of_files_that_bounces_has_a_test_by_name() -> None:
    halves = {f"File_{name}_{half}" for name in SPLIT for half in ("begin", "end")}
    assert bouncing("FILE") == {f"File_{name}" for name in (*BLOCKING, *NONBLOCKING)} | halves
