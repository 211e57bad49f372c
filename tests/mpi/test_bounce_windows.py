"""One-sided operations with device memory at their origin, on windows of host memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import calls
from bounces import MPICH_4, PLACES, TYPES, Kit, Requests, bouncing, same_on_device
from devices import DeviceMemory
from world import MPI, Memory, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N = 4  # elements of an operation
TARGET_BYTES = 1024


class Exposed:
    """A window over host memory that every rank shows."""

    def __init__(self, comm: Any) -> None:
        self.memory = np.zeros(TARGET_BYTES, np.uint8)
        self.win = MPI.Win.Create(self.memory, 1, MPI.INFO_NULL, comm)
        self.win.Set_errhandler(MPI.ERRORS_RETURN)
        self.comm = comm

    def fill(self) -> None:
        self.memory[:] = np.random.default_rng(self.comm.rank).integers(0, 256, TARGET_BYTES, np.uint8)


def needs_windows() -> None:
    if "Open MPI v4.1" in MPI.Get_library_version() and MPI.COMM_WORLD.size == 1:
        pytest.skip("Open MPI 4.1.4 itself makes no window of one rank's memory")


@pytest.fixture(scope="module")
def window() -> Iterator[Exposed]:
    needs_windows()
    made = Exposed(MPI.COMM_WORLD)
    yield made
    made.win.Free()


def target(k: Kit, count: int = N) -> list[Any]:
    """Contiguous elements at the next rank: as many as the origin's."""
    ints = count * k.tree.type_map.size // 4
    return [(k.rank + 1) % k.size, ctypes.c_int64(64), k.n(ints), MPI.INT]


def origin(k: Kit, memory: Memory) -> list[Any]:
    return [memory, k.n(N), k.datatype]


def put(k: Kit) -> list[Any]:
    return [*origin(k, k.input(N)), *target(k)]


def get(k: Kit) -> list[Any]:
    return [*origin(k, k.recv(N)), *target(k)]


def accumulate(k: Kit) -> list[Any]:
    return [*origin(k, k.input(N)), *target(k), MPI.SUM]


def get_accumulate(k: Kit) -> list[Any]:
    return [*origin(k, k.input(N)), *origin(k, k.recv(N)), *target(k), MPI.SUM]


def get_only(k: Kit) -> list[Any]:
    """MPI_NO_OP: the origin is not read."""
    nothing = [ctypes.c_void_p(8), k.n(1 << 20), MPI.DATATYPE_NULL]
    return [*nothing, *origin(k, k.recv(N)), *target(k), MPI.NO_OP]


def fetch_and_op(k: Kit) -> list[Any]:
    return [k.input(1), k.recv(1), MPI.INT, (k.rank + 1) % k.size, ctypes.c_int64(64), MPI.SUM]


def compare_and_swap(k: Kit) -> list[Any]:
    return [k.input(1), k.input(1), k.recv(1), MPI.INT, (k.rank + 1) % k.size, ctypes.c_int64(64)]


OPERATIONS: dict[str, Callable[[Kit], list[Any]]] = {
    "Put": put,
    "Get": get,
    "Accumulate": accumulate,
    "Get_accumulate": get_accumulate,
    "Fetch_and_op": fetch_and_op,
    "Compare_and_swap": compare_and_swap,
}
REQUESTS: dict[str, Callable[[Kit], list[Any]]] = {
    "Rput": put,
    "Rget": get,
    "Raccumulate": accumulate,
    "Rget_accumulate": get_accumulate,
}
ONE_ELEMENT = ("Fetch_and_op", "Compare_and_swap")
SMALL_ONLY = ONE_ELEMENT  # no large-count form


# -- the window's synchronisations -------------------------------------------------------------------------


def in_fences(w: Any, to: int, operate: Callable[[], None]) -> None:
    w.Fence()
    operate()
    w.Fence()


def in_lock(w: Any, to: int, operate: Callable[[], None]) -> None:
    w.Lock(to)
    operate()
    w.Unlock(to)


def in_lock_all(w: Any, to: int, operate: Callable[[], None]) -> None:
    w.Lock_all()
    operate()
    w.Unlock_all()


def flushed(name: str, *arguments: Any) -> Callable[[Any, int, Callable[[], None]], None]:
    def sync(w: Any, to: int, operate: Callable[[], None]) -> None:
        w.Lock_all()
        operate()
        getattr(w, name)(*(to,) if arguments else ())
        w.Unlock_all()

    return sync


def in_groups(w: Any, to: int, operate: Callable[[], None]) -> None:
    group = MPI.COMM_WORLD.group
    w.Post(group)
    w.Start(group)
    operate()
    w.Complete()
    w.Wait()
    group.Free()


