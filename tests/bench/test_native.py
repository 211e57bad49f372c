"""The timing loops on made-up functions, and the hand-written loops on real layouts."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from ctypes import c_int, c_size_t, c_void_p
from typing import Any

import numpy as np
import pytest

from tempi import _engine
from tempi.bench import cases
from tempi.measure import _native

PACK = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_void_p, c_int, ctypes.POINTER(c_int), c_size_t)
UNPACK = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, ctypes.POINTER(c_int), c_void_p, c_int, c_size_t, c_size_t)
SEND = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, c_int, c_size_t)
RECV = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_size_t, c_int, c_int, c_size_t, c_void_p)
WAIT = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
WAITALL = ctypes.CFUNCTYPE(c_int, c_int, c_void_p, c_void_p)
BARRIER = ctypes.CFUNCTYPE(c_int, c_size_t)
LAYOUT_OF = ctypes.CFUNCTYPE(c_int, c_size_t, ctypes.POINTER(c_void_p))


def address(function: Any) -> int:
    value = ctypes.cast(function, c_void_p).value
    assert value is not None
    return value


class Layouts:
    """Canonical layouts of the benchmark's cases, made without an MPI; freed together."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def _raw(self, constructor: Callable[..., int], *arguments: Any) -> Any:
        out = _engine.ffi.new("tempi_layout **")
        assert constructor(*arguments, out) == 0
        self._made.append(out[0])
        return out[0]

    def _constructed(self, case: cases.Case) -> Any:
        lib, raw = _engine.lib, self._raw
        double = raw(lib.tempi_layout_bytes, 8)
        if isinstance(case, cases.Vector):
            return raw(
                lib.tempi_layout_hvector,
                case.blocks,
                1,
                case.stride,
                raw(lib.tempi_layout_bytes, case.length),
            )
        if isinstance(case, cases.Face):
            subsizes = [1 if axis == case.axis else case.edge - 2 for axis in range(3)]
            return raw(lib.tempi_layout_subarray, 3, [case.edge] * 3, subsizes, [1, 1, 1], 0, double)
        if isinstance(case, cases.Indexed):
            places = [16 * int(place) for place in case._places()]
            pair = raw(lib.tempi_layout_bytes, 16)
            return raw(lib.tempi_layout_hindexed_block, len(places), 1, places, pair)
        if isinstance(case, cases.Field):
            member = raw(lib.tempi_layout_hindexed_block, 1, 1, [case.OFFSET], double)
            return raw(lib.tempi_layout_resized, 0, case.STRUCT, member)
        assert isinstance(case, cases.Transpose)
        column = raw(lib.tempi_layout_hvector, case.edge, 1, 8 * case.edge, double)
        return raw(lib.tempi_layout_hvector, case.edge, 1, 8, column)

    def __call__(self, case: cases.Case) -> int:
        out = _engine.ffi.new("tempi_layout const **")
        null = _engine.ffi.NULL
        assert _engine.lib.tempi_layout_canonical(self._constructed(case), null, null, out) == 0
        return int(_engine.ffi.cast("uintptr_t", out[0]))

    def free(self) -> None:
        for layout in reversed(self._made):
            _engine.lib.tempi_layout_free(layout)


@pytest.fixture
def layouts() -> Iterator[Layouts]:
    made = Layouts()
    yield made
    made.free()


SHAPES = [
    cases.Vector(960, 4, 12),
    cases.Vector(960, 8, 512),
    cases.Vector(960, 24, 40),
    cases.Vector(960, 96, 200),
    cases.Vector(6144, 2048, 3000),
    *(cases.Face(9, axis) for axis in range(3)),
    cases.Indexed(1024),
    cases.Field(800),
    cases.Transpose(7),
]


