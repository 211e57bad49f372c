"""Datatypes of the shapes that are calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tempi.model.grid import INNER, Column


@dataclass(frozen=True, slots=True)
class Shape:
    """`size` packed bytes of a column."""

    column: Column
    size: int

    @property
    def _blocks(self) -> int:
        return self.size // self.column.run

    @property
    def count(self) -> int:
        """Elements of a message."""
        return self._blocks if self.column.family in ("elements", "fields") else 1

    @property
    def span(self) -> int:
        """Bytes of memory from the first byte to the one after the last."""
        family, run, stride = self.column.family, self.column.run, self.column.stride
        if family == "transposed":
            return self.size
        if family == "nested":
            return self._blocks // INNER * (INNER + 1) * stride
        if family in ("irregular", "varied"):
            return 4 * self.size
        return (self._blocks - 1) * stride + max(run, stride)

    def _places(self) -> npt.NDArray[np.int64]:
        """Block numbers in random order. No two blocks are adjacent, except the last two of the variable-length shape:
        these form one run, which is longer than the others."""
        places = 2 * np.random.default_rng(self.size).permutation(2 * self._blocks)[: self._blocks]
        if self.column.family == "varied":
            places[-1] = places[-2] + 1
        return places

    def datatype(self, mpi: Any) -> Any:
        """A committed mpi4py datatype, to be freed by the caller."""
        run, stride = self.column.run, self.column.stride
        element = min(run, 8)
        base = mpi.FLOAT if element == 4 else mpi.DOUBLE
        match self.column.family:
            case "nested":
                inner = base.Create_vector(INNER, run // element, stride // element)
                made = inner.Create_hvector(self._blocks // INNER, 1, (INNER + 1) * stride)
                inner.Free()
            case "regular" | "aliased" | "shifted":
                made = base.Create_vector(self._blocks, run // element, stride // element)
            case "elements":
                inner = base.Create_contiguous(run // element)
                made = inner.Create_resized(0, stride)
                inner.Free()
            case "fields":
                inner = base.Create_hindexed_block(run // element, [element])
                made = inner.Create_resized(0, stride)
                inner.Free()
            case "transposed":
                edge = isqrt(self.size // 8)
                inner = mpi.DOUBLE.Create_vector(edge, 1, edge)
                made = inner.Create_hvector(edge, 1, 8)
                inner.Free()
            case _:
                made = base.Create_indexed_block(run // element, (run // element * self._places()).astype(np.int32))
        return made.Commit()
