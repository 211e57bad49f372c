"""The file format of calibrated tables, defined once.

Python imports it; csrc/table/emit_format.py makes the C header that choose/table_file.h includes. The numbers of
quantities and families (their order here) are part of the file: append new ones at the end, and raise FORMAT when the
layout changes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["FAMILIES", "FORMAT", "HEAD", "HEADER", "MAGIC", "QUANTITIES", "Family", "Field", "Quantity", "packer"]

MAGIC, FORMAT = 0x4C444D54, 3


class Quantity(NamedTuple):
    """The quantity in a table, in seconds."""

    name: str
    about: str
    memory: str = "host"  # that holds the datatype's buffer
    by_peer: bool = False
    needs_cuda_aware: bool = False  # only a CUDA-aware library can do it


class Family(NamedTuple):
    """Shapes that are interpolated together."""

    name: str
    about: str
    corrects: str = ""  # the family whose tables these correct
    memory: str = "host"


class Field(NamedTuple):
    """A member of a structure in the file; `length` of a char array."""

    type: str
    name: str
    about: str = ""
    length: int = 0


QUANTITIES = (
    Quantity("library_pack", "MPI_Pack by the library"),
    Quantity("library_unpack", "MPI_Unpack by the library"),
    Quantity("own_pack", "MPI_Pack by tempi"),
    Quantity("own_unpack", "MPI_Unpack by tempi"),
    Quantity("stage_pack", "into staging, with a message behind it"),
    Quantity("stage_unpack", "out of staging, with a message before it"),
    Quantity("contiguous", "a message of the bytes that such a pack left in staging", by_peer=True),
    Quantity("library_message", "a message with the datatype on both sides", by_peer=True),
    # Device memory, each from the call to its completion. The packed bytes of `device_*` are in device memory, those of
    # `mapped_*` in pinned host memory.
    Quantity("device_pack", "kernels into a device buffer", "device"),
    Quantity("device_unpack", "kernels out of a device buffer", "device"),
    Quantity("mapped_pack", "kernels into mapped host memory", "device"),
    Quantity("mapped_unpack", "kernels out of mapped host memory", "device"),
    Quantity("copy_out", "packed bytes to pinned host memory", "device"),
    Quantity("copy_in", "packed bytes from pinned host memory", "device"),
    Quantity("launch", "nothing launched and waited for: once in each of the six above", "device"),
    Quantity("pinned_message", "a message of bytes in pinned memory", "device", True),
    Quantity("device_message", "a message of bytes in device memory", "device", True, True),
    Quantity("device_library", "a message with the datatype in device memory", "device", True, True),
    Quantity("device_library_pack", "MPI_Pack by the library into device memory", "device", False, True),
    Quantity("device_library_unpack", "MPI_Unpack by the library out of device memory", "device", False, True),
    Quantity("mapped_library_pack", "MPI_Pack by the library into pinned memory", "device", False, True),
    Quantity("mapped_library_unpack", "MPI_Unpack by the library out of pinned memory", "device", False, True),
)

FAMILIES = (
    Family("regular", "runs at equal distance within an element"),
    Family("elements", "one run an element"),
    Family("transposed", "one side contiguous along one axis, the other along another"),
    Family("irregular", "runs listed one by one"),
    Family(
        "aliased",
        "regular, but the stride is a multiple of 512 bytes, so that runs share few sets of the cache: factors by the "
        "lines that the runs lie on (for a size), the run, and the stride's power of two",
        "regular",
    ),
    Family("nested", "seconds that each row of a regular shape takes beside its runs", "regular"),
    Family("fields", "a factor on elements whose run does not begin where they do", "elements"),
    Family("varied", "a factor on irregular shapes with runs of different lengths", "irregular"),
    Family("shifted", "regular, at an address that allows smaller words only", memory="device"),
)

#: At the start of the file. The checksum covers everything after it.
HEADER = (
    Field("uint32_t", "magic"),
    Field("uint32_t", "format"),
    Field("uint64_t", "bytes", "of the whole file"),
    Field("uint64_t", "checksum", "of all that follows: FNV-1a"),
    Field("double", "call", "seconds that the decision adds to a pack or an unpack of a message"),
    Field("int32_t", "cores"),
    Field("uint32_t", "heads"),
    Field("char", "tempi", "its version", 32),
    Field("char", "cpu", "", 128),
    Field("char", "mpi", "", 256),
    Field("char", "gpu", "as in tempi_machine", 128),
    Field("char", "driver", "", 64),
    Field("int32_t", "cuda"),
    Field("int32_t", "emulated"),
)
SUMMED_FROM = "call"

#: One per table.
HEAD = (
    Field("int32_t", "quantity"),
    Field("int32_t", "family"),
    Field("int32_t", "peer", "TEMPI_PEER_*; 0 where the quantity has none"),
    Field("int32_t", "memory", "TEMPI_TABLES_OF_*"),
    Field("int32_t", "nsizes"),
    Field("int32_t", "nruns"),
    Field("int32_t", "nstrides"),
    Field("uint32_t", "first", "of the numbers, in doubles from the start of the file"),
)

_CODES = {"int32_t": "i", "uint32_t": "I", "uint64_t": "Q", "double": "d"}


def packer(fields: tuple[Field, ...]) -> struct.Struct:
    """A struct of these members, in order and without padding."""
    return struct.Struct("=" + "".join(f"{one.length}s" if one.length else _CODES[one.type] for one in fields))
