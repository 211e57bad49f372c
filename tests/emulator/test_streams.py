"""Streams: deferred work, and ordering."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import pytest

from emulator import kernels
from emulator.driver import INVALID_HANDLE, LEGACY, NON_BLOCKING, NOT_READY, SUCCESS, Driver, int32

HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def pinned(cuda: Driver, size: int = 64) -> int:
    pointer = cuda.get("cuMemHostAlloc", size, int32(3), kind=ctypes.c_void_p)
    ctypes.memset(pointer, 0, size)
    return pointer


def first(pointer: int) -> int:
    return ctypes.string_at(pointer, 1)[0]


def stream(cuda: Driver, flags: int = NON_BLOCKING) -> int:
    return cuda.get("cuStreamCreate", int32(flags))


def eventually(claim: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not claim() and time.monotonic() < end:
        time.sleep(0.0005)
    return claim()


@pytest.fixture
def slow(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Work that no call waits for does not run within a test."""
    delay = ctypes.c_uint64.in_dll(cuda.library, "tempi_emulator_delay_ns")
    monkeypatch.setattr(delay, "value", 10**12)
    return cuda


def test_deferred_work_runs_when_it_is_waited_for(slow: Driver) -> None:
    host, s = pinned(slow), stream(slow)
    slow("cuMemsetD8Async", host, 1, 64, s)
    assert slow.result("cuStreamQuery", s) == NOT_READY
    assert first(host) == 0
    slow("cuStreamSynchronize", s)
    assert first(host) == 1
    assert slow.result("cuStreamQuery", s) == SUCCESS


def test_repeated_queries_get_an_answer(slow: Driver) -> None:
    host, s = pinned(slow), stream(slow)
    slow("cuMemsetD8Async", host, 1, 64, s)
    assert eventually(lambda: slow.result("cuStreamQuery", s) == SUCCESS)
    assert first(host) == 1


@pytest.mark.parametrize("mode", ["immediate", "deferred", "random"])
def test_work_runs_without_any_call(cuda: Driver, mode: str) -> None:
    cuda.streams(mode)
    host, s = pinned(cuda), stream(cuda)
    cuda("cuMemsetD8Async", host, 1, 64, s)
    assert eventually(lambda: first(host) == 1)


def test_immediate_work_has_run_when_the_call_returns(slow: Driver) -> None:
    slow.streams("immediate")
    host, s = pinned(slow), stream(slow)
    slow("cuMemsetD8Async", host, 1, 64, s)
    assert first(host) == 1


def test_random_mode_does_both(slow: Driver) -> None:
    slow.streams("random")
    host, s = pinned(slow), stream(slow)
    seen = set()
    for i in range(1, 40):
        slow("cuMemsetD8Async", host, i, 64, s)
        seen.add(first(host) == i)
        slow("cuStreamSynchronize", s)
    assert seen == {False, True}


def test_events_order_streams(slow: Driver) -> None:
    host, a, b = pinned(slow), stream(slow), stream(slow)
    event = slow.get("cuEventCreate", int32(0))
    slow("cuMemsetD8Async", host, 1, 64, a)
    slow("cuEventRecord", event, a)
    slow("cuMemsetD8Async", host, 9, 1, a)  # after the event
    slow("cuStreamWaitEvent", b, event, int32(0))
    slow("cuMemcpyAsync", host + 32, host, 8, b)
    slow("cuStreamSynchronize", b)
    assert ctypes.string_at(host + 32, 1) == b"\1"
    assert first(host) == 1  # what came after the event in `a` has not run
    slow("cuStreamSynchronize", a)
    assert first(host) == 9


def test_streams_without_an_event_are_not_ordered(slow: Driver) -> None:
    host, a, b = pinned(slow), stream(slow), stream(slow)
    slow("cuMemsetD8Async", host, 1, 64, a)
    slow("cuMemcpyAsync", host + 32, host, 8, b)
    slow("cuStreamSynchronize", b)
    assert ctypes.string_at(host + 32, 1) == b"\0"


@pytest.mark.parametrize(("flags", "ordered"), [(0, True), (NON_BLOCKING, False)])
@pytest.mark.parametrize("default", [0, LEGACY])
def test_the_default_stream_and_blocking_streams_wait_for_each_other(
    slow: Driver, flags: int, ordered: bool, default: int
) -> None:
    host, s = pinned(slow), stream(slow, flags)
    slow("cuMemsetD8Async", host, 1, 8, s)
    slow("cuMemcpyAsync", host + 16, host, 8, default)
    slow("cuStreamSynchronize", default)
    assert ctypes.string_at(host + 16, 1)[0] == ordered  # the default stream waited for the other
    slow("cuMemsetD8Async", host + 40, 5, 8, default)
    slow("cuMemcpyAsync", host + 48, host + 40, 8, s)
    slow("cuStreamSynchronize", s)
    assert ctypes.string_at(host + 48, 1)[0] == 5 * ordered  # the other one waited for it


