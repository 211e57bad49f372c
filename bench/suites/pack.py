"""``tempi bench pack``: the speed of MPI_Pack and MPI_Unpack, with and without tempi."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table

from tempi.bench import bars, cases, plots, stats, suite
from tempi.bench.options import PackOptions
from tempi.bench.stats import Interval
from tempi.measure import launch, records
from tempi.measure.records import Record

#: At most this many times the library's time, plus a constant (seconds).
SLOWER, SLACK = 1.05, 20e-9
#: Fraction of the line-touch bound, for runs of LONG_RUN bytes and more, and for shorter ones.
LONG_RUN, LONG_SHARE, SHORT_SHARE = 64, 0.85, 0.6


@dataclass(frozen=True, slots=True)
class Row:
    """One case and operation, over all repeats. Times are median seconds."""

    case: str
    op: str
    run: int
    seconds: dict[str, float]
    speedup: Interval
    engine: Interval | None
    share: Interval | None
    engaged: bool
    misses: tuple[str, ...]
    standing: bars.Standing


def slower(tempi: Sequence[float], library: Sequence[float]) -> bool:
    """Surely slower than allowed, also at the lower end of the interval."""
    return stats.ratio(tempi, library, offset=SLACK).low > SLOWER


def below_bound(tempi: Sequence[float], bound: Sequence[float], run: int) -> bool:
    """Surely below the wanted fraction of the bound, also at the upper end of the interval."""
    wanted = LONG_SHARE if run >= LONG_RUN else SHORT_SHARE
    return stats.ratio(bound, tempi).high < wanted


def _misses(group: dict[str, list[Record]], run: int) -> tuple[str, ...]:
    found = []
    if suite.agreed(group, "library", slower):
        found.append("slower")
    if "bound" in group and suite.agreed(group, "bound", partial(below_bound, run=run)):
        found.append("bound")
    return tuple(found)


def row(key: suite.Key, group: dict[str, list[Record]]) -> Row | None:
    """The figures of one case and operation; None if one of the two was refused."""
    taken = {subject: suite.samples(found) for subject, found in group.items()}
    if not taken.get("library") or not taken.get("tempi"):
        return None
    own = group["tempi"][0].meta
    engaged = bool(own.get("engaged"))
    return Row(
        case=key[0],
        op=key[1],
        run=int(own.get("run", 0)),
        seconds={subject: stats.median(values).value for subject, values in taken.items() if values},
        speedup=stats.ratio(taken["library"], taken["tempi"]),
        engine=stats.ratio(taken["library"], taken["engine"]) if taken.get("engine") else None,
        share=stats.ratio(taken["bound"], taken["tempi"]) if taken.get("bound") else None,
        engaged=engaged,
        misses=_misses(group, int(own.get("run", 0))),
        standing=bars.Standing.of(", ".join(key), taken, acts=engaged),
    )


def rows(found: Sequence[Record]) -> list[Row]:
    made = (row(key, group) for key, group in suite.by_case(found).items())
    return [one for one in made if one is not None]


def table(found: Sequence[Row]) -> Table:
    made = Table(title="MPI_Pack and MPI_Unpack: speed-up = library / tempi")
    for name in ("case", "op"):
        made.add_column(name)
    for name in ("library us", "tempi us", "hand us", "speed-up [95%]", "engine alone", "of bound"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("acts")
    made.add_column("misses")
    for one in found:
        made.add_row(
            one.case,
            one.op,
            *(suite.format_time(one.seconds[s]) if s in one.seconds else "-" for s in ("library", "tempi", "hand")),
            suite.format_interval(one.speedup),
            f"{one.engine.value:.2f}" if one.engine else "-",
            f"{one.share.value:.2f}" if one.share else "-",
            "yes" if one.engaged else "no",
            ", ".join(one.misses),
        )
    return made


def summary(found: Sequence[Row]) -> list[str]:
    """The geometric means and the missed targets, as sentences."""
    lines = []
    for op in ("pack", "unpack"):
        of_op = [one for one in found if one.op == op]
        acting = [one for one in of_op if one.engaged]
        if not of_op:
            continue
        overall = stats.geometric_mean(one.speedup.value for one in of_op)
        line = f"{op}: geometric mean {overall:.2f}x over all {len(of_op)} cases"
        if acting:
            engaged = stats.geometric_mean(one.speedup.value for one in acting)
            share = 100 * len(acting) / len(of_op)
            line += f", {engaged:.2f}x over the {len(acting)} ({share:.0f}%) where tempi acts"
        lines.append(line)
    for miss, text in (
        ("slower", f"slower than {SLOWER} x library + 20 ns"),
        ("bound", "below its share of the bound"),
    ):
        missing = [f"{one.case}, {one.op}" for one in found if miss in one.misses]
        lines.append(f"{len(missing)} of {len(found)} {text}" + "".join(f"\n  {name}" for name in missing))
    lines += bars.summary([one.standing for one in found])
    return lines + suite.stability_note([one.speedup for one in found])


def _draw(found: Sequence[Row], path: str, title: str) -> None:
    draws = []
    for op in ("pack", "unpack"):
        points: dict[str, list[tuple[int, Interval]]] = {}
        for one in found:
            if one.op == op:
                points.setdefault(suite.series(one.case), []).append((one.run, one.speedup))
        draws.append(partial(plots.draw_speedups, points=points, title=op))
    plots.save(path, title, draws, height=4.5)


def _records(common: suite.Common, options: PackOptions, repeats: int) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)
    for repeat in range(repeats):
        for record in launch.run_worker(launcher, "tempi.bench.workers.pack", options.arguments()):
            yield record.with_meta(repeat=repeat)


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    """Prints the setting, the table, the refusals, and the summary."""
    made = rows(found)
    console.print(suite.setting(found), highlight=False)
    if made:
        console.print(table(made))
    else:
        console.print("tempi did not act: see the records for the library, hand, bound and memcpy")
    for text in suite.refusals(found):
        console.print(f"not timed: {text}", highlight=False)
    for line in summary(made):
        console.print(line, highlight=False)
    return made


def run(common: suite.Common, options: PackOptions, repeats: int) -> list[Record]:
    """Measures, writes and prints."""
    total = 2 * suite.number(cases.chosen(options.quick, options.cases), options.cases)
    found = suite.gather(_records(common, options, repeats), total, "pack")
    if common.json:
        records.write(common.json, found)
    made = show(common.console(), found)
    if common.png:
        _draw(made, common.png, str(found[0].meta.get("mpi", "")))
    return found
