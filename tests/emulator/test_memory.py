"""Memory: access by the host, pointer attributes, copies of every kind."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys

import pytest

from emulator.driver import INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY, CudaError, Driver, int32

MIB = 1 << 20
GRANULARITY = 2 * MIB


def attribute(cuda: Driver, pointer: int, which: int, kind: type = ctypes.c_uint64) -> int:
    return cuda.get("cuPointerGetAttribute", int32(which), pointer, kind=kind)


def test_the_host_cannot_touch_device_memory(cuda: Driver) -> None:
    pointer = cuda.alloc(64)
    read, write = os.pipe()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.write(write, ctypes.c_void_p(pointer), ctypes.c_size_t(8)) == -1
    assert ctypes.get_errno() == errno.EFAULT
    os.close(read)
    os.close(write)


def test_a_stray_access_is_a_crash(driver: Driver, cuda: Driver) -> None:
    program = (
        "import ctypes, sys; d = ctypes.CDLL(sys.argv[1]); p = ctypes.c_uint64(); d.cuInit(0); c = ctypes.c_void_p();"
        "d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); d.cuCtxSetCurrent(c);"
        "assert d.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64)) == 0; ctypes.string_at(p.value, 1)"
    )
    done = subprocess.run([sys.executable, "-c", program, driver.library._name], check=False)
    assert done.returncode == -signal.SIGSEGV


def test_copies_arrive(clean: Driver) -> None:
    data = os.urandom(70001)
    a, b = clean.upload(data), clean.alloc(70001)
    clean("cuMemcpyDtoD_v2", b + 1, a + 1, 70000)
    clean("cuMemsetD8_v2", b, 7, 1)
    assert clean.read(b, 70001) == b"\7" + data[1:]
    clean.free(a)
    clean.free(b)


def test_copies_beyond_an_allocation_are_refused(cuda: Driver) -> None:
    pointer = cuda.alloc(100)
    for start, size in ((0, 101), (100, 1), (50, 51)):
        with pytest.raises(CudaError) as caught:
            cuda.read(pointer + start, size)
        assert caught.value.code == INVALID_VALUE
    assert cuda.result("cuMemcpyHtoD_v2", ctypes.addressof(ctypes.c_int()), b"abcd", 4) == INVALID_VALUE


def test_new_memory_is_not_zero(cuda: Driver) -> None:
    assert cuda.read(cuda.alloc(64), 64).count(0) == 0


def test_memory_has_a_bound(cuda: Driver) -> None:
    pointer = cuda.alloc(900 * MIB)
    assert cuda.result("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 200 * MIB) == OUT_OF_MEMORY
    total = ctypes.c_size_t()
    assert cuda.get("cuMemGetInfo_v2", ctypes.byref(total)) == total.value - 900 * MIB == 124 * MIB
    cuda.free(pointer)
    cuda.free(cuda.alloc(200 * MIB))


def test_pointers_are_distinguished(cuda: Driver) -> None:
    device = cuda.alloc(1000)
    host = cuda.get("cuMemHostAlloc", 1000, int32(2), kind=ctypes.c_void_p)
    managed = cuda.get("cuMemAllocManaged", 1000, int32(1))
    pooled = cuda.get("cuMemAllocAsync", 1000, 0)
    page = ctypes.create_string_buffer(1000)
    cuda("cuMemHostRegister_v2", page, 1000, 0)
    seen = [
        (attribute(cuda, p + 10, 2, ctypes.c_int), attribute(cuda, p + 10, 8, ctypes.c_uint8))
        for p in (device, host, managed, pooled, ctypes.addressof(page))
    ]
    assert seen == [(2, 0), (1, 0), (2, 1), (2, 0), (1, 0)]
    assert [attribute(cuda, device + 999, which) for which in (11, 12)] == [device, 1000]
    assert attribute(cuda, pooled, 1) == 0 != attribute(cuda, device, 1)
    assert attribute(cuda, pooled, 17) == cuda.get("cuDeviceGetDefaultMemPool", int32(0))
    out = ctypes.c_uint64()
    assert cuda.result("cuPointerGetAttribute", ctypes.byref(out), int32(2), device + 1000) == INVALID_VALUE
    cuda("cuMemHostUnregister", page)
    assert cuda.result("cuMemHostUnregister", page) == 713
    cuda("cuMemFreeHost", ctypes.c_void_p(host))


def test_attributes_of_foreign_memory_are_zero(cuda: Driver) -> None:
    kind, ordinal, start = ctypes.c_int(9), ctypes.c_int(9), ctypes.c_uint64(9)
    wanted = (ctypes.c_int * 3)(2, 9, 11)
    out = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (kind, ordinal, start)))
    cuda("cuPointerGetAttributes", ctypes.c_uint(3), wanted, out, ctypes.addressof(kind))
    assert (kind.value, ordinal.value, start.value) == (0, -2, 0)


def test_buffer_ids_are_never_used_again(cuda: Driver) -> None:
    ids, addresses = set(), set()
    for _ in range(32):
        pointer = cuda.alloc(64)
        ids.add(attribute(cuda, pointer, 7))
        addresses.add(pointer)
        cuda.free(pointer)
    assert len(ids) == 32
    assert 1 < len(addresses) < 32  # but some addresses are


def test_pinned_and_managed_memory_are_the_hosts_too(cuda: Driver) -> None:
    host = cuda.get("cuMemHostAlloc", 64, int32(2), kind=ctypes.c_void_p)
    managed = cuda.get("cuMemAllocManaged", 64, int32(1))
    for pointer in (host, managed):
        ctypes.memset(pointer, 5, 64)
        device = cuda.alloc(64)
        cuda("cuMemcpyAsync", device, pointer, 64, 0)
        cuda("cuMemsetD8Async", pointer, 9, 32, 0)
        cuda("cuCtxSynchronize")
        assert cuda.read(device, 64) == b"\5" * 64
        assert ctypes.string_at(pointer, 64) == b"\11" * 32 + b"\5" * 32
    assert cuda.get("cuMemHostGetDevicePointer_v2", ctypes.c_void_p(host), int32(0)) == host


class Copy3d(ctypes.Structure):
    """CUDA_MEMCPY3D"""

    _fields_ = [
        *[(f"src_{n}", ctypes.c_size_t) for n in ("x", "y", "z", "lod")],
        ("src_type", ctypes.c_uint), ("src_host", ctypes.c_void_p), ("src_device", ctypes.c_uint64),
        ("src_array", ctypes.c_void_p), ("reserved0", ctypes.c_void_p),
        ("src_pitch", ctypes.c_size_t), ("src_height", ctypes.c_size_t),
        *[(f"dst_{n}", ctypes.c_size_t) for n in ("x", "y", "z", "lod")],
        ("dst_type", ctypes.c_uint), ("dst_host", ctypes.c_void_p), ("dst_device", ctypes.c_uint64),
        ("dst_array", ctypes.c_void_p), ("reserved1", ctypes.c_void_p),
        ("dst_pitch", ctypes.c_size_t), ("dst_height", ctypes.c_size_t),
        ("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t),
    ]  # fmt: skip


def test_a_box_is_copied(cuda: Driver) -> None:
    np = pytest.importorskip("numpy")
    source = np.arange(6 * 7 * 16, dtype=np.uint8).reshape(6, 7, 16)
    a, b = cuda.upload(source.tobytes()), cuda.upload(bytes(4 * 5 * 8))
    copy = Copy3d(
        src_x=3, src_y=2, src_z=1, src_type=2, src_device=a, src_pitch=16, src_height=7,
        dst_x=1, dst_y=1, dst_z=1, dst_type=4, dst_device=b, dst_pitch=8, dst_height=5,
        width=5, height=4, depth=3,
    )  # fmt: skip
    cuda("cuMemcpy3DAsync_v2", ctypes.byref(copy), 0)
    expected = np.zeros((4, 5, 8), np.uint8)
    expected[1:4, 1:5, 1:6] = source[1:4, 2:6, 3:8]
    assert cuda.read(b, 160) == expected.tobytes()
    copy.dst_pitch = 5
    assert cuda.result("cuMemcpy3DAsync_v2", ctypes.byref(copy), 0) == INVALID_VALUE


def test_virtual_memory(clean: Driver) -> None:
    allocation = (ctypes.c_int * 8)(1, 0, 1, 0)  # pinned, no handles, on device 0
    handle = clean.get("cuMemCreate", GRANULARITY, allocation, 0)
    base = clean.get("cuMemAddressReserve", 2 * GRANULARITY, 0, 0, 0)
    clean("cuMemMap", base + GRANULARITY, GRANULARITY, 0, handle, 0)
    clean("cuMemMap", base, GRANULARITY, 0, handle, 0)  # the same memory twice
    access = (ctypes.c_int * 3)(1, 0, 3)
    clean("cuMemSetAccess", base, 2 * GRANULARITY, access, 1)
    clean.write(base + 5, b"here")
    assert clean.read(base + GRANULARITY + 5, 4) == b"here"
    assert attribute(clean, base + GRANULARITY, 20) == attribute(clean, base, 20)
    assert clean.result("cuMemAddressFree", base, 2 * GRANULARITY) == INVALID_VALUE
    clean("cuMemUnmap", base, 2 * GRANULARITY)
    clean("cuMemRelease", handle)
    clean("cuMemAddressFree", base, 2 * GRANULARITY)
    assert clean.result("cuMemRelease", handle) == INVALID_VALUE


def test_pools_free_in_stream_order(clean: Driver) -> None:
    stream = clean.get("cuStreamCreate", int32(1))
    pointer = clean.get("cuMemAllocAsync", 4096, stream)
    clean("cuMemsetD8Async", pointer, 3, 4096, stream)
    clean("cuMemFreeAsync", pointer, stream)
    assert clean.live("pool") == 1  # its turn has not come
    clean("cuStreamSynchronize", stream)
    assert clean.live("pool") == 0
    clean("cuStreamDestroy_v2", stream)


def test_a_context_is_needed(cuda: Driver) -> None:
    context = cuda.get("cuCtxPopCurrent_v2")
    assert cuda.result("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 8) == INVALID_CONTEXT
    cuda("cuCtxPushCurrent_v2", context)
    cuda.free(cuda.alloc(8))
