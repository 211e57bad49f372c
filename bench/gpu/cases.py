"""The shapes that kernels pack and unpack on a GPU; the positions of their bytes are computed without tempi.

A case gives the memory offset of the byte at each packed position (`places`), which serves to check every
subject, the layout, and, if they exist, the CUDA driver's pitched copy and the strided array of the same
bytes. Offsets and sizes are in bytes.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tempi import _engine
from tempi.bench.cases import KIB, MIB, matching, size_name
from tempi.measure.cuda_driver import Pitched

Integers = npt.NDArray[np.int64]
GIB = 1 << 30

RUNS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SIZES = (64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
WIDE_STRIDES = (512, 4096)
EDGES = (258, 514)
SHIFT = 8  # of the misaligned cases


@dataclass(frozen=True, slots=True)
class Case(abc.ABC):
    """One shape; its first byte is `shift` bytes after an aligned address."""

    @property
    @abc.abstractmethod
    def name(self) -> str: ...

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """Packed bytes."""

    @property
    @abc.abstractmethod
    def span(self) -> int:
        """Bytes of memory that contain it, `shift` included."""

    @property
    @abc.abstractmethod
    def run(self) -> int:
        """Bytes of a contiguous run."""

    @property
    def shift(self) -> int:
        return 0

    @abc.abstractmethod
    def places(self, positions: Integers) -> Integers:
        """Memory offsets of the bytes at these packed positions, `shift` not included."""

    @abc.abstractmethod
    def raw_layout(self) -> Any:
        """The layout from the engine's constructors."""

    def pitched(self) -> Pitched | None:
        """The same bytes as a pitched copy, `shift` not included."""
        return None


def made(constructor: str, *arguments: Any) -> Any:
    """The result of tempi_layout_<constructor>, freed with the object."""
    ffi, lib = _engine.ffi, _engine.lib
    out = ffi.new("tempi_layout **")
    _engine.check(getattr(lib, f"tempi_layout_{constructor}")(*arguments, out), doing=f"layout of {constructor}")
    return ffi.gc(out[0], lib.tempi_layout_free)


def canonical(raw: Any) -> Any:
    """The canonical form, released with the object."""
    ffi, lib = _engine.ffi, _engine.lib
    out = ffi.new("tempi_layout const **")
    _engine.check(lib.tempi_layout_canonical(raw, ffi.NULL, ffi.NULL, out), doing="canonical layout")
    return ffi.gc(out[0], lib.tempi_layout_release)


def layout_of(case: Case) -> Any:
    """The canonical layout of a case."""
    return canonical(case.raw_layout())


@dataclass(frozen=True, slots=True)
class Vector(Case):
    """Runs of `length` every `stride`."""

    size: int
    length: int
    stride: int
    misaligned: bool = False

    @property
    def name(self) -> str:
        shifted = f" at {SHIFT}" if self.misaligned else ""
        return f"vector run {self.length} stride {self.stride}{shifted}, {size_name(self.size)}"

    @property
    def shift(self) -> int:
        return SHIFT if self.misaligned else 0

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def blocks(self) -> int:
        return self.size // self.length

    @property
    def span(self) -> int:
        return (self.blocks - 1) * self.stride + self.length + self.shift

    @property
    def run(self) -> int:
        return self.length

    def places(self, positions: Integers) -> Integers:
        return positions // self.length * self.stride + positions % self.length

    def raw_layout(self) -> Any:
        return made("hvector", self.blocks, 1, self.stride, made("bytes", self.length))

    def pitched(self) -> Pitched:
        return Pitched(0, self.length, self.stride, self.blocks)


