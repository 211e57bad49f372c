"""Completion of bounced requests by every function, and the other functions with bounce buffers."""

from __future__ import annotations

import ctypes
import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
import oracle
from bounces import MPICH_4, PLACES, TYPES, UNAVAILABLE, Kit, Requests, bouncing, same_on_device
from devices import DeviceMemory
from world import MPI, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

N = 1000
MPICH = re.search("MPICH|Intel", MPI.Get_library_version()) is not None


class Sum:
    """A nonblocking sum of integers over all ranks, from device memory to device memory."""

    def __init__(self, comm: Any, seed: int) -> None:
        self.size = comm.size
        self.numbers = np.arange(N, dtype=np.int64) * (seed + 1)
        self.source, self.result = DeviceMemory(8 * N), DeviceMemory(8 * N)
        self.source.write(self.numbers.view(np.uint8))
        self.result.write(np.zeros(8 * N, np.uint8))
        self.arguments = ([self.source.at(0), N, MPI.INT64_T], [self.result.at(0), N, MPI.INT64_T])
        self.comm = comm

    def start(self) -> Any:
        return self.comm.Iallreduce(*self.arguments)

    def persistent(self) -> Any:
        return self.comm.Allreduce_init(*self.arguments)

    def check(self) -> None:
        np.testing.assert_array_equal(self.result.read().view(np.int64), self.size * self.numbers)


def until(tested: Callable[[], bool]) -> None:
    while not tested():
        pass


def somes(requests: list[Any], some: Callable[[list[Any]], Any]) -> None:
    left = len(requests)
    while left:
        done = some(requests)
        left -= len(done or [])


def anys(requests: list[Any]) -> None:
    for _ in requests:
        MPI.Request.Waitany(requests)


def any_tested(requests: list[Any]) -> None:
    left = len(requests)
    while left:
        index, flag = MPI.Request.Testany(requests)
        left -= flag and index != MPI.UNDEFINED


def looked_at(requests: list[Any]) -> None:
    """The program may use its buffers once completion is reported."""
    for request in requests:
        until(request.Get_status)


COMPLETIONS: dict[str, Callable[[list[Any]], Any]] = {
    "Wait": lambda requests: [request.Wait() for request in requests],
    "Test": lambda requests: [until(request.Test) for request in requests],  # type: ignore[func-returns-value]
    "Waitall": MPI.Request.Waitall,
    "Testall": lambda requests: until(lambda: MPI.Request.Testall(requests)),
    "Waitany": anys,
    "Testany": any_tested,
    "Waitsome": lambda requests: somes(requests, MPI.Request.Waitsome),
    "Testsome": lambda requests: somes(requests, MPI.Request.Testsome),
    "Get_status": looked_at,
}


@pytest.mark.parametrize("how", COMPLETIONS)
def test_sums_among_messages_come_back(comm: Any, how: str) -> None:
    """Some of them are packed device memory, some bounced, and some are requests of the library alone."""
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sums = [Sum(comm, seed) for seed in range(3)]
    into, plain = DeviceMemory(64), np.zeros(8)
    out = DeviceMemory(64)
    out.write(np.full(64, comm.rank, np.uint8))
    requests = [sums[0].start(), comm.Irecv([into.at(0), 64, MPI.BYTE], source, 8)]
    requests += [sums[1].start(), comm.Irecv(plain, source, 9), comm.Isend(np.ones(8), to, 9)]
    requests += [comm.Isend([out.at(0), 64, MPI.BYTE], to, 8), sums[2].start()]
    COMPLETIONS[how](requests)
    for one in sums:
        one.check()
    assert (into.read() == source).all()
    assert (plain == 1).all()
    MPI.Request.Waitall(requests)


@pytest.mark.parametrize("how", [how for how in COMPLETIONS if how != "Get_status"])
def test_a_persistent_sum_comes_back_each_time(comm: Any, how: str) -> None:
    if not calls.has("MPI_Allreduce_init"):
        pytest.skip("this library has no MPI_Allreduce_init")
    if MPICH and how == "Testall":
        pytest.skip("MPICH 5.0.2 and Intel MPI by themselves fail in MPI_Testall of persistent collectives")
    if MPICH_4 and how.endswith(("any", "some")):
        pytest.skip(f"MPICH 4.0.2 by itself reports a persistent collective again and again in MPI_{how}")
    sums = [Sum(comm, seed) for seed in range(2)]
    requests = [one.persistent() for one in sums]
    for seed in range(3):
        for one in sums:
            one.numbers += seed
            one.source.write(one.numbers.view(np.uint8))
        MPI.Prequest.Startall(requests)
        COMPLETIONS[how](list(requests))
        for one in sums:
            one.check()
    for request in requests:
        request.Free()


