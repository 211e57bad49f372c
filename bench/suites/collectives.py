"""``tempi bench collectives``: collectives of derived datatypes.

With more ranks than cores the subjects are only checked: ranks that share a core wait for each other's time slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from tempi.bench import bars, chosen_exchanges, stats, suite
from tempi.bench.options import CollectiveOptions
from tempi.bench.stats import Interval
from tempi.bench.suites import ways
from tempi.measure import launch, records
from tempi.measure.launch import LaunchError
from tempi.measure.records import Record

#: At most this many times the best of library and hands, plus a constant (seconds).
SLOWER, SLACK = 1.1, 200e-9
#: Fraction of the line-touch bound, for blocks of a process to itself.
SHARE = 0.85
SUBJECTS = ("library", "tempi", *bars.HANDS, "isend")


@dataclass(frozen=True, slots=True)
class Row:
    """One exchange. Times are median seconds of a call on the slowest rank."""

    case: str
    op: str
    seconds: dict[str, float]
    speedup: Interval
    share: Interval | None
    engaged: bool
    misses: tuple[str, ...]
    standing: bars.Standing


def below_bound(tempi: Sequence[float], bound: Sequence[float]) -> bool:
    """Surely below the wanted fraction of the bound, also at the upper end of the interval."""
    return stats.ratio(bound, tempi).high < SHARE


def _misses(group: dict[str, list[Record]]) -> tuple[str, ...]:
    slower = suite.missed(group, SLOWER, SLACK)
    bound = "bound" in group and suite.agreed(group, "bound", below_bound)
    return tuple(name for name, missed in (("slower", slower), ("bound", bound)) if missed)


def row(case: str, op: str, group: dict[str, list[Record]]) -> Row | None:
    """The figures of one exchange; None if library or tempi was refused or not timed."""
    taken = {subject: suite.samples(found) for subject, found in group.items()}
    if not taken.get("library") or not taken.get("tempi"):
        return None
    engaged = bool(group["tempi"][0].meta.get("engaged"))
    return Row(
        case=case,
        op=op,
        seconds={subject: stats.median(values).value for subject, values in taken.items() if values},
        speedup=stats.ratio(taken["library"], taken["tempi"]),
        share=stats.ratio(taken["bound"], taken["tempi"]) if taken.get("bound") else None,
        engaged=engaged,
        misses=_misses(group),
        standing=bars.Standing.of(case, taken, acts=engaged),
    )


def rows(found: Sequence[Record]) -> list[Row]:
    made = (row(*key, group) for key, group in suite.by_case(found).items())
    return [one for one in made if one is not None]


def table(found: Sequence[Row], ranks: int | None = None) -> Table:
    of = f" on {ranks} ranks" if ranks else ""
    made = Table(title=f"One call{of}, the slowest rank: speed-up = library / tempi")
    made.add_column("case")
    for name in (*(f"{subject} us" for subject in SUBJECTS), "speed-up [95%]", "of bound"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("acts")
    made.add_column("misses")
    for one in found:
        made.add_row(
            one.case,
            *(suite.format_time(one.seconds[s]) if s in one.seconds else "-" for s in SUBJECTS),
            suite.format_interval(one.speedup),
            f"{one.share.value:.2f}" if one.share else "-",
            "yes" if one.engaged else "no",
            ", ".join(one.misses),
        )
    return made


def _mean(found: Sequence[Row], over: str) -> str | None:
    ratios = [one.seconds[over] / one.seconds["tempi"] for one in found if over in one.seconds]
    return f"{stats.geometric_mean(ratios):.2f}x over {over}" if ratios else None


def _missing(found: Sequence[Row], miss: str, text: str) -> str:
    missing = [one.case for one in found if miss in one.misses]
    return f"{len(missing)} of {len(found)} {text}" + "".join(f"\n  {case}" for case in missing)


def summary(found: Sequence[Row]) -> list[str]:
    if not found:
        return []
    lines = []
    for op in dict.fromkeys(one.op for one in found):
        own = [one for one in found if one.op == op]
        overall = stats.geometric_mean(one.speedup.value for one in own)
        means = (f"{overall:.2f}x over the library", *(_mean(own, subject) for subject in (*bars.HANDS, "isend")))
        lines.append(f"MPI_{op}, geometric mean of {len(own)} cases: " + ", ".join(text for text in means if text))
    overall = stats.geometric_mean(one.speedup.value for one in found)
    lines.append(f"geometric mean {overall:.2f}x over all {len(found)} cases")
    slower = f"slower than {SLOWER} x the better of library and hand + {SLACK * 1e9:.0f} ns"
    lines.append(_missing(found, "slower", slower))
    if own := [one for one in found if one.share]:
        lines.append(_missing(own, "bound", f"to itself below {SHARE} of the bound"))
    standings = bars.summary([one.standing for one in found])
    return [*lines, *standings, *suite.stability_note([one.speedup for one in found])]


def checked(found: Sequence[Record]) -> list[str]:
    """The result of a run that was not timed."""
    right = [record for record in found if record.meta.get("checked")]
    if not right:
        return []
    cases = len(suite.by_case(right))
    subjects = ", ".join(subject for subject in SUBJECTS if any(record.subject == subject for record in right))
    acted = len({(record.case, record.op) for record in right if record.meta.get("engaged")})
    lines = [f"{cases} cases right on {right[0].meta['ranks']} ranks: {subjects}; tempi acted on {acted}"]
    return [*lines, f"not timed: {right[0].meta['untimed']}"] if "untimed" in right[0].meta else lines


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    """Prints the setting, the table, the refusals, and the summary."""
    made = rows(found)
    console.print(suite.setting(found), highlight=False)
    for line in checked(found):
        console.print(line, highlight=False)
    if made:
        console.print(table(made, found[0].meta.get("ranks")))
    elif any(record.seconds for record in found):
        console.print("tempi did not act: see the records for the library")
    for text in suite.refusals(found):
        console.print(f"not timed: {text}", highlight=False)
    for line in summary(made):
        console.print(line, highlight=False)
    return made


def _records(common: suite.Common, options: CollectiveOptions, ranks: int, repeats: int) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)
    more = {"untimed": f"{ranks} ranks share {launch.cores()} cores"} if options.check else {}
    for repeat in range(1 if options.check else repeats):
        for record in launch.run_worker(launcher, "tempi.bench.workers.collectives", options.arguments(), ranks):
            yield record.with_meta(repeat=repeat, **more)


def _verify(found: Sequence[Record], ranks: int) -> None:
    """Raises if a checked answer was wrong, or if nothing was measured."""
    wrong = [text for text in suite.refusals(found) if "wrong bytes" in text]
    if wrong or not found:
        raise LaunchError(f"wrong on {ranks} ranks: {'; '.join(wrong) or 'no answer'}")


def run(common: suite.Common, options: CollectiveOptions, ranks: int, repeats: int) -> list[Record]:
    """Measures, writes and prints."""
    options = replace(options, check=options.check or ranks > launch.cores())
    total = suite.number(chosen_exchanges.chosen(options.quick, ranks, options.cases), options.cases)
    found = suite.gather(_records(common, options, ranks, repeats), total, "collectives")
    if common.json:
        records.write(common.json, found)
    (ways.show if options.ways and not options.check else show)(common.console(), found)
    if options.check:
        _verify(found, ranks)
    return found
