"""PTX as nvcc writes it (samples/sample.cu), against NumPy."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from emulator.driver import Driver

np = pytest.importorskip("numpy")
SAMPLE = Path(__file__).resolve().parent / "samples" / "sample.ptx"


@pytest.fixture
def module(cuda: Driver) -> int:
    return cuda.load(SAMPLE.read_text())


def test_strided_rows_are_packed(cuda: Driver, module: int) -> None:
    rows, run, stride = 41, 3, 96
    source = np.random.default_rng(1).integers(0, 256, (rows, stride), np.uint8)
    target = cuda.alloc(rows * run * 16)
    arguments = (cuda.upload(source.tobytes()), target, ctypes.c_uint32(rows * run), stride, ctypes.c_uint32(run))
    cuda.launch(cuda.function(module, "pack"), arguments, grid=(2,), block=(32,))
    assert cuda.read(target, rows * run * 16) == source[:, : run * 16].tobytes()


def test_a_structure_as_a_parameter(cuda: Driver, module: int) -> None:
    source = np.random.default_rng(2).integers(0, 256, (9, 10, 11), np.uint8)
    view = source[1:8:2, ::3, 2:9]
    box = struct.pack("<8qi4x", *view.shape[::-1], 0, *view.strides[::-1], 0, 3)
    pointer = cuda.upload(source.tobytes()) + view.ctypes.data - source.ctypes.data
    target = cuda.alloc(view.size)
    parameter = (ctypes.c_char * len(box)).from_buffer_copy(box)
    cuda.launch(cuda.function(module, "gather"), (parameter, pointer, target, view.size), grid=(7,), block=(32,))
    assert cuda.read(target, view.size) == view.tobytes()


@pytest.mark.parametrize("n", [1, 31, 32, 33, 65])
def test_a_transpose_through_shared_memory(cuda: Driver, module: int, n: int) -> None:
    source = np.arange(n * n, dtype=np.uint16).reshape(n, n)
    target, blocks = cuda.alloc(2 * n * n), -(-n // 32)
    arguments = (cuda.upload(source.tobytes()), target, ctypes.c_int32(n))
    cuda.launch(cuda.function(module, "transpose"), arguments, grid=(blocks, blocks), block=(32, 8))
    assert cuda.read(target, 2 * n * n) == source.T.tobytes()


def test_shuffles_switches_and_doubles(cuda: Driver, module: int) -> None:
    source = np.random.default_rng(3).integers(-1000, 1000, (5, 32)).astype(np.int32)
    sums = source.sum(axis=1).astype(float)
    count = float((source[0] > 0).sum())
    expected = [-sums, sums * sums, np.sqrt(np.abs(sums)), sums / 3, sums, np.full(5, count), sums]
    pointer = cuda.upload(source.tobytes())
    for way, answer in enumerate(expected):
        target = cuda.alloc(40)
        cuda.launch(cuda.function(module, "sums"), (pointer, target, ctypes.c_int32(way)), grid=(5,), block=(32,))
        assert cuda.read(target, 40) == answer.tobytes(), way
