"""Operations that need the array library itself: allocating one of its arrays, and querying its streams.

A library is identified by the module of the array's class, so only libraries in use are imported.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi import _engine
from tempi._errors import ArrayError
from tempi._foreign import LEGACY_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from tempi._foreign import Foreign

    Maker = Callable[[Any, int, int], Any]

__all__ = ["current_stream", "empty", "stream_number"]


def _library(array: object) -> str:
    """The package that defines the array's class or one of its base classes; "" for other libraries."""
    return _library_of(type(array))  # type: ignore[arg-type]


@functools.lru_cache(256)
def _library_of(kind: type) -> str:
    for each in kind.__mro__:
        root = each.__module__.partition(".")[0]
        if root in _MAKERS:
            return root
    return ""


# ---- streams ------------------------------------------------------------------------------------------


def stream_number(stream: Any) -> int:
    """The handle of a stream: of CuPy (``ptr``), PyTorch (``cuda_stream``), Numba (``handle``), any object with
    ``__cuda_stream__``, or an integer. For 0 the result is 1, the legacy default stream."""
    if not isinstance(stream, int):
        stream = _handle(stream)
    if stream < 0:
        raise ArrayError(f"{stream} is no stream: give a stream object, or its handle as an integer")
    return int(stream) or LEGACY_STREAM


def _handle(stream: Any) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("ptr", "cuda_stream", "handle"):
        found = getattr(stream, name, None)
        if found is not None:
            return int(getattr(found, "value", found) or 0)  # Numba's is a ctypes pointer, None for 0
    raise ArrayError(f"{stream!r} is no stream: give a stream object, or its handle as an integer")


def current_stream(array: Any) -> int | None:
    """PyTorch's current stream on the array's device, since its arrays name no stream. None for other libraries
    and for host memory."""
    if _library(array) != "torch" or array.device.type != "cuda":
        return None
    torch = importlib.import_module("torch")
    return stream_number(torch.cuda.current_stream(array.device))


# ---- arrays -------------------------------------------------------------------------------------------


def empty(array: Any, found: Foreign, stream: int) -> Any:
    """A new uint8 array with as many bytes, of the same library and device, for use in `stream`."""
    make = _MAKERS.get(_library(array))
    if make is None:
        kind = type(array)
        raise ArrayError(f"tempi cannot make a {kind.__module__}.{kind.__qualname__}: give the array to pack into, out")
    return make(array, found.nbytes, stream)


def _numpy(_: Any, nbytes: int, __: int) -> Any:
    return np.empty(nbytes, np.uint8)


def _cupy(array: Any, nbytes: int, stream: int) -> Any:
    # CuPy's pools keep freed memory per stream: memory allocated in this stream is free in its order.
    cupy = importlib.import_module("cupy")
    used = cupy.cuda.Stream.null if stream == LEGACY_STREAM else cupy.cuda.ExternalStream(stream)
    with array.device, used:
        return cupy.empty(nbytes, np.uint8)


def _torch(array: Any, nbytes: int, stream: int) -> Any:
    torch = importlib.import_module("torch")
    if array.device.type != "cuda":
        return torch.empty(nbytes, dtype=torch.uint8)
    if stream == LEGACY_STREAM:
        used = torch.cuda.default_stream(array.device)
    else:
        used = torch.cuda.ExternalStream(stream, device=array.device)
    with torch.cuda.stream(used):
        return torch.empty(nbytes, dtype=torch.uint8, device=array.device)


def _numba(array: Any, nbytes: int, _: int) -> Any:
    # It allocates on the current device, and its arrays do not name their device: the driver does.
    cuda = importlib.import_module("numba.cuda")
    kind, device = _engine.ffi.new("int32_t *"), _engine.ffi.new("int32_t *")
    address = _engine.ffi.cast("void *", array.__cuda_array_interface__["data"][0])
    _engine.lib.tempi_memory_query(address, kind, device)
    with cuda.gpus[max(device[0], 0)]:
        return cuda.device_array(nbytes, np.uint8)


def _emulated(array: Any, nbytes: int, _: int) -> Any:
    return type(array).empty((nbytes,), np.uint8, device=array.device, kind=array.memory.kind)


_MAKERS: dict[str, Maker] = {
    "numpy": _numpy,
    "cupy": _cupy,
    "torch": _torch,
    "numba": _numba,
    "numba_cuda": _numba,
    "tempi": _emulated,
}