SYNCHRONISATIONS: dict[str, Callable[[Any, int, Callable[[], None]], None]] = {
    "Fence": in_fences,
    "Lock": in_lock,
    "Lock_all": in_lock_all,
    "Complete": in_groups,
    "Flush": flushed("Flush", 1),
    "Flush_all": flushed("Flush_all"),
    "Flush_local": flushed("Flush_local", 1),
    "Flush_local_all": flushed("Flush_local_all"),
}


def completes_in_time(k: Kit) -> bool:
    """MPICH 4.0.2 alone lacks some bytes of a datatype with gaps when a get's request completes."""
    return not MPICH_4 or k.tree is TYPES["plain"] or k.on_device


def performed(
    w: Exposed, name: str, arguments: Callable[[Kit], list[Any]], how: str, *, request: bool = False
) -> Callable[[Kit], Any]:
    def run(k: Kit) -> Any:
        full = f"MPI_{name}" + ("_c" if k.large and name not in SMALL_ONLY else "")
        w.fill()
        k.comm.Barrier()
        made = arguments(k)
        seen: list[Any] = []

        def operate() -> None:
            if not request:
                calls.call(full, *made, w.win)
                return
            requests = Requests()
            calls.call(full, *made, w.win, requests.at())
            requests.wait()
            if "get" in name.lower() and completes_in_time(k):
                seen.extend(k.contents())

        SYNCHRONISATIONS[how](w.win, (k.rank + 1) % k.size, operate)
        k.comm.Barrier()
        return [*(seen or k.contents()), *k.contents(), w.memory.copy()]

    return run


