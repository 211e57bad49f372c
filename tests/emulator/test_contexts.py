"""Contexts that a program makes itself: the objects of one, and those destroyed with it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest

from emulator import kernels
from emulator.driver import ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, LEGACY, Driver, int32

DESTROYED, NO_PEERS, INVALID_DEVICE = 709, 217, 101
CONTEXT, ORDINAL = 1, 9
#: The forms of cuCtxCreate, with their arguments before the flags.
FORMS = {"cuCtxCreate_v2": (), "cuCtxCreate_v3": (None, int32(0)), "cuCtxCreate_v4": (None,)}


def create(cuda: Driver, device: int = 0) -> int:
    """A new context, current."""
    return cuda.get("cuCtxCreate_v2", int32(0), int32(device))


@pytest.fixture
def own(clean: Driver) -> Iterator[int]:
    """A context of its own beside the primary one, which is current again."""
    context = create(clean)
    clean("cuCtxPopCurrent_v2", None)
    yield context
    clean("cuCtxDestroy_v2", context)


def current(cuda: Driver) -> int:
    return cuda.get("cuCtxGetCurrent")


def context_of(cuda: Driver, pointer: int) -> int:
    return cuda.get("cuPointerGetAttribute", int32(CONTEXT), pointer)


@pytest.mark.parametrize("form", FORMS)
def test_a_new_context_is_current_until_it_is_destroyed(clean: Driver, form: str) -> None:
    primary = current(clean)
    made = clean.get(form, *FORMS[form], int32(0), int32(1))
    assert current(clean) == made != primary
    assert clean.get("cuCtxGetDevice", kind=ctypes.c_int32) == 1
    clean("cuCtxDestroy_v2", made)
    assert current(clean) == primary
    assert clean.result("cuCtxPushCurrent_v2", made) == INVALID_CONTEXT
    assert clean.result("cuCtxDestroy_v2", primary) == INVALID_CONTEXT


def test_memory_is_its_contexts_and_goes_with_it(clean: Driver) -> None:
    primary, made = current(clean), create(clean)
    memory, managed = clean.alloc(64), clean.get("cuMemAllocManaged", 64, int32(1))
    host = clean.get("cuMemHostAlloc", 64, int32(3))
    clean("cuCtxPopCurrent_v2", None)
    other = clean.alloc(64)
    assert context_of(clean, memory) == context_of(clean, managed) == context_of(clean, host) == made
    assert context_of(clean, other) == primary
    clean("cuCtxDestroy_v2", made)
    for gone in (memory, managed, host):
        assert clean.result("cuPointerGetAttribute", ctypes.byref(ctypes.c_uint64()), int32(CONTEXT), gone) == (
            INVALID_VALUE
        )
    clean.free(other)


def test_devices_are_each_others_peers_and_not_their_own(clean: Driver) -> None:
    def access(device: int, peer: int) -> int:
        return clean.get("cuDeviceCanAccessPeer", int32(device), int32(peer), kind=ctypes.c_int32)

    assert (access(0, 1), access(1, 0), access(0, 0)) == (1, 1, 0)
    for pair in ((0, 2), (2, 0), (-1, 0)):
        out = ctypes.byref(ctypes.c_int32())
        assert clean.result("cuDeviceCanAccessPeer", out, *map(int32, pair)) == INVALID_DEVICE


def test_pools_belong_to_the_device(clean: Driver) -> None:
    made = create(clean)
    pointer = clean.get("cuMemAllocAsync", 64, LEGACY)
    assert context_of(clean, pointer) == 0
    clean("cuCtxDestroy_v2", made)
    clean("cuMemsetD8_v2", pointer, ctypes.c_ubyte(3), 64)
    assert clean.read(pointer, 64) == bytes([3]) * 64
    clean("cuMemFreeAsync", pointer, LEGACY)
    clean("cuCtxSynchronize")


def test_streams_events_and_modules_go_with_their_context(clean: Driver) -> None:
    made = create(clean)
    stream, event, module = (
        clean.get("cuStreamCreate", int32(1)),
        clean.get("cuEventCreate", int32(2)),
        clean.load(kernels.ALL),
    )
    clean("cuEventRecord", event, stream)
    clean("cuCtxDestroy_v2", made)
    assert clean.result("cuStreamSynchronize", stream) == INVALID_HANDLE
    assert clean.result("cuEventQuery", event) == INVALID_HANDLE
    assert clean.result("cuModuleUnload", module) == INVALID_HANDLE


def test_events_and_kernels_want_streams_of_their_own_context(own: int, clean: Driver) -> None:
    clean("cuCtxPushCurrent_v2", own)
    stream = clean.get("cuStreamCreate", int32(1))
    clean("cuCtxPopCurrent_v2", None)
    event, module = clean.get("cuEventCreate", int32(2)), clean.load(kernels.ALL)
    function = clean.function(module, "spaces")
    out = clean.alloc(16)
    assert clean.result("cuEventRecord", event, stream) == INVALID_HANDLE
    with pytest.raises(Exception, match=f"cuLaunchKernel returned {INVALID_HANDLE}"):
        clean.launch(function, (out,), stream=stream)
    clean("cuEventRecord", event, LEGACY)
    clean("cuStreamWaitEvent", stream, event, int32(0))  # contexts may wait for each other
    clean("cuStreamSynchronize", stream)
    for function_name, thing in (("cuEventDestroy_v2", event), ("cuModuleUnload", module), ("cuMemFree_v2", out)):
        clean(function_name, thing)


def test_copies_go_between_contexts_and_kernels_do_not(cuda: Driver) -> None:
    theirs = create(cuda)
    source = cuda.upload(bytes(range(64)))
    cuda("cuCtxPopCurrent_v2", None)
    own = cuda.alloc(64)
    cuda("cuMemcpyDtoD_v2", own, source, 64)
    assert cuda.read(own, 64) == bytes(range(64))
    cuda.launch(cuda.function(cuda.load(kernels.ALL), "spaces"), (source,))
    assert cuda.result("cuCtxSynchronize") == ILLEGAL_ADDRESS
    cuda("cuCtxPushCurrent_v2", theirs)
    cuda("cuCtxSynchronize")  # the error is the other one's
    cuda("cuCtxDestroy_v2", theirs)


def test_contexts_of_one_device_are_no_peers(own: int, clean: Driver) -> None:
    assert clean.result("cuCtxEnablePeerAccess", own, int32(0)) == NO_PEERS


def test_each_context_has_default_streams_of_its_own(own: int, cuda: Driver) -> None:
    delay = ctypes.c_uint64.in_dll(cuda.library, "tempi_emulator_delay_ns")
    before, delay.value = delay.value, 10**12
    try:
        host = cuda.get("cuMemHostAlloc", 64, int32(3))
        cuda("cuMemsetD8Async", host, ctypes.c_ubyte(1), 64, LEGACY)
        cuda("cuCtxPushCurrent_v2", own)
        cuda("cuStreamSynchronize", LEGACY)
        assert ctypes.string_at(host, 1) == b"\0"
        cuda("cuCtxPopCurrent_v2", None)
        cuda("cuStreamSynchronize", LEGACY)
        assert ctypes.string_at(host, 1) == b"\1"
        cuda("cuMemFreeHost", host)
    finally:
        delay.value = before


def test_a_handle_is_used_again_and_an_id_never(clean: Driver) -> None:
    handles, ids = [], []
    for device in (0, 1):
        handles.append(create(clean, device))
        number = ctypes.c_uint64()
        clean("cuCtxGetId", handles[-1], ctypes.byref(number))
        ids.append(number.value)
        clean("cuCtxDestroy_v2", handles[-1])
    assert handles[0] == handles[1]
    assert ids[0] != ids[1]


def test_a_context_destroyed_elsewhere_stays_current_and_is_of_no_use(clean: Driver) -> None:
    made = create(clean)
    destroyer = threading.Thread(target=clean, args=("cuCtxDestroy_v2", made))
    destroyer.start()
    destroyer.join()
    again = threading.Thread(target=create, args=(clean,))
    again.start()  # the handle is another context's by now
    again.join()
    assert current(clean) == made
    assert clean.result("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 8) == DESTROYED
    assert clean.result("cuCtxGetDevice", ctypes.byref(ctypes.c_int32())) == DESTROYED
    clean("cuCtxPopCurrent_v2", None)
    clean("cuCtxDestroy_v2", made)
