"""A device that fails: errors in the statuses of the requests that they hit, through their communicator's handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tempi
from devices import DEVICES, EMULATED, failing
from examples import strided
from world import MPI, Memory, committed, partners, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not EMULATED or DEVICES < 2, reason="needs two emulated devices")

N = 50


@pytest.fixture
def datatype() -> Iterator[Any]:
    with committed(strided(N)) as made:
        yield made


def device(seed: int | None = None) -> Memory:
    memory = Memory(strided(N), 1, where="device")
    return memory if seed is None else memory.fill(seed)


def error_of(action: Any) -> int:
    """The class of the error that the action ends with."""
    try:
        action()
    except MPI.Exception as error:
        return int(error.Get_error_class())
    return int(MPI.SUCCESS)


def arrived(comm: Any, datatype: Any, n: int = 3) -> tuple[list[Any], list[Memory], Any]:
    """Receives of device memory, and one of host memory in their middle, all of which have their bytes."""
    to, source = partners(comm)
    into, plain = [device() for _ in range(n)], np.zeros(4)
    requests = [comm.Irecv(m.message(datatype), source, i) for i, m in enumerate(into)]
    requests.insert(1, comm.Irecv(plain, source, 77))
    sends = [comm.Isend(device(comm.rank + i).message(datatype), to, i) for i in range(n)]
    sends.append(comm.Isend(np.ones(4), to, 77))
    MPI.Request.Waitall(sends)
    comm.Barrier()
    return requests, into, plain


@pytest.mark.parametrize("n", [3, 100])  # 100: more than the engine has room for on the stack
def test_waitall_reports_the_failed_requests(comm: Any, datatype: Any, n: int) -> None:
    requests, _, plain = arrived(comm, datatype, n)
    statuses = [MPI.Status() for _ in requests]
    failed = min(n, 14)  # 30 calls fail: all together twice, then one by one, each twice
    before = snapshot()["device_errors"]
    with failing("cuLaunchKernel"):
        assert error_of(lambda: MPI.Request.Waitall(requests, statuses)) == MPI.ERR_IN_STATUS
    assert [s.error != MPI.SUCCESS for s in statuses] == [True, False] + [i < failed for i in range(1, n)]
    assert snapshot()["device_errors"] == before + failed
    np.testing.assert_array_equal(plain, 1)
    assert all(r == MPI.REQUEST_NULL for r in requests)


def test_waitall_without_statuses_says_the_same(comm: Any, datatype: Any) -> None:
    requests, _, _ = arrived(comm, datatype)
    with failing("cuLaunchKernel"):
        assert error_of(lambda: MPI.Request.Waitall(requests)) == MPI.ERR_IN_STATUS


def test_testall(comm: Any, datatype: Any) -> None:
    requests, _, _ = arrived(comm, datatype)
    statuses = [MPI.Status() for _ in requests]
    done = False
    with failing("cuLaunchKernel"):
        while not done:
            error = error_of(lambda: MPI.Request.Testall(requests, statuses))
            done = error != MPI.SUCCESS
    assert error == MPI.ERR_IN_STATUS
    assert [s.error != MPI.SUCCESS for s in statuses] == [True, False, True, True]


@pytest.mark.parametrize("call", ["Waitsome", "Testsome"])
def test_some(comm: Any, datatype: Any, call: str) -> None:
    requests, _, _ = arrived(comm, datatype)
    errors = []
    with failing("cuLaunchKernel"):
        while any(r != MPI.REQUEST_NULL for r in requests):
            errors.append(error_of(lambda: getattr(MPI.Request, call)(requests)))
    assert set(errors) <= {MPI.SUCCESS, MPI.ERR_IN_STATUS}
    assert MPI.ERR_IN_STATUS in errors


COMPLETIONS = {
    "Wait": lambda requests: requests[0].Wait(),
    "Test": lambda requests: requests[0].Test(),
    "Waitall": lambda requests: MPI.Request.Waitall(requests),
    "Testall": lambda requests: MPI.Request.Testall(requests),
    "Waitany": lambda requests: MPI.Request.Waitany(requests),
    "Testany": lambda requests: MPI.Request.Testany(requests),
    "Waitsome": lambda requests: MPI.Request.Waitsome(requests),
    "Testsome": lambda requests: MPI.Request.Testsome(requests),
}


@pytest.mark.parametrize("call", ["Wait", "Test", "Waitany", "Testany"])
def test_one_request_has_the_error_itself(comm: Any, datatype: Any, call: str) -> None:
    to, source = partners(comm)
    request = comm.Irecv(device().message(datatype), source, 1)
    comm.Isend(device(3).message(datatype), to, 1).Wait()
    comm.Barrier()
    requests, error = [request], MPI.SUCCESS
    with failing("cuLaunchKernel"):
        while error == MPI.SUCCESS:
            error = error_of(lambda: COMPLETIONS[call](requests))
    assert error == MPI.ERR_OTHER


@pytest.mark.parametrize("call", ["Recv", "Send", "Sendrecv"])
def test_blocking_calls(comm: Any, datatype: Any, call: str) -> None:
    to, source = partners(comm)
    if call == "Recv":
        request = comm.Isend(np.ones(N), to, 1)
        with failing("cuLaunchKernel"):
            assert error_of(lambda: comm.Recv(device().message(datatype), source, 1)) == MPI.ERR_OTHER
        request.Wait()
        return
    with failing("cuLaunchKernel"):
        if call == "Send":
            assert error_of(lambda: comm.Send(device(1).message(datatype), to, 1)) == MPI.ERR_OTHER
        else:
            out, into = device(1).message(datatype), device().message(datatype)
            assert error_of(lambda: comm.Sendrecv(out, to, 1, into, source, 1)) == MPI.ERR_OTHER
    comm.Barrier()
    assert not comm.Iprobe(source, 1)


@pytest.mark.usefixtures("unlike")
@pytest.mark.parametrize("call", COMPLETIONS)
def test_a_send_that_could_not_be_packed(comm: Any, datatype: Any, call: str) -> None:
    """It fails when it is completed, beside a receive that never comes; nothing is sent."""
    to, source = partners(comm)
    never = comm.Irecv(np.zeros(1), source, 55)
    requests = [comm.Isend(device(1).message(datatype), to, 1)]
    if not call.endswith("all"):
        requests.append(never)
    with failing("cuLaunchKernel"):
        comm.Barrier()  # where it is launched
        error = error_of(lambda: COMPLETIONS[call](requests))
    assert error == (MPI.ERR_IN_STATUS if call.endswith(("all", "some")) else MPI.ERR_OTHER)
    assert requests[0] == MPI.REQUEST_NULL
    assert not comm.Iprobe(source, 1)
    never.Cancel()
    never.Wait()


def test_the_error_handler_is_called_once(comm: Any, datatype: Any) -> None:
    heard = []
    if not hasattr(MPI.Comm, "Create_errhandler"):
        pytest.skip("mpi4py without handlers of one's own")
    handler = MPI.Comm.Create_errhandler(lambda c, code: heard.append(MPI.Get_error_class(code)))
    listened = comm.Dup()
    listened.Set_errhandler(handler)
    requests, _, _ = arrived(listened, datatype)
    with failing("cuLaunchKernel"):
        error_of(lambda: MPI.Request.Waitall(requests))
    assert heard == [MPI.ERR_IN_STATUS]
    request = listened.Isend(device(1).message(datatype), partners(comm)[0], 1)
    with failing("cuLaunchKernel"):
        error_of(request.Wait)
    assert heard == [MPI.ERR_IN_STATUS, MPI.ERR_OTHER]
    handler.Free()
    listened.Free()


def test_a_persistent_send_that_fails_can_be_started_again(comm: Any, datatype: Any) -> None:
    to, source = partners(comm)
    request = comm.Send_init(device(2).message(datatype), to, 1)
    with failing("cuLaunchKernel"):
        assert error_of(request.Start) == MPI.ERR_OTHER
        assert error_of(lambda: MPI.Prequest.Startall([request])) == MPI.ERR_OTHER
    receive = comm.Irecv(into := np.zeros(N), source, 1)
    request.Start()
    receive.Wait()
    request.Wait()
    request.Free()
    np.testing.assert_array_equal(into.view(np.uint8), device(2).packed)


def test_a_single_failure_is_retried(comm: Any, datatype: Any) -> None:
    requests, into, _ = arrived(comm, datatype)
    with failing("cuLaunchKernel", 1):
        MPI.Request.Waitall(requests)
    for i, memory in enumerate(into):
        memory.check(Memory(strided(N), 1).fill(partners(comm)[1] + i).packed)


def test_an_arrays_stream_that_is_gone_too_early_is_an_error_of_one_message(comm: Any) -> None:
    """It must exist until the message is complete. What comes after it is not affected."""
    from tempi import MPI as dropin

    foreign = pytest.importorskip("foreign")
    ours, array = dropin.Intracomm(comm), foreign.on_device(np.zeros(64, np.uint8))
    stream, sent, before = foreign.Stream(), np.full(32, 3, np.uint8), tempi.stats()["device_errors"]
    request = ours.Irecv(foreign.Interface(array[::2], stream=stream.ptr), ours.rank)
    del stream
    ours.Send(sent, ours.rank)
    with pytest.raises(dropin.Exception):
        request.Wait()
    assert tempi.stats()["device_errors"] == before + 1
    ours.Sendrecv(sent, ours.rank, 1, array[::2], ours.rank, 1)
    assert (array.to_numpy()[::2] == 3).all()
