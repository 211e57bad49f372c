"""``tempi bench model``: the quality of the model's choices on shapes that it was not calibrated with.

The samples of a case are split into two halves, each spread over the whole time. One half picks the better
method; the other gives the times. So a chooser gains nothing from random noise between two equal methods. The
loss of the pick itself on the other half is the floor, which no chooser can beat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from tempi.bench import cases, stats, suite
from tempi.bench.options import PackOptions
from tempi.bench.workers import model as worker_model
from tempi.measure import launch, records
from tempi.measure.records import Record
from tempi.model.samples import typical

METHODS = ("library", "tempi")
FEWEST = 4  # samples of a method
ALL = "all"  # operations together
CHOOSERS = ("model", "rule", "perfect", "library", "tempi")
TEXTS = {
    "model": "calibrated model",
    "rule": "built-in rule",
    "perfect": "perfect chooser (the floor)",
    "library": "always the library",
    "tempi": "always tempi",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One case and operation. `seconds`: typical values of the scored half; `chosen`: by each chooser."""

    case: str
    op: str
    seconds: dict[str, float]
    predicted: dict[str, float] | None
    chosen: dict[str, str]

    def regret(self, chooser: str) -> float:
        """The chosen method's time over the best one's."""
        return self.seconds[self.chosen[chooser]] / min(self.seconds.values())

    def slowdown(self, chooser: str) -> float:
        """The chosen method's time over the library's."""
        return self.seconds[self.chosen[chooser]] / self.seconds["library"]

    def error(self, method: str) -> float | None:
        """The prediction's error relative to the measured time."""
        return None if self.predicted is None else abs(self.predicted[method] / self.seconds[method] - 1)


def row(key: suite.Key, group: dict[str, list[Record]]) -> Row | None:
    """None if a method has too few samples."""
    taken = {method: suite.samples(group.get(method)) for method in METHODS}
    if min(map(len, taken.values())) < FEWEST:
        return None
    picked = {method: typical(values[::2]) for method, values in taken.items()}
    meta = group["tempi"][0].meta
    chosen = {chooser: "tempi" if meta[chooser] else "library" for chooser in ("model", "rule")}
    chosen |= {"perfect": min(picked, key=lambda method: picked[method]), "library": "library", "tempi": "tempi"}
    seconds = {method: typical(values[1::2]) for method, values in taken.items()}
    return Row(key[0], key[1], seconds, meta["predicted"], chosen)


def rows(found: Sequence[Record]) -> list[Row]:
    made = (row(key, group) for key, group in suite.by_case(found).items())
    return [one for one in made if one is not None]


def table(found: Sequence[Row]) -> Table:
    made = Table(title="Microseconds, predicted and measured; chosen over best")
    made.add_column("case")
    made.add_column("op")
    for name in ("library pred.", "library", "tempi pred.", "tempi", "model", "rule"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in found:
        cells = []
        for method in METHODS:
            cells.append(suite.format_time(one.predicted[method]) if one.predicted else "-")
            cells.append(suite.format_time(one.seconds[method]))
        choices = [f"{one.chosen[by]} {one.regret(by):.2f}" for by in ("model", "rule")]
        made.add_row(one.case, one.op, *cells, *choices)
    return made


@dataclass(frozen=True, slots=True)
class Score:
    """One chooser over all cases: chosen over best (geometric mean, 95th percentile, worst), and over the library."""

    cases: int
    mean: float
    high: float
    worst: float
    slowdown: float


def score(own: Sequence[Row], chooser: str) -> Score:
    """`own`: rows of one operation, at least one."""
    regrets = [one.regret(chooser) for one in own]
    slowdown = stats.geometric_mean(one.slowdown(chooser) for one in own)
    high = float(np.percentile(regrets, 95))
    return Score(len(own), stats.geometric_mean(regrets), high, max(regrets), slowdown)


def scores(found: Sequence[Row]) -> Table:
    """The table of scores by operation and chooser."""
    made = Table(title="Chosen over best, and over the library (geometric means; 95th percentile)")
    made.add_column("op")
    made.add_column("chooser")
    for name in ("cases", "chosen / best", "95%", "worst", "chosen / library"):
        made.add_column(name, justify="right")
    for op in (*dict.fromkeys(one.op for one in found), ALL):
        own = [one for one in found if op in (one.op, ALL)]
        for chooser in CHOOSERS:
            result = score(own, chooser)
            numbers = (f"{result.mean:.3f}", f"{result.high:.2f}", f"{result.worst:.2f}", f"{result.slowdown:.3f}")
            made.add_row(op, TEXTS[chooser], str(result.cases), *numbers)
    return made


def off_by(what: str, own: Sequence[float]) -> str:
    """The errors of one quantity's predictions, as a sentence."""
    middle, high = (100 * value for value in np.percentile(own, (50, 90)))
    text = f"{what}: predictions off by {middle:.0f}% in the median, "
    return text + f"{high:.0f}% at the 90th percentile of {len(own)} cases"


def errors(found: Sequence[Row]) -> list[str]:
    """The median error of the predictions, as sentences."""
    lines = []
    for op in dict.fromkeys(one.op for one in found):
        for method in METHODS:
            own = [error for one in found if one.op == op and (error := one.error(method)) is not None]
            if own:
                lines.append(off_by(f"{op}, {method}", own))
    every = [error for one in found for method in METHODS if (error := one.error(method)) is not None]
    return [*lines, off_by(ALL, every)] if every else lines


def uncalibrated(found: Sequence[Record]) -> list[str]:
    """A sentence for each peer class that occurred and had no tables."""
    lines = []
    for op in dict.fromkeys(record.op for record in found):
        meta = next(record.meta for record in found if record.op == op)
        peer, known = meta.get("peer"), meta.get("calibrated")
        if known and peer in ("node", "far") and peer not in known and op.startswith("one way"):
            own, other = ("the same LLC", "another LLC") if peer == "node" else ("another LLC", "the same LLC")
            lines.append(
                f"{op}: the ranks were on {own}, but the tables are of ranks on {other}: run `tempi calibrate` again"
            )
    return lines


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    """Prints every case and the scores."""
    made = rows(found)
    if not made:
        console.print("nothing was measured")
        return []
    console.print(table(made))
    console.print(scores(made))
    for line in (*errors(made), *uncalibrated(found)):
        console.print(line, highlight=False)
    return made


def _records(common: suite.Common, options: PackOptions) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)
    return launch.run_worker(launcher, "tempi.bench.workers.model", options.arguments(), 2, {"TEMPI_FORCE": "1"})


def run(common: suite.Common, options: PackOptions) -> list[Record]:
    """Measures, writes and prints."""
    total = len(cases.held_out(options.quick)) * len(worker_model.OPERATIONS) * worker_model.VISITS
    found = suite.gather(_records(common, options), total, "model")
    if common.json:
        records.write(common.json, found)
    show(common.console(), found)
    return found
