"""``tempi bench model --memory device``: the quality of the model's choices among the methods for device memory, on
shapes that it was not calibrated with.

As for host memory, the samples of a case are split: one half picks the best method (the perfect chooser), the
other gives the times. "model" is a separate subject: the engine's own choices, the sender's and the receiver's
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tempi.bench import cases, stats, suite
from tempi.bench.options import PackOptions
from tempi.bench.suites.gpu import is_emulated
from tempi.bench.suites.model import off_by
from tempi.bench.workers import model_packing as worker_model_packing
from tempi.measure import cuda_driver, launch, records
from tempi.measure.records import Record
from tempi.model import predict

#: The operation name of messages in the records.
MESSAGE = "one way"
EMULATED = "EMULATED DEVICE (CUDA on the CPU): correctness only; these are not times of a GPU"
#: Fields of a card's records and of its calibration's samples.
FILE, CALIBRATION = "model.json", "calibration.json"
CHOOSERS = ("model", "rule", "perfect", *predict.METHODS)
TEXTS = {
    "model": "calibrated model", "rule": "built-in rule", "perfect": "perfect chooser (the floor)",
    **{name: f"always {name}" for name in predict.METHODS},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One case. `seconds`: medians of the scored half, by method and for the model's own choice."""

    case: str
    seconds: dict[str, float]
    predicted: dict[str, float] | None
    chosen: dict[str, str]
    took: str

    def regret(self, chooser: str) -> float | None:
        """The chosen method's time over the best one's; None if the method is not possible here."""
        taken = self.chosen.get(chooser, chooser)
        return self.seconds[taken] / min(self.seconds.values()) if taken in self.seconds else None

    def error(self, method: str) -> float | None:
        """The prediction's error relative to the measured time."""
        if self.predicted is None or method not in self.predicted or method not in self.seconds:
            return None
        return abs(self.predicted[method] / self.seconds[method] - 1)


def row(case: str, group: dict[str, list[Record]]) -> Row | None:
    """None if a method has too few samples, or there is no choice."""
    taken = {name: suite.samples(found) for name, found in group.items()}
    if "model" not in taken or len(taken) < 3 or min(map(len, taken.values())) < 4:
        return None
    picked = {name: stats.median(values[::2]).value for name, values in taken.items() if name != "model"}
    seconds = {name: stats.median(values[1::2]).value for name, values in taken.items()}
    meta = group["model"][0].meta
    chosen = {"model": "model", "rule": meta["rule"], "perfect": min(picked, key=lambda name: picked[name])}
    op = group["model"][0].op
    named = case if op == MESSAGE else f"{case}, {op}"
    return Row(named, seconds, meta["predicted"], chosen, " + ".join(meta["chosen"]))


def rows(found: Sequence[Record]) -> list[Row]:
    made = (row(key[0], group) for key, group in suite.by_case(found).items())
    return [one for one in made if one is not None]


def _names(found: Sequence[Row]) -> list[str]:
    return [name for name in predict.METHODS if any(name in one.seconds for one in found)]


def table(found: Sequence[Row], note: str = "") -> Table:
    """All cases; `note` is added to the title."""
    what = "Microseconds one way, or of one call, predicted / measured; the model's choice; chosen over best"
    made = Table(title=f"{note}{what}")
    made.add_column("case")
    for name in (*_names(found), "model took", "model", "rule"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in found:
        cells = []
        for name in _names(found):
            predicted_seconds = one.predicted.get(name) if one.predicted else None
            predicted = suite.format_time(predicted_seconds) if predicted_seconds is not None else "-"
            cells.append(f"{predicted} / {suite.format_time(one.seconds[name])}" if name in one.seconds else "-")
        by = (one.regret(chooser) for chooser in ("model", "rule"))
        made.add_row(one.case, *cells, one.took, *("-" if value is None else f"{value:.2f}" for value in by))
    return made


def scores(found: Sequence[Row], note: str = "") -> Table:
    """The table of scores by chooser."""
    made = Table(title=f"{note}Chosen over best: geometric mean, 95th percentile, worst", title_justify="left")
    made.add_column("chooser")
    for name in ("cases", "chosen / best", "95%", "worst"):
        made.add_column(name, justify="right")
    for chooser in CHOOSERS:
        regrets = [value for one in found if (value := one.regret(chooser)) is not None]
        if regrets:
            high = f"{np.percentile(regrets, 95):.2f}"
            mean = f"{stats.geometric_mean(regrets):.3f}"
            made.add_row(TEXTS[chooser], str(len(regrets)), mean, high, f"{max(regrets):.2f}")
    return made


def errors(found: Sequence[Row]) -> list[str]:
    """The error of the predictions, as sentences."""
    lines = []
    for name in _names(found):
        own = [error for one in found if (error := one.error(name)) is not None]
        if own:
            lines.append(off_by(name, own))
    return lines


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    """Prints every case, the scores, and the refusals."""
    for text in suite.refusals(found):
        console.print(f"WRONG: {text}", highlight=False)
    made = rows(found)
    if not made:
        console.print("nothing was measured")
        return []
    note = "EMULATED: " if is_emulated(found) else ""
    if note:
        console.print(EMULATED, style="bold red")
    console.print(table(made, note))
    console.print(scores(made, note))
    for line in errors(made):
        console.print(f"{note}{line}", highlight=False)
    return made


def _records(common: suite.Common, options: PackOptions) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)
    return launch.run_worker(launcher, "tempi.bench.workers.model_device", options.arguments(), 2)


def run(common: suite.Common, options: PackOptions) -> list[Record]:
    """Measures, writes and prints."""
    shapes = cases.held_out_device(options.quick, emulated=cuda_driver.is_small())
    total = len(shapes) + 4 * len(shapes[:: worker_model_packing.EACH])  # more if the library is CUDA-aware
    with records.Journal(common.json) if common.json and common.json != "-" else nullcontext() as journal:
        measured = _records(common, options)
        found = suite.gather(map(journal.add, measured) if journal else measured, total, "model")
    if common.json == "-":
        records.write(common.json, found)
    show(common.console(), found)
    return found


def summary(found: Sequence[Record]) -> dict[str, Any]:
    """The figures of the model and of the rule, for a row of another table."""
    made = rows(found)
    return {
        chooser: stats.geometric_mean([value for one in made if (value := one.regret(chooser)) is not None])
        for chooser in ("model", "rule", "perfect")
        if any(one.regret(chooser) is not None for one in made)
    }