def test_elapsed_time_and_unrecorded_events(slow: Driver) -> None:
    s, start, end = stream(slow), slow.get("cuEventCreate", int32(0)), slow.get("cuEventCreate", int32(0))
    assert slow.result("cuEventQuery", start) == SUCCESS
    slow("cuEventRecord", start, s)
    slow("cuEventRecord", end, s)
    ms = ctypes.c_float(-1)
    assert slow.result("cuEventElapsedTime", ctypes.byref(ms), start, end) == NOT_READY
    slow("cuEventSynchronize", end)
    slow("cuEventElapsedTime", ctypes.byref(ms), start, end)
    assert ms.value >= 0


def test_pageable_memory_is_read_at_once_and_written_before_the_call_returns(slow: Driver) -> None:
    s, device = stream(slow), slow.alloc(64)
    source, target = ctypes.create_string_buffer(b"a" * 64, 64), ctypes.create_string_buffer(64)
    slow("cuMemcpyHtoDAsync_v2", device, source, 64, s)
    ctypes.memset(source, ord("b"), 64)
    slow("cuMemcpyDtoHAsync_v2", target, device, 64, s)
    assert target.raw == b"a" * 64


def test_host_functions_run_in_order_and_may_not_call_cuda(cuda: Driver) -> None:
    host, s = pinned(cuda), stream(cuda)
    seen: list[int] = []

    @HostFunction
    def function(_: int | None) -> None:
        seen.append(first(host))
        seen.append(cuda.result("cuCtxSynchronize"))

    cuda("cuMemsetD8Async", host, 1, 64, s)
    cuda("cuLaunchHostFunc", s, function, None)
    cuda("cuMemsetD8Async", host, 2, 64, s)
    cuda("cuStreamSynchronize", s)
    assert seen == [1, 800]
    assert first(host) == 2


def test_a_kernel_that_polls_sees_the_host(cuda: Driver) -> None:
    host, s = pinned(cuda), stream(cuda)
    cuda.launch(cuda.function(cuda.load(kernels.ALL), "spin"), (host, host + 32), stream=s)
    time.sleep(0.01)  # it may have begun by now, but cannot have finished
    assert first(host + 32) == 0
    ctypes.memset(host, 5, 4)
    assert eventually(lambda: first(host + 32) == 5)
    cuda("cuStreamSynchronize", s)


def test_a_destroyed_stream_finishes_and_is_no_handle(slow: Driver) -> None:
    host, s = pinned(slow), stream(slow)
    event = slow.get("cuEventCreate", int32(0))
    slow("cuMemsetD8Async", host, 1, 64, s)
    slow("cuEventRecord", event, s)
    slow("cuStreamDestroy_v2", s)
    assert slow.result("cuStreamQuery", s) == INVALID_HANDLE
    slow("cuEventSynchronize", event)
    assert first(host) == 1
    slow("cuEventDestroy_v2", event)
    assert slow.result("cuEventQuery", event) == INVALID_HANDLE


def test_a_stream_of_another_device_takes_no_kernels(cuda: Driver) -> None:
    function = cuda.function(cuda.load(kernels.ALL), "divergent")
    cuda.start(1)
    other = stream(cuda)
    cuda("cuCtxSetCurrent", cuda.start(0))
    with pytest.raises(Exception, match="cuLaunchKernel returned 400"):
        cuda.launch(function, (), stream=other)
    cuda.stop(1)


def test_copies_of_pageable_memory_may_be_late(slow: Driver) -> None:
    """CUDA driver API, "API synchronization behavior": they might be synchronous, and might not."""
    s, device = stream(slow), slow.alloc(64)
    source, target = ctypes.create_string_buffer(b"a" * 64), ctypes.create_string_buffer(64)
    assert slow.library.tempi_emulator_pageable(b"late") == 0
    slow("cuMemcpyHtoDAsync_v2", device, source, 64, s)
    slow("cuMemcpyDtoHAsync_v2", target, device, 64, s)
    ctypes.memset(source, ord("b"), 64)
    assert target.raw == bytes(64)
    slow("cuStreamSynchronize", s)
    assert slow.library.tempi_emulator_pageable(b"staged") == 0
    assert target.raw == b"b" * 64
    assert slow.library.tempi_emulator_pageable(b"sometimes") == 1


def test_a_stream_writes_a_word_after_the_work_before_it(slow: Driver) -> None:
    s, words, device = stream(slow), pinned(slow), slow.alloc(64)
    slow("cuMemsetD8Async", device, ctypes.c_ubyte(7), 64, s)
    slow("cuStreamWriteValue32_v2", s, words, ctypes.c_uint32(0x01020304), int32(0))
    assert first(words) == 0
    slow("cuStreamSynchronize", s)
    assert ctypes.string_at(words, 8) == bytes((4, 3, 2, 1, 0, 0, 0, 0))
    for address in (words + 2, words + (1 << 40)):
        assert slow.result("cuStreamWriteValue32_v2", s, address, ctypes.c_uint32(1), int32(0)) == 1


def test_priorities_are_clamped_to_their_range(cuda: Driver) -> None:
    least, greatest = ctypes.c_int(), ctypes.c_int()
    cuda("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    assert greatest.value < least.value == 0
    for asked, given in ((greatest.value, greatest.value), (greatest.value - 9, greatest.value), (9, 0), (-1, -1)):
        made = cuda.get("cuStreamCreateWithPriority", int32(NON_BLOCKING), int32(asked))
        priority = ctypes.c_int()
        cuda("cuStreamGetPriority", made, ctypes.byref(priority))
        assert priority.value == given
