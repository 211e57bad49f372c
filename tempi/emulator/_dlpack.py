"""Makes DLPack capsules (of DLPack 0.x and 1.x) by ctypes; layouts after dlpack.h."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

NAME, VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
READ_ONLY = 1
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Tensor(ctypes.Structure):
    """DLTensor"""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """DLManagedTensor"""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned"""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


# What capsules point to, until their consumers call the deleter.
kept: dict[int, tuple[Managed | Versioned, object, object, object]] = {}


def delete(address: int) -> None:
    kept.pop(address, None)


DELETE = Deleter(delete)
Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, Destructor)
api.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


def destroy(made: int) -> None:
    """A capsule that nobody has taken; a consumer that takes one renames it."""
    for name in (NAME, VERSIONED_NAME):
        if api.PyCapsule_IsValid(made, name):
            kept.pop(api.PyCapsule_GetPointer(made, name), None)


DESTROY = Destructor(destroy)


def capsule(
    owner: object,
    pointer: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    *,
    versioned: bool = False,
    readonly: bool = False,
) -> object:
    """A capsule that keeps `owner` alive until its consumer is done. BufferError for other dtypes or strides."""
    if dtype.kind not in CODES or any(s % dtype.itemsize for s in strides):
        raise BufferError(f"{dtype} with strides {tuple(strides)} cannot be said in DLPack")
    n = len(shape)
    sizes = (ctypes.c_int64 * max(1, n))(*shape)
    steps = (ctypes.c_int64 * max(1, n))(*(s // dtype.itemsize for s in strides))
    managed = Versioned(1, 0, flags=READ_ONLY * readonly) if versioned else Managed()
    managed.tensor = Tensor(
        pointer, *device, n, CODES[dtype.kind], 8 * dtype.itemsize, 1,
        ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)), 0,
    )  # fmt: skip
    managed.deleter = DELETE
    address = ctypes.addressof(managed)
    kept[address] = (managed, owner, sizes, steps)
    made: object = api.PyCapsule_New(address, VERSIONED_NAME if versioned else NAME, DESTROY)
    return made
