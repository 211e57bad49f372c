"""Builds the tables that the engine maps (csrc/choose/table_file.h) from one time per point.

1. A table of one quantity, family and peer has the measured runs, strides and sizes. A run with fewer
   strides than others repeats its last one: the interpolation treats equal neighbours as one node.
2. Along the sizes, missing places are filled: between two measured ones log-linearly; before the first with its time
   (short messages are all latency); after the last in proportion to the size (long messages are all
   throughput).
3. More bytes take no less time: where samples say otherwise, neighbours are pooled to their mean
   (isotonic regression, in logarithms). Only behind the eager limit a message may be faster than before it, as Open
   MPI's is with short runs: 3.5 KiB in runs of 8 bytes take 3.4 us, 4 KiB 1.3 us (Zen 3).
4. Effects that make a shape slower than its run and stride imply are stored separately, as corrections: factors if
   runs share few cache sets ("aliased": by run, lines and the power of two in the stride), if a single run per element
   does not begin with the element ("fields"), and if irregular runs differ in length ("varied"); and the seconds that
   each row of a nested shape takes in addition to its runs ("nested"). They are constant beyond their last sizes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tempi.model import _format, grid

__all__ = ["Table", "build", "encode", "fill", "monotone"]

LEAST = 1e-12  # seconds; means no correction
_Rows = Mapping[grid.Column, Mapping[int, float]]
_SUMMED = [field.name for field in _format.HEADER].index(_format.SUMMED_FROM)
_BEFORE_SUM = _format.packer(_format.HEADER[:_SUMMED])
_AFTER_SUM = _format.packer(_format.HEADER[_SUMMED:])
_HEAD = _format.packer(_format.HEAD)
_LENGTHS = {field.name: field.length for field in _format.HEADER if field.length}


@dataclass(frozen=True, slots=True)
class Table:
    """Logarithms of bytes and seconds; `seconds[run][stride][size]`."""

    quantity: str
    family: str
    peer: str | None
    sizes: tuple[float, ...]
    runs: tuple[float, ...]
    strides: tuple[tuple[float, ...], ...]
    seconds: tuple[tuple[tuple[float, ...], ...], ...]
    memory: str = "host"


def fill(known: Mapping[float, float], places: Sequence[float], behind: float = 1.0) -> list[float]:
    """Values at `places`, interpolated from those at some of them; all in logarithms, `known` not empty. `behind`: the
    slope after the last."""
    nodes = sorted(known)
    made = []
    for place in places:
        if place <= nodes[0]:
            made.append(known[nodes[0]])
        elif place >= nodes[-1]:
            made.append(known[nodes[-1]] + behind * (place - nodes[-1]))
        else:
            right = next(i for i, node in enumerate(nodes) if node >= place)
            a, b = nodes[right - 1], nodes[right]
            made.append(known[a] + (known[b] - known[a]) * (place - a) / (b - a))
    return made


def monotone(values: Sequence[float]) -> list[float]:
    """The nearest non-decreasing sequence: decreasing neighbours are pooled to their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, n = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / n:
            before, m = pools.pop()
            total, n = total + before, n + m
        pools.append((total, n))
    return [total / n for total, n in pools for _ in range(n)]


def _log(size: int) -> float:
    return math.log(max(size, 1))


def _row(values: Mapping[int, float], places: Sequence[float], quantity: str, corrects: bool) -> tuple[float, ...]:
    known = {_log(size): math.log(value) for size, value in values.items()}
    if corrects:
        return tuple(fill(known, places, 0.0))
    filled = fill(known, places)
    eager = sum(place <= _log(grid.EAGER) for place in places) if quantity in grid.MESSAGES else 0
    return (*monotone(filled[:eager]), *monotone(filled[eager:]))


def _table(quantity: str, family: str, peer: str | None, memory: str, found: _Rows) -> Table:
    sizes = sorted({size for row in found.values() for size in row})
    places = [_log(size) for size in sizes]
    rows = {column: _row(row, places, quantity, family in grid.CORRECTIONS) for column, row in found.items()}
    runs = sorted({column.run for column in found})
    by_run = [sorted(column for column in found if column.run == run) for run in runs]
    width = max(map(len, by_run))
    padded = [(*group, *[group[-1]] * (width - len(group))) for group in by_run]
    return Table(
        quantity,
        family,
        peer,
        tuple(places),
        tuple(map(_log, runs)),
        tuple(tuple(_log(column.stride) for column in group) for group in padded),
        tuple(tuple(rows[column] for column in group) for group in padded),
        memory,
    )


