"""The shapes to pack and send: each as a datatype, and as NumPy code for its bytes.

A case works on a flat buffer of bytes: `gather` returns the packed bytes of the datatype in it, `scatter`
writes packed bytes to their places. Neither uses tempi, so they can check every subject.
"""

from __future__ import annotations

import abc
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

Bytes = npt.NDArray[np.uint8]

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB)
RUNS = (4, 8, 16, 64, 256, 1024, 4096)
WIDE_STRIDES = (512, 4096)
FACES = (66, 130, 258)


def size_name(size: int) -> str:
    """4 KiB, 1 MiB; a size that is not a whole multiple is given in bytes."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


@dataclass(frozen=True, slots=True)
class Case(abc.ABC):
    """One shape. `count` elements of `datatype` are packed."""

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
        """Bytes of memory from the first to one past the last."""

    @property
    @abc.abstractmethod
    def run(self) -> int:
        """Bytes of a contiguous run."""

    @property
    def count(self) -> int:
        return 1

    @abc.abstractmethod
    def datatype(self, mpi: Any) -> Any:
        """A committed mpi4py datatype of that shape, to be freed by the caller."""

    @abc.abstractmethod
    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        """The elements in type-map order, for reading."""

    def gather(self, buffer: Bytes) -> Bytes:
        return np.ascontiguousarray(self.view(buffer)).reshape(-1).view(np.uint8)

    def scatter(self, buffer: Bytes, packed: Bytes) -> None:
        view = self.view(buffer)
        view[...] = packed.view(view.dtype).reshape(view.shape)


def _committed(datatype: Any, *parts: Any) -> Any:
    for part in parts:
        part.Free()
    return datatype.Commit()


@dataclass(frozen=True, slots=True)
class Vector(Case):
    """Runs of equal length and stride: MPI_Type_vector of floats or doubles, or of bytes, which libraries pack
    with different code."""

    size: int
    length: int
    stride: int
    of_bytes: bool = False

    @property
    def name(self) -> str:
        kind = "byte vector" if self.of_bytes else "vector"
        return f"{kind} run {self.length} stride {self.stride}, {size_name(self.size)}"

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def blocks(self) -> int:
        return self.size // self.length

    @property
    def span(self) -> int:
        return (self.blocks - 1) * self.stride + self.length

    @property
    def run(self) -> int:
        return self.length

    @property
    def _element(self) -> int:
        return min(self.length, 8)

    def datatype(self, mpi: Any) -> Any:
        if self.of_bytes:
            return _committed(mpi.BYTE.Create_vector(self.blocks, self.length, self.stride))
        base = mpi.FLOAT if self._element == 4 else mpi.DOUBLE
        element = self._element
        return _committed(base.Create_vector(self.blocks, self.length // element, self.stride // element))

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        element = self._element
        elements = buffer[: self.span].view(f"u{element}")
        shape = (self.blocks, self.length // element)
        return as_strided(elements, shape, (self.stride, element))


@dataclass(frozen=True, slots=True)
class Contiguous(Case):
    """Doubles without gaps, for messages of device memory."""

    size: int

    @property
    def name(self) -> str:
        return f"contiguous, {size_name(self.size)}"

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def span(self) -> int:
        return self.size

    @property
    def run(self) -> int:
        return self.size

    def datatype(self, mpi: Any) -> Any:
        return _committed(mpi.DOUBLE.Create_contiguous(self.size // 8))

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        return buffer[: self.size]


@dataclass(frozen=True, slots=True)
class Face(Case):
    """A face of a cube of `edge`^3 doubles, halo included: a subarray, one thick along `axis`."""

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

    def datatype(self, mpi: Any) -> Any:
        subsizes = [1 if axis == self.axis else self.edge - 2 for axis in range(3)]
        return _committed(mpi.DOUBLE.Create_subarray([self.edge] * 3, subsizes, [1, 1, 1]))

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        cube = buffer[: self.span].view("u8").reshape([self.edge] * 3)
        inner = [slice(1, 2) if axis == self.axis else slice(1, self.edge - 1) for axis in range(3)]
        return cube[tuple(inner)]


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

    def _places(self) -> npt.NDArray[np.int64]:
        """Block numbers, a quarter of all blocks."""
        return np.random.default_rng(self.size).permutation(self.span // 16)[: self.size // 16]

    def datatype(self, mpi: Any) -> Any:
        places = (2 * self._places()).astype(np.int32)
        return _committed(mpi.DOUBLE.Create_indexed_block(2, places))

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        return buffer[: self.span].view("u8").reshape(-1, 2)[self._places()]

    def scatter(self, buffer: Bytes, packed: Bytes) -> None:
        buffer[: self.span].view("u8").reshape(-1, 2)[self._places()] = packed.view("u8").reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Field(Case):
    """One double of each struct in an array of structs of 40 bytes: a resized type and a count."""

    size: int

    STRUCT = 40
    OFFSET = 8

    @property
    def name(self) -> str:
        return f"field of structs, {size_name(self.size)}"

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def count(self) -> int:
        return self.size // 8

    @property
    def span(self) -> int:
        return self.count * self.STRUCT

    @property
    def run(self) -> int:
        return 8

    def datatype(self, mpi: Any) -> Any:
        inner = mpi.DOUBLE.Create_hindexed_block(1, [self.OFFSET])
        return _committed(inner.Create_resized(0, self.STRUCT), inner)

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        return buffer[: self.span].view("u8").reshape(self.count, -1)[:, self.OFFSET // 8]


@dataclass(frozen=True, slots=True)
class Transpose(Case):
    """A square matrix of doubles, column by column."""

    edge: int

    @property
    def name(self) -> str:
        return f"transpose of {self.edge}^2"

    @property
    def nbytes(self) -> int:
        return 8 * self.edge**2

    @property
    def span(self) -> int:
        return self.nbytes

    @property
    def run(self) -> int:
        return 8

    def datatype(self, mpi: Any) -> Any:
        column = mpi.DOUBLE.Create_vector(self.edge, 1, self.edge)
        return _committed(column.Create_hvector(self.edge, 1, 8), column)

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        return buffer[: self.span].view("u8").reshape(self.edge, self.edge).T


def _vectors(sizes: tuple[int, ...], runs: tuple[int, ...]) -> Iterator[Case]:
    for size in sizes:
        for run in runs:
            strides = {2 * run, *(stride for stride in WIDE_STRIDES if stride > run)}
            yield from (Vector(size, run, stride) for stride in sorted(strides) if size >= run)


def all_cases() -> list[Case]:
    """Every shape with a target."""
    cases: list[Case] = list(_vectors(SIZES, RUNS))
    cases += [Vector(size, run, 2 * run, of_bytes=True) for size in SIZES for run in RUNS]
    cases += [Face(edge, axis) for edge in FACES for axis in range(3)]
    cases += [Indexed(size) for size in SIZES]
    cases += [Field(size) for size in SIZES]
    cases += [Transpose(edge) for edge in (24, 91, 362, 1448)]
    return cases


def quick_cases() -> list[Case]:
    """A selection that takes seconds."""
    cases: list[Case] = list(_vectors((64 * KIB, MIB), (4, 16, 64, 1024)))
    cases += [Face(130, axis) for axis in range(3)]
    return [*cases, Indexed(MIB), Field(MIB), Transpose(362)]


class Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def matching(found: Iterable[N], pattern: str) -> list[N]:
    """Those in whose names the regular expression is found."""
    return [one for one in found if re.search(pattern, one.name)]


def chosen(quick: bool, pattern: str = "") -> list[Case]:
    """The cases of a run."""
    return matching(quick_cases() if quick else all_cases(), pattern)


def messages(quick: bool, pattern: str = "") -> list[Case]:
    """The same plus short ones, which a library may send differently (eager messages)."""
    runs = (8,) if quick else (4, 8, 16, 64)
    sizes = (KIB,) if quick else (256, KIB, 3 * KIB)
    short = [Vector(size, run, stride) for size in sizes for run in runs for stride in (2 * run, 512)]
    return matching([*short, *chosen(quick)], pattern)


@dataclass(frozen=True, slots=True)
class Halo(Case):
    """The message of one rank in one of the 26 directions of a 3-D halo exchange: `radius` layers of a cube of
    `points`^3 doubles, surrounded by as many layers."""

    points: int
    radius: int
    direction: tuple[int, int, int]

    @property
    def name(self) -> str:
        return f"halo {self.points}^3 radius {self.radius} to {','.join(map('{:+d}'.format, self.direction))}"

    @property
    def _edge(self) -> int:
        return self.points + 2 * self.radius

    @property
    def _subsizes(self) -> list[int]:
        return [self.radius if step else self.points for step in self.direction]

    @property
    def _starts(self) -> list[int]:
        return [self.points if step > 0 else self.radius for step in self.direction]

    @property
    def nbytes(self) -> int:
        return 8 * math.prod(self._subsizes)

    @property
    def span(self) -> int:
        return 8 * self._edge**3

    @property
    def run(self) -> int:
        return 8 * self._subsizes[2]

    def datatype(self, mpi: Any) -> Any:
        return _committed(mpi.DOUBLE.Create_subarray([self._edge] * 3, self._subsizes, self._starts))

    def view(self, buffer: Bytes) -> npt.NDArray[Any]:
        cube = buffer[: self.span].view("u8").reshape([self._edge] * 3)
        inner = (slice(start, start + size) for start, size in zip(self._starts, self._subsizes, strict=True))
        return cube[tuple(inner)]


def _held_out_vectors(sizes: tuple[int, ...], runs: tuple[int, ...]) -> Iterator[Case]:
    for run in runs:
        for stride in sorted({3 * run, max(1536, 3 * run), max(6144, 3 * run)}):
            yield from (Vector(size // run * run, run, stride) for size in sizes if size >= run)


def held_out(quick: bool) -> list[Case]:
    """No point that `tempi calibrate` measures: sizes, runs and strides between its points, and realistic
    shapes."""
    steps = (-1, 0, 1)
    halo = [step for step in itertools.product(steps, steps, steps) if any(step)]
    if quick:
        cases = list(_held_out_vectors((24 * KIB, 1500 * KIB), (24, 512)))
        return [*cases, Face(130, 2), Indexed(24 * KIB), *(Halo(64, 2, step) for step in halo[::5])]
    cases = list(_held_out_vectors((720, 6 * KIB, 24 * KIB, 160 * KIB, 1500 * KIB, 6 * MIB), (24, 40, 96, 512, 2048)))
    cases += [Face(edge, axis) for edge in FACES for axis in range(3)]
    cases += [kind(size) for kind in (Indexed, Field) for size in (1536, 24 * KIB, 400 * KIB, 3 * MIB)]
    cases += [Transpose(edge) for edge in (17, 60, 250, 1000)]
    return cases + [Halo(128, 2, step) for step in halo]


def held_out_device(quick: bool, *, emulated: bool = False) -> list[Case]:
    """The same for device memory. On the emulated device a few small ones of every kind, only to check them."""
    if emulated:
        cases = [Contiguous(6 * KIB), *list(_held_out_vectors((720, 6 * KIB), (24, 128)))[::3]]
        return [*cases, Face(18, 0), Face(18, 2), Indexed(1536), Field(1536), Transpose(17), Halo(16, 2, (1, -1, 0))]
    if quick:
        return [Contiguous(24 * KIB), Contiguous(1500 * KIB), *held_out(True)]
    plain = (Contiguous(size) for size in (720, 6 * KIB, 24 * KIB, 160 * KIB, 1500 * KIB, 6 * MIB, 24 * MIB))
    large = _held_out_vectors((24 * MIB,), (24, 128, 512, 2048))
    return [*plain, *held_out(False), *large, Halo(256, 3, (1, 0, 0)), Halo(256, 3, (0, 0, 1))]