@dataclass(frozen=True, slots=True)
class Face(Case):
    """A face of a cube of `edge`^3 doubles, halo included, one thick along `axis`."""

    edge: int
    axis: int

    @property
    def name(self) -> str:
        return f"face {'zyx'[self.axis]} of {self.edge}^3"

    @property
    def nbytes(self) -> int:
        return 8 * (self.edge - 2) ** 2

    @property
    def span(self) -> int:
        return 8 * self.edge**3

    @property
    def run(self) -> int:
        return 8 if self.axis == 2 else 8 * (self.edge - 2)

    @property
    def sizes(self) -> list[int]:
        return [1 if axis == self.axis else self.edge - 2 for axis in range(3)]

    def places(self, positions: Integers) -> Integers:
        cells, byte = positions // 8, positions % 8
        _, ny, nx = self.sizes
        z, y, x = cells // (ny * nx), cells // nx % ny, cells % nx
        return 8 * (((z + 1) * self.edge + y + 1) * self.edge + x + 1) + byte

    def raw_layout(self) -> Any:
        return made("subarray", 3, [self.edge] * 3, self.sizes, [1, 1, 1], 0, made("bytes", 8))

    def pitched(self) -> Pitched:
        depth, height, width = self.sizes
        row = 8 * self.edge
        return Pitched((self.edge + 1) * row + 8, 8 * width, row, height, self.edge * row, depth)


@dataclass(frozen=True, slots=True)
class Indexed(Case):
    """Blocks of two doubles at random places, in random order: an unstructured mesh."""

    size: int

    @property
    def name(self) -> str:
        return f"random indexed, {size_name(self.size)}"

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def span(self) -> int:
        return 4 * self.size

    @property
    def run(self) -> int:
        return 16

    def _blocks(self) -> Integers:
        """Block numbers, a quarter of all blocks."""
        return 16 * np.random.default_rng(self.size).permutation(self.span // 16)[: self.size // 16]

    def places(self, positions: Integers) -> Integers:
        return self._blocks()[positions // 16] + positions % 16

    def raw_layout(self) -> Any:
        places = _engine.ffi.from_buffer("int64_t[]", self._blocks().astype(np.int64))
        return made("hindexed_block", self.size // 16, 1, places, made("bytes", 16))


def _strides(run: int) -> list[int]:
    return sorted({2 * run, *(stride for stride in WIDE_STRIDES if stride > run)})


def _vectors(sizes: tuple[int, ...], runs: tuple[int, ...], misaligned: bool) -> Iterator[Case]:
    for size in sizes:
        for run in runs:
            yield from (Vector(size, run, stride, misaligned) for stride in _strides(run) if size > run)


def all_cases() -> list[Case]:
    """Every shape with a target."""
    cases: list[Case] = list(_vectors(SIZES, RUNS, False))
    cases += _vectors((64 * KIB, 16 * MIB, 256 * MIB), RUNS, True)
    cases += [Face(edge, axis) for edge in EDGES for axis in range(3)]
    return [*cases, *(Indexed(size) for size in (64 * KIB, MIB, 16 * MIB, 64 * MIB))]


def worth(case: Case) -> int:
    """The order in which cases are measured, since the time may be over before the last: what applications send, sizes
    up to those of the targets, misaligned, the largest. Sizes of a shape ascend: those before bound what is tried."""
    if not isinstance(case, Vector):
        return 0
    return 2 if case.misaligned else 1 if case.size <= 64 * MIB else 3


def quick_cases() -> list[Case]:
    """A selection that takes seconds."""
    cases: list[Case] = list(_vectors((64 * KIB, 64 * MIB), (4, 8, 16, 1024), False))
    cases += _vectors((64 * MIB,), (8,), True)
    return [*cases, *(Face(258, axis) for axis in range(3)), Indexed(16 * MIB)]


def tiny_cases() -> list[Case]:
    """One of every kind for the emulated device, only to check correctness."""
    cases: list[Case] = list(_vectors((16 * KIB,), RUNS[:-1], False))
    cases += _vectors((4 * KIB,), (4, 8, 64), True)
    return [*cases, *(Face(18, axis) for axis in range(3)), Indexed(16 * KIB)]


def chosen(quick: bool, emulated: bool, pattern: str = "") -> list[Case]:
    """The cases of a run, by their worth: those in whose names the regular expression is found."""
    cases = tiny_cases() if emulated else quick_cases() if quick else all_cases()
    return sorted(matching(cases, pattern), key=worth)
