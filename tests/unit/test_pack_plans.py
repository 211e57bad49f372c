"""The cached plan of a layout for one element: the same bytes the first time, again, and on another ISA."""

from __future__ import annotations

import numpy as np
import pytest

import oracle
from layouts import canonical
from packing import ffi, levels_here, lib

DOUBLE = oracle.Named("DOUBLE")
KEPT = {
    "vector": oracle.Vector(40, 1, 3, DOUBLE),
    "offset": oracle.Subarray((16,) * 3, (1, 3, 4), (5, 1, 4), oracle.Named("BYTE")),
    "backwards": oracle.Vector(5, 2, -4, oracle.Named("INT")),
    "transposed": oracle.Hvector(40, 1, 4, oracle.Vector(40, 1, 40, oracle.Named("FLOAT"))),
    "one run": oracle.Resized(0, 64, oracle.Contiguous(3, DOUBLE)),
    "five dimensions": oracle.Subarray((3, 4, 5, 3, 4), (2, 2, 3, 2, 3), (1, 0, 1, 1, 0), DOUBLE),
}


def both_ways(layout: object, tree: oracle.Tree) -> None:
    """Packs numbered memory, unpacks into poisoned memory, and compares both with the type map."""
    lo, hi = oracle.span(tree, 1)
    offsets = oracle.element_offsets(tree, 1) - lo
    source = np.random.default_rng(1).integers(0, 256, hi - lo, dtype=np.uint8)
    packed, back = np.zeros(tree.type_map.size, np.uint8), np.full(hi - lo, 0xA5, np.uint8)
    memory, stream, other = (ffi.cast("char *", a.ctypes.data) for a in (source, packed, back))
    lib.tempi_pack(layout, 1, memory - lo, 0, len(packed), stream)
    np.testing.assert_array_equal(packed, source[offsets])
    lib.tempi_unpack(layout, 1, stream, 0, len(packed), other - lo)
    expected = np.full(hi - lo, 0xA5, np.uint8)
    expected[offsets] = source[offsets]
    np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize("name", KEPT)
def test_a_cached_plan_copies_the_bytes_of_the_type_map(name: str) -> None:
    with canonical(KEPT[name]) as made:
        layout = ffi.cast("tempi_layout *", int(ffi.cast("uintptr_t", made)))
        assert layout.cache != ffi.NULL
        try:
            for level in [*levels_here(), None, None]:
                lib.tempi_kernels_use(level.encode() if level else ffi.NULL)
                both_ways(layout, KEPT[name])
        finally:
            lib.tempi_kernels_use(ffi.NULL)


def test_a_plan_goes_with_its_layout() -> None:
    alive = lib.tempi_layout_alive()
    for _ in range(100):
        with canonical(KEPT["vector"]) as made:
            both_ways(ffi.cast("tempi_layout *", int(ffi.cast("uintptr_t", made))), KEPT["vector"])
    assert lib.tempi_layout_alive() == alive
