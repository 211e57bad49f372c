"""`tempi.pack` and `tempi.unpack`: NumPy's arrays, device arrays, streams, without MPI.

Run with TEMPI_CUDA_DRIVER=emulated, or on a GPU with MPITEST_MEMORY=device; else tests of device arrays are skipped.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tempi
from examples import examples
from tempi import _engine, _libraries, _packing

EMULATED = os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"
DEVICES = int(os.environ.get("TEMPI_EMULATOR_DEVICES", "1"))
ON_DEVICE = EMULATED or os.environ.get("MPITEST_MEMORY") == "device"
needs_device = pytest.mark.skipif(not ON_DEVICE, reason="needs a device, emulated (TEMPI_CUDA_DRIVER) or real")
needs_emulator = pytest.mark.skipif(not EMULATED, reason="needs the emulated device (TEMPI_CUDA_DRIVER=emulated)")
if ON_DEVICE:
    from foreign import HostPack, Interface, Pack, Stream, on_device, overwrite, patient
    from tempi.emulator.array import DeviceArray, call_in, current, driver

WHERE = ["host", *(["device", "managed", "pinned"] if ON_DEVICE else [])]


def put(host: Any, where: str) -> Any:
    """The array in that memory, with the strides of `host` and the bytes between its elements."""
    if where == "host":
        return host
    base = host
    while isinstance(base.base, np.ndarray):
        base = base.base
    raw = np.frombuffer(base, np.uint8) if base.flags.c_contiguous else base.view(np.uint8)
    array = on_device(raw, where)
    offset = host.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return DeviceArray(array.memory, offset, host.shape, host.strides, host.dtype)


def values(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.to_numpy()


INDICES = st.sampled_from(
    [np.s_[:], np.s_[::2], np.s_[::-1], np.s_[1:], np.s_[:1:-3], np.s_[0], np.s_[None], np.s_[2:2]]
)


@st.composite
def views(draw: st.DrawFn) -> Any:
    """A view of any sign of steps, order of axes and size, also of none, over random bytes."""
    shape = draw(st.lists(st.integers(1, 6), min_size=0, max_size=4))
    dtype = np.dtype(draw(st.sampled_from(["u1", "i2", "f4", "c16", "?", "i4,f8", "S3", ">f8", "M8[s]"])))
    raw = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2, (*shape, dtype.itemsize), np.uint8)
    index = draw(st.lists(INDICES, min_size=len(shape), max_size=len(shape)))
    view = raw.view(dtype)[..., 0][(*index, ...)]
    return view.transpose(draw(st.permutations(range(view.ndim))))


@pytest.mark.parametrize("where", WHERE)
@examples(80)
@given(view=views())
def test_any_view_is_packed_in_the_order_of_its_indices_and_back(where: str, view: Any) -> None:
    packed = tempi.pack(put(view, where))
    assert (packed.shape, packed.dtype) == ((view.nbytes,), np.uint8)
    assert values(packed).tobytes() == np.ascontiguousarray(view).tobytes()
    room = np.ndarray(view.shape, view.dtype, np.zeros(1 << 16, np.uint8), 1 << 15, view.strides)
    target = put(room, where)
    assert tempi.unpack(packed, target) is target
    assert values(target).tobytes() == np.ascontiguousarray(view).tobytes()
    if where == "host":  # and nothing between
        room[...] = np.zeros((), view.dtype)
        assert room.base is not None
        assert not room.base.any()


@pytest.mark.parametrize("where", WHERE)
def test_zero_dimensional_read_only_and_broadcast_arrays_are_packed(where: str) -> None:
    assert values(tempi.pack(put(np.array(3.5), where))).view(float) == 3.5
    column = np.broadcast_to(np.arange(3.0)[:, None], (3, 4))
    assert values(tempi.pack(put(column, where))).view(float).tolist() == column.ravel().tolist()


@pytest.mark.parametrize("where", WHERE)
def test_packed_bytes_go_to_the_array_that_is_given(where: str) -> None:
    view = np.arange(60.0).reshape(3, 4, 5)[:, 1]
    out = put(np.zeros((5, 3), np.complex64), where)
    assert tempi.pack(put(view, where), out) is out
    assert values(out).tobytes() == view.tobytes()
    target = put(np.zeros((3, 4, 5)), where)
    tempi.unpack(out, target[:, 1])
    assert np.array_equal(values(target)[:, 1], view)
    assert np.count_nonzero(values(target)) == np.count_nonzero(view)


@needs_device
@pytest.mark.parametrize("where", ["device", "managed", "pinned"])
def test_device_arrays_are_packed_into_host_memory_and_back(where: str) -> None:
    view = np.arange(60.0).reshape(3, 4, 5)[:, 1]
    out = np.zeros(15)
    assert tempi.pack(put(view, where), out=out) is out
    assert np.array_equal(out, view.ravel())
    target = put(np.zeros((3, 4, 5)), where)
    tempi.unpack(out, target[:, 1])
    assert np.array_equal(values(target)[:, 1], view)


def refused(call: Any, rule: str) -> None:
    with pytest.raises(tempi.ArrayError, match=rule):
        call()


def shaped(where: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """An array of any strides over 64 doubles of memory."""
    if where == "host":
        return np.ndarray(shape, float, np.zeros(64), 0, strides)
    return DeviceArray(on_device(np.zeros(64), where).memory, 0, shape, strides, float)


@pytest.mark.parametrize("where", WHERE)
def test_impossible_packs_are_refused_by_rule(where: str) -> None:
    array, five, twenty = (put(np.zeros(shape), where) for shape in ((4, 6), (5,), (20,)))
    refused(lambda: tempi.pack(array[:, 0], five), "out has 40 bytes and the array 32")
    refused(lambda: tempi.pack(array[:, 0], array[:, 1]), r"out is not contiguous .*\(48,\) bytes")
    refused(lambda: tempi.pack(array[::3, :3], array[1]), "out lies within the memory that the array spans")
    refused(lambda: tempi.unpack(array[1], array[::3, :3]), "packed lies within the memory that the array spans")
    refused(lambda: tempi.unpack(five, array[:, 0]), "packed has 40 bytes and the array 32")
    stepped, still = shaped(where, (4, 5), (8, 16)), shaped(where, (5, 4), (0, 8))
    refused(lambda: tempi.unpack(twenty, stepped), "along axis 0 .* share memory")
    refused(lambda: tempi.unpack(twenty, still), r"axis 0 \(5 entries, 0 bytes apart\)")


def test_an_object_that_is_no_array_is_refused() -> None:
    for wrong in ([1, 2], b"bytes", object(), None):
        refused(lambda wrong=wrong: tempi.pack(wrong), "it is no NumPy array and offers neither")
    refused(lambda: tempi.pack(np.array([object()])), "Python objects")
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    refused(lambda: tempi.pack(np.zeros(4), out=fixed), "out: it is read-only")
    refused(lambda: tempi.unpack(np.zeros(4), fixed), "this array: it is read-only")
    for wrong in ("main", -5, object()):
        refused(lambda wrong=wrong: tempi.pack(np.zeros(4), stream=wrong), "is no stream")


USE = "import sys, numpy, tempi; tempi.pack(numpy.zeros((3, 4))[:, 1])"


@needs_device
def test_host_memory_that_claims_to_be_cuda_memory_is_refused() -> None:
    host = np.zeros((4, 3))
    claim = Interface(on_device(host)[:, 1], data=(host.ctypes.data, False))
    refused(lambda: tempi.pack(claim, np.zeros(4)), "says that it is in CUDA memory, but the CUDA driver does not")


def test_packing_loads_no_mpi() -> None:
    code = f"{USE}; print('mpi4py' in sys.modules, tempi.stats().abi)"
    environment = {**os.environ, "LD_PRELOAD": "", "TEMPI_LIBRARY": _engine.library_path()}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "False none\n", done.stderr


@needs_device
def test_packs_go_on_after_mpi_has_ended() -> None:
    pytest.importorskip("mpi4py")
    code = (
        "import numpy as np, tempi\n"
        "from tempi import MPI\n"
        "from tempi.emulator.array import DeviceArray\n"
        "array = DeviceArray.from_numpy(np.arange(12.0).reshape(3, 4))\n"
        "before = tempi.pack(array[:, 1])\n"
        "MPI.Finalize()\n"
        "print(before.to_numpy().view(float), tempi.pack(array[:, 2]).to_numpy().view(float))\n"
    )
    environment = {**os.environ, "LD_PRELOAD": "", "TEMPI_LIBRARY": _engine.library_path()}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[1. 5. 9.] [ 2.  6. 10.]\n", done.stderr


LOST = """
import numpy as np, tempi
from tempi.emulator.array import DeviceArray
array, out = DeviceArray.from_numpy(np.zeros((4, 3))), DeviceArray.empty((4,))
for _ in range(3):
    try:
        tempi.pack(array[:, 1], out)
    except tempi.ArgumentError:
        raise
    except tempi.EngineError as error:
        print(error)