def _correction(column: grid.Column, size: int, seconds: float, plain: float) -> float:
    """A factor, or the extra seconds of each row. A correction never makes a shape faster."""
    if column.family == "nested":
        return max(LEAST, (seconds - plain) / (size // (column.run * grid.INNER) - 1))
    return max(1.0, seconds / plain)


def _corrections(found: _Rows, base: _Rows) -> dict[grid.Column, dict[int, float]]:
    """Corrections relative to the base columns. For runs that share cache sets, the power of two replaces the stride
    and the number of lines replaces the size: these determine whether the sets suffice."""
    made: dict[grid.Column, dict[int, float]] = {}
    for column, row in found.items():
        plain = base.get(grid.corrected(column), {})
        known = {size: _correction(column, size, taken, plain[size]) for size, taken in row.items() if size in plain}
        stride = column.stride
        if column.family == "aliased":
            stride = grid.aliasing(stride)
            known = {grid.lines(column, size): factor for size, factor in known.items()}
        if known:
            made[grid.Column(column.family, column.run, stride)] = known
    return made


def build(typical: Mapping[tuple[Any, ...], float], memory: str = "host") -> list[Table]:
    """Tables from seconds by (quantity, column, size, peer)."""
    found: dict[tuple[str, str, str | None], dict[grid.Column, dict[int, float]]] = {}
    for (quantity, column, size, peer), seconds in typical.items():
        if quantity != "contiguous" or column.family not in grid.CORRECTIONS:
            found.setdefault((quantity, column.family, peer), {}).setdefault(column, {})[size] = seconds
    made = []
    for (quantity, family, peer), own in sorted(found.items(), key=str):
        base = found.get((quantity, grid.CORRECTIONS.get(family, family), peer), {})
        rows = _corrections(own, base) if family in grid.CORRECTIONS else own
        if rows:
            made.append(_table(quantity, family, peer, memory, rows))
    return made


def _checksum(data: bytes) -> int:
    """The 64-bit FNV-1a hash."""
    total = 0xCBF29CE484222325
    for byte in data:
        total = (total ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return total


def _numbers(table: Table) -> list[float]:
    flat = [*table.sizes, *table.runs]
    flat += [stride for row in table.strides for stride in row]
    flat += [value for row in table.seconds for column in row for value in column]
    return flat


def encode(
    tables: Iterable[Table], call: float, cores: int, texts: tuple[str, str, str], gpu: tuple[str, str, int, bool]
) -> bytes:
    """The file's bytes. `call`: seconds; `texts`: tempi's version, the CPU, the MPI library; `gpu`: name, driver, CUDA
    version, whether it is emulated."""
    kept = list(tables)
    start = (_BEFORE_SUM.size + _AFTER_SUM.size + _HEAD.size * len(kept)) // 8
    heads = b""
    numbers: list[float] = []
    for table in kept:
        head = (
            grid.ALL_QUANTITIES.index(table.quantity),
            grid.ALL_FAMILIES.index(table.family),
            grid.PEERS.index(table.peer) if table.peer else 0,
            grid.MEMORIES.index(table.memory),
            len(table.sizes),
            len(table.runs),
            len(table.strides[0]),
            start + len(numbers),
        )
        heads += _HEAD.pack(*head)
        numbers += _numbers(table)
    texts_of = dict(zip(_LENGTHS, (*texts, *gpu[:2]), strict=True))
    named = (text.encode()[: _LENGTHS[name] - 1] for name, text in texts_of.items())
    body = (
        _AFTER_SUM.pack(call, cores, len(kept), *named, *gpu[2:]) + heads + struct.pack(f"={len(numbers)}d", *numbers)
    )
    return _BEFORE_SUM.pack(_format.MAGIC, _format.FORMAT, _BEFORE_SUM.size + len(body), _checksum(body)) + body
