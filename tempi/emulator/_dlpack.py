"""Makes DLPack capsules (DLPack 0.x and 1.x) with ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tempi._dlpack import KINDS, NAME, READ_ONLY, VERSIONED_NAME, Deleter, Managed, Tensor, Versioned

CODES = {kind: code for code, kind in KINDS.items()}

# Structures that capsules point to; each lives until its consumer calls the deleter.
capsules: dict[int, tuple[Managed | Versioned, object, object, object]] = {}


def delete(address: int) -> None:
    capsules.pop(address, None)


DELETE = Deleter(delete)
Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, Destructor)
api.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


def destroy(made: int) -> None:
    """Destroys a capsule that nobody consumed; a consumer renames the capsules that it takes."""
    for name in (NAME, VERSIONED_NAME):
        if api.PyCapsule_IsValid(made, name):
            capsules.pop(api.PyCapsule_GetPointer(made, name), None)


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
    capsules[address] = (managed, owner, sizes, steps)
    made: object = api.PyCapsule_New(address, VERSIONED_NAME if versioned else NAME, DESTROY)
    return made
