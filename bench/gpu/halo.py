"""The packs of one halo exchange: 26 regions of 8 fields of doubles, as in 208 messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tempi.bench.gpu import cases as gpu_cases
from tempi.bench.gpu.memory import POISON, Memory
from tempi.measure import cuda_driver, device_work
from tempi.measure.cuda_driver import Bytes, Driver

DIRECTIONS = [offset for offset in product((-1, 0, 1), repeat=3) if any(offset)]


@dataclass(frozen=True, slots=True)
class Region:
    """A box of one field's cells, and the position of its bytes in the packed ones."""

    field: int
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    packed: int

    @property
    def nbytes(self) -> int:
        return 8 * int(np.prod(self.sizes))


@dataclass(frozen=True, slots=True)
class Halo:
    """`fields` cubes of `points` doubles an axis, with `radius` cells of halo on every side."""

    points: int
    radius: int
    fields: int = 8

    @property
    def edge(self) -> int:
        return self.points + 2 * self.radius

    @property
    def name(self) -> str:
        return f"halo of {self.points}^3 points, {self.fields} fields, radius {self.radius}"

    @property
    def messages(self) -> int:
        return len(DIRECTIONS) * self.fields

    @property
    def span(self) -> int:
        return 8 * self.fields * self.edge**3

    @property
    def nbytes(self) -> int:
        """Packed bytes, equal to the size of the halo."""
        return 8 * self.fields * (self.edge**3 - self.points**3)

    def regions(self, op: str) -> Iterator[Region]:
        """Regions to send (pack) or receive (unpack); one direction of all fields after the other."""
        packed = 0
        for direction in DIRECTIONS:
            sizes = tuple(self.radius if step else self.points for step in direction)
            starts = tuple(self._start(op, step) for step in direction)
            for field in range(self.fields):
                region = Region(field, starts, sizes, packed)
                packed += region.nbytes
                yield region

    def _start(self, op: str, step: int) -> int:
        inner = self.points if step > 0 else self.radius
        outer = 0 if step < 0 else self.points + self.radius if step > 0 else self.radius
        return inner if op == "pack" else outer


def _place(region: Region) -> tuple[Any, ...]:
    boxes = (slice(start, start + size) for start, size in zip(region.starts, region.sizes, strict=True))
    return (region.field, *boxes)


class Bench:
    """The fields and the packed bytes on a device."""

    def __init__(self, driver: Driver, halo: Halo) -> None:
        self.driver, self.halo = driver, halo
        self.size = halo.nbytes
        self.memory = Memory(driver, halo.span, self.size)
        self._references: list[Any] = []

    def close(self) -> None:
        self.memory.close()

    def _part(self, region: Region) -> tuple[Any, int, int]:
        edge = self.halo.edge
        raw = gpu_cases.made("subarray", 3, [edge] * 3, region.sizes, region.starts, 0, gpu_cases.made("bytes", 8))
        field = self.memory.strided + 8 * region.field * edge**3
        return gpu_cases.canonical(raw), field, self.memory.packed + region.packed

    def work(self, op: str) -> device_work.Work:
        """All of them as one unit of work."""
        return device_work.work(op, [self._part(region) for region in self.halo.regions(op)], self.driver.ordinal)

    def works(self, op: str) -> list[device_work.Work]:
        """Each as its own unit of work."""
        parts = [self._part(region) for region in self.halo.regions(op)]
        made = [device_work.work(op, [part], self.driver.ordinal) for part in parts]
        self._references.append(made)
        return made

    def copies(self, op: str) -> list[tuple[int, tuple[int, ...]]]:
        """One driver copy for each."""
        edge, row = self.halo.edge, 8 * self.halo.edge
        copies = []
        for region in self.halo.regions(op):
            z, y, x = region.starts
            depth, height, width = region.sizes
            shape = cuda_driver.Pitched((z * edge + y) * row + 8 * x, 8 * width, row, height, edge * row, depth)
            field = self.memory.strided + 8 * region.field * edge**3
            packed = self.memory.packed + region.packed
            copies.append(cuda_driver.pitched_copy(field, shape, packed, unpack=op == "unpack"))
        self._references.append(copies)
        return [cuda_driver.copy_call(self.driver, copy) for copy in copies]

    # -- verification --------------------------------------------------------------------------------

    def _cells(self, data: Bytes) -> Any:
        edge = self.halo.edge
        return data.view(np.uint64).reshape(self.halo.fields, edge, edge, edge)

    def wrong(self, op: str, run: Callable[[], object]) -> str | None:
        memory, driver = self.memory, self.driver
        memory.restore(memory.strided, self.halo.span)
        if op == "pack":
            driver.fill(memory.packed, POISON, self.size)
            before = driver.read(memory.strided, self.halo.span)
            run()
            found = driver.read(memory.packed, self.size)
            cells = self._cells(before)
            parts = [np.ascontiguousarray(cells[_place(region)]).reshape(-1) for region in self.halo.regions(op)]
            expected = np.concatenate(parts).view(np.uint8)
        else:
            memory.restore(memory.packed, self.size)
            packed, expected = driver.read(memory.packed, self.size), driver.read(memory.strided, self.halo.span)
            cells = self._cells(expected)
            for region in self.halo.regions(op):
                part = packed[region.packed : region.packed + region.nbytes].view(np.uint64)
                cells[_place(region)] = part.reshape(region.sizes)
            run()
            found = driver.read(memory.strided, self.halo.span)
        wrong = np.flatnonzero(found != expected)
        return f"{wrong.size} wrong bytes, the first at {wrong[0]}" if wrong.size else None
