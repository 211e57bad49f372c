"""Arrays on emulated devices: views, copies, and the two protocols by which others take them."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator

import pytest

from emulator.driver import Driver

np = pytest.importorskip("numpy")
from tempi.emulator import _dlpack  # noqa: E402
from tempi.emulator.array import DeviceArray, DriverError  # noqa: E402

BOXES = (np.s_[...], np.s_[1], np.s_[:, 2], np.s_[::2, 1:3], np.s_[1, 2, 3])
VIEWS = (*BOXES, np.s_[::-1, :, 1], np.s_[None, -1], np.s_[2:2])


@pytest.fixture(autouse=True)
def device(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setenv("TEMPI_CUDA_DRIVER", "emulated")
    driver("cuInit", ctypes.c_int(0))
    driver.streams("deferred")
    before = driver.live("device")
    yield driver
    gc.collect()
    assert driver.live("device") == before


@pytest.mark.parametrize("index", VIEWS)
@pytest.mark.parametrize("kind", ["device", "pinned", "managed"])
def test_views_are_numpys(index: object, kind: str) -> None:
    host = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5)
    array = DeviceArray.from_numpy(host, kind=kind, device=1)
    view, expected = array[index], host[index]
    assert (view.shape, view.dtype, view.device) == (expected.shape, expected.dtype, 1)
    assert np.array_equal(view.to_numpy(), expected)
    view.set(7)
    host[index] = 7
    assert np.array_equal(array.to_numpy(), host)


def test_the_interface_of_cuda_arrays() -> None:
    array = DeviceArray.from_numpy(np.zeros((3, 4)))
    interface = array[1:, ::2].__cuda_array_interface__
    assert interface["shape"] == (2, 2)
    assert interface["strides"] == (32, 16)
    assert interface["data"] == (array.pointer + 32, False)
    assert (interface["typestr"], interface["version"], interface["stream"]) == ("<f8", 3, 1)


def test_dlpack_says_the_same_and_keeps_the_memory(device: Driver) -> None:
    array = DeviceArray.from_numpy(np.zeros((3, 4), np.complex64))[1:, ::2]
    capsule = array.__dlpack__()
    address = ctypes.pythonapi.PyCapsule_GetPointer(id(capsule), b"dltensor")
    tensor = _dlpack.Managed.from_address(address).tensor
    assert (tensor.data, tensor.shape[:2], tensor.strides[:2]) == (array.pointer, [2, 2], [4, 2])
    assert (tensor.code, tensor.bits, tensor.device_type) == (5, 64, 2)
    alive = device.live("device")
    del array
    assert device.live("device") == alive
    del capsule
    assert device.live("device") == alive - 1


def test_numpy_takes_pinned_memory_by_dlpack() -> None:
    pinned = DeviceArray.from_numpy(np.arange(6.0).reshape(2, 3), kind="pinned")
    capsule = _dlpack.capsule(pinned, pinned.pointer, (2, 3), (24, 8), pinned.dtype, (1, 0))

    class Host:
        def __dlpack__(self, **_: object) -> object:
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    assert np.from_dlpack(Host()).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_other_indices_and_lacking_memory_are_errors() -> None:
    array = DeviceArray.empty((3, 4), np.uint8)
    with pytest.raises(IndexError, match="make views"):
        array[[0, 1]]
    with pytest.raises(DriverError, match="cuMemAlloc_v2 failed with CUDA error 2 on the emulated device"):
        DeviceArray.empty((1 << 40,), np.uint8)
