"""Plans of any datatype, fragment and mixture, carried out by the kernels' own Python."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import layouts
import oracle
from packing import Box, Hand, matrix, vector
from planning import PACK, UNPACK, Message, Planner, carry_out, grouped
from strategies import receive_trees, trees

if TYPE_CHECKING:
    from planning import Machines

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
some = settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
shifts = st.sampled_from((0, 0, 1, 2, 4, 8))


@some
@given(trees(max_bytes=600), st.integers(1, 3), shifts, shifts, st.data())
def test_datatypes_are_packed_as_the_type_map_says(
    machines: Machines, tree: oracle.Tree, count: int, shift: int, memory_shift: int, data: st.DataObject
) -> None:
    reference = tree.type_map
    if not reference.size:
        return
    first = data.draw(st.integers(0, reference.size * count - 1), "first")
    n = data.draw(st.integers(1, reference.size * count - first), "n")
    parts: list[tuple[int, int | None]] = [(0, None), (first, n)]
    with layouts.raw(tree) as raw, layouts.canonical(tree) as canonical:
        for layout in (raw, canonical):
            for part in parts:
                with machines() as machine:
                    carry_out(machine, [Message.on(machine, layout, count, reference.offsets, reference.extent, *part,
                                                   shift, memory_shift)], PACK)  # fmt: skip


@some
@given(st.lists(receive_trees(depth=3, max_bytes=400, count=2), min_size=1, max_size=5), st.integers(1, 2), shifts)
def test_many_datatypes_are_unpacked_by_one_launch(
    machines: Machines, many: list[oracle.Tree], count: int, shift: int
) -> None:
    with machines() as machine:
        with contextlib.ExitStack() as stack:
            messages = []
            for tree in many:
                reference = tree.type_map
                if reference.size:
                    layout = stack.enter_context(layouts.canonical(tree))
                    messages.append(
                        Message.on(machine, layout, count, reference.offsets, reference.extent, memory_shift=shift)
                    )
            plan = carry_out(machine, messages, UNPACK)
        assert len(plan.launches) <= 1


def faces(n: int) -> list[Hand]:
    """Both sides of the halo of a cube of doubles, a face at a time."""
    rows = n * 8
    return [
        Hand.of([Box(offset=8, run=8, dims=((n, n * rows, 8 * n), (n, rows, 8)))]),
        Hand.of([Box(offset=rows, run=rows, dims=((n, n * rows, rows),))]),
        Hand.of([Box(offset=n * rows, run=n * rows)]),
    ]


@pytest.mark.parametrize("direction", [PACK, UNPACK], ids=["pack", "unpack"])
def test_a_halo_is_one_launch_and_its_dense_faces_are_copies(machines: Machines, direction: int) -> None:
    with machines() as machine:
        with contextlib.ExitStack() as stack:
            messages = []
            for hand in faces(12) * 2:
                layout = stack.enter_context(hand.layout())
                messages.append(Message.on(machine, layout, 1, hand.offsets, hand.extent))
            plan = carry_out(machine, messages, direction)
        assert plan.kernels == ["boxes_i32"]
        assert [n for _, _, n in plan.copies] == [12 * 12 * 8] * 2


@pytest.mark.parametrize("direction", [PACK, UNPACK], ids=["pack", "unpack"])
def test_a_box_of_many_rounds_and_chunks(machines: Machines, direction: int) -> None:
    """More words than one round of the grid has, at and around its boundaries."""
    for count in (1023, 1024, 1025, 2049):
        with machines() as machine:
            hand = vector(count, 8, 4)
            with hand.layout() as layout:
                plan = carry_out(machine, [Message.on(machine, layout, 1, hand.offsets, hand.extent)], direction, 1)
                assert plan.kernels == ["strided_w4_i32"]
                two = [Message.on(machine, layout, 1, hand.offsets, hand.extent) for _ in range(2)]
                plan = carry_out(machine, two, direction, 1)
                assert plan.kernels == ["boxes_i32"]


@pytest.mark.parametrize("direction", [PACK, UNPACK], ids=["pack", "unpack"])
def test_groups_of_narrow_words_of_many_rounds(machines: Machines, direction: int) -> None:
    """A group for each of 2048 threads, for some of them two, and in several rounds."""
    for count, shift, width in ((8192, 0, 1), (8201, 3, 1), (20001, 2, 2)):
        with machines() as machine:
            hand = vector(count, 3 * width, width)
            with hand.layout() as layout:
                message = Message.on(machine, layout, 1, hand.offsets, hand.extent, shift=shift * width)
                plan = carry_out(machine, [message], direction, 1)
                assert plan.kernels == [grouped(f"groups_w{width}_i32", direction)]


# -- far apart ----------------------------------------------------------------------------------------

FAR = 3 << 31
WIDE = {
    "vector": (vector(5, FAR, 8), "strided_w8_i64"),
    "negative": (vector(5, -FAR, 16), "strided_w16_i64"),
    "four axes": (Hand.of([Box(run=8, dims=((2, FAR, 48), (2, 4000, 24), (3, 16, 8)))]), "strided_w8_i64"),
    "table": (Hand.of([Box(run=4, entries=((2 * FAR, 0), (0, 4), (FAR, 8)))]), "table_i64"),
    "narrow table": (Hand.of([Box(run=4, dims=((2, FAR, 12),), entries=((72, 0), (0, 4), (-40, 8)))]), "table_i64"),
    "variable": (Hand.of([Box(entries=((-FAR, 0), (0, 4), (40, 12), (FAR, 32), (0, 36)))]), "table_i64"),
    "struct": (Hand.of([Box(run=8), Box(offset=FAR, packed=8, run=8), Box(offset=40, packed=16, run=4)]),
               "boxes_i32"),
    "struct of vectors": (
        Hand.of([Box(run=8, dims=((2, FAR, 12),)), Box(offset=40, packed=8, run=4, dims=((2, FAR, 12),))]),
        "boxes_i64"),
    "bytes": (Hand.of([Box(run=1, dims=((3, FAR, 15), (5, 13, 3), (3, 2, 1)))]), "groups_w1_i64"),
    "shorts": (vector(9, -FAR, 2), "strided_w2_i64"),
    "transpose": (matrix(9, 9, 8, FAR), "transpose_w8_i64"),
}  # fmt: skip


@pytest.mark.parametrize("direction", [PACK, UNPACK], ids=["pack", "unpack"])
@pytest.mark.parametrize("name", WIDE)
def test_offsets_beyond_32_bits(machines: Machines, name: str, direction: int) -> None:
    hand, kernel = WIDE[name]
    with machines() as machine, hand.layout() as layout:
        plan = carry_out(machine, [Message.on(machine, layout, 1, hand.offsets, hand.extent)], direction)
        assert plan.kernels == [grouped(kernel, direction)]
        layout.extent = 11 * FAR + 16
        carry_out(machine, [Message.on(machine, layout, 2, hand.offsets, layout.extent)], direction)


# -- strided to strided -------------------------------------------------------------------------------

SELF = {
    "equal vectors": (vector(8, 48, 16), vector(8, 64, 16), True),
    "finer blocks": (vector(8, 256, 64), vector(32, 48, 16), True),
    "coarser blocks": (vector(32, 48, 16), vector(8, 256, 64), True),
    "cut twice": (Hand.of([Box(run=24, dims=((4, 500, 72), (3, 100, 24)))]), vector(36, 20, 8), True),
    "no common blocks": (vector(8, 32, 12), vector(12, 20, 8), False),
    "transpose": (matrix(16, 16, 4), vector(16, 128, 64), True),
    "table to vector": (Hand.of([Box(run=8, entries=((64, 0), (0, 8), (24, 16)))]), vector(3, 40, 8), True),
    "vector to table": (vector(3, 40, 8), Hand.of([Box(run=8, entries=((64, 0), (0, 8), (24, 16)))]), True),
    "variable to dense": (Hand.of([Box(entries=((20, 0), (0, 8), (40, 12), (0, 32)))]), Hand.of([Box(run=32)]), True),
    "structs": (Hand.of([Box(run=3, dims=((3, 16, 7),)), Box(offset=4, packed=3, run=4, dims=((3, 16, 7),))]),
                Hand.of([Box(run=3, dims=((3, 40, 7),)), Box(offset=4, packed=3, run=4, dims=((3, 40, 7),))]), True),
    "two tables": (Hand.of([Box(run=8, entries=((64, 0), (0, 8)))]),
                   Hand.of([Box(run=8, entries=((64, 0), (0, 8)))]), False),
}  # fmt: skip


@pytest.mark.parametrize("name", SELF)
def test_strided_to_strided(machines: Machines, name: str) -> None:
    source, target, possible = SELF[name]
    rng = np.random.default_rng(0)
    for counts in ((1, 1), (2, 2), (1, 2)):
        with machines() as machine, source.layout() as src, target.layout() as dst:
            src.extent = source.extent + 5
            read = Message.on(machine, src, counts[0], source.offsets, src.extent)
            written = Message.on(machine, dst, counts[1], target.offsets, target.extent, 0, read.n)
            wanted = rng.integers(0, 256, read.n, np.uint8)
            machine.memory.scatter(read.places(), wanted)
            machine.memory.scatter(written.around(), 0xA5)
            machine.memory.allow(read.places(), 1)
            machine.memory.allow(written.places(), 2)
            planner = Planner(machine)
            plan = planner.plan_self((src, counts[0], read.mem), (dst, counts[1], written.mem), read.n)
            assert (plan is not None) == possible
            if plan is not None:
                planner.run(plan)
                np.testing.assert_array_equal(machine.memory.gather(written.places()), wanted)
                assert (machine.memory.gather(written.around()) == 0xA5).all()


def two_fields(first: int, second: int) -> Hand:
    """Two structs of two fields of so many bytes: a box for each field."""
    size = first + second
    boxes = [Box(run=first, dims=((2, 16, size),)), Box(offset=8, packed=first, run=second, dims=((2, 16, size),))]
    return Hand.of(boxes)


#: A receive that is longer than its message, and agrees with it only in the number of bytes.
LONGER = {
    "runs of 4 into runs of 6": (vector(2, 12, 4), vector(4, 10, 6)),
    "fields of 2 into fields of 4": (two_fields(2, 2), two_fields(2, 4)),
}


@pytest.mark.parametrize("name", LONGER)
def test_a_longer_receive_has_no_plan_where_its_axes_differ(machines: Machines, name: str) -> None:
    source, target = LONGER[name]
    with machines() as machine, source.layout() as src, target.layout() as dst:
        read = Message.on(machine, src, 1, source.offsets, source.extent)
        written = Message.on(machine, dst, 1, target.offsets, target.extent, 0, read.n)
        assert Planner(machine).plan_self((src, 1, read.mem), (dst, 1, written.mem), read.n) is None


@some
@given(receive_trees(depth=2, max_bytes=300, count=2), receive_trees(depth=2, max_bytes=300, count=2))
def test_a_plan_from_strided_to_strided_memory_is_right(
    machines: Machines, source: oracle.Tree, target: oracle.Tree
) -> None:
    a, b = source.type_map, target.type_map
    if not a.size or not b.size:
        return
    counts = (b.size, a.size) if a.size * b.size <= 600 else (1, -(-a.size // b.size))
    with machines() as machine, layouts.canonical(source) as src, layouts.canonical(target) as dst:
        read = Message.on(machine, src, counts[0], a.offsets, a.extent)
        written = Message.on(machine, dst, counts[1], b.offsets, b.extent, 0, read.n)
        if len(np.unique(written.where)) != written.where.size:
            return
        wanted = random.Random(read.n).randbytes(read.n)
        machine.memory.scatter(written.around(), 0xA5)
        machine.memory.scatter(read.places(), np.frombuffer(wanted, np.uint8))
        wanted_bytes = machine.memory.gather(read.places())
        machine.memory.allow(read.places(), 1)
        machine.memory.allow(written.places(), 2)
        planner = Planner(machine)
        plan = planner.plan_self((src, counts[0], read.mem), (dst, counts[1], written.mem), read.n)
        if plan is not None:
            planner.run(plan)
            np.testing.assert_array_equal(machine.memory.gather(written.places()), wanted_bytes)
            assert (machine.memory.gather(written.around()) == 0xA5).all()
