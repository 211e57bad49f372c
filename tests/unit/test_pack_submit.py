"""Packing as submitted work, threads that share memory, and the choice of the ISA."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from packing import LEVELS, Bytes, ffi, levels_here, lib, pointer, vector

if TYPE_CHECKING:
    from collections.abc import Iterator

PACK, UNPACK = 0, 1
HAND = vector(8, 16, 4)


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    yield
    lib.tempi_pack_set_delay(0)


def operation(layout: Any, memory: Bytes, packed: Bytes, direction: int) -> dict[str, Any]:
    return {
        "layout": layout, "count": 1, "mem": pointer(memory), "packed": pointer(packed),
        "first": 0, "n": len(packed), "direction": direction,
    }  # fmt: skip


class Work:
    """Two operations: one packs a memory, the other unpacks into another one."""

    def __init__(self, layout: Any) -> None:
        self.source = np.arange(128, dtype=np.uint8)
        self.packed = np.zeros(32, np.uint8)
        self.arrived = np.arange(100, 132, dtype=np.uint8)
        self.target = np.zeros(128, np.uint8)
        self.ops = ffi.new(
            "tempi_op[]",
            [
                operation(layout, self.source, self.packed, PACK),
                operation(layout, self.target, self.arrived, UNPACK),
            ],
        )
        self.ticket = ffi.new("tempi_ticket *")
        assert lib.tempi_pack_submit(self.ops, 2, self.ticket) == lib.TEMPI_OK
        ffi.memmove(self.ops, b"\xff" * ffi.sizeof(self.ops), ffi.sizeof(self.ops))  # theirs no more

    def done(self) -> bool:
        packed = np.array_equal(self.packed, self.source[HAND.offsets])
        return packed and np.array_equal(self.target[HAND.offsets], self.arrived)

    def untouched(self) -> bool:
        return not self.packed.any() and not self.target.any()


@pytest.fixture
def layout() -> Iterator[Any]:
    with HAND.layout() as made:
        yield made


def test_host_work_is_done_when_submit_returns(layout: Any) -> None:
    work = Work(layout)
    assert work.done()
    assert lib.tempi_pack_test(work.ticket) == 1


@pytest.mark.parametrize("tests", [1, 2, 5])
def test_delayed_work_is_done_at_its_nth_test(layout: Any, tests: int) -> None:
    lib.tempi_pack_set_delay(tests)
    work = Work(layout)
    for _ in range(tests - 1):
        assert lib.tempi_pack_test(work.ticket) == 0
        assert work.untouched()
    assert lib.tempi_pack_test(work.ticket) == 1
    assert work.done()
    assert lib.tempi_pack_test(work.ticket) == 1


def test_delayed_work_is_done_at_wait(layout: Any) -> None:
    lib.tempi_pack_set_delay(1000)
    work = Work(layout)
    assert work.untouched()
    lib.tempi_pack_wait(work.ticket)
    assert work.done()
    lib.tempi_pack_wait(work.ticket)
    assert lib.tempi_pack_test(work.ticket) == 1


def test_an_empty_ticket_is_done() -> None:
    ticket = ffi.new("tempi_ticket *")
    assert lib.tempi_pack_test(ticket) == 1
    lib.tempi_pack_wait(ticket)


@pytest.mark.parametrize(("run", "stride"), [(1, 2), (4, 8), (8, 16), (12, 24), (16, 512), (40, 80)])
def test_threads_unpack_each_others_gaps(run: int, stride: int) -> None:
    n, rounds = 400_000 // stride, 25
    hand = vector(n, stride, run)
    memory = np.zeros(n * stride + run, np.uint8)
    barrier = threading.Barrier(2)
    lost: list[int] = []

    def fill(offset: int, layout: Any) -> None:
        for value in range(offset, offset + 3 * rounds, 3):
            packed = np.full(n * run, value, np.uint8)
            barrier.wait()
            lib.tempi_unpack(layout, 1, pointer(packed), 0, packed.size, pointer(memory, offset))
            barrier.wait()
            if (memory[hand.offsets + offset] != value).any():
                lost.append(value)

    with hand.layout() as layout:
        threads = [threading.Thread(target=fill, args=(offset, layout)) for offset in (0, run)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert lost == []


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_goes_by_its_name(level: str) -> None:
    if level not in levels_here():
        pytest.skip(f"this processor has no {level}")
    assert lib.tempi_kernels_use(level.encode()) == lib.TEMPI_OK
    assert ffi.string(lib.tempi_isa_name()).decode() == level
    assert lib.tempi_kernels_use(ffi.NULL) == lib.TEMPI_OK


def level_in(environment: dict[str, str]) -> tuple[str, str]:
    script = "from tempi._engine import ffi, lib; print(ffi.string(lib.tempi_isa_name()).decode())"
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_the_environment_chooses_the_level() -> None:
    assert level_in({"TEMPI_ISA": "scalar"}) == ("scalar", "")


def test_a_level_that_the_processor_lacks_is_warned_about() -> None:
    best, _ = level_in({"TEMPI_ISA": ""} if "TEMPI_ISA" in os.environ else {})
    level, said = level_in({"TEMPI_ISA": "abacus"})
    assert level == best
    assert "TEMPI_ISA=abacus" in said
