"""Decisions of the planner: grids, divisions, word widths, splits. Nothing runs here."""

from __future__ import annotations

import numpy as np
import pytest

from packing import Box, Hand, vector
from planning import PACK, UNPACK, Message, Plan, Planner, ffi, kernel_table, lib

BLOCK = kernel_table().BLOCK


class Nowhere:
    """A machine without bytes, for plans that are only inspected."""

    def __init__(self) -> None:
        self.memory = self
        self.next = 1 << 40

    def allocate(self, size: int, align: int = 256) -> int:
        at, self.next = self.next, self.next + (size + align) // align * align
        return at

    def scatter(self, addresses: object, data: object) -> None:
        pass

    def allow(self, addresses: object, right: int) -> None:
        pass


def plan_of(
    hand: Hand, count: int, mem: int = 1 << 44, packed: int = 1 << 45, first: int = 0, n: int | None = None
) -> Plan:
    with hand.layout() as layout:
        size = hand.offsets.size * count if n is None else n
        op = ffi.new("tempi_op *", {"count": count, "first": first, "n": size, "direction": PACK})
        op.layout = ffi.cast("tempi_layout *", layout)
        op.mem, op.packed = ffi.cast("void *", mem), ffi.cast("void *", packed)
        planner = Planner(Nowhere())
        status = lib.tempi_cuda_plan(op, 1, planner._hooks, planner._plan)
        return planner._done(status)


