"""Plans carried out by the kernels' own Python, against the type map."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from packing import Box, Hand, matrix, vector
from planning import PACK, UNPACK, Message, carry_out, grouped

if TYPE_CHECKING:
    from planning import Machines

DIRECTIONS = pytest.mark.parametrize("direction", [PACK, UNPACK], ids=["pack", "unpack"])

SHAPES = {
    "vector": (vector(33, 24, 16), "strided_w8_i32"),
    "floats": (vector(129, 12, 4), "strided_w4_i32"),
    "shorts": (vector(31, 10, 6), "groups_w2_i32"),
    "bytes": (vector(17, 7, 3), "groups_w1_i32"),
    "rows of shorts": (Hand.of([Box(run=2, dims=((5, 30, 14), (7, 4, 2)))]), "groups_w2_i32"),
    "planes of bytes": (Hand.of([Box(run=1, dims=((3, 100, 15), (5, 13, 3), (3, 2, 1)))]), "groups_w1_i32"),
    "bytes of four dims": (Hand.of([Box(run=3, dims=((3, 300, 45), (5, 40, 9), (3, 9, 3)))]), "groups_w1_i32"),
    "quads": (vector(65, 64, 32), "strided_w16_i32"),
    "negative": (vector(32, -48, 16), "strided_w16_i32"),
    "subarray": (Hand.of([Box(offset=48, run=32, dims=((3, 4096, 320), (5, 256, 64), (2, 64, 32)))]),
                 "strided_w16_i32"),
    "four dims": (Hand.of([Box(run=4, dims=((2, 1000, 48), (2, 400, 24), (2, 100, 12), (3, 20, 4)))]),
                  "strided_w4_i32"),
    "five dims": (Hand.of([Box(run=8, dims=((2, 4000, 192), (2, 1000, 96), (2, 400, 48), (2, 100, 24), (3, 20, 8)))]),
                  "boxes_i32"),
    "transpose": (matrix(33, 17, 4), "transpose_w4_i64"),
    "transpose of doubles": (matrix(32, 40, 8), "transpose_w8_i64"),
    "transpose of shorts": (matrix(9, 33, 2), "transpose_w2_i64"),
    "table": (Hand.of([Box(run=8, entries=((160, 0), (0, 8), (72, 16), (240, 24)))]), "table_i32"),
    "table of gaps": (Hand.of([Box(run=4, entries=((160, 0), (0, 8), (72, 20))),
                               Box(run=4, offset=400, packed=4), Box(run=8, offset=408, packed=12)]), "tables_i32"),
    "variable": (Hand.of([Box(entries=((20, 0), (0, 8), (40, 12), (120, 32), (0, 36)))]), "table_i32"),
    "variable bytes": (Hand.of([Box(entries=((20, 0), (0, 5), (40, 13), (90, 14), (0, 37)))]), "table_i32"),
    "table in dims": (Hand.of([Box(run=2, dims=((2, 50, 12), (2, 4, 2)), entries=((0, 0), (20, 4), (10, 8)))]),
                      "table_i32"),
    "dims in table": (Hand.of([Box(run=2, dims=((2, 6, 6), (3, 14, 2)), entries=((40, 0), (0, 12)))]), "table_i32"),
    "more dims in table": (Hand.of([Box(run=4, dims=((2, 6, 12), (3, 14, 4)), entries=((60, 0), (0, 24)))]),
                           "tables_i32"),
    "struct": (Hand.of([Box(run=3, dims=((3, 16, 8),)), Box(offset=4, packed=3, run=4, dims=((3, 16, 8),)),
                        Box(offset=9, packed=7, run=1, dims=((3, 16, 8),))]), "boxes_i32"),
}  # fmt: skip


@DIRECTIONS
@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_has_its_kernel_and_right_bytes(machines: Machines, name: str, direction: int) -> None:
    hand, kernel = SHAPES[name]
    with machines() as machine:
        with hand.layout() as layout:
            message = Message.on(machine, layout, 1, hand.offsets, hand.extent)
            plan = carry_out(machine, [message], direction)
        assert plan.kernels == [grouped(kernel, direction)]


#: Of several blocks in one round each, the last one with a part of its words.
WHOLE = {
    "four words a thread": (vector(2100, 12, 4), "strided_w4_i32"),
    "four words a thread, exactly": (vector(2048, 8, 4), "strided_w4_i32"),
    "four words a thread, far": (Hand.of([Box(run=4, dims=((2, 3 << 31, 4400), (1100, 8, 4)))]), "strided_w4_i64"),
    "a word a thread": (vector(300, 32, 16), "strided_w16_i32"),
    "a word a thread, apart": (vector(600, 128, 4), "strided_w4_i32"),
    "shorts": (vector(1400, 4, 2), "groups_w2_i32"),
    "bytes": (vector(2100, 2, 1), "groups_w1_i32"),
    "boxes": (Hand.of([Box(run=4, dims=((700, 16, 4),)), Box(offset=8, packed=2800, run=4, dims=((700, 16, 4),))]),
              "boxes_i32"),
}  # fmt: skip


@DIRECTIONS
@pytest.mark.parametrize("name", WHOLE)
def test_whole_grids_move_the_same_bytes(machines: Machines, name: str, direction: int) -> None:
    hand, kernel = WHOLE[name]
    with machines() as machine, hand.layout() as layout:
        message = Message.on(machine, layout, 1, hand.offsets, hand.extent)
        plan = carry_out(machine, [message], direction, whole=True)
        (launch,) = plan.launches
        assert plan.kernels == [grouped(kernel, direction)]
        assert launch.whole > 1 or "gather" in launch.kernel


@DIRECTIONS
@pytest.mark.parametrize("name", SHAPES)
def test_fragments_of_several_elements(machines: Machines, name: str, direction: int) -> None:
    hand, _ = SHAPES[name]
    rng = random.Random(name)
    size = 3 * hand.offsets.size
    with hand.layout() as layout:
        layout.extent = hand.extent + 11
        for _ in range(4):
            with machines() as machine:
                first, end = sorted((rng.randrange(size), rng.randrange(size)))
                shifts = (rng.choice((0, 4, 1)), rng.choice((0, 2)))
                message = Message.on(machine, layout, 3, hand.offsets, layout.extent, first, end - first, *shifts)
                if direction == PACK or len(set(message.where)) == message.where.size:
                    carry_out(machine, [message], direction)


ROWS = {
    "rows": (vector(16, 48, 24), True),
    "too many rows": (vector(17, 48, 24), False),
    "bytes": (vector(16, 3, 1), True),
    "backwards": (vector(16, -48, 24), False),
    "planes": (Hand.of([Box(run=8, dims=((2, 400, 24), (3, 20, 8)))]), False),
    "two blocks": (Hand.of([Box(run=8), Box(offset=40, packed=8, run=8), Box(offset=100, packed=16, run=4)]), False),
    "table": (Hand.of([Box(run=8, entries=((160, 0), (0, 8), (72, 16), (240, 24)))]), False),
}  # fmt: skip


@DIRECTIONS
@pytest.mark.parametrize("name", ROWS)
def test_few_rows_of_one_message_are_copied(machines: Machines, name: str, direction: int) -> None:
    hand, copied = ROWS[name]
    with machines() as machine, hand.layout() as layout:
        message = Message.on(machine, layout, 1, hand.offsets, hand.extent, shift=3)
        plan = carry_out(machine, [message], direction, copied_rows=16)
        assert (len(plan.copies), len(plan.launches)) == ((16, 0) if copied else (0, 1))
        two = [Message.on(machine, layout, 1, hand.offsets, hand.extent) for _ in range(2)]
        assert not carry_out(machine, two, direction, copied_rows=16).copies


@DIRECTIONS
def test_a_part_of_the_rows_is_copied_if_they_are_whole(machines: Machines, direction: int) -> None:
    hand = vector(20, 48, 24)
    with hand.layout() as layout:
        for first, n, copied in ((48, 240, 10), (48, 24, 1), (50, 240, 0), (0, 470, 0)):
            with machines() as machine:
                message = Message.on(machine, layout, 1, hand.offsets, hand.extent, first, n)
                assert len(carry_out(machine, [message], direction, copied_rows=16).copies) == copied
