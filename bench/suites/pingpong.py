"""``tempi bench pingpong``: messages of derived datatypes between two ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table

from tempi.bench import bars, cases, plots, stats, suite
from tempi.bench.options import PackOptions
from tempi.bench.stats import Interval
from tempi.bench.workers import pingpong as worker_pingpong
from tempi.measure import launch, records
from tempi.measure.records import Record

#: At most this many times the faster of library and hand, plus a constant (seconds).
SLOWER, SLACK = 1.1, 50e-9


@dataclass(frozen=True, slots=True)
class Row:
    """One case. Times are median one-way seconds."""

    case: str
    run: int
    seconds: dict[str, float]
    speedup: Interval
    forced: Interval | None
    engaged: bool
    misses: bool
    standing: bars.Standing


def row(case: str, group: dict[str, list[Record]]) -> Row | None:
    """The figures of one case; None if library or tempi was refused."""
    taken = {subject: suite.samples(found) for subject, found in group.items()}
    if not taken.get("library") or not taken.get("tempi"):
        return None
    own = group["tempi"][0].meta
    engaged = bool(own.get("engaged"))
    # The forced subject ran in a separate launch, beside a library subject of that launch.
    beside = suite.samples(group.get("library beside forced"))
    forced = stats.ratio(beside, taken["forced"]) if beside and taken.get("forced") else None
    return Row(
        case=case,
        run=int(own.get("run", 0)),
        seconds={subject: stats.median(values).value for subject, values in taken.items() if values},
        speedup=stats.ratio(taken["library"], taken["tempi"]),
        forced=forced,
        engaged=engaged,
        misses=suite.missed(group, SLOWER, SLACK),
        standing=bars.Standing.of(case, taken, acts=engaged),
    )


def rows(found: Sequence[Record]) -> list[Row]:
    made = (row(key[0], group) for key, group in suite.by_case(found).items())
    return [one for one in made if one is not None]


def table(found: Sequence[Row]) -> Table:
    made = Table(title="One way between two ranks: speed-up = library / tempi")
    made.add_column("case")
    for name in ("library us", "tempi us", "hand us", "speed-up [95%]", "always acting"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("acts")
    made.add_column("misses")
    for one in found:
        made.add_row(
            one.case,
            *(suite.format_time(one.seconds[s]) if s in one.seconds else "-" for s in ("library", "tempi", "hand")),
            suite.format_interval(one.speedup),
            suite.format_interval(one.forced) if one.forced else "-",
            "yes" if one.engaged else "no",
            "slower" if one.misses else "",
        )
    return made


def summary(found: Sequence[Row]) -> list[str]:
    if not found:
        return []
    overall = stats.geometric_mean(one.speedup.value for one in found)
    acting = [one for one in found if one.engaged]
    line = f"geometric mean {overall:.2f}x over all {len(found)} cases"
    if acting:
        engaged = stats.geometric_mean(one.speedup.value for one in acting)
        line += f", {engaged:.2f}x over the {len(acting)} where tempi acts"
    missing = [one.case for one in found if one.misses]
    text = f"{len(missing)} of {len(found)} slower than {SLOWER} x the better of library and hand + 50 ns"
    listed = text + "".join(f"\n  {case}" for case in missing)
    standings = bars.summary([one.standing for one in found])
    return [line, listed, *standings, *suite.stability_note([one.speedup for one in found])]


def _apart(record: Record) -> Record:
    """Renames the library and hand subjects of the forced launch, to separate them from the normal one's."""
    if record.subject == "forced":
        return record
    subject = f"{record.subject} beside forced"
    return Record(record.bench, record.case, record.op, subject, record.bytes, record.seconds, record.meta)


def _records(common: suite.Common, options: PackOptions, repeats: int, forced: bool) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)
    arguments = options.arguments()
    for repeat in range(repeats):
        for record in launch.run_worker(launcher, "tempi.bench.workers.pingpong", arguments, 2):
            yield record.with_meta(repeat=repeat)
        if forced:
            variables = {"TEMPI_FORCE": "1"}
            for record in launch.run_worker(launcher, "tempi.bench.workers.pingpong", arguments, 2, variables):
                yield _apart(record).with_meta(repeat=repeat)


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    """Prints the setting, the table, the refusals, and the summary."""
    made = rows(found)
    console.print(suite.setting(found), highlight=False)
    if made:
        console.print(table(made))
    else:
        console.print("tempi did not act: see the records for library and hand")
    for text in suite.refusals(found):
        console.print(f"not timed: {text}", highlight=False)
    for line in summary(made):
        console.print(line, highlight=False)
    return made


def _draw(found: Sequence[Row], path: str, title: str) -> None:
    points: dict[str, list[tuple[int, Interval]]] = {}
    for one in found:
        points.setdefault(suite.series(one.case), []).append((one.run, one.speedup))
    plots.save(path, title, [partial(plots.draw_speedups, points=points, title="one way")], height=4.5)


def _as_rank(options: PackOptions) -> list[Record] | None:
    """Measures as one of two ranks that a launcher started; None on rank 1."""
    from mpi4py import MPI

    found = list(worker_pingpong.run(options))
    return found if MPI.COMM_WORLD.rank == 0 else None


def run(common: suite.Common, options: PackOptions, repeats: int, forced: bool) -> list[Record]:
    """Measures, writes and prints."""
    found: list[Record] | None
    total = suite.number(cases.messages(options.quick, options.cases), options.cases)
    if launch.under_launcher():
        found = _as_rank(options)
    else:
        found = suite.gather(_records(common, options, repeats, forced), total, "pingpong")
    if found is None:
        return []
    if common.json:
        records.write(common.json, found)
    made = show(common.console(), found)
    if common.png:
        _draw(made, common.png, str(found[0].meta.get("mpi", "")))
    return found
