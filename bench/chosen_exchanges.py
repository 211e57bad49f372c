"""Which exchanges ``tempi bench collectives`` measures."""

from __future__ import annotations

from tempi.bench import one_type
from tempi.bench.cases import KIB, MIB, matching
from tempi.bench.exchanges import (
    LINE,
    ContiguousBlocks,
    Exchange,
    HaloExchange,
    Irregular,
    OwnBlock,
    Redistribution,
    StridedBlocks,
    Tiles,
)

SIZES = (KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB)
LARGEST = 64 * MIB
STRIDED = (64 * KIB, MIB, 16 * MIB, LARGEST)
OWN_RUNS, OWN_SIZES = (8, 64, 1024), (64 * KIB, MIB, 16 * MIB)


def _transforms(points: int, ranks: int) -> list[Exchange]:
    z, y, x = range(3)
    made = [Redistribution(points, z, y), Redistribution(points, z, x), Redistribution(points, y, x, pencils=True)]
    second = Redistribution(points, z, y, pencils=True)
    # In a single group the second one of the pencils is that of slabs.
    return [*made, second] if second.groups(ranks) > 1 else [*made]


def chosen(quick: bool, ranks: int, pattern: str = "") -> list[Exchange]:
    """The exchanges of a run."""
    edges, fields, sizes = ((16, 64), (1, 3), (KIB, 64 * KIB, MIB)) if quick else ((16, 64, 128), (1, 3, 8), SIZES)
    found: list[Exchange] = []
    for points in (32, 64) if quick else (32, 64, 128):
        found += _transforms(points, ranks)
    for neighbours, cartesian in ((6, False), (26, False), (6, True)):
        found += [HaloExchange(n, count, neighbours, cartesian) for n in edges for count in fields]
    tiles = [
        Tiles(points, scatters) for scatters in (False, True) for points in ((64, 512) if quick else (64, 512, 2048))
    ]
    own_runs, own_sizes = (OWN_RUNS[1:2], OWN_SIZES[:2]) if quick else (OWN_RUNS, OWN_SIZES)
    found += [
        *tiles,
        *map(Irregular, sizes),
        *map(ContiguousBlocks, sizes if quick else (*sizes, LARGEST)),
        *(StridedBlocks(size, LINE) for size in (STRIDED[:2] if quick else STRIDED)),
        *(OwnBlock(size, run) for run in own_runs for size in own_sizes),
        *(one_type.exchanges(quick) if ranks > 1 else []),
    ]
    return matching(found, pattern)
