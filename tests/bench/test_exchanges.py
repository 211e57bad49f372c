"""The exchanges of `tempi bench collectives`: both sides agree, and every byte has one block."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from tempi.bench import chosen_exchanges, exchanges, one_type
from tempi.bench.exchanges import Exchange, HaloExchange, Position

pytestmark = pytest.mark.once

SMALL = [
    *(exchanges.Redistribution(7, before, after) for before, after in ((0, 1), (0, 2), (1, 2))),
    exchanges.Redistribution(7, 1, 2, pencils=True),
    exchanges.Redistribution(7, 0, 1, pencils=True),
    *(HaloExchange(4, 2, neighbours) for neighbours in (6, 26)),
    HaloExchange(4, 2, 6, cartesian=True),
    exchanges.Tiles(16),
    exchanges.Tiles(16, scatters=True),
    exchanges.Irregular(1024),
    exchanges.ContiguousBlocks(1024),
    exchanges.StridedBlocks(1024, 64),
    exchanges.OwnBlock(1024, 64),
    *(one_type.OneType(function, 1024, 64) for function in one_type.FUNCTIONS),
]
RANKS = [1, 2, 3, 4, 8]


def positions(exchange: Exchange, ranks: int) -> list[Position]:
    return [exchange.position(rank, ranks) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("exchange", SMALL, ids=lambda one: one.name)
def test_every_send_has_one_receive_of_its_size(exchange: Exchange, ranks: int) -> None:
    for group in range(exchange.groups(ranks)):
        own = [at for at in positions(exchange, ranks) if at.group == group]
        sent = Counter((at.rank, b.peer, b.tag, b.shape.nbytes) for at in own for b in exchange.sends(at))
        received = Counter((b.peer, at.rank, b.tag, b.shape.nbytes) for at in own for b in exchange.receives(at))
        assert sent == received
        assert set(sent.values()) <= {1}
        assert sent or ranks == 1  # some only have others
        assert all(0 <= peer < at.ranks for at in own for peer in (b.peer for b in exchange.sends(at)))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("exchange", SMALL, ids=lambda one: one.name)
def test_blocks_do_not_overlap(exchange: Exchange, ranks: int) -> None:
    for at in positions(exchange, ranks):
        buffer = np.zeros(exchange.span(at), np.uint8)
        receives = exchange.receives(at)
        for block in receives:
            assert not block.shape.gather(block.part(buffer)).any()
            block.shape.scatter(block.part(buffer), np.ones(block.shape.nbytes, np.uint8))
        assert int(buffer.sum()) == sum(block.shape.nbytes for block in receives)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("exchange", SMALL[:5], ids=lambda one: one.name)
def test_a_redistribution_moves_the_whole_cube(exchange: Exchange, ranks: int) -> None:
    """Each point is sent by one rank, and received by one."""
    for side in (exchange.sends, exchange.receives):
        assert sum(b.shape.nbytes for at in positions(exchange, ranks) for b in side(at)) == 16 * 7**3


@pytest.mark.parametrize(("neighbours", "cells"), [(6, 6 * 4**2), (26, 6**3 - 4**3)])
def test_a_halo_fills_what_surrounds_the_points(neighbours: int, cells: int) -> None:
    exchange = HaloExchange(4, 3, neighbours)
    at = exchange.position(1, 2)
    buffer = np.zeros(exchange.span(at), np.uint8)
    for block in exchange.receives(at):
        block.shape.scatter(block.part(buffer), np.ones(block.shape.nbytes, np.uint8))
    cube = buffer.view(np.uint64).reshape(3, 6, 6, 6) != 0
    assert int(cube.sum()) == 3 * cells
    assert not cube[:, 1:-1, 1:-1, 1:-1].any()


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 12])
@pytest.mark.parametrize(("neighbours", "cartesian"), [(6, False), (26, False), (6, True)])
def test_a_halo_has_the_cells_of_a_periodic_cube(neighbours: int, cartesian: bool, ranks: int) -> None:
    """The global coordinates that are sent are those that the halo cells of the receiver have."""
    exchange, n, dims = HaloExchange(3, 1, neighbours, cartesian), 3, exchanges.grid(ranks)
    places = {}
    for at in positions(exchange, ranks):
        own = np.unravel_index(at.rank, dims)
        axes = [(np.arange(-1, n + 1) + c * n) % (d * n) for c, d in zip(own, dims, strict=True)]
        z, y, x = np.meshgrid(*axes, indexing="ij")
        places[at.rank] = ((z * 100 + y) * 100 + x).astype(np.uint64).reshape(-1).view(np.uint8)
    for at in positions(exchange, ranks):
        for block in exchange.receives(at):
            (sent,) = [b for b in exchange.sends(at.of(block.peer)) if (b.peer, b.tag) == (at.rank, block.tag)]
            assert np.array_equal(sent.shape.gather(places[block.peer]), block.shape.gather(places[at.rank]))


@pytest.mark.parametrize(("ranks", "dims"), [(1, (1, 1, 1)), (2, (2, 1, 1)), (4, (2, 2, 1)), (12, (3, 2, 2))])
def test_grids_are_nearly_cubes(ranks: int, dims: tuple[int, int, int]) -> None:
    assert exchanges.grid(ranks) == dims
    assert math.prod(exchanges.grid(ranks)) == ranks


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
def test_names_of_exchanges_are_unique(quick: bool, ranks: int) -> None:
    names = [one.name for one in chosen_exchanges.chosen(quick, ranks)]
    assert len(names) == len(set(names))


def test_irregular_blocks_have_unequal_sizes_and_the_wanted_sum() -> None:
    exchange = exchanges.Irregular(1 << 16)
    sizes = [block.shape.nbytes for block in exchange.sends(Position(0, 8))]
    assert len(set(sizes)) > 3
    assert abs(sum(sizes) - (1 << 16)) <= 8 * 8


def test_the_largest_exchanges_send_64_mib_of_each_rank() -> None:
    at = Position(1, 2)
    largest = [one for one in chosen_exchanges.chosen(False, 2) if one.name.endswith("64 MiB")]
    assert [type(one) for one in largest] == [exchanges.ContiguousBlocks, exchanges.StridedBlocks]
    assert {sum(block.shape.nbytes for block in one.sends(at)) for one in largest} == {64 << 20}


def test_own_blocks_go_to_nobody_else() -> None:
    exchange, at = exchanges.OwnBlock(1024, 64), Position(1, 3)
    for side in (exchange.sends(at), exchange.receives(at)):
        assert [(block.peer, block.shape.nbytes) for block in side] == [(0, 0), (1, 1024), (2, 0)]
        assert side[1].shape.span > 1024
