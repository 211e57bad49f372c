"""Device memory of known bytes, and its expected content after a pack or an unpack."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tempi.bench.cases import KIB, MIB
from tempi.bench.gpu import cases as gpu_cases
from tempi.measure import worker
from tempi.measure.cuda_driver import Bytes, Driver

#: Period of the byte pattern: no stride of a case divides it.
PERIOD = 8 * 131071
POISON = 0x5A
GUARD = 64
#: Up to this size every byte is compared, above it three windows.
ALL, WINDOW = 4 * MIB, 64 * KIB

Run = Callable[[], object]


class Memory:
    """`span` bytes for strided data; `size` bytes and a guard after them for packed data."""

    def __init__(self, driver: Driver, span: int, size: int) -> None:
        self.driver, self.span, self.size = driver, span, size
        self.pattern = worker.arena(PERIOD)
        self.strided = driver.allocate(span)
        self.packed = driver.allocate(size + GUARD)
        self.restore(self.strided, span)

    def close(self) -> None:
        self.driver.free(self.strided)
        self.driver.free(self.packed)

    def restore(self, address: int, size: int) -> None:
        """Restores the pattern from `address` on; copies of its beginning continue the pattern."""
        held = min(PERIOD, size)
        self.driver.write(address, self.pattern[:held])
        while held < size:
            more = min(held, size - held)
            self.driver.copy(address + held, address, more)
            held += more

    def at(self, offsets: gpu_cases.Integers) -> Bytes:
        """The pattern's bytes at these offsets."""
        return self.pattern[offsets % PERIOD]


def windows(case: gpu_cases.Case) -> Iterator[gpu_cases.Integers]:
    """Packed positions to compare. Random places are all compared, since no window contains adjacent ones."""
    if case.nbytes <= ALL or isinstance(case, gpu_cases.Indexed):
        yield np.arange(case.nbytes)
        return
    size = min(WINDOW, 1024 * case.run)
    for start in (0, (case.nbytes - size) // 2, case.nbytes - size):
        yield np.arange(start, start + size)


def _differing(found: Bytes, expected: Bytes, what: str) -> str | None:
    wrong = np.flatnonzero(found != expected)
    return f"{wrong.size} wrong {what}, the first at {wrong[0]}" if wrong.size else None


def wrong_pack(memory: Memory, case: gpu_cases.Case, run: Run) -> str | None:
    """The error of a pack from `strided + shift` to `packed`, or None."""
    driver = memory.driver
    driver.fill(memory.packed, POISON, case.nbytes + GUARD)
    run()
    if (driver.read(memory.packed + case.nbytes, GUARD) != POISON).any():
        return "wrote past the packed bytes"
    for positions in windows(case):
        found = driver.read(memory.packed + int(positions[0]), len(positions))
        wrong = _differing(found, memory.at(case.shift + case.places(positions)), "packed bytes")
        if wrong:
            return wrong
    return None


def wrong_unpack(memory: Memory, case: gpu_cases.Case, run: Run) -> str | None:
    """The error of an unpack from `packed` to `strided + shift`, gaps included, or None."""
    driver = memory.driver
    memory.restore(memory.packed, case.nbytes)
    driver.fill(memory.strided, POISON, case.span)
    run()
    for positions in windows(case):
        places = case.places(positions)
        low, high = int(places.min()), int(places.max()) + 1
        expected = np.full(high - low, POISON, np.uint8)
        expected[places - low] = memory.at(positions)
        found = driver.read(memory.strided + case.shift + low, high - low)
        wrong = _differing(found, expected, "bytes of memory")
        if wrong:
            return wrong
    return None
