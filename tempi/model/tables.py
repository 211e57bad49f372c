"""From one time a point to the tables that the engine maps (csrc/model/table.h).

1. A table of one quantity, family and peer has the runs, strides and sizes that were measured. A run with
   fewer strides than others has its last one again: equal neighbours are one node to the interpolation.
2. Along the sizes, places that were not measured are filled: between two others on the straight line of
   the logarithms; before the first with its time (what is so short is all latency); behind the last in
   proportion to the size (what is so long is all throughput).
3. More bytes take no less time: where samples say otherwise, neighbours are pooled to their mean
   (isotonic regression, in logarithms).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tempi.model import grid

__all__ = ["Table", "build", "encode", "fill", "monotone"]

MAGIC, FORMAT = 0x4C444D54, 2
_BEFORE_SUM = struct.Struct("=IIQQ")
_AFTER_SUM = struct.Struct("=diI32s128s256s128s64sii")
_HEAD = struct.Struct("=7iI")


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


def fill(known: Mapping[float, float], places: Sequence[float]) -> list[float]:
    """Values at `places` from those at some of them; everything in logarithms, `known` not empty."""
    nodes = sorted(known)
    made = []
    for place in places:
        if place <= nodes[0]:
            made.append(known[nodes[0]])
        elif place >= nodes[-1]:
            made.append(known[nodes[-1]] + place - nodes[-1])
        else:
            right = next(i for i, node in enumerate(nodes) if node >= place)
            a, b = nodes[right - 1], nodes[right]
            made.append(known[a] + (known[b] - known[a]) * (place - a) / (b - a))
    return made


def monotone(values: Sequence[float]) -> list[float]:
    """The nearest sequence that never falls: neighbours that do are pooled to their mean."""
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


def _table(
    quantity: str, family: str, peer: str | None, memory: str, found: Mapping[grid.Column, Mapping[int, float]]
) -> Table:
    sizes = sorted({size for row in found.values() for size in row})
    places = [_log(size) for size in sizes]
    rows = {
        column: tuple(monotone(fill({_log(size): math.log(value) for size, value in row.items()}, places)))
        for column, row in found.items()
    }
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


def build(typical: Mapping[tuple[Any, ...], float], memory: str = "host") -> list[Table]:
    """Tables from seconds by (quantity, column, size, peer)."""
    found: dict[tuple[str, str, str | None], dict[grid.Column, dict[int, float]]] = {}
    for (quantity, column, size, peer), seconds in typical.items():
        rows = found.setdefault((quantity, column.family, peer), {})
        rows.setdefault(column, {})[size] = seconds
    return [_table(*key, memory, rows) for key, rows in sorted(found.items(), key=str)]


def _checksum(data: bytes) -> int:
    """FNV-1a, 64 bits."""
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
    """The file. `call`: seconds; `texts`: tempi's version, the CPU, the MPI library; `gpu`: name, driver, CUDA
    version, whether it is the emulated one."""
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
    named = (text.encode()[: size - 1] for text, size in zip(texts, (32, 128, 256), strict=True))
    card = (gpu[0].encode()[:127], gpu[1].encode()[:63], *gpu[2:])
    body = _AFTER_SUM.pack(call, cores, len(kept), *named, *card) + heads + struct.pack(f"={len(numbers)}d", *numbers)
    return _BEFORE_SUM.pack(MAGIC, FORMAT, _BEFORE_SUM.size + len(body), _checksum(body)) + body