def make_transfer(case: cases.Case, layout: int) -> tuple[_native.Transfer, cases.Bytes, cases.Bytes]:
    memory = np.random.default_rng(3).integers(1, 256, case.span, dtype=np.uint8)
    packed = np.random.default_rng(4).integers(1, 256, case.nbytes, dtype=np.uint8)
    transfer = _native.Transfer(
        layout=layout,
        memory=memory.ctypes.data,
        packed=packed.ctypes.data,
        bytes=case.nbytes,
        count=case.count,
    )
    return transfer, memory, packed


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_hand_packs_as_numpy_does(native: ctypes.CDLL, layouts: Layouts, case: cases.Case) -> None:
    transfer, memory, packed = make_transfer(case, layouts(case))
    before = memory.copy()
    _native.timer(native, "bench_hand_pack", transfer)(1)
    assert np.array_equal(packed, case.gather(memory))
    assert np.array_equal(memory, before)


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_hand_unpacks_as_numpy_does(native: ctypes.CDLL, layouts: Layouts, case: cases.Case) -> None:
    transfer, memory, packed = make_transfer(case, layouts(case))
    expected = memory.copy()
    case.scatter(expected, packed)
    _native.timer(native, "bench_hand_unpack", transfer)(1)
    assert np.array_equal(memory, expected)


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_the_pack_bound_stores_every_packed_byte(native: ctypes.CDLL, layouts: Layouts, case: cases.Case) -> None:
    transfer, memory, packed = make_transfer(case, layouts(case))
    before = memory.copy()
    _native.timer(native, "bench_bound_pack", transfer)(1)
    assert not packed.any()
    assert np.array_equal(memory, before)