"""


@needs_emulator
def test_a_lost_device_is_an_error_each_time() -> None:
    environment = {**os.environ, "TEMPI_LIBRARY": _engine.library_path(), "LD_PRELOAD": ""}
    environment |= {"TEMPI_EMULATOR_FAIL": "cuLaunchKernel:1:lost"}
    command = [sys.executable, "-P", "-c", LOST]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["tempi.pack(): a GPU or its driver failed"] * 3, done.stdout


def test_layouts_are_cached_up_to_a_bound_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_packing, "CACHE_SIZE", 4)
    _packing._layouts.clear()
    gc.collect()
    alive = _engine.lib.tempi_layout_alive()
    for width in range(2, 30):
        assert tempi.pack(np.arange(5.0 * width)[::width]).view(float).tolist() == [i * width for i in range(5)]
    assert len(_packing._layouts) == 4
    gc.collect()
    assert _engine.lib.tempi_layout_alive() <= alive + 4
    _packing._layouts.clear()


def test_threads_may_pack_at_once() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(40):
            host = np.random.default_rng(seed).integers(0, 99, (7, 5 + step % 3, 4))[::-1, :, 1]
            for where in WHERE[:2]:
                if values(tempi.pack(put(host, where))).tobytes() != np.ascontiguousarray(host).tobytes():
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


# ---- streams ------------------------------------------------------------------------------------------


@needs_device
@pytest.mark.parametrize("how", ["interface", "argument", "object", "DLPack"])
def test_a_pack_is_in_the_order_of_its_stream(how: str) -> None:
    array, stream, out = on_device(np.zeros(64, np.uint8)), Stream(), on_device(np.zeros(32, np.uint8))
    with patient(0.5):
        source = overwrite(array, 7, stream.ptr)
        match how:
            case "interface":
                tempi.pack(Interface(array[::2], stream=stream.ptr), out)
            case "argument":
                tempi.pack(array[::2], out, stream.ptr)
            case "object":
                tempi.pack(array[::2], out, stream)
            case _:
                tempi.pack(Pack(array[::2], stream=stream.ptr), out)
        if how != "DLPack":
            assert stream.may_be_late()  # the call returned at once
            later = overwrite(array, 9, stream.ptr)  # later work in the stream runs after the pack
            stream.synchronize()
            assert (array.to_numpy() == 9).all()
            del later
    assert (out.to_numpy() == 7).all()
    del source


@needs_device
def test_an_unpack_is_in_the_order_of_its_stream() -> None:
    array, stream, packed = on_device(np.zeros(64, np.uint8)), Stream(), on_device(np.zeros(32, np.uint8))
    with patient(0.5):
        kept = [overwrite(packed, 3, stream.ptr), overwrite(array, 7, stream.ptr)]
        tempi.unpack(packed, array[::2], stream)
        assert stream.may_be_late()
        kept.append(overwrite(packed, 5, stream.ptr))
        stream.synchronize()
    assert array.to_numpy().tolist() == [3, 7] * 32
    assert (packed.to_numpy() == 5).all()


@needs_device
def test_the_streams_of_both_arrays_are_waited_for() -> None:
    array, packed = on_device(np.zeros(64, np.uint8)), on_device(np.zeros(32, np.uint8))
    streams = [Stream(), Stream(), Stream()]
    with patient():
        kept = [overwrite(array, 7, streams[0].ptr), overwrite(packed, 1, streams[1].ptr)]
        source, out = Interface(array[::2], stream=streams[0].ptr), Interface(packed, stream=streams[1].ptr)
        assert tempi.pack(source, out, streams[2]) is out
        streams[2].synchronize()
        streams[1].synchronize()
    assert (packed.to_numpy() == 7).all()
    del kept


@needs_device
def test_a_host_result_is_there_on_return() -> None:
    array, stream, out = on_device(np.zeros(64, np.uint8)), Stream(), np.zeros(32, np.uint8)
    with patient():
        source = overwrite(array, 7, stream.ptr)
        tempi.pack(Interface(array[::2], stream=stream.ptr), out)
        assert (out == 7).all()
    del source


# ---- other libraries ----------------------------------------------------------------------------------


@needs_device
@pytest.mark.parametrize("wrap", ["Interface", "Pack", "HostPack"])
def test_a_library_that_is_not_known_must_give_the_result(wrap: str) -> None:
    host = np.arange(12.0).reshape(3, 4)
    array = HostPack(host[:, 1]) if wrap == "HostPack" else globals()[wrap](on_device(host)[:, 1])
    refused(lambda: tempi.pack(array), f"tempi cannot make a foreign.{wrap}: give the array to pack into, out")
    out = np.zeros(3)
    assert tempi.pack(array, out) is out
    assert out.tolist() == [1, 5, 9]


@needs_device
@pytest.mark.skipif(DEVICES < 2, reason="needs two emulated devices")
def test_two_devices_each_pack_their_own_and_not_for_each_other() -> None:
    host = np.arange(12.0).reshape(3, 4)
    first, second = DeviceArray.from_numpy(host), DeviceArray.from_numpy(host, device=1)
    packed = tempi.pack(second[:, 2])
    assert (packed.device, packed.to_numpy().view(float).tolist()) == (1, [2, 6, 10])
    with pytest.raises(tempi.UnsupportedError, match="on two devices"):
        tempi.pack(first[:, 2], out=packed)


@needs_emulator
def test_many_packs_leave_nothing_behind() -> None:
    library = driver()
    array = on_device(np.zeros((64, 3)))
    out = tempi.pack(array[:, 1])

    def alive() -> dict[bytes, int]:
        out.to_numpy()
        gc.collect()
        return {kind: library.tempi_emulator_live(kind) for kind in (b"device", b"stream", b"host")}

    before = alive()
    for _ in range(200):
        tempi.pack(array[:, 1], out)
        tempi.unpack(out, array[:, 2])
    assert alive() == before
    assert library.tempi_emulator_live(b"event") < 500


CALLS = ["cuLaunchKernel", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuCtxPushCurrent", "cuCtxGetCurrent",
         "cuPointerGetAttributes", "cuPointerGetAttribute", "cuEventQuery", "cuMemcpyAsync",
         "cuStreamQuery"]  # fmt: skip


@needs_emulator
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_call_that_fails_once_is_retried_or_an_error(call: str, nth: int) -> None:
    host = np.arange(64 * 3.0).reshape(64, 3)
    array, out, back = on_device(host), on_device(np.zeros(64)), on_device(np.zeros((64, 3)))
    library = driver()
    library.tempi_emulator_counts_reset()
    assert library.tempi_emulator_fail(f"{call}:{nth}".encode()) == 0
    try:
        tempi.unpack(tempi.pack(array[:, 1], out), back[:, 2])
        failed = False
    except (tempi.EngineError, tempi.ArrayError):
        failed = True
    finally:
        library.tempi_emulator_fail(b"")
    if not failed:
        assert out.to_numpy().tolist() == host[:, 1].tolist()
        assert back.to_numpy()[:, 2].tolist() == host[:, 1].tolist()
    tempi.pack(array[:, 2], out)  # a valid call works again
    assert out.to_numpy().tolist() == host[:, 2].tolist()


# ---- the libraries' own arrays ------------------------------------------------------------------------


class Library:
    """The functions of CuPy, PyTorch or Numba that are called, on arrays that are DeviceArrays underneath."""

    def __init__(self, name: str) -> None:
        self.log: list[object] = []
        base = type(
            "ndarray", (), {"__module__": f"{name}.core", "__init__": lambda array, under: self.adopt(array, under)}
        )
        self.array = type("Array", (base,), {"__cuda_array_interface__": property(lambda a: a.under)})
        self.module = types.ModuleType(name)

    def adopt(self, array: Any, under: Any) -> None:
        array.device = Entered(self.log, "device", array)
        array.device.type = "cuda"
        array.memory = under
        array.under = dict(under.__cuda_array_interface__)

    def made(self, n: int, *arguments: Any, **named: Any) -> Any:
        self.log.append("empty")
        return self.array(DeviceArray.empty((n,), np.uint8))

    def entered(self, name: str) -> Any:
        return lambda *arguments, **named: Entered(self.log, name, *arguments)


class Entered:
    def __init__(self, log: list[object], *what: Any) -> None:
        self.log, self.what = log, what

    def __enter__(self) -> None:
        self.log.append(self.what[:2] if self.what[0] != "device" else "device")

    def __exit__(self, *_: object) -> None:
        self.log.append("left")


def install(monkeypatch: pytest.MonkeyPatch, library: Library, cuda: types.SimpleNamespace, **names: Any) -> None:
    for name, value in names.items():
        setattr(library.module, name, value)
    library.module.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library.module.__name__, library.module)


def pack_with(library: Library, stream: Any) -> Any:
    array = library.array(on_device(np.arange(12.0).reshape(3, 4))[:, 1])
    packed: Any = tempi.pack(array, stream=stream)
    kind: Any = library.array
    assert type(packed) is kind
    with current(0):
        call_in(driver(), "cuCtxSynchronize")
    assert packed.memory.to_numpy().view(float).tolist() == [1, 5, 9]
    return library.log


@needs_device
def test_cupys_arrays_are_made_by_its_pool_for_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    library, stream = Library("cupy"), Stream()
    null = Entered(library.log, "null")
    cuda = types.SimpleNamespace(Stream=types.SimpleNamespace(null=null), ExternalStream=library.entered("stream"))
    install(monkeypatch, library, cuda, empty=library.made)
    assert pack_with(library, stream) == ["device", ("stream", stream.ptr), "empty", "left", "left"]
    library.log.clear()
    assert pack_with(library, None) == ["device", ("null",), "empty", "left", "left"]


@needs_device
def test_pytorchs_arrays_are_made_for_its_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    library, stream = Library("torch"), Stream()
    cuda = types.SimpleNamespace(
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=stream.ptr),
        default_stream=lambda device: "default",
        ExternalStream=lambda number, device: number,
        stream=library.entered("stream"),
    )
    install(monkeypatch, library, cuda, empty=library.made, uint8="uint8")
    assert pack_with(library, None) == [("stream", stream.ptr), "empty", "left"]
    library.log.clear()
    assert pack_with(library, 0) == [("stream", "default"), "empty", "left"]


@needs_device
def test_numbas_arrays_are_made_on_the_arrays_device(monkeypatch: pytest.MonkeyPatch) -> None:
    library, stream = Library("numba"), Stream()
    cuda = types.ModuleType("numba.cuda")
    cuda.gpus, cuda.device_array = {0: Entered(library.log, "gpu", 0)}, library.made  # type: ignore[attr-defined]
    install(monkeypatch, library, cuda)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "numba.cuda", cuda)
    handle = types.SimpleNamespace(handle=ctypes.c_void_p(stream.ptr))
    assert pack_with(library, handle) == [("gpu", 0), "empty", "left"]


@pytest.mark.parametrize(
    ("stream", "number"),
    [
        (0, 1),
        (2, 2),
        (types.SimpleNamespace(ptr=0), 1),
        (types.SimpleNamespace(cuda_stream=4096), 4096),
        (types.SimpleNamespace(handle=ctypes.c_void_p(None)), 1),
        (types.SimpleNamespace(__cuda_stream__=lambda: (0, 77)), 77),
        (types.SimpleNamespace(__cuda_stream__=(0, 78)), 78),
    ],
)
def test_streams_are_known_by_their_handles(stream: Any, number: int) -> None:
    assert _libraries.stream_number(stream) == number
