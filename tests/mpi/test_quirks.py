"""Datatypes that a library packs differently from the type map: tempi always carries them.

The classes are those of csrc/shim/type/quirks.c, failing types each. Found by packing and sending random types with the
library alone (tests/tools/find_quirks.py), with MPICH 5.0.2, Open MPI 5.0.11 and Open MPI 4.1.4.
"""

from __future__ import annotations

import numpy as np
import pytest

import calls
import oracle
import tempi
from astray import ASTRAY
from world import MPI, Memory, acted, committed

VERSION = MPI.Get_library_version()
OPENMPI = "Open MPI" in VERSION
OPENMPI5 = OPENMPI and "Open MPI v4" not in VERSION
MPICH = "MPICH" in VERSION

BYTE, SHORT, INT, FLOAT, DOUBLE = (oracle.Named(n) for n in ("BYTE", "SHORT", "INT", "FLOAT", "DOUBLE"))
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
def test_a_class_with_a_quirk_is_never_left_to_the_library(name: str) -> None:
    concerned, tree, count = CLASSES[name]
    memory = Memory(tree, count).fill(1)
    with committed(tree) as datatype, acted(packs=1, quirks=int(concerned)):
        np.testing.assert_array_equal(packed(memory, datatype), memory.packed)


@pytest.mark.parametrize("name", CLASSES)
def test_the_library_alone_is_still_wrong(name: str) -> None:
    """When this fails, a version has fixed the class: update quirks.c."""
    concerned, tree, count = CLASSES[name]
    if not concerned or "MPICH Version:\t4.0" in VERSION:
        pytest.skip("another library's class, or version")
    memory = Memory(tree, count).fill(1)
    with committed(tree) as datatype, tempi.disabled():
        assert (packed(memory, datatype) != memory.packed).any()


def moved(tree: oracle.Tree, count: int, way: str) -> bool:
    """To oneself, derived at the sender, at the receiver or at both: does it arrive as the type map says?"""
    out, into = Memory(tree, count).fill(1), Memory(tree, count)
    wire = np.zeros(len(out.packed), np.uint8)
    with committed(tree) as datatype:
        if way == "received":
            wire[:] = out.packed
        source = [wire, len(wire), MPI.PACKED] if way == "received" else out.message(datatype)
        target = [wire, len(wire), MPI.PACKED] if way == "sent" else into.message(datatype)
        MPI.COMM_SELF.Sendrecv(source, 0, 1, target, 0, 1)
    if way == "sent":
        return bool((wire == out.packed).all())
    try:
        into.check(out.packed)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("way", ["sent", "received", "both"])
@pytest.mark.parametrize("name", ASTRAY)
def test_elements_astray_arrive(name: str, way: str) -> None:
    tree, count, _ = ASTRAY[name]
    sides = {"sent": 1, "received": 1, "both": 2}[way]
    before = tempi.stats()["quirks"]
    assert moved(tree, count, way)
    assert tempi.stats()["quirks"] - before == (sides if OPENMPI5 else 0)


@pytest.mark.parametrize("name", ASTRAY)
def test_the_library_alone_still_carries_elements_astray_wrong(name: str) -> None:
    """When this fails, a version has fixed the class: update quirks.c."""
    tree, count, way = ASTRAY[name]
    if not OPENMPI5 or way == "any":
        pytest.skip("another library's class, or version, or only probably")
    with tempi.disabled():
        assert not moved(tree, count, way)


@pytest.mark.parametrize(
    "tree",
    [
        oracle.Hvector(300, 1, 24, DOUBLE),
        oracle.Struct((1, 1, 2), (0, 8, 16), (SHORT, DOUBLE, INT)),
        oracle.Subarray((40, 30), (20, 10), (3, 5), oracle.Named("LONG_DOUBLE")),
        oracle.Indexed((1, 2, 3), (0, 7, 12), INT),
        oracle.Vector(4, 1, 3, INT),
    ],
    ids=str,
)
def test_elements_at_multiples_of_their_size_are_of_no_wrong_class(tree: oracle.Tree) -> None:
    before = tempi.stats()["quirks"]
    assert moved(tree, 7, "both")
    assert tempi.stats()["quirks"] == before
