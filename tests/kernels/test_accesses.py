"""The accesses of a kernel's threads: how many, how wide, and how many loads come one after the other before them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from packing import Box, Hand, vector
from planning import PACK, UNPACK, Message, carry_out
from tracing import TracingMachine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracing import Access

DIRECTIONS = pytest.mark.parametrize("direction", [PACK, UNPACK], ids=["pack", "unpack"])

FIELDS = Hand.of([Box(run=4, dims=((40, 16, 12),)), Box(offset=8, packed=4, run=8, dims=((40, 16, 12),))])
NESTED = Hand.of(
    [Box(run=4, dims=((2, 1000, 48), (2, 400, 24), (2, 100, 12), (3, 20, 4))), Box(run=4, offset=8000, packed=96)]
)
TABLE = Hand.of([Box(run=8, entries=((160, 0), (0, 8), (72, 16), (240, 24)))])
GAPS = Hand.of(
    [
        Box(run=4, entries=((160, 0), (0, 8), (72, 20))),
        Box(run=4, offset=400, packed=4),
        Box(run=8, offset=408, packed=12),
    ]
)
VARIABLE = Hand.of([Box(entries=((20, 0), (0, 8), (40, 12), (120, 32), (0, 36)))])


def accesses_of(hands: Sequence[Hand], direction: int, kernel: str, whole: bool = False) -> list[Access]:
    """Those of data, of a plan of one launch of that kernel, by its whole grid or not."""
    machine = TracingMachine()
    with contextlib.ExitStack() as stack:
        layouts = [stack.enter_context(hand.layout()) for hand in hands]
        messages = [
            Message.on(machine, layout, 1, hand.offsets, hand.extent)
            for layout, hand in zip(layouts, hands, strict=True)
        ]
        plan = carry_out(machine, messages, direction, whole=whole)
    assert not whole or plan.launches[0].whole > 1
    assert plan.kernels == [kernel]
    return machine.accesses


def loads(accesses: Sequence[Access]) -> list[Access]:
    return [access for access in accesses if not access.store]


@DIRECTIONS
@pytest.mark.parametrize(
    ("hands", "kernel", "waits"),
    [
        ([vector(100, 24, 8)], "strided_w8_i32", 0),
        ([TABLE], "table_i32", 1),
        ([FIELDS], "boxes_i32", 2),
        ([NESTED], "boxes_i32", 2),
        ([FIELDS] * 6, "boxes_i32", 2),
        ([TABLE] * 5, "tables_i32", 3),
        ([GAPS], "tables_i32", 3),
    ],
    ids=["strided", "table", "fields", "nested", "several fields", "tables", "gaps"],
)
def test_few_loads_in_sequence_precede_the_data(hands: list[Hand], kernel: str, waits: int, direction: int) -> None:
    """Of a map, a descriptor and a table, each is loaded at once, not field by field."""
    accesses = accesses_of(hands, direction, kernel)
    assert max(access.depth for access in loads(accesses)) == waits


@DIRECTIONS
@pytest.mark.parametrize(("hands", "kernel"), [([VARIABLE], "table_i32"), ([VARIABLE] * 2, "tables_i32")])
def test_the_search_of_one_word_does_not_wait_for_that_of_another(
    hands: list[Hand], kernel: str, direction: int
) -> None:
    """Guide, at most two steps of a search, entry: not four times."""
    accesses = accesses_of(hands, direction, kernel)
    before = 0 if kernel == "table_i32" else 2
    assert max(access.depth for access in loads(accesses)) <= before + 4


@DIRECTIONS
@pytest.mark.parametrize(
    ("hands", "kernel"),
    [
        ([vector(100, 24, 8)], "strided_w8_i32"),
        ([vector(256, 32, 16)], "strided_w16_i32"),
        ([TABLE], "table_i32"),
        ([VARIABLE], "table_i32"),
        ([FIELDS], "boxes_i32"),
        ([TABLE] * 5, "tables_i32"),
        ([GAPS], "tables_i32"),
        ([VARIABLE] * 2, "tables_i32"),
    ],
    ids=["strided", "a block", "table", "variable", "fields", "tables", "gaps", "several variable"],
)
def test_a_short_message_computes_no_word_twice(hands: list[Hand], kernel: str, direction: int) -> None:
    accesses = accesses_of(hands, direction, kernel)
    read = [access.address for access in loads(accesses)]
    assert len(read) == len(set(read)) == len(accesses) - len(read)


@DIRECTIONS
@pytest.mark.parametrize("hand", [vector(2048, 8, 4), vector(300, 32, 16)], ids=["four words a thread", "one"])
def test_a_whole_grid_moves_no_word_twice(hand: Hand, direction: int) -> None:
    accesses = accesses_of([hand], direction, f"strided_w{hand.boxes[0].run}_i32", whole=True)
    stored = [access.address for access in accesses if access.store]
    assert len(stored) == len(set(stored)) == len(loads(accesses))


@DIRECTIONS
@pytest.mark.parametrize(("width", "shift"), [(1, 3), (2, 1)])
@pytest.mark.parametrize(
    ("boxes", "messages"),
    [
        ([Box(run=1, dims=((203, 3, 1),))], 1),
        ([Box(run=3, dims=((4, 90, 27), (9, 7, 3)))], 1),
        ([Box(run=1, dims=((203, 3, 1),))], 2),
        ([Box(run=1, entries=tuple((5 * j ^ 1, j) for j in range(100)))], 1),
        ([Box(entries=(*((9 * j ^ 1, 3 * j) for j in range(40)), (0, 120)))], 1),
    ],
    ids=["vector", "planes", "two vectors", "table", "variable"],
)
def test_the_packed_side_of_narrow_runs_is_accessed_by_groups(
    boxes: list[Box], messages: int, width: int, shift: int, direction: int
) -> None:
    """All but the ends, at most three words each, in words of 4 or 8 bytes; two bytes are unpacked one by one."""
    hand = Hand.of([scaled(box, width) for box in boxes])
    machine = TracingMachine()
    with hand.layout() as layout:
        made = [Message.on(machine, layout, 1, hand.offsets, hand.extent, shift=shift * width) for _ in range(messages)]
        carry_out(machine, made, direction)
    for message in made:
        sizes = [
            access.size
            for access in machine.accesses
            if message.packed <= access.address < message.packed + message.n and access.store == (direction == PACK)
        ]
        if direction == UNPACK and width == 2:
            assert set(sizes) == {2}
            continue
        assert set(sizes) <= {width, 4 * width}
        assert sizes.count(width) <= 6 or direction == UNPACK
        assert sizes.count(4 * width) >= message.n // (4 * width) - 1


def scaled(box: Box, width: int) -> Box:
    """The same box of words of that many bytes."""
    return Box(
        offset=box.offset * width,
        packed=box.packed * width,
        run=box.run * width,
        dims=tuple((n, stride * width, packed * width) for n, stride, packed in box.dims),
        entries=tuple((at * width, packed * width) for at, packed in box.entries),
    )
