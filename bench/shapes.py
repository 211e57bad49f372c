"""Datatypes of the shapes that are calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from tempi.model.grid import Column


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
        return self._blocks if self.column.family == "elements" else 1

    @property
    def span(self) -> int:
        """Bytes of memory from the first to behind the last."""
        family, run, stride = self.column.family, self.column.run, self.column.stride
        if family == "transposed":
            return self.size
        return 4 * self.size if family == "irregular" else (self._blocks - 1) * stride + max(run, stride)

    def datatype(self, mpi: Any) -> Any:
        """A committed mpi4py datatype, to be freed by the caller."""
        run, stride = self.column.run, self.column.stride
        element = min(run, 8)
        base = mpi.FLOAT if element == 4 else mpi.DOUBLE
        match self.column.family:
            case "regular" | "aliased" | "shifted":
                made = base.Create_vector(self._blocks, run // element, stride // element)
            case "elements":
                inner = base.Create_contiguous(run // element)
                made = inner.Create_resized(0, stride)
                inner.Free()
            case "transposed":
                edge = isqrt(self.size // 8)
                inner = mpi.DOUBLE.Create_vector(edge, 1, edge)
                made = inner.Create_hvector(edge, 1, 8)
                inner.Free()
            case _:
                places = np.random.default_rng(self.size).permutation(4 * self._blocks)[: self._blocks]
                made = base.Create_indexed_block(run // element, (run // element * places).astype(np.int32))
        return made.Commit()