def _lines(memory: cases.Bytes, touched: cases.Bytes) -> set[int]:
    """Numbers of the cache lines with a byte that `touched` marks."""
    return set(((memory.ctypes.data + np.flatnonzero(touched)) // 64).tolist())


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_the_unpack_bound_stores_to_every_line_and_to_no_gap_line(
    native: ctypes.CDLL, layouts: Layouts, case: cases.Case
) -> None:
    transfer, memory, _ = make_transfer(case, layouts(case))
    described = np.zeros_like(memory)
    case.scatter(described, np.ones(case.nbytes, np.uint8))
    _native.timer(native, "bench_bound_unpack", transfer)(1)
    assert _lines(memory, memory == 0) == _lines(memory, described)


NESTS = [
    (cases.Vector(960, 8, 512), cases.Vector(960, 24, 40)),
    (cases.Vector(960, 96, 200), cases.Vector(960, 4, 12)),
    (cases.Vector(12288, 2048, 3000), cases.Vector(12288, 64, 192)),
    *((cases.Face(9, axis), cases.Transpose(7)) for axis in range(3)),
    (cases.Transpose(7), cases.Face(9, 0)),
]


@pytest.mark.parametrize(("source", "target"), NESTS, ids=lambda case: case.name)
def test_the_copy_bound_stores_to_every_line_of_the_target_and_to_no_gap_line(
    native: ctypes.CDLL, layouts: Layouts, source: cases.Case, target: cases.Case
) -> None:
    _, sent, _ = make_transfer(source, layouts(source))
    _, received, _ = make_transfer(target, layouts(target))
    before, described = sent.copy(), np.zeros_like(received)
    target.scatter(described, np.ones(target.nbytes, np.uint8))
    copy = copy_of(layouts, source, target, sent, received)
    _native.timer(native, "bench_bound_copy", copy)(1)
    assert _lines(received, received == 0) == _lines(received, described)
    assert np.array_equal(sent, before)


def copy_of(
    layouts: Layouts, source: cases.Case, target: cases.Case, sent: cases.Bytes, received: cases.Bytes
) -> _native.Copy:
    return _native.Copy(
        source_layout=layouts(source), target_layout=layouts(target),
        source=sent.ctypes.data, target=received.ctypes.data, bytes=source.nbytes,
    )  # fmt: skip


def test_the_copy_bound_loads_every_line_of_the_source(native: ctypes.CDLL, layouts: Layouts) -> None:
    """Each is in a page of its own, which is resident after a load."""
    case, page = cases.Vector(3 * 64, 64, 4096), 4096
    memory = mmap.mmap(-1, 3 * page)
    sent = np.frombuffer(memory, np.uint8)
    resident = (ctypes.c_ubyte * 3)()
    received = np.ones(case.span, np.uint8)
    _native.timer(native, "bench_bound_copy", copy_of(layouts, case, case, sent, received))(1)
    assert ctypes.CDLL(None).mincore(c_void_p(sent.ctypes.data), c_size_t(3 * page), resident) == 0
    assert [one & 1 for one in resident] == [1, 1, 1]


def test_the_copy_bound_refuses_what_is_no_nest(native: ctypes.CDLL, layouts: Layouts) -> None:
    case = cases.Indexed(1024)
    _, memory, _ = make_transfer(case, layouts(case))
    with pytest.raises(_native.NativeError, match="bench_bound_copy failed with code 1"):
        _native.timer(native, "bench_bound_copy", copy_of(layouts, case, case, memory, memory.copy()))(1)


def test_pack_and_unpack_are_called_as_mpi_declares_them(native: ctypes.CDLL) -> None:
    calls: list[tuple[Any, ...]] = []

    def pack(source: int, count: int, kind: int, out: int, size: int, position: Any, comm: int) -> int:
        calls.append((source, count, kind, out, size, position[0], comm))
        return 0

    def unpack(source: int, size: int, position: Any, out: int, count: int, kind: int, comm: int) -> int:
        calls.append((source, count, kind, out, size, position[0], comm))
        return 0

    kept = PACK(pack), UNPACK(unpack)
    transfer = _native.Transfer(type=2**40 + 5, comm=7, memory=100, packed=200, bytes=64, count=3)
    for op, function in zip(("pack", "unpack"), kept, strict=True):
        transfer.function = address(function)
        _native.timer(native, f"bench_mpi_{op}", transfer)(2)
    assert calls == [(100, 3, 2**40 + 5, 200, 64, 0, 7)] * 2 + [(200, 3, 2**40 + 5, 100, 64, 0, 7)] * 2


def test_a_failing_call_is_reported(native: ctypes.CDLL) -> None:
    failing = PACK(lambda *_: 15)
    transfer = _native.Transfer(function=address(failing), bytes=8, count=1)
    with pytest.raises(_native.NativeError, match="bench_mpi_pack failed with code 15"):
        _native.timer(native, "bench_mpi_pack", transfer)(1)


def test_a_ping_is_sent_before_and_a_pong_after_receiving(native: ctypes.CDLL) -> None:
    log: list[tuple[str, int, int, int]] = []

    def send(buffer: int, count: int, kind: int, *_: int) -> int:
        log.append(("send", buffer, count, kind))
        return 0

    def receive(buffer: int, count: int, kind: int, *_: int) -> int:
        log.append(("receive", buffer, count, kind))
        return 0

    kept = SEND(send), RECV(receive)
    message = _native.Message(send=address(kept[0]), receive=address(kept[1]), type=9, source=10, target=20, count=2)
    _native.timer(native, "bench_pingpong_first", message)(1)
    _native.timer(native, "bench_pingpong_second", message)(1)
    sent, received = ("send", 10, 2, 9), ("receive", 20, 2, 9)
    assert log == [sent, received, received, sent]


def test_a_message_by_hand_is_packed_sent_as_bytes_and_unpacked(native: ctypes.CDLL, layouts: Layouts) -> None:
    case = cases.Vector(96, 8, 24)
    source = np.random.default_rng(5).integers(0, 256, case.span, dtype=np.uint8)
    target, wire = np.zeros(case.span, np.uint8), np.zeros(96, np.uint8)
    staging = np.zeros(96, np.uint8), np.zeros(96, np.uint8)

    def send(buffer: int, count: int, kind: int, *_: int) -> int:
        assert (count, kind) == (96, 6)
        ctypes.memmove(wire.ctypes.data, buffer, count)
        return 0

    def receive(buffer: int, count: int, kind: int, *_: int) -> int:
        assert (count, kind) == (96, 6)
        ctypes.memmove(buffer, wire.ctypes.data, count)
        return 0

    kept = SEND(send), RECV(receive)
    message = _native.Message(
        send=address(kept[0]), receive=address(kept[1]), byte_type=6, layout=layouts(case),
        source=source.ctypes.data, target=target.ctypes.data, send_packed=staging[0].ctypes.data,
        receive_packed=staging[1].ctypes.data, bytes=96, count=1,
    )  # fmt: skip
    _native.timer(native, "bench_hand_first", message)(1)
    assert np.array_equal(wire, case.gather(source))
    assert np.array_equal(case.gather(target), case.gather(source))


class Requests:
    """A made-up MPI with ints as requests, that counts posted and completed ones."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.slots: list[int] = []
        self.functions = {
            "barrier": BARRIER(lambda _: self._note("barrier")),
            "send": SEND(lambda *_: self._note("send")),
            "irecv": RECV(self._irecv),
            "wait": WAIT(lambda *_: self._note("wait")),
            "waitall": WAITALL(lambda n, *_: self._note(f"waitall {n}")),
        }

    def _note(self, what: str) -> int:
        self.log.append(what)
        return 0

    def _irecv(self, *arguments: int) -> int:
        self.slots.append(arguments[-1])
        return self._note("irecv")

    def calls(self, **more: int) -> _native.Calls:
        pointers = {name: address(function) for name, function in self.functions.items()}
        return _native.Calls(**pointers, count=1, requests=4096, request_size=4, **more)


def test_a_waitall_is_timed_without_its_posts(native: ctypes.CDLL) -> None:
    mpi = Requests()
    calls = mpi.calls(n=3)
    assert _native.waitall_timer(native, calls)(2) > 0
    once = ["irecv"] * 3 + ["send"] * 3 + ["waitall 3"]
    assert mpi.log == once * 2
    assert mpi.slots == [4096, 4100, 4104] * 2


def test_an_exchange_posts_sends_and_waits(native: ctypes.CDLL) -> None:
    mpi = Requests()
    calls = mpi.calls()
    _native.timer(native, "bench_exchange", calls)(1)
    _native.timer(native, "bench_barrier", calls)(1)
    assert mpi.log == ["irecv", "send", "wait", "barrier"]


def test_first_use_asks_for_each_type_once(native: ctypes.CDLL) -> None:
    asked: list[int] = []

    def layout_of(kind: int, _: Any) -> int:
        asked.append(kind)
        return 0

    function = LAYOUT_OF(layout_of)
    assert _native.first_use(native, address(function), [3, 5, 2**40]) > 0
    assert asked == [3, 5, 2**40]


def test_a_program_is_started_in_its_environment(native: ctypes.CDLL) -> None:
    assert _native.spawn_timer(native, "/bin/true", {"LANG": "C"})(2) > 0
    with pytest.raises(_native.NativeError, match="/bin/false failed"):
        _native.spawn_timer(native, "/bin/false", {})(1)


def test_a_missing_library_is_reported_by_path() -> None:
    from pathlib import Path

    with pytest.raises(_native.NativeError, match=r"/nowhere/libtempi-bench\.so: no such file"):
        _native.load(Path("/nowhere/libtempi-bench.so"))


def test_structures_are_as_large_as_the_compiler_makes_them() -> None:
    assert ctypes.sizeof(_native.Transfer) == 64
    assert ctypes.sizeof(_native.Copy) == 40
    assert ctypes.sizeof(_native.Message) == 104
    assert ctypes.sizeof(_native.Calls) == 112
