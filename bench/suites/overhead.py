"""``tempi bench overhead``: tempi's cost per call, per type's first use, and per process start."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tempi.bench import stats, suite
from tempi.bench.options import OverheadOptions
from tempi.bench.stats import Interval
from tempi.bench.workers import choice as worker_choice
from tempi.measure import launch, records
from tempi.measure.records import Record

#: Differences that clock and loops cannot distinguish from zero (seconds).
RESOLUTION = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """One line; seconds. Without a library subject, `added` is tempi's own time. `wrapper` is what a wrapper that does
    nothing adds, and `own` what tempi adds to that."""

    case: str
    library: float | None
    added: Interval
    target: float
    wrapper: float | None = None
    own: Interval | None = None

    @property
    def missed(self) -> bool:
        """Surely above its target, also at the lower end of the interval."""
        return (self.own or self.added).low > self.target + RESOLUTION


def rows(found: Sequence[Record]) -> list[Row]:
    made = []
    for (case, _), group in suite.by_case(found).items():
        if "tempi" not in group:
            continue
        tempi, library = suite.samples(group["tempi"]), suite.samples(group.get("library"))
        wrapper = suite.samples(group.get("wrapper"))
        added = stats.difference(tempi, library) if library else stats.median(tempi)
        base = stats.median(library).value if library else None
        row = Row(case, base, added, float(group["tempi"][0].meta["target"]))
        if library and wrapper:
            bare = stats.difference(wrapper, library).value
            row = replace(row, wrapper=bare, own=stats.difference(tempi, wrapper))
        made.append(row)
    return made


def _time(seconds: float) -> str:
    """ns below 10 us, then us, then ms."""
    for limit, factor, unit in ((10e-6, 1e9, "ns"), (10e-3, 1e6, "us")):
        if abs(seconds) < limit:
            return f"{factor * seconds:.1f} {unit}"
    return f"{1e3 * seconds:.1f} ms"


def table(found: Sequence[Row]) -> Table:
    made = Table(title="What tempi adds")
    made.add_column("what")
    for name in ("library", "wrapper", "added", "95%", "target"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("")
    for one in found:
        made.add_row(
            one.case,
            "-" if one.library is None else _time(one.library),
            "-" if one.wrapper is None else _time(one.wrapper),
            _time(one.added.value),
            f"{_time(one.added.low)} to {_time(one.added.high)}",
            _time(one.target),
            "misses" if one.missed else "",
        )
    return made


def _records(common: suite.Common, options: OverheadOptions) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)
    version = ""
    for record in launch.run_worker(launcher, "tempi.bench.workers.overhead", options.arguments()):
        version = str(record.meta["mpi"])
        yield record
    tracked = replace(options, tracked=True).arguments()
    yield from launch.run_worker(launcher, "tempi.bench.workers.overhead", tracked, variables={"TEMPI_FORCE": "1"})
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "made-up.table"
        tables.write_bytes(worker_choice.made_up(version))
        variables = {"TEMPI_MODEL": str(tables), "TEMPI_MODEL_UPDATE": "0", "TEMPI_AUTOTUNE": "0"}
        yield from launch.run_worker(launcher, "tempi.bench.workers.choice", options.arguments(), variables=variables)


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    made = rows(found)
    console.print(suite.setting(found), highlight=False)
    console.print(table(made))
    missed = [one for one in made if one.missed]
    console.print(f"{len(missed)} of {len(made)} above the target", highlight=False)
    return made


def run(common: suite.Common, options: OverheadOptions) -> list[Record]:
    """Measures, writes and prints."""
    found = suite.gather(_records(common, options), 49, "overhead")
    if common.json:
        records.write(common.json, found)
    show(common.console(), found)
    return found