@pytest.mark.parametrize("how", SYNCHRONISATIONS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_lives_until_its_synchronisation(window: Exposed, name: str, how: str) -> None:
    for i, tree in enumerate(("plain",) if name in ONE_ELEMENT else TYPES):
        for places in PLACES:
            run = performed(window, name, OPERATIONS[name], how)
            same_on_device(window.comm, run, tree, places, large=i % 2 == 0)


@pytest.mark.parametrize("name", REQUESTS)
def test_operation_with_a_request(window: Exposed, name: str) -> None:
    for i, tree in enumerate(TYPES):
        for places in PLACES:
            run = performed(window, name, REQUESTS[name], "Lock_all", request=True)
            same_on_device(window.comm, run, tree, places, large=i % 2 == 0)


def test_get_accumulate_without_an_operation_ignores_its_origin(window: Exposed) -> None:
    for places in PLACES:
        same_on_device(window.comm, performed(window, "Get_accumulate", get_only, "Fence"), "strided", places)


@pytest.mark.parametrize("how", ["Flush", "Flush_all", "Flush_local", "Flush_local_all"])
def test_result_is_there_after_the_flush(window: Exposed, how: str) -> None:
    w, comm = window.win, window.comm
    to = (comm.rank + 1) % comm.size
    window.fill()
    comm.Barrier()
    memory = DeviceMemory(64)
    w.Lock_all()
    w.Get([memory.at(0), 16, MPI.INT], to)
    getattr(w, how)(*(to,) if not how.endswith("all") else ())
    expected = np.random.default_rng(to).integers(0, 256, TARGET_BYTES, np.uint8)[:64]
    np.testing.assert_array_equal(memory.read(), expected)
    memory.write(np.zeros(64, np.uint8))
    w.Unlock_all()
    assert not memory.read().any(), "it came back once"
    comm.Barrier()


def rget(w: Any, memory: DeviceMemory, to: int) -> Any:
    return w.Rget([memory.at(0), 16, MPI.INT], to)


def rget_accumulate(w: Any, memory: DeviceMemory, to: int) -> Any:
    return w.Rget_accumulate([None, 0, MPI.INT], [memory.at(0), 16, MPI.INT], to, op=MPI.NO_OP)


def rput(w: Any, memory: DeviceMemory, to: int) -> Any:
    return w.Rput([memory.at(0), 16, MPI.INT], to)


@pytest.mark.parametrize("how", ["Flush", "Flush_all", "Flush_local", "Flush_local_all", "Unlock", "Unlock_all"])
@pytest.mark.parametrize("operate", [rget, rget_accumulate], ids=["Rget", "Rget_accumulate"])
def test_result_of_a_request_is_there_after_the_flush(window: Exposed, how: str, operate: Callable[..., Any]) -> None:
    """Before the request is waited for; the wait copies nothing a second time."""
    w, comm = window.win, window.comm
    to = (comm.rank + 1) % comm.size
    window.fill()
    comm.Barrier()
    memory, later = DeviceMemory(64), DeviceMemory(64)
    if how == "Unlock":
        w.Lock(to, MPI.LOCK_SHARED)
    else:
        w.Lock_all()
    request = operate(w, memory, to)
    getattr(w, how)(*() if how.endswith("all") else (to,))
    expected = np.random.default_rng(to).integers(0, 256, TARGET_BYTES, np.uint8)[:64]
    np.testing.assert_array_equal(memory.read(), expected)
    memory.write(np.zeros(64, np.uint8))
    request.Wait()
    assert not memory.read().any(), "it came back once"
    if "Flush" in how:
        waited = operate(w, later, to)
        waited.Wait()
        np.testing.assert_array_equal(later.read(), expected)
        later.write(np.zeros(64, np.uint8))
        w.Unlock_all()
        assert not later.read().any(), "it came back with its request"
    comm.Barrier()


def test_a_put_with_a_request_is_at_its_target_after_the_flush(window: Exposed) -> None:
    w, comm = window.win, window.comm
    comm.Barrier()
    memory = DeviceMemory(64)
    memory.write(np.full(64, 1 + comm.rank, np.uint8))
    w.Lock_all()
    request = rput(w, memory, (comm.rank + 1) % comm.size)
    w.Flush_all()
    comm.Barrier()
    w.Sync()
    assert (window.memory[:64] == 1 + (comm.rank - 1) % comm.size).all()
    request.Wait()
    w.Unlock_all()
    comm.Barrier()


def test_a_flush_of_another_target_leaves_the_operation(window: Exposed) -> None:
    w, comm = window.win, window.comm
    if comm.size < 2:
        pytest.skip("one rank has no other target")
    memory = DeviceMemory(64)
    memory.write(np.full(64, 7, np.uint8))
    w.Lock_all()
    w.Get([memory.at(0), 16, MPI.INT], comm.rank)
    w.Flush((comm.rank + 1) % comm.size)
    assert (memory.read() == 7).all()
    w.Unlock_all()
    np.testing.assert_array_equal(memory.read(), window.memory[:64])
    comm.Barrier()


def test_an_operation_with_nobody_touches_nothing(window: Exposed) -> None:
    memory = DeviceMemory(64)
    memory.write(np.full(64, 7, np.uint8))
    before = snapshot()["bounced"]
    window.win.Fence()
    window.win.Get([memory.at(0), 16, MPI.INT], MPI.PROC_NULL)
    window.win.Put([memory.at(0), 16, MPI.INT], MPI.PROC_NULL)
    window.win.Fence()
    assert (memory.read() == 7).all()
    assert snapshot()["bounced"] == before


def test_every_one_sided_operation_that_bounces_has_a_test_by_name() -> None:
    assert bouncing("WINDOW") == {*OPERATIONS, *REQUESTS}


# -- what cannot be -----------------------------------------------------------------------------------------


def refused(action: Callable[[], Any]) -> bool:
    before = snapshot()["bounce_errors"]
    # MPICH 4.0 returns another error's string for a code that was added to a class of the standard.
    string = "^Invalid buffer pointer$" if MPICH_4 else "device memory"
    with pytest.raises(MPI.Exception, match=string) as raised:
        action()
    return raised.value.Get_error_class() == MPI.ERR_BUFFER and snapshot()["bounce_errors"] == before + 1


def test_a_window_over_device_memory_is_refused(comm: Any) -> None:
    memory = DeviceMemory(64)
    assert refused(lambda: MPI.Win.Create(memory.at(0), 1, MPI.INFO_NULL, comm))
    comm.Barrier()


def test_device_memory_is_not_attached(comm: Any) -> None:
    needs_windows()
    memory = DeviceMemory(64)
    dynamic = MPI.Win.Create_dynamic(MPI.INFO_NULL, comm)
    dynamic.Set_errhandler(MPI.ERRORS_RETURN)
    assert refused(lambda: dynamic.Attach(memory.at(0)))
    dynamic.Free()


def test_device_memory_is_refused_for_buffered_sends() -> None:
    memory = DeviceMemory(1 << 12)
    handler = MPI.COMM_SELF.Get_errhandler()
    MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        assert refused(lambda: MPI.Attach_buffer(memory.at(0)))
    finally:
        MPI.COMM_SELF.Set_errhandler(handler)


@pytest.mark.parametrize("owner", ["Comm", "Session"])
@pytest.mark.parametrize("form", ["", "_c"])
def test_device_memory_is_refused_for_buffered_sends_of_one_owner(comm: Any, owner: str, form: str) -> None:
    name = f"MPI_{owner}_attach_buffer{form}"
    if not calls.has(name):
        pytest.skip(f"this library has no {name}")
    memory, room = DeviceMemory(1 << 12), np.zeros(1 << 12, np.uint8)
    of = comm if owner == "Comm" else MPI.Session.Init()
    size = ctypes.c_int64(1 << 12) if form else 1 << 12
    handler = MPI.COMM_SELF.Get_errhandler()
    MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)  # a session's own may not be called by others
    try:
        assert refused(lambda: calls.call(name, of, ctypes.c_void_p(memory.address), size))
        calls.call(name, of, room, size)  # nothing was attached
        assert np.shares_memory(np.asarray(of.Detach_buffer()), room)
    finally:
        MPI.COMM_SELF.Set_errhandler(handler)
        if owner == "Session":
            of.Finalize()
