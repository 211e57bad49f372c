"""``tempi bench collectives --ways``: how good the choice of a way is that a process makes by its own timings.

Each exchange is timed as tempi carries it, and with every flow forced to go one way (`tempi_copy_way_force`). As in
``tempi bench model``, one half of the samples picks the best way and the other one gives the times: the loss of that
pick is the floor, which no chooser can beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from tempi.bench import stats, suite
from tempi.measure.records import Record
from tempi.model.samples import typical

CHOSEN = "tempi"
FEWEST = 4  # samples of a way


@dataclass(frozen=True, slots=True)
class Row:
    """One exchange: typical seconds of the scored half as chosen (`tempi`) and by each way, and the way that the other
    half picks."""

    case: str
    seconds: dict[str, float]
    picked: str

    @property
    def best(self) -> float:
        return min(value for way, value in self.seconds.items() if way != CHOSEN)

    @property
    def regret(self) -> float:
        """The chosen way's time over the best one's; less than 1 where several ways of one exchange beat any single."""
        return self.seconds[CHOSEN] / self.best

    @property
    def floor(self) -> float:
        return self.seconds[self.picked] / self.best


def row(case: str, group: dict[str, list[Record]]) -> Row | None:
    """None if it was not timed in at least two ways."""
    taken = {way: values for way, found in group.items() if len(values := suite.samples(found)) >= FEWEST}
    ways = [way for way in taken if way != CHOSEN]
    if CHOSEN not in taken or len(ways) < 2:
        return None
    picked = min(ways, key=lambda way: typical(taken[way][::2]))
    return Row(case, {way: typical(values[1::2]) for way, values in taken.items()}, picked)


def rows(found: Sequence[Record]) -> list[Row]:
    made = (row(case, group) for (case, _), group in suite.by_case(found).items())
    return [one for one in made if one is not None]


def table(found: Sequence[Row]) -> Table:
    ways = list(dict.fromkeys(way for one in found for way in one.seconds))
    made = Table(title="One call, the slowest rank: as chosen, and by each way")
    made.add_column("case")
    for name in (*(f"{way} us" for way in ways), "chosen / best"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in found:
        times = (suite.format_time(one.seconds[way]) if way in one.seconds else "-" for way in ways)
        made.add_row(one.case, *times, f"{one.regret:.2f}")
    return made


def summary(found: Sequence[Row]) -> list[str]:
    worst = max(found, key=lambda one: one.regret)
    lines = []
    for name, values in (("chosen", [one.regret for one in found]), ("floor", [one.floor for one in found])):
        mean, high = stats.geometric_mean(values), float(np.percentile(values, 95))
        lines.append(f"{name} over best way, {len(values)} cases: {mean:.3f}, 95% {high:.2f}, worst {max(values):.2f}")
    return [*lines, f"worst choice: {worst.case}"]


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    """Prints every case and the score of the choices."""
    made = rows(found)
    for text in suite.refusals(found):
        console.print(f"not timed: {text}", highlight=False)
    if not made:
        console.print("nothing was timed in several ways")
        return []
    console.print(table(made))
    for line in summary(made):
        console.print(line, highlight=False)
    return made
