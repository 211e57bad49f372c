"""The structures behind a DLPack capsule, after dlpack.h."""

from __future__ import annotations

import ctypes

NAME, VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
READ_ONLY = 1
#: DLDataTypeCode to NumPy's kind.
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


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
    """DLManagedTensor: DLPack 0.x"""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned: DLPack 1.x"""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )
