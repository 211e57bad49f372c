"""``tempi compare``: compares two files of benchmark records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tempi.cli._output import json_option, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tempi.measure.records import Record

__all__ = ["compare"]

_RESAMPLES = 2000
_SEED = 1
#: Fields that identify a machine: those that measurements depend on most and that no update changes.
_MACHINE = ("cpu", "cores", "arch")

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement in both files: medians in seconds, and B over A with its 95% interval."""

    key: Key
    a: float
    b: float
    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """The conclusion that the interval permits."""
        if self.low <= 1 <= self.high:
            return "same"
        return "slower" if self.ratio > 1 else "faster"


def median_ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Median of `b` over median of `a`, and its 95% interval.

    The two were not interleaved, so each side is resampled independently.
    """
    import numpy as np

    rng = np.random.default_rng(_SEED)
    sides = []
    for samples in (a, b):
        values = np.asarray(samples, dtype=np.float64)
        sides.append(np.median(values[rng.integers(0, values.size, (_RESAMPLES, values.size))], axis=1))
    low, high = np.percentile(sides[1] / sides[0], (2.5, 97.5))
    value = float(np.median(b) / np.median(a))
    return value, min(float(low), value), max(float(high), value)


def machines(records: Iterable[Record]) -> set[tuple[Any, ...]]:
    """The machines of the records."""
    found = set()
    for record in records:
        machine = record.meta.get("machine") or {}
        found.add(tuple(machine.get(name) for name in _MACHINE))
    return found


def _samples(records: Iterable[Record]) -> dict[Key, list[float]]:
    """All samples of each measurement; repeated runs are pooled."""
    samples: dict[Key, list[float]] = {}
    for record in records:
        if record.seconds:
            samples.setdefault(record.key, []).extend(record.seconds)
    return samples


def rows(a: Iterable[Record], b: Iterable[Record]) -> list[Row]:
    """The measurements present in both files, in the first one's order."""
    import numpy as np

    first, second = _samples(a), _samples(b)
    return [
        Row(key, float(np.median(first[key])), float(np.median(second[key])), *median_ratio(first[key], second[key]))
        for key in first
        if key in second
    ]


def _table(found: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("bench", "case", "op", "subject", title="time of B over time of A")
    for name in ("A", "B", "B/A", "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("B is")
    colours = {"same": "", "faster": "green", "slower": "red"}
    for row in found:
        interval = f"{row.low:.2f}-{row.high:.2f}"
        cells = (*row.key, _seconds(row.a), _seconds(row.b), f"{row.ratio:.3f}", interval, row.verdict)
        table.add_row(*cells, style=colours[row.verdict])
    Console().print(table)


def _seconds(value: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= 0.9995 * scale:  # three digits of less are not 1000 of the next unit
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _objects(found: Iterable[Row], files: tuple[str, str]) -> Iterable[dict[str, object]]:
    """Rows as records: "seconds" is empty, since they have no raw samples."""
    for row in found:
        bench, case, op, subject = row.key
        meta = {
            "a": {"file": files[0], "median": row.a},
            "b": {"file": files[1], "median": row.b},
            "ratio": row.ratio,
            "interval": [row.low, row.high],
            "verdict": row.verdict,
        }
        yield {"bench": bench, "case": case, "op": op, "subject": subject, "bytes": 0, "seconds": [], "meta": meta}


@click.command()
@click.option("--force", is_flag=True, help="Compare records of different machines anyway.")
@json_option
@click.argument("a", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.argument("b", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def compare(a: str, b: str, force: bool, json_file: str | None) -> None:
    """Compare the medians of two files of benchmark records, A.json and B.json.

    A ratio is time of B over time of A, with a bootstrap interval of 95%; below 1, B is faster. Files
    of different machines are refused.
    """
    from tempi.measure import records

    try:
        first, second = records.read(a), records.read(b)
    except (records.RecordError, UnicodeDecodeError) as error:
        raise click.ClickException(str(error)) from error
    seen = machines(first) | machines(second)
    if len(seen) > 1 and not force:
        names = "; ".join(sorted(" / ".join(map(str, each)) for each in seen))
        raise click.ClickException(f"records of different machines ({names}); --force compares them anyway")
    found = rows(first, second)
    if not found:
        raise click.ClickException("the two files have no measurement in common")
    if json_file is not None:
        write_json(json_file, _objects(found, (a, b)))
    if json_file != "-":
        _table(found)
        left = len(_samples(first).keys() ^ _samples(second).keys())
        if left:
            click.echo(f"{left} measurements are in one file only")
