"""Shared by the suites: starting a worker, showing progress, grouping its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tempi import _units
from tempi.bench import bars, stats
from tempi.bench.stats import Interval
from tempi.measure.records import Record
from tempi.measure.worker import WorkerError

# Without a terminal, the table gets the width that it needs.
FILE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Common:
    """Options of every suite."""

    json: str | None = None
    png: str | None = None
    quick: bool = False
    mpirun: str | None = None

    def console(self) -> Console:
        """Console for tables: not stdout if that carries JSON."""
        console = Console(stderr=self.json == "-")
        if not console.is_terminal:
            console.width = max(console.width, FILE_WIDTH)
        return console


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """Shows the current step; on a line of its own without a terminal."""
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        console.print(text)
        yield


def number(found: Sequence[object], pattern: str) -> int:
    """Of the cases of a run; WorkerError if the pattern leaves none."""
    if not found:
        raise WorkerError(f"--cases {pattern}: no case has such a name")
    return len(found)


def gather(records: Iterable[Record], total: int, title: str) -> list[Record]:
    """Collects all records, with a bar on stderr that counts cases and operations, and their rounds if any."""
    taken: list[Record] = []
    seen: set[tuple[str, str, int]] = set()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        for record in records:
            taken.append(record)
            seen.add((record.case, record.op, record.meta.get("visit", 0)))
            progress.update(task, completed=len(seen), description=f"{title}: {record.case}")
    return taken


Key = tuple[str, str]


def by_case(records: Iterable[Record]) -> dict[Key, dict[str, list[Record]]]:
    """Records of each (case, op) by subject; several of one subject are repeated runs, in order."""
    groups: dict[Key, dict[str, list[Record]]] = {}
    for record in records:
        groups.setdefault((record.case, record.op), {}).setdefault(record.subject, []).append(record)
    return groups


def samples(records: Sequence[Record] | None) -> list[float]:
    """The seconds of all repeats, concatenated."""
    return [value for record in records or () for value in record.seconds]


def setting(records: Sequence[Record]) -> str:
    """In a line the MPI and the machine on which the records were taken."""
    meta = records[0].meta if records else {}
    machine = meta.get("machine", {})
    named = (
        str(meta.get("mpi", "unknown MPI")).split(",")[0],
        machine.get("cpu"),
        machine.get("arch"),
        meta.get("cpu_level"),
    )
    return ", ".join(str(one) for one in named if one)


def refusals(records: Iterable[Record]) -> list[str]:
    """The subjects that were not timed, with reasons."""
    reasons = {
        f"{record.case}, {record.op}, {record.subject}: {record.meta['refused']}": None
        for record in records
        if "refused" in record.meta
    }
    return list(reasons)


def missed(group: Mapping[str, Sequence[Record]], slower: float, slack: float) -> bool:
    """Whether tempi, in every repeat, surely takes more than `slower` times the best of library and hands, plus
    `slack` seconds."""
    verdicts = []
    beside = [group[name] for name in ("library", *bars.HANDS) if name in group]
    for own, *others in zip(group["tempi"], *beside, strict=False):
        timed = [other.seconds for other in others if other.seconds]
        if own.seconds and timed:
            better = min(timed, key=lambda seconds: stats.median(seconds).value)
            verdicts.append(stats.ratio(own.seconds, better, offset=slack).low > slower)
    return bool(verdicts) and all(verdicts)


def agreed(
    group: Mapping[str, Sequence[Record]], other: str, test: Callable[[Sequence[float], Sequence[float]], bool]
) -> bool:
    """Whether the test of tempi's and the other's seconds is true in every repeat."""
    pairs = zip(group["tempi"], group[other], strict=True)
    verdicts = [test(a.seconds, b.seconds) for a, b in pairs if a.seconds and b.seconds]
    return bool(verdicts) and all(verdicts)


def series(case: str) -> str:
    """The series in which a case is drawn: those of its size, or those whose size is fixed by their shape."""
    _, comma, size = case.rpartition(", ")
    return size if comma else "faces, transposes"


def stability_note(intervals: Sequence[Interval], limit: float = 0.1) -> list[str]:
    """One sentence if some figures are not reliable, as on a busy machine."""
    shaky = sum(interval.spread > limit for interval in intervals)
    if not shaky:
        return []
    return [f"{shaky} of {len(intervals)} speed-ups are not stable: 95% interval above {100 * limit:.0f}%"]


def format_interval(interval: Interval, digits: int = 2) -> str:
    return f"{interval.value:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


format_time = _units.microseconds
