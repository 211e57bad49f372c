"""Requests completed in every order, by every function, among requests of every kind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import calls
import oracle
from examples import strided
from world import FORCED, MPI, Memory, acted, committed, partners, same_without

N = 6

# -- ways to complete a list of requests; each returns the indices in the order of completion ------------

Way = Callable[[list[Any]], list[int]]


def by_wait(requests: list[Any]) -> list[int]:
    for request in requests:
        request.Wait()
    return list(range(len(requests)))


def by_wait_backwards(requests: list[Any]) -> list[int]:
    for request in reversed(requests):
        request.Wait(MPI.Status())
    return list(range(len(requests)))


def by_waitall(requests: list[Any]) -> list[int]:
    MPI.Request.Waitall(requests)
    return list(range(len(requests)))


def by_waitall_with_statuses(requests: list[Any]) -> list[int]:
    MPI.Request.Waitall(requests, [MPI.Status() for _ in requests])
    return list(range(len(requests)))


def by_waitany(requests: list[Any]) -> list[int]:
    order: list[int] = []
    while (index := MPI.Request.Waitany(requests)) != MPI.UNDEFINED:
        order.append(index)
    return order


def by_waitsome(requests: list[Any]) -> list[int]:
    order: list[int] = []
    while (indices := MPI.Request.Waitsome(requests)) is not None:
        order += indices
    return order


def by_test(requests: list[Any]) -> list[int]:
    order: list[int] = []
    while len(order) < len(requests):
        order += [i for i, request in enumerate(requests) if i not in order and request.Test()]
    return order


def by_testall(requests: list[Any]) -> list[int]:
    while not MPI.Request.Testall(requests):
        pass
    return list(range(len(requests)))


def by_testany(requests: list[Any]) -> list[int]:
    order: list[int] = []
    while True:
        index, flag = MPI.Request.Testany(requests)
        if flag and index == MPI.UNDEFINED:
            return order
        if flag:
            order.append(index)


def by_testsome(requests: list[Any]) -> list[int]:
    order: list[int] = []
    while (indices := MPI.Request.Testsome(requests)) is not None:
        order += indices
    return order


def by_get_status_and_wait(requests: list[Any]) -> list[int]:
    for request in requests:
        while not request.Get_status():
            pass
    return by_wait(requests)


def by_get_status_all(requests: list[Any]) -> list[int]:
    while not MPI.Request.Get_status_all(requests):
        pass
    return by_waitall(requests)


def by_get_status_any(requests: list[Any]) -> list[int]:
    order: list[int] = []
    while True:
        index, flag = MPI.Request.Get_status_any(requests)
        if flag and index == MPI.UNDEFINED:
            return order
        if flag:
            requests[index].Wait()
            order.append(index)


def by_get_status_some(requests: list[Any]) -> list[int]:
    order: list[int] = []
    while (indices := MPI.Request.Get_status_some(requests)) is not None:
        by_wait([requests[i] for i in indices])
        order += indices
    return order


#: Not in libraries before MPI-4.1; tempi then implements them, and cannot detect that an untracked
#: persistent request is inactive.
MADE_HERE = ("by_get_status_any", "by_get_status_some")


def needs_rest(way: str) -> None:
    """Skips where a persistent request may be untracked and nothing shows that it is inactive."""
    if way in MADE_HERE and not FORCED and not calls.has("MPI_Request_get_status_any"):
        pytest.skip("by rule no request may be tracked, and the library has no such function")


def absent(way: str) -> bool:
    """Whether mpi4py was compiled for an MPI without the function: then it never calls it."""
    try:
        getattr(MPI.Request, way.replace("by_get", "Get"), bool)([])
    except NotImplementedError:
        return True
    return False


WAYS = {name: way for name, way in sorted(globals().items()) if name.startswith("by_")}
COMPILED_WITHOUT = "mpi4py was compiled for an MPI that has no such function"
every_way = pytest.mark.parametrize(
    "way",
    [pytest.param(name, marks=pytest.mark.skipif(absent(name), reason=COMPILED_WITHOUT)) for name in WAYS],
)

# -- what is completed ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Traffic:
    """Messages to the right and from the left, each with its request."""

    comm: Any
    datatype: Any
    requests: list[Any] = field(default_factory=list)
    checks: list[Callable[[], None]] = field(default_factory=list)
    persistent: list[Any] = field(default_factory=list)

    def memory(self, tag: int, rank: int) -> Memory:
        return Memory(strided(30), 1).fill(1000 * rank + tag)

    def add_receive(self, tag: int, call: str = "Irecv") -> None:
        source = partners(self.comm)[1]
        into = Memory(strided(30), 1)
        self.keep(getattr(self.comm, call)(into.message(self.datatype), source, tag), call)
        self.checks.append(lambda: into.check(self.memory(tag, source).packed))

    def add_send(self, tag: int, call: str = "Isend") -> None:
        to = partners(self.comm)[0]
        out = self.memory(tag, self.comm.rank)
        self.keep(getattr(self.comm, call)(out.message(self.datatype), to, tag), call)
        before = out.copy()
        self.checks.append(lambda: np.testing.assert_array_equal(out.copy(), before))

    def add_untracked(self, tag: int) -> None:
        """Contiguous both ways: left to the library."""
        to, source = partners(self.comm)
        into, out = np.zeros(50), np.full(50, float(self.comm.rank + tag))
        self.requests.append(self.comm.Irecv(into, source, tag))
        self.requests.append(self.comm.Isend(out, to, tag))
        self.checks.append(lambda: np.testing.assert_array_equal(into, np.full(50, source + tag)))

    def keep(self, request: Any, call: str) -> None:
        self.requests.append(request)
        if call.endswith("_init"):
            self.persistent.append(request)
            request.Start()

    def finish(self, way: Way) -> None:
        order = way(self.requests)
        assert sorted(order) == sorted(set(order)), "a request completed twice"
        for check in self.checks:
            check()
        for request in self.persistent:
            request.Free()


@contextlib.contextmanager
def traffic(comm: Any) -> Iterator[Traffic]:
    with committed(strided(30)) as datatype:
        yield Traffic(comm, datatype)


@every_way
def test_receives_first(comm: Any, way: str) -> None:
    with traffic(comm) as t, acted(sends=N, recvs=N):
        for tag in range(N):
            t.add_receive(tag)
        for tag in range(N):
            t.add_send(tag)
        t.finish(WAYS[way])
        assert all(not request for request in t.requests)


@every_way
def test_sends_first_and_tags_backwards(comm: Any, way: str) -> None:
    with traffic(comm) as t, acted(sends=N, recvs=N):
        for tag in range(N):
            t.add_send(tag)
        for tag in reversed(range(N)):
            t.add_receive(tag)
        t.finish(WAYS[way])


@every_way
def test_tracked_among_untracked_null_and_persistent(comm: Any, way: str) -> None:
    needs_rest(way)
    with traffic(comm) as t, acted(sends=4, recvs=4):
        inactive = comm.Recv_init(Memory(strided(30), 1).message(t.datatype), 0, 99)
        plain_inactive = comm.Send_init(np.zeros(4), 0, 98)
        t.requests += [MPI.REQUEST_NULL, inactive]
        t.add_receive(0)
        t.add_untracked(1)
        t.requests.append(MPI.REQUEST_NULL)
        t.add_receive(2, "Recv_init")
        t.add_send(2, "Send_init")
        t.add_send(0, "Issend")
        if not (way in MADE_HERE and not calls.has("MPI_Request_get_status_any")):
            t.requests.append(plain_inactive)
        t.add_untracked(3)
        t.add_receive(4, "Recv_init")
        t.add_send(4, "Ssend_init")
        t.add_send(5)
        t.add_receive(5)
        t.finish(WAYS[way])
        inactive.Free()
        plain_inactive.Free()


@pytest.mark.usefixtures("buffered")
@every_way
def test_restarted_persistent_requests(comm: Any, way: str) -> None:
    needs_rest(way)
    to, source = partners(comm)
    with committed(strided(30)) as datatype:
        outs = [Memory(strided(30), 1) for _ in range(4)]
        into = [Memory(strided(30), 1) for _ in range(4)]
        modes = [comm.Send_init, comm.Ssend_init, comm.Bsend_init, comm.Rsend_init]
        receives = [comm.Recv_init(m.message(datatype), source, i) for i, m in enumerate(into)]
        sends = [make(m.message(datatype), to, i) for i, (make, m) in enumerate(zip(modes, outs, strict=True))]
        for turn in range(3):
            before = [m.copy() for m in into]
            for i, m in enumerate(outs):
                m.fill(100 * comm.rank + 10 * turn + i)
            with acted(sends=4, recvs=4):
                MPI.Prequest.Startall(receives)
                comm.Barrier()  # ready mode
                MPI.Prequest.Startall(sends)
                WAYS[way]([*sends, *receives])
            for i, m in enumerate(into):
                theirs = Memory(strided(30), 1).fill(100 * source + 10 * turn + i)
                m.check(theirs.packed, before[i])
        for request in [*sends, *receives]:
            request.Free()


@pytest.mark.usefixtures("buffered")
@pytest.mark.parametrize("rows", [30, 900])
def test_buffered_sends_are_restarted_before_they_have_left(comm: Any, rows: int) -> None:
    """Open MPI then gives the program another handle."""
    to, source = partners(comm)
    turns = 5
    kind = strided(rows)
    with committed(kind) as datatype:
        out = Memory(kind, 1)
        send = comm.Bsend_init(out.message(datatype), to, 4)
        for turn in range(turns):
            out.fill(10 * comm.rank + turn)
            send.Start()
            send.Wait()
        comm.Barrier()
        for turn in range(turns):
            into = Memory(kind, 1)
            comm.Recv(into.message(datatype), source, 4)
            into.check(Memory(kind, 1).fill(10 * source + turn).packed)
        send.Free()


@every_way
def test_no_active_request_is_answered_as_without_tempi(comm: Any, way: str) -> None:
    """Inactive persistent requests, tracked or not, and null ones."""
    if way in MADE_HERE and not calls.has("MPI_Request_get_status_any"):
        pytest.skip("the library has no such function")

    def scenario() -> list[Any]:
        with committed(strided(30)) as datatype:
            memory = Memory(strided(30), 1)
            mine = comm.Recv_init(memory.message(datatype), 0, 1)
            plain = comm.Recv_init(np.zeros(4), 0, 2)
            requests = [MPI.REQUEST_NULL, plain, mine]
            status = MPI.Status()
            answers = [
                MPI.Request.Waitany(requests, status),
                MPI.Request.Testany(requests, status),
                MPI.Request.Waitsome(requests),
                MPI.Request.Testsome(requests),
                MPI.Request.Testall(requests),
                mine.Test(status),
                mine.Get_status(status),
                (status.source, status.tag, status.Get_count(MPI.BYTE), status.Is_cancelled()),
            ]
            answers.append(WAYS[way](requests) if "some" in way or "any" in way else None)
            mine.Free()
            plain.Free()
        return answers

    same_without(scenario)


@pytest.mark.parametrize("way", ["by_waitall", "by_waitany", "by_waitsome", "by_testsome", "by_testany"])
def test_a_thousand_eager_sends_before_any_is_completed(comm: Any, way: str) -> None:
    many = 1000
    to, source = partners(comm)
    tree = oracle.Vector(3, 1, 2, oracle.Named("INT"))
    outs = np.arange(many * 6, dtype="i").reshape(many, 6) + comm.rank
    into = np.full((many, 6), -1, "i")
    with committed(tree) as datatype, acted(sends=many, recvs=many):
        sends = [comm.Isend([outs[i], 1, datatype], to, i % 7) for i in range(many)]
        comm.Barrier()
        receives = [comm.Irecv([into[i], 1, datatype], source, i % 7) for i in range(many)]
        WAYS[way]([*receives, *sends])
    expected = np.full((many, 6), -1, "i")
    expected[:, ::2] = (outs - comm.rank + source)[:, ::2][:, :3]
    expected[:, 5] = -1
    np.testing.assert_array_equal(into, expected)


def test_messages_are_not_lost_to_an_array_of_one_hundred(comm: Any) -> None:
    """More than fit in the buffers on the stack that completion has."""
    with traffic(comm) as t, acted(sends=100, recvs=100):
        for tag in range(100):
            t.add_receive(tag)
        for tag in range(100):
            t.add_send(tag)
        t.finish(by_waitall)


def test_data_may_be_read_once_get_status_reports_completion(comm: Any) -> None:
    """The data is there as soon as the flag is set, and is not written again later."""
    to, source = partners(comm)
    with committed(strided(30)) as datatype, acted(recvs=1):
        into = Memory(strided(30), 1)
        request = comm.Irecv(into.message(datatype), source, 0)
        comm.Send(Memory(strided(30), 1).fill(comm.rank).message(datatype), to, 0)
        status = MPI.Status()
        while not request.Get_status(status):
            pass
        packed = Memory(strided(30), 1).fill(source).packed
        into.check(packed)
        assert status.Get_count(datatype) == 1
        into.fill(7)
        before = into.copy()
        request.Wait()
        np.testing.assert_array_equal(into.copy(), before)