@pytest.mark.parametrize("work", [1, 255, 256, 257, 1023, 1024, 1025, 10**6, 2**40])
@pytest.mark.parametrize("multiprocessors", [0, 1, 132])
def test_a_grid_covers_the_work_or_fills_the_device(work: int, multiprocessors: int) -> None:
    grid = lib.tempi_cuda_grid(work, multiprocessors)
    most = 8 * (multiprocessors or 80)
    assert grid == min(-(-work // BLOCK), most)
    assert lib.tempi_cuda_grid(0, multiprocessors) == 1


@pytest.mark.parametrize(
    ("direction", "run", "stride", "rounds", "taken"),
    [
        (PACK, 8, 512, (1, 1.1, 3, 100), (False, True, True, True)),  # words apart
        (PACK, 4, 8, (1, 2, 100, 190, 200), (False, False, False, False, True)),  # narrow: from half of the cache on
        (PACK, 16, 32, (1, 1.5, 2, 2.1, 45, 50), (False, True, True, False, False, True)),
        (PACK, 32, 512, (1, 2, 2.9, 3, 50), (False, False, False, True, True)),  # gathered from far apart
        (UNPACK, 32, 512, (1, 2, 2.9, 3, 50), (False, True, False, False, True)),
        (PACK, 256, 512, (1, 2, 2.9, 3, 50), (False, True, False, False, True)),
        (PACK, 2, 4, (1, 2, 1000), (False, False, False)),  # groups
        (UNPACK, 1, 2, (1, 3, 4, 1000), (False, False, True, True)),  # from as many blocks as run at a time on
    ],
)
def test_whole_grids_are_taken_where_they_are_faster(
    direction: int, run: int, stride: int, rounds: tuple[float, ...], taken: tuple[bool, ...]
) -> None:
    """By the words over those of all threads that run at a time, here 160 blocks."""
    threads, width = 160 * BLOCK, min(run, 16)
    cache = 2 * 48 * 16 * threads
    for k, expected in zip(rounds, taken, strict=True):
        with vector(int(k * threads * width) // run, stride, run).layout() as layout:
            op = ffi.new("tempi_op *", {"count": 1, "n": layout.size, "direction": direction})
            op.layout = ffi.cast("tempi_layout *", layout)
            op.mem, op.packed = ffi.cast("void *", 1 << 44), ffi.cast("void *", 1 << 45)
            planner = Planner(Nowhere())
            assert lib.tempi_cuda_plan(op, 1, planner._hooks, planner._plan) == lib.TEMPI_OK
            launch = planner._plan.launches[0]
            assert (launch.words, launch.bytes) == (layout.size // width, layout.size)
            found = [lib.tempi_launch_is_whole(ffi.addressof(launch), blocks, cache) for blocks in (160, 0)]
            assert found == [expected, False], (k, found)
            assert not lib.tempi_launch_is_whole(ffi.addressof(launch), 160, 0) or launch.when != lib.TEMPI_WHOLE_LARGE


def axes_of(plan: Plan) -> list[tuple[int, int, int]]:
    """(n, magic, shift) of the inner axes of a plan of one launch of words in groups."""
    (launch,) = plan.launches
    values = launch.params
    return [(values[k], values[k + 1], values[k + 2]) for k in range(7, 7 + 4 * (values[6] - 1), 4)]


@pytest.mark.parametrize("n", [2, 3, 5, 7, 31, 32, 33, 641, 65535, 65536, 65537, 2**20 - 1, 2**28 + 1])
def test_division_is_exact_up_to_31_bits(n: int) -> None:
    hand = Hand.of([Box(run=1, dims=((2, 3 * 2, 2), (2, 3, 1)))])
    with hand.layout() as layout:
        dims = layout.boxes[0].dims
        dims[0].stride, dims[0].packed_stride, dims[1].count = 4 * n, n, n
        layout.size = 2 * n
        planner = Planner(Nowhere())
        op = ffi.new("tempi_op *", {"count": 1, "n": 2 * n, "direction": PACK})
        op.layout = ffi.cast("tempi_layout *", layout)
        op.mem, op.packed = ffi.cast("void *", 1 << 44), ffi.cast("void *", 1 << 45)
        plan = planner._done(lib.tempi_cuda_plan(op, 1, planner._hooks, planner._plan))
    ((count, magic, shift),) = axes_of(plan)
    assert count == n
    edges = [k * n + d for k in (1, 2, 3, (2**31 - 1) // n) for d in (-1, 0, 1)]
    for w in [0, 1, 2**31 - 1, *(e for e in edges if 0 <= e < 2**31)]:
        assert (w * magic >> 32) >> shift == w // n


@pytest.mark.parametrize(
    ("mem", "packed", "stride", "run", "width"),
    [(0, 0, 64, 32, 16), (8, 0, 64, 32, 8), (0, 4, 64, 32, 4), (2, 0, 64, 32, 2), (0, 1, 64, 32, 1),
     (0, 0, 40, 32, 8), (0, 0, 64, 20, 4), (0, 0, -48, 16, 16), (0, 0, 34, 32, 2), (3, 3, 64, 32, 1)],
)  # fmt: skip
def test_words_are_as_wide_as_addresses_strides_and_runs_allow(
    mem: int, packed: int, stride: int, run: int, width: int
) -> None:
    plan = plan_of(vector(100, stride, run), 1, (1 << 44) + mem, (1 << 45) + packed)
    assert plan.kernels == [f"{'strided' if width > 2 else 'gather'}_w{width}_i32"]


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("shift", range(5))
@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 9, 100])
def test_groups_of_narrow_words_are_aligned_on_the_packed_side(width: int, shift: int, count: int) -> None:
    """At most three words before the first group and three behind the last one are on their own."""
    plan = plan_of(vector(count + 1, 3 * width, width), 1, packed=(1 << 45) + shift * width, n=count * width)
    (launch,) = plan.launches
    packed, _, first, groups, body, end, naxes = launch.params[:7]
    assert (first, end, naxes) == (0, count, 1)
    assert groups == 0 or (packed + body * width) % (4 * width) == 0
    assert 0 <= body - first <= min(3, count)
    assert 0 <= end - body - 4 * groups <= 3


def test_a_dense_type_is_a_copy_and_no_launch() -> None:
    with Hand.of([Box(run=40)]).layout() as layout:
        layout.dense = 1
        message = Message.on(Nowhere(), layout, 3, np.arange(40), 40, 7, 100)
        plan = Planner(Nowhere()).plan([message.op(PACK)])
    assert plan.copies == ((message.packed, message.mem + 7, 100),)
    assert plan.launches == ()


def test_a_fragment_within_one_run_is_a_copy() -> None:
    plan = plan_of(vector(10, 100, 50), 1, first=110, n=30)
    assert plan.launches == ()
    assert plan.copies == ((1 << 45, (1 << 44) + 210, 30),)


def test_a_stream_of_many_gibibytes_is_split_where_words_can_be_numbered() -> None:
    for run, count, least in ((4, 2**30, 1), (4, 2**31, 2), (8, 2**33, 8), (3, 2**30, 3)):
        plan = plan_of(vector(2, 2 * run, run), count // 2)
        (launch,) = plan.launches
        if least == 1:
            assert plan.kernels == ["strided_w4_i64"]
            assert launch.params[2:4] == (0, count)
            continue
        boxes_at, axes_at = launch.params[:2]
        boxes = np.frombuffer(plan.descriptors[: axes_at - boxes_at], np.uint32).reshape(-1, 40).astype(np.int64)
        words = boxes[:, 5] - boxes[:, 4]
        assert words.size >= least
        assert (words << (boxes[:, 7] & 7)).sum() == run * count
        assert words.max() <= 2**30


def test_no_bytes_are_no_plan() -> None:
    assert plan_of(vector(4, 8, 4), 1, n=0) == Plan((), (), b"")
    assert plan_of(vector(4, 8, 4), 0, n=0) == Plan((), (), b"")


def test_many_launches_worth_of_boxes_have_one_map() -> None:
    """A block finds the box of any of its chunks between two cells of the map."""
    machine = Nowhere()
    counts = [1, 5000, 3, 2_000_000, 1, 1, 900_000]
    with vector(1, 8, 4).layout() as layout:
        ops = []
        for count in counts:
            layout.extent = 8
            ops.append(Message(layout, count, np.arange(1), 1 << 44, 1 << 45, 0, 4 * count).op(PACK))
        plan = Planner(machine).plan(ops)
    boxes_at, axes_at, map_at, shift, chunks = plan.launches[0].params
    n = (axes_at - boxes_at) // 160
    starts = np.frombuffer(plan.descriptors[: 160 * n], np.uint32).reshape(-1, 40)[:, 6]
    cells = np.frombuffer(plan.descriptors[map_at - boxes_at :], np.uint32)
    assert cells.size <= 4098
    for chunk in range(chunks):
        low, high = cells[chunk >> shift], cells[(chunk >> shift) + 1]
        owner = np.searchsorted(starts, chunk, side="right") - 1
        assert low <= owner <= high
