"""Stream capture: what becomes part of a graph, and what ends the capture (CUDA Programming Guide, "Creating a Graph
Using Stream Capture")."""

from __future__ import annotations

import ctypes

import pytest

from emulator.driver import LEGACY, NON_BLOCKING, Driver, int32

UNSUPPORTED, INVALIDATED, UNJOINED, ISOLATION, IMPLICIT = 900, 901, 904, 905, 906
BLOCKING = 0
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


def begin(cuda: Driver, flags: int = NON_BLOCKING, mode: int = GLOBAL) -> int:
    stream = cuda.get("cuStreamCreate", int32(flags))
    cuda("cuStreamBeginCapture_v2", stream, int32(mode))
    return stream


def end(cuda: Driver, stream: int) -> int:
    """The number of nodes."""
    graph = ctypes.c_uint64()
    cuda("cuStreamEndCapture", stream, ctypes.byref(graph))
    nodes = ctypes.c_size_t()
    cuda("cuGraphGetNodes", graph, None, ctypes.byref(nodes))
    cuda("cuGraphDestroy", graph)
    return nodes.value


def end_result(cuda: Driver, stream: int) -> int:
    return cuda.result("cuStreamEndCapture", stream, ctypes.byref(ctypes.c_uint64()))


def fill(cuda: Driver, pointer: int, stream: int) -> int:
    return cuda.result("cuMemsetD8Async", pointer, ctypes.c_ubyte(9), 64, stream)


def status_of(cuda: Driver, stream: int) -> int:
    status = ctypes.c_int(-1)
    cuda("cuStreamIsCapturing", stream, ctypes.byref(status))
    return status.value


def test_captured_work_does_not_run(cuda: Driver) -> None:
    pointer = cuda.upload(bytes(64))
    stream = begin(cuda)
    assert status_of(cuda, stream) == 1
    assert fill(cuda, pointer, stream) == fill(cuda, pointer, stream) == 0
    assert end(cuda, stream) == 2
    assert status_of(cuda, stream) == 0
    assert cuda.read(pointer, 64) == bytes(64)
    cuda.free(pointer)


@pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING])
def test_the_legacy_stream_ends_the_capture_of_a_blocking_one(cuda: Driver, flags: int) -> None:
    pointer, other = cuda.alloc(64), cuda.get("cuStreamCreate", int32(BLOCKING))
    stream = begin(cuda, flags)
    assert fill(cuda, pointer, other) == 0, "other streams are free"
    assert fill(cuda, pointer, LEGACY) == (0 if flags == NON_BLOCKING else IMPLICIT)
    assert end_result(cuda, stream) == (0 if flags == NON_BLOCKING else INVALIDATED)
    cuda("cuStreamSynchronize", other)
    cuda.free(pointer)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("relaxed", [False, True])
def test_calls_that_allocate_or_wait_are_unsafe(cuda: Driver, mode: int, relaxed: bool) -> None:
    stream = begin(cuda, mode=mode)
    own = ctypes.c_int(RELAXED if relaxed else GLOBAL)
    cuda("cuThreadExchangeStreamCaptureMode", ctypes.byref(own))
    good = relaxed or mode == RELAXED
    assert cuda.result("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 64) == (0 if good else UNSUPPORTED)
    cuda("cuThreadExchangeStreamCaptureMode", ctypes.byref(own))
    assert end_result(cuda, stream) == (0 if good else INVALIDATED)


def test_a_captured_event_takes_other_streams_along(cuda: Driver) -> None:
    event, other = cuda.get("cuEventCreate", int32(2)), cuda.get("cuStreamCreate", int32(NON_BLOCKING))
    stream = begin(cuda)
    cuda("cuEventRecord", event, stream)
    cuda("cuStreamWaitEvent", other, event, int32(0))
    assert status_of(cuda, other) == 1
    assert end_result(cuda, stream) == UNJOINED


def test_a_captured_stream_cannot_wait_for_work_outside(cuda: Driver) -> None:
    event, other = cuda.get("cuEventCreate", int32(2)), cuda.get("cuStreamCreate", int32(NON_BLOCKING))
    stream = begin(cuda)
    cuda("cuEventRecord", event, other)
    assert cuda.result("cuStreamWaitEvent", stream, event, int32(0)) == ISOLATION
    assert end_result(cuda, stream) == INVALIDATED


def test_a_captured_stream_cannot_be_queried(cuda: Driver) -> None:
    stream = begin(cuda, mode=RELAXED)
    assert cuda.result("cuStreamQuery", stream) == UNSUPPORTED
    assert end_result(cuda, stream) == INVALIDATED