def test_the_arrays_of_a_call_may_change_once_it_is_posted(comm: Any) -> None:
    """The bounce has read them already; a later change has no effect on it."""
    before = snapshot()["bounced"]
    one = Sum(comm, 1)
    request = one.start()
    one.source.write(np.zeros(8 * N, np.uint8))  # the bounce buffer has the numbers already
    request.Wait()
    assert snapshot()["bounced"] == before + 1


def test_large_buffers_go_in_pieces(comm: Any) -> None:
    """More packed bytes than move at a time, and a type with gaps."""
    n = 5_000_000
    vector = MPI.INT.Create_vector(n // 2, 1, 2).Commit()
    memory = DeviceMemory(4 * n)
    data = np.arange(n, dtype=np.int32) + comm.rank
    memory.write(data.view(np.uint8))
    comm.Bcast([memory.at(0), 1, vector], 0)
    expected = data.copy()
    expected[::2] = np.arange(0, n, 2)
    np.testing.assert_array_equal(memory.read().view(np.int32), expected)
    vector.Free()


def test_bytes_far_apart_cost_what_moves(comm: Any) -> None:
    """A bounce buffer for two ends of a large array takes no memory for the bytes between them."""
    span = 100 << 20
    memory = DeviceMemory(span)
    ends = MPI.BYTE.Create_hindexed([8, 8], [0, span - 8]).Commit()
    mine = np.full(16, comm.rank, np.uint8)
    calls.unpack(mine, 0, At(memory.address, 1), ends, comm)
    before = snapshot()["stage_peak"]
    comm.Bcast([memory.at(0), 1, ends], comm.size - 1)
    assert snapshot()["stage_peak"] < before + (1 << 20)
    calls.pack(At(memory.address, 1), ends, mine, 0, comm)
    assert (mine == comm.size - 1).all()
    ends.Free()


class At(ctypes.c_void_p):
    """An address and a count, as calls.pack and calls.unpack take them."""

    def __init__(self, address: int, count: int) -> None:
        super().__init__(address)
        self.count = count


def test_one_failure_among_ignored_statuses_takes_nothing_from_the_others(comm: Any) -> None:
    """A message that is too long for its receive, beside a sum: the program ignores all statuses."""
    one = Sum(comm, 2)
    short, long = np.zeros(8, np.uint8), np.zeros(64, np.uint8)
    made = [comm.Irecv([short, 8, MPI.BYTE], comm.rank, 4), comm.Isend([long, 64, MPI.BYTE], comm.rank, 4)]
    made.append(one.start())
    requests = Requests(3)
    for i, request in enumerate(made):
        requests.handles[i] = request.handle & ((1 << 8 * MPI._sizeof(request)) - 1)
    null = Requests().handles[0]
    ignored = ctypes.c_void_p(1 if MPICH else 0)
    failed = calls.code_of("MPI_Waitall", 3, requests.handles, ignored)
    assert failed != MPI.SUCCESS or not MPICH  # Open MPI 5.0 reports nothing if statuses are ignored
    for i in range(3):
        if requests.handles[i] != null:
            calls.code_of("MPI_Wait", requests.at(i), ignored)
    one.check()


# -- other functions ------------------------------------------------------------------------------------------


def reduce_local(k: Kit) -> None:
    name = "MPI_Reduce_local" + ("_c" if k.large else "")
    calls.call(name, k.input(4), k.recv(4), k.n(4), k.datatype, k.op)


def isendrecv(k: Kit) -> None:
    to, source = (k.rank + 1) % k.size, (k.rank - 1) % k.size
    requests = Requests()
    out, into = [k.input(3), k.n(3), k.datatype, to, 1], [k.recv(4), k.n(4), k.datatype, source, 1]
    calls.call("MPI_Isendrecv" + ("_c" if k.large else ""), *out, *into, k.comm, requests.at())
    requests.wait()


def isendrecv_replace(k: Kit) -> None:
    to, source = (k.rank + 1) % k.size, (k.rank - 1) % k.size
    requests = Requests()
    name = "MPI_Isendrecv_replace" + ("_c" if k.large else "")
    calls.call(name, k.recv(3), k.n(3), k.datatype, to, 1, source, 1, k.comm, requests.at())
    requests.wait()


PACKED = 200


def position(k: Kit) -> Any:
    return ctypes.c_int64(16)


def pack_external(k: Kit) -> None:
    k.kept.append(position(k))
    at = ctypes.byref(k.kept[-1])
    name = "MPI_Pack_external" + ("_c" if k.large else "")
    out = k.recv(PACKED, tree=BYTES)
    calls.call(name, b"external32", k.input(4), k.n(4), k.datatype, out, ctypes.c_int64(PACKED), at)
    assert k.kept[-1].value == 16 + 4 * k.tree.type_map.size


def unpack_external(k: Kit) -> None:
    k.kept.append(position(k))
    at = ctypes.byref(k.kept[-1])
    name = "MPI_Unpack_external" + ("_c" if k.large else "")
    source = k.input(PACKED, tree=BYTES)
    calls.call(name, b"external32", source, ctypes.c_int64(PACKED), at, k.recv(4), k.n(4), k.datatype)
    assert k.kept[-1].value == 16 + 4 * k.tree.type_map.size


BYTES = oracle.Named("BYTE")
OTHERS: dict[str, Callable[[Kit], None]] = {
    "Reduce_local": reduce_local,
    "Isendrecv": isendrecv,
    "Isendrecv_replace": isendrecv_replace,
    "Pack_external": pack_external,
    "Unpack_external": unpack_external,
}


def trees_of(name: str) -> list[str]:
    """MPICH 5.0.2 alone receives wrong data into a derived type by MPI_Isendrecv_replace; MPICH 4.0.2 crashes on one
    in both."""
    broken = (name == "Isendrecv_replace" and MPICH) or (name == "Isendrecv" and MPICH_4)
    return ["plain"] if broken else list(TYPES)


@pytest.mark.parametrize("name", OTHERS)
def test_other_function(comm: Any, name: str) -> None:
    if not calls.has(f"MPI_{name}"):
        pytest.skip(f"this library has no MPI_{name}")
    for i, tree in enumerate(trees_of(name)):
        for j, places in enumerate(PLACES):
            same_on_device(comm, OTHERS[name], tree, places, large=(i + j) % 2 == 0)


# -- partitions -------------------------------------------------------------------------------------------------

PARTS = 5


def partitioned(announce: str) -> Callable[[Kit], Any]:
    """Three rounds of a message in partitions, made ready out of order; each is read once it has arrived."""

    def run(k: Kit) -> Any:
        to, source = (k.rank + 1) % k.size, (k.rank - 1) % k.size
        out, into = k.input(2 * PARTS), k.recv(2 * PARTS)
        requests, found = Requests(2), []
        n, rest = ctypes.c_int64(2), [3, k.comm, MPI.INFO_NULL]
        calls.call("MPI_Precv_init", into, PARTS, n, k.datatype, source, *rest, requests.at(0))
        calls.call("MPI_Psend_init", out, PARTS, n, k.datatype, to, *rest, requests.at(1))
        for seed in range(3):
            calls.call("MPI_Startall", 2, requests.handles)
            out.fill(10 * seed + k.rank)  # a partition counts as it is when it is ready
            announced(announce, requests)
            for part in range(PARTS):
                await_part(requests, part)
            found += [into.packed]
            into.fill(5)  # what has arrived is the program's
            requests.wait()
            found += k.contents()
        for i in range(2):
            calls.call("MPI_Request_free", requests.at(i))
        return found

    return run


def announced(how: str, requests: Requests) -> None:
    handle = MPI.Request.fromhandle(int(requests.handles[1]))
    if how == "Pready":
        for part in (3, 0, 4, 1, 2):
            calls.call("MPI_Pready", part, handle)
    elif how == "Pready_range":
        calls.call("MPI_Pready_range", 2, 4, handle)
        calls.call("MPI_Pready_range", 0, 1, handle)
    else:
        calls.call("MPI_Pready_list", PARTS, np.array([4, 2, 0, 3, 1], np.intc), handle)


def await_part(requests: Requests, part: int) -> None:
    flag = ctypes.c_int()
    handle = MPI.Request.fromhandle(int(requests.handles[0]))
    while not flag.value:
        calls.call("MPI_Parrived", handle, part, ctypes.byref(flag))


@pytest.mark.parametrize("announce", ["Pready", "Pready_range", "Pready_list"])
def test_partitions_come_one_by_one(comm: Any, announce: str) -> None:
    if not calls.has("MPI_Psend_init"):
        pytest.skip("this library has no partitioned communication")
    if comm.size == 1:
        pytest.skip("to itself Open MPI sends no partitions")
    # By itself Open MPI 5.0.11 finds the partitions of a derived type by its size.
    for tree in TYPES if MPICH else ("plain",):
        for places in PLACES:
            same_on_device(comm, partitioned(announce), tree, places)


# -- managed and pinned memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["managed", "pinned"])
def test_memory_that_the_host_reaches_goes_to_the_library(comm: Any, kind: str) -> None:
    """Waits for the program's stream: its copy below may still be running."""
    emulator = pytest.importorskip("tempi.emulator.array")
    n = 1 << 14
    here, result = (emulator.DeviceArray.from_numpy(np.zeros(n, np.int64), kind=kind) for _ in range(2))
    before = snapshot()["bounced_bytes"]
    for seed in range(20):
        source = emulator.DeviceArray.from_numpy(np.arange(n, dtype=np.int64) + seed)
        with emulator.current(0):
            stream = ctypes.c_void_p(emulator.LEGACY_STREAM)
            target, origin = ctypes.c_uint64(here.pointer), ctypes.c_uint64(source.pointer)
            assert emulator.driver().cuMemcpyAsync(target, origin, ctypes.c_size_t(8 * n), stream) == 0
            if kind == "pinned":  # such memory is the host's: the program waits by itself
                assert emulator.driver().cuStreamSynchronize(stream) == 0
            comm.Allreduce([here, n, MPI.INT64_T], [result, n, MPI.INT64_T])
        np.testing.assert_array_equal(result.to_numpy(), comm.size * (np.arange(n) + seed))
    assert snapshot()["bounced_bytes"] == before


# -- errors -----------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused_by_the_library(comm: Any) -> None:
    memory = DeviceMemory(64)
    with pytest.raises(MPI.Exception):
        calls.call("MPI_Bcast", ctypes.c_void_p(memory.address), -3, MPI.INT, 0, comm)
    with pytest.raises(MPI.Exception):
        calls.call("MPI_Bcast", ctypes.c_void_p(memory.address), 3, MPI.DATATYPE_NULL, 0, comm)
    with pytest.raises(MPI.Exception):
        calls.call("MPI_Bcast", ctypes.c_void_p(memory.address), 3, MPI.INT, comm.size + 5, comm)
    comm.Barrier()


def test_out_of_memory_is_an_error_of_the_communicator() -> None:
    comm = MPI.COMM_SELF.Dup()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    large = DeviceMemory(64 << 20)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = snapshot()["bounce_errors"]
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), limits[1]))
    try:
        with pytest.raises(MPI.Exception) as raised:
            comm.Bcast([large.at(0), large.size, MPI.BYTE], 0)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert raised.value.Get_error_class() == MPI.ERR_NO_MEM
    assert snapshot()["bounce_errors"] == before + 1
    comm.Bcast([large.at(0), large.size, MPI.BYTE], 0)
    comm.Free()


def test_a_function_that_the_library_lacks_is_unavailable() -> None:
    """As mpi4py expects: it calls every name that exists, even one that does nothing."""
    optional = ("MPI_Allreduce_init", "MPI_Isendrecv", "MPI_Comm_attach_buffer")
    for name in optional:
        if calls.has(name):
            continue
        assert calls.code_of(name, *[0] * 10) == UNAVAILABLE


def test_every_other_function_that_bounces_has_a_test_by_name() -> None:
    """Those with a communicator, a file or a window: the tests of these."""
    assert bouncing("") == set(OTHERS) - {"Isendrecv", "Isendrecv_replace", "Pack_external", "Unpack_external"}
