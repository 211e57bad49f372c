"""Packing of strided arrays without MPI: host kernels for NumPy arrays, GPU kernels for device arrays."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi import _engine
from tempi._errors import ArrayError
from tempi._foreign import LEGACY_STREAM, Foreign, describe, is_contiguous
from tempi._libraries import current_stream, empty, stream_number
from tempi._strides import fold, overlap

__all__ = ["pack", "unpack"]

_ffi, _lib = _engine.ffi, _engine.lib

#: Cached layouts.
CACHE_SIZE = 1024

if TYPE_CHECKING:
    Key = tuple[int, tuple[int, ...], tuple[int, ...]]

_layouts: dict[Key, Any] = {}
_lock = threading.Lock()


def pack(array: Any, out: Any = None, stream: Any = None) -> Any:
    """Packs the elements of `array`, of any shape and strides, in the order of its indices (C order).

    `array` is a NumPy array, or any object with ``__cuda_array_interface__`` or DLPack (CuPy, Numba, PyTorch).
    The result is a new one-dimensional uint8 array of ``array.nbytes`` elements, of the same library and on the
    same device; or `out`, an array of that many bytes in C order, of any dtype, which must not overlap `array`.
    For device memory `out` may also be host memory, for example a NumPy array.

    Host memory is packed when the call returns. Device memory is packed asynchronously in `stream`: a stream
    of CuPy, Numba or PyTorch, or its handle as an integer (1: the legacy default stream, 2: the thread's). The
    pack runs after the work already in that stream and in the array's own stream, and before later work in
    `stream`; until then neither array may be changed or freed elsewhere. Without `stream`, the array's own
    stream is used: the one that its interface names, PyTorch's current one, else the legacy default stream.
    With `out` in pageable host memory the bytes are there when the call returns.

    Raises ArrayError (a ValueError) if the arrays cannot be packed, UnsupportedError if there are no kernels
    for the device, EngineError if the device fails. MPI is not needed.

        packed = tempi.pack(field[:, :, 0])
        tempi.unpack(packed, field[:, :, -1])
    """
    wanted = _wanted(array, stream)
    source = _seen(array, "pack", wanted)
    number = wanted or source.stream or LEGACY_STREAM
    made = empty(array, source, number) if out is None else out
    target = _seen(made, "pack into", number)
    _check_packed(target, source, "out")
    if target.readonly:
        raise ArrayError("cannot pack into out: it is read-only")
    _check_apart(source, target, "out")
    if source.nbytes:
        _run(source, target, number, packs=True)
    return made


def unpack(packed: Any, array: Any, stream: Any = None) -> Any:
    """Unpacks bytes packed by `pack` into the elements of `array`. Returns `array`.

    `packed` is an array of ``array.nbytes`` bytes in C order, of any dtype, in the same kinds of memory as
    `out` of `pack`: on the same device, or on the host. `array` must be writable and no two of its elements may
    share memory. Completion and streams are as in `pack`.

    Raises ArrayError (a ValueError), naming the axis and the rule, if the arrays do not allow it,
    UnsupportedError if there are no kernels for the device, EngineError if the device fails.
    """
    wanted = _wanted(array, stream)
    target = _seen(array, "unpack into", wanted)
    number = wanted or target.stream or LEGACY_STREAM
    source = _seen(packed, "unpack", number)
    _check_packed(source, target, "packed")
    if target.readonly:
        raise ArrayError("cannot unpack into this array: it is read-only")
    if target.nbytes and (reason := overlap(target.stand_in())) is not None:
        raise ArrayError(f"cannot unpack into this array: {reason}")
    _check_apart(target, source, "packed")
    if target.nbytes:
        _run(target, source, number, packs=False)
    return array


# ---- what may be packed ------------------------------------------------------------------------------


def _wanted(array: Any, stream: Any) -> int | None:
    """The handle of the requested stream, or None to use the stream that the array names."""
    if stream is not None:
        return stream_number(stream)  # checked even if unused: it may be invalid
    return None if isinstance(array, np.ndarray) else current_stream(array)


def _seen(array: Any, doing: str, stream: int | None) -> Foreign:
    """Describes the array for use in that stream. Raises ArrayError if it is no array, or not of bytes."""
    found = _of_numpy(array) if isinstance(array, np.ndarray) else describe(array, stream or LEGACY_STREAM)
    if found is None:
        kind = type(array)
        raise ArrayError(
            f"cannot {doing} a {kind.__module__}.{kind.__qualname__}: it is no NumPy array and offers neither "
            "__cuda_array_interface__ nor DLPack for memory that tempi reaches"
        )
    if found.dtype.hasobject:
        raise ArrayError(f"cannot {doing} an array of {found.dtype}: its elements are Python objects")
    return found


def _of_numpy(array: np.ndarray[Any, Any]) -> Foreign:
    return Foreign(
        pointer=array.ctypes.data,
        dtype=array.dtype,
        shape=array.shape,
        strides=array.strides,
        readonly=not array.flags.writeable,
        stream=None,
        on_host=True,
        owner=array,
    )


def _check_packed(packed: Foreign, array: Foreign, name: str) -> None:
    if packed.nbytes != array.nbytes:
        raise ArrayError(f"{name} has {packed.nbytes} bytes and the array {array.nbytes}: they must be as many")
    if packed.nbytes and not is_contiguous(packed.shape, packed.strides, packed.dtype.itemsize):
        raise ArrayError(f"{name} is not contiguous in C order (shape {packed.shape}, strides {packed.strides} bytes)")
    if array.on_host and not packed.on_host and array.nbytes:
        raise ArrayError(f"the array is in host memory and {name} is not: pack between host arrays, then copy")


def _check_apart(array: Foreign, packed: Foreign, name: str) -> None:
    """Compares first and last bytes: a packed array between the elements of the other is also an error."""
    if not array.nbytes:
        return
    low, high = _span(array)
    if packed.pointer < high and low < packed.pointer + packed.nbytes:
        raise ArrayError(f"{name} lies within the memory that the array spans")


def _span(array: Foreign) -> tuple[int, int]:
    """Addresses of the first byte and of the byte after the last."""
    steps = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    low = array.pointer + sum(step for step in steps if step < 0)
    return low, array.pointer + sum(step for step in steps if step > 0) + array.dtype.itemsize


# ---- doing it -----------------------------------------------------------------------------------------


def _run(strided: Foreign, packed: Foreign, stream: int, *, packs: bool) -> None:
    """Packs from the strided array to the packed one, or unpacks in the other direction."""
    layout = _layout((strided.dtype.itemsize, strided.shape, strided.strides))
    memory, flat = _ffi.cast("char *", strided.pointer), _ffi.cast("char *", packed.pointer)
    source, target = (memory, flat) if packs else (flat, memory)
    if strided.on_host:
        work = _lib.tempi_pack if packs else _lib.tempi_unpack
        work(layout, 1, source, 0, strided.nbytes, target)
        return
    doing = "tempi.pack()" if packs else "tempi.unpack()"
    for each in (strided.stream, packed.stream):
        if each not in (None, stream):
            _engine.check(_lib.tempi_stream_join(memory, each, stream), doing=doing)
    submit = _lib.tempi_device_pack if packs else _lib.tempi_device_unpack
    status = submit(layout, 1, source, 0, strided.nbytes, target, stream)
    if status == _lib.TEMPI_ERR_ARG:
        raise ArrayError(f"{doing}: the array says that it is in CUDA memory, but the CUDA driver does not know it")
    if status == _lib.TEMPI_ERR_UNSUPPORTED:
        doing += ": the arrays are on two devices, or there are no kernels for the device (see tempi doctor)"
    _engine.check(status, doing=doing)


def _layout(key: Key) -> Any:
    """The canonical layout of an array, relative to its first element; released with its last reference."""
    found = _layouts.get(key)
    if found is None:
        found = _make_layout(key)
        with _lock:
            while len(_layouts) >= CACHE_SIZE:  # evict the oldest
                del _layouts[next(iter(_layouts))]
            _layouts[key] = found
    return found


def _make_layout(key: Key) -> Any:
    itemsize, shape, strides = key
    (run, _), *axes = fold(shape, strides, itemsize)
    out = _ffi.new("tempi_layout **")
    _engine.check(_lib.tempi_layout_bytes(run * itemsize, out), doing="a layout")
    layout = _ffi.gc(out[0], _lib.tempi_layout_free)
    for count, stride in axes:
        _engine.check(_lib.tempi_layout_hvector(count, 1, stride, layout, out), doing="a layout")
        layout = _ffi.gc(out[0], _lib.tempi_layout_free)
    canonical = _ffi.new("tempi_layout const **")
    status = _lib.tempi_layout_canonical(layout, _ffi.NULL, _ffi.NULL, canonical)
    _engine.check(status, doing="a layout")
    return _ffi.gc(canonical[0], _lib.tempi_layout_release)
