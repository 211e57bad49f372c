"""Datatypes that a library packs otherwise than the type map says: tempi carries them always.

The classes are those of csrc/shim/wrong.c, a failing type each. Found by packing random types with the
library alone, with MPICH 5.0.2, Open MPI 5.0.11 and Open MPI 4.1.4.
"""

from __future__ import annotations

import numpy as np
import pytest

import calls
import oracle
import tempi
from world import MPI, Memory, acted, committed

VERSION = MPI.Get_library_version()
OPENMPI = "Open MPI" in VERSION
OPENMPI5 = OPENMPI and "Open MPI v4" not in VERSION
MPICH = "MPICH" in VERSION

BYTE, SHORT, DOUBLE = (oracle.Named(n) for n in ("BYTE", "SHORT", "DOUBLE"))
Z = oracle.Named("C_DOUBLE_COMPLEX")
COMPLEX = oracle.F90Complex(6, 37)

CLASSES = {
    "vector one byte backwards": (OPENMPI, oracle.Hvector(3, 1, -1, BYTE), 1),
    "overlapping vector one byte backwards": (OPENMPI, oracle.Hvector(8, 4, -1, DOUBLE), 1),
    "complex with a gap of half an element": (OPENMPI5, oracle.Hvector(6, 1, 12, COMPLEX), 1),
    "double complex with such a gap": (OPENMPI5, oracle.Hvector(3, 1, 24, Z), 1),
    "contiguous of a negative extent": (
        MPICH,
        oracle.Contiguous(5, oracle.Resized(0, -3, oracle.Contiguous(3, SHORT))),
        2,
    ),
}  # fmt: skip


def packed(memory: Memory, datatype: MPI.Datatype) -> np.ndarray:
    out = np.zeros(memory.count * datatype.Get_size(), np.uint8)
    assert calls.pack(memory, datatype, out, 0, MPI.COMM_WORLD, "MPI_Pack") == len(out)
    return out


@pytest.mark.parametrize("name", CLASSES)
def test_a_known_wrong_class_is_never_left_to_the_library(name: str) -> None:
    concerned, tree, count = CLASSES[name]
    memory = Memory(tree, count).fill(1)
    with committed(tree) as datatype, acted(packs=1, known_wrong=int(concerned)):
        np.testing.assert_array_equal(packed(memory, datatype), memory.packed)


@pytest.mark.parametrize("name", CLASSES)
def test_the_library_alone_is_still_wrong(name: str) -> None:
    """When this fails, a version has mended the class, and wrong.c can say so."""
    concerned, tree, count = CLASSES[name]
    if not concerned or "MPICH Version:\t4.0" in VERSION:
        pytest.skip("another library's class, or version")
    memory = Memory(tree, count).fill(1)
    with committed(tree) as datatype, tempi.disabled():
        assert (packed(memory, datatype) != memory.packed).any()
