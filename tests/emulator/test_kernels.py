"""Kernels: memory spaces, barriers, lanes, and faults."""

from __future__ import annotations

import ctypes
import struct

import pytest

from emulator import kernels
from emulator.driver import ILLEGAL_ADDRESS, INVALID_VALUE, LAUNCH_FAILED, MISALIGNED, CudaError, Driver


@pytest.fixture
def module(cuda: Driver) -> int:
    return cuda.load(kernels.ALL)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def test_vectors_are_moved_whole(cuda: Driver, module: int) -> None:
    data = bytes(range(64))[:48] + bytes([200]) + bytes(15)
    source, target = cuda.upload(data), cuda.alloc(64)
    cuda.launch(cuda.function(module, "vectors"), (source, target))
    out = cuda.read(target, 64)
    assert out[:49] == data[:49]
    assert out[52:56] == struct.pack("<i", 200 - 256)
    assert out[56:64] == data[28:32] + data[24:28]


def test_every_state_space_and_its_window(cuda: Driver, module: int) -> None:
    out = cuda.alloc(16)
    cuda.launch(cuda.function(module, "spaces"), (out,))
    assert cuda.read(out, 16) == words(7, 5, 1234, 1234)
    counter = cuda.get("cuModuleGetGlobal_v2", None, module, b"counter")
    assert cuda.read(counter, 4) == words(8)


@pytest.mark.parametrize("threads", [1, 31, 32, 33, 127, 256, 1024])
def test_barrier_holds_the_whole_block(cuda: Driver, module: int, threads: int) -> None:
    data = cuda.upload(words(*range(threads)))
    cuda.launch(cuda.function(module, "reverse"), (data,), block=(threads,), shared=4 * threads)
    assert cuda.read(data, 4 * threads) == words(*reversed(range(threads)))


def test_shared_memory_that_was_not_asked_for_is_a_fault(cuda: Driver, module: int) -> None:
    data = cuda.upload(words(*range(32)))
    cuda.launch(cuda.function(module, "reverse"), (data,), block=(32,), shared=64)
    assert cuda.result("cuCtxSynchronize") == ILLEGAL_ADDRESS


def test_divergent_barrier_is_an_error_and_no_hang(
    cuda: Driver, module: int, capfd: pytest.CaptureFixture[str]
) -> None:
    cuda.launch(cuda.function(module, "divergent"), (), block=(32,))
    assert cuda.result("cuCtxSynchronize") == LAUNCH_FAILED
    assert "divergent: a thread waits for ever at PTX line" in capfd.readouterr().err


@pytest.mark.parametrize(("aligned", "error"), [(0, 0), (1, LAUNCH_FAILED)])
def test_a_warp_comes_to_an_aligned_barrier_as_one(cuda: Driver, module: int, aligned: int, error: int) -> None:
    cuda.launch(cuda.function(module, "split"), (aligned,), block=(32,))
    assert cuda.result("cuCtxSynchronize") == error


def test_lanes_see_each_other(cuda: Driver, module: int) -> None:
    out = cuda.alloc(8 + 64 * 4)
    cuda("cuMemsetD8_v2", out, 0, 8 + 64 * 4)
    cuda.launch(cuda.function(module, "lanes"), (out,), block=(64,))
    values = struct.unpack("<66I", cuda.read(out, 264))
    assert values[:2] == (sum(range(64)), 63)
    assert list(values[2:]) == [i ^ 1 for i in range(64)]


@pytest.mark.parametrize(("shift", "error"), [(2, MISALIGNED), (4, ILLEGAL_ADDRESS), (-8, ILLEGAL_ADDRESS)])
def test_invalid_accesses_are_sticky_errors(cuda: Driver, module: int, shift: int, error: int) -> None:
    source, target = cuda.upload(bytes(32)), cuda.alloc(32)
    cuda.launch(cuda.function(module, "increment"), (source, target + shift), block=(8,))
    for call in ("cuCtxSynchronize", "cuCtxSynchronize"):
        assert cuda.result(call) == error
    with pytest.raises(CudaError) as caught:
        cuda.alloc(8)
    assert caught.value.code == error


def test_an_access_across_the_end_is_a_fault(cuda: Driver, module: int) -> None:
    cuda.launch(cuda.function(module, "increment"), (cuda.upload(bytes(32)), cuda.alloc(30)), block=(8,))
    assert cuda.result("cuCtxSynchronize") == ILLEGAL_ADDRESS


def test_pageable_host_memory_is_no_device_memory(cuda: Driver, module: int) -> None:
    data = ctypes.create_string_buffer(64)
    cuda.launch(cuda.function(module, "increment"), (ctypes.addressof(data) & ~15, cuda.alloc(64)))
    assert cuda.result("cuCtxSynchronize") == ILLEGAL_ADDRESS


def test_another_devices_memory_needs_peer_access(cuda: Driver, module: int) -> None:
    other = cuda.start(1)
    far = cuda.upload(words(41))
    mine = cuda.start(0)
    near = cuda.alloc(4)
    increment = cuda.function(module, "increment")
    cuda("cuCtxEnablePeerAccess", other, 0)
    cuda.launch(increment, (far, near))
    assert cuda.read(near, 4) == words(42)
    cuda("cuCtxDisablePeerAccess", other)
    cuda.launch(increment, (far, near))
    assert cuda.result("cuCtxSynchronize") == ILLEGAL_ADDRESS
    cuda("cuCtxSetCurrent", other)
    assert cuda.read(far, 4) == words(41)
    cuda.stop(1)
    cuda("cuCtxSetCurrent", mine)


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [((0,), (1,), 0), ((1,), (1025,), 0), ((1, 65536), (1,), 0), ((1,), (1,), 50000)],
)
def test_launches_out_of_bounds_are_refused(
    cuda: Driver, module: int, grid: tuple[int, ...], block: tuple[int, ...], shared: int
) -> None:
    with pytest.raises(CudaError) as caught:
        cuda.launch(cuda.function(module, "divergent"), (), grid=grid, block=block, shared=shared)
    assert caught.value.code == INVALID_VALUE


def test_order_of_threads_and_blocks_follows_the_seed(cuda: Driver) -> None:
    """The thread that gets the first number of a counter differs from launch to launch."""
    ptx = (
        kernels.HEADER
        + """
    .visible .entry order(.param .u64 out) {
      .reg .b64 %o; .reg .b32 %i, %n, %x; .reg .pred %p;
      ld.param.u64 %o, [out]; mov.u32 %i, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %i, %n, 64, %i;
      atom.global.add.u32 %x, [%o], 1; setp.eq.u32 %p, %x, 0; @%p st.global.u32 [%o+4], %i; ret;
    }"""
    )
    order = cuda.function(cuda.load(ptx), "order")
    firsts = set()
    for _ in range(8):
        out = cuda.upload(bytes(8))
        cuda.launch(order, (out,), grid=(7,), block=(64,))
        count, first = struct.unpack("<2I", cuda.read(out, 8))
        assert count == 448
        firsts.add(first)
    assert len(firsts) > 4
