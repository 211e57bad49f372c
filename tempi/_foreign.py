"""Arrays of other libraries, described through the protocols that they implement.

``__cuda_array_interface__`` (CuPy, Numba, versions 0 to 3) and ``__dlpack__`` (PyTorch, JAX, ..., DLPack
0.x and 1.x) both give the location of the elements and the stream in which they become ready: the interface
gives its number (version 3), DLPack makes a stream chosen by the consumer wait. For an array with both, the
interface is used if it names a stream.

Sources: numba-cuda's "CUDA Array Interface (Version 3)", its section on synchronization; dlpack.h 1.0;
the Python array API standard, ``array.__dlpack__``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi._dlpack import KINDS, NAME, READ_ONLY, VERSIONED_NAME, Managed, Tensor, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LEGACY_STREAM", "Foreign", "describe", "is_contiguous"]

#: CUDA's handle value for the legacy default stream.
LEGACY_STREAM = 1


@dataclass(frozen=True, slots=True)
class Foreign:
    """The location of an array's elements. Strides are in bytes; `owner` keeps the memory alive."""

    pointer: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    stream: int | None  # in which the elements become ready; None: nothing to wait for, or unknown
    on_host: bool  # pageable host memory
    owner: object

    @property
    def nbytes(self) -> int:
        size = self.dtype.itemsize
        for count in self.shape:
            size *= count
        return size

    @property
    def contiguous(self) -> bool:
        """In C or in Fortran order, without gaps."""
        return is_contiguous(self.shape, self.strides, self.dtype.itemsize) or is_contiguous(
            self.shape[::-1], self.strides[::-1], self.dtype.itemsize
        )

    def stand_in(self) -> np.ndarray[Any, Any]:
        """A NumPy array of this dtype, shape and strides; its elements must not be accessed."""
        return np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, self.strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether the elements are contiguous in C order. Follows mpi4py's rule: an array without elements
    may have strides for which the answer is no."""
    expected = itemsize
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count > 1 and stride != expected:
            return False
        expected *= count
    return True


def describe(array: object, stream: int = LEGACY_STREAM) -> Foreign | None:
    """The description of the array; None if it provides none, or none that can be used.

    `stream` is the stream that DLPack producers are asked to make wait.
    """
    interface = _interface_of(array)
    named = interface is not None and interface.get("stream") is not None
    for protocol in (_by_interface, _by_dlpack) if named else (_by_dlpack, _by_interface):
        # Any error here also occurs when mpi4py examines the object, and mpi4py reports it in its own words.
        try:
            found = protocol(array, interface, stream)
        except Exception:
            continue
        if found is not None:
            return found
    return None


def _interface_of(array: object) -> dict[str, Any] | None:
    try:  # PyTorch raises various exceptions for tensors that must not be shared
        interface = getattr(array, "__cuda_array_interface__", None)
    except Exception:
        return None
    return interface if isinstance(interface, dict) else None


# ---- the CUDA array interface -----------------------------------------------------------------------


def _by_interface(array: object, interface: Mapping[str, Any] | None, _: int) -> Foreign | None:
    if interface is None or interface.get("mask") is not None:
        return None
    shape = tuple(map(int, interface["shape"]))
    typestr, descr = interface["typestr"], interface.get("descr")
    dtype = np.dtype(descr if descr and typestr[1:2] == "V" and descr != [("", typestr)] else typestr)
    strides = interface.get("strides")
    pointer, readonly = interface["data"]
    named = interface.get("stream")
    return Foreign(
        pointer=int(pointer or 0),
        dtype=dtype,
        shape=shape,
        strides=_c_strides(shape, dtype.itemsize) if strides is None else tuple(map(int, strides)),
        readonly=bool(readonly),
        # 0 is not a valid stream here; treat it as the default stream.
        stream=None if named is None else int(named) or LEGACY_STREAM,
        on_host=False,
        owner=array,
    )


def _c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides: list[int] = []
    for count in reversed(shape):
        strides.append(itemsize)
        itemsize *= count
    return tuple(reversed(strides))


# ---- DLPack -----------------------------------------------------------------------------------------

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13

# Own prototypes: the whole process shares those of ctypes.pythonapi.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _capsule(export: Callable[..., object], device: int, stream: int) -> object:
    """The producer's capsule. A stream may be passed for device memory only."""
    named = {"stream": stream} if device in (_CUDA, _CUDA_MANAGED) else {}
    try:
        return export(max_version=(1, 0), copy=False, **named)
    except TypeError:  # the producer implements DLPack 0.x
        return export(**named)


def _tensor(capsule: object) -> tuple[Tensor, bool] | None:
    """The capsule's tensor and whether it is read-only."""
    if _is_valid(capsule, VERSIONED_NAME):
        versioned = Versioned.from_address(_get_pointer(capsule, VERSIONED_NAME))
        return (versioned.tensor, bool(versioned.flags & READ_ONLY)) if versioned.major == 1 else None
    if _is_valid(capsule, NAME):
        return Managed.from_address(_get_pointer(capsule, NAME)).tensor, False
    return None


def _dtype_of(tensor: Tensor) -> np.dtype[Any] | None:
    """The NumPy dtype of the element; bytes if NumPy has none (bfloat16, vectors); None below a byte."""
    bits = tensor.bits * tensor.lanes
    if bits % 8 or bits == 0:
        return None
    if tensor.lanes == 1 and tensor.code in KINDS:
        try:
            return np.dtype(f"{KINDS[tensor.code]}{bits // 8}")
        except TypeError:  # for example an 8-bit float
            pass
    return np.dtype(f"V{bits // 8}")


def _by_dlpack(array: Any, _: object, stream: int) -> Foreign | None:
    export = getattr(array, "__dlpack__", None)
    device = int(array.__dlpack_device__()[0]) if export is not None else 0
    if export is None or device not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        return None
    # The capsule is kept, not consumed: its own destructor releases the tensor.
    capsule = _capsule(export, device, stream)
    found = _tensor(capsule)
    dtype = _dtype_of(found[0]) if found is not None else None
    if found is None or dtype is None:
        return None
    tensor, readonly = found
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(s * dtype.itemsize for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    return Foreign(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        dtype=dtype,
        shape=shape,
        strides=_c_strides(shape, dtype.itemsize) if strides is None else strides,
        readonly=readonly,
        stream={_CPU: None, _CUDA_HOST: LEGACY_STREAM}.get(device, stream),
        on_host=device == _CPU,
        owner=(array, capsule),
    )
