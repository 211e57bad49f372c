"""``tempi bench halo``: a 3-D halo exchange with subarray datatypes: messages of three kinds, or a collective.

1. The program is compiled with the MPI library's compiler (and cached).
2. Every cell is verified on `check_ranks` ranks, for each subject.
3. It is timed with tempi preloaded: library (tempi switched off), tempi and hand are interleaved in one
   process. Each run verifies every cell again, before and after.
4. It is timed without any preload ("plain"), to show that "library" in step 3 is the unmodified library.
   The machine changes between launches, so both are compared with the hand-packed exchange interleaved
   with them.

With the fields in device memory the library takes part if it says that it is CUDA-aware. On the emulated
device (docs/emulator.md) cells are verified and nothing is timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from tempi.bench import halo_program, plots, stats, suite
from tempi.bench.stats import Interval
from tempi.measure import launch, records
from tempi.measure.launch import LaunchError
from tempi.measure.records import Record, machine

PHASES = ("post", "send", "wait")
ORDER = ("plain", "library", "tempi", "hand")
BESIDE_PLAIN = "hand beside plain"
TURNS = 2
EMULATED = "EMULATED DEVICE (CUDA on the CPU): correctness only, no times"


@dataclass(frozen=True, slots=True)
class Options:
    """The exchange, the number of ranks, and the time budget (seconds)."""

    ranks: int
    check_ranks: int
    seconds: float
    program: tuple[str, ...] = ()
    mpicc: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One subject. Seconds: medians over samples of the slowest rank's time."""

    subject: str
    exchange: Interval
    phases: dict[str, float]
    speedup: Interval | None
    counters: Mapping[str, int]


def _preload() -> dict[str, str]:
    """Puts tempi before other preloads."""
    from tempi import _engine

    others = os.environ.get("LD_PRELOAD")
    return {"LD_PRELOAD": ":".join([_engine.library_path(), *([others] if others else [])])}


def exchange_group(found: Sequence[Record]) -> dict[str, list[Record]]:
    """Records of whole exchanges by subject."""
    groups = suite.by_case(record for record in found if record.op == "exchange")
    return next(iter(groups.values()), {})


def baseline(exchange: Mapping[str, list[Record]]) -> str:
    """The subject that speed-ups refer to: the library, or hand if the library cannot access the memory."""
    return "library" if suite.samples(exchange.get("library")) else "hand"


def _speedup(exchange: Mapping[str, list[Record]], subject: str) -> Interval | None:
    """Speed-up over the baseline; for the plain run by way of the hand-packed exchange in each launch."""
    base = baseline(exchange)
    library, seconds = suite.samples(exchange.get(base)), suite.samples(exchange[subject])
    if subject == base or not library:
        return None
    if subject != "plain":
        return stats.ratio(library, seconds)
    hand, beside = suite.samples(exchange.get("hand")), suite.samples(exchange.get(BESIDE_PLAIN))
    if not hand or not beside:
        return None
    over, under = stats.ratio(library, hand), stats.ratio(seconds, beside)
    return Interval(over.low / under.high, over.value / under.value, over.high / under.low)


def rows(found: Sequence[Record]) -> list[Row]:
    groups = suite.by_case(found)
    exchange = exchange_group(found)
    made = []
    for subject in ORDER:
        seconds = suite.samples(exchange.get(subject))
        if not seconds:
            continue
        phases = {
            op: stats.median(suite.samples(group[subject])).value
            for (_, op), group in groups.items()
            if op in PHASES and subject in group
        }
        speedup = _speedup(exchange, subject)
        counters = exchange[subject][0].meta.get("counters", {})
        made.append(Row(subject, stats.median(seconds), phases, speedup, counters))
    return made


def accelerated(counters: Mapping[str, int]) -> str:
    """tempi's actions in one exchange, summed over all ranks."""
    if not counters:
        return "nothing"
    sends, receives = counters.get("sends", 0), counters.get("recvs", 0)
    collectives = counters.get("collectives", 0) + counters.get("collectives_split", 0)
    text = f"{collectives} collective calls" if collectives else f"{sends} sends, {receives} receives"
    if counters.get("runs"):
        text += f" ({counters['runs']:,} separate copies)"
    left = sum(value for name, value in counters.items() if name.startswith("fallback_"))
    if counters.get("launches"):
        text += f", {counters['launches']} kernel launches"
    return text + (f"; {left} left to the library" if left else "")


def checked_table(found: Sequence[Record], title: str) -> Table:
    """Results that were right on an emulated device, without times and speed-ups."""
    made = Table(title=f"{title}\n{EMULATED}", title_justify="left")
    for name in ("subject", "cells", "wrong", "accelerated"):
        made.add_column(name)
    for record in found:
        counters = record.meta.get("counters", {})
        details = accelerated(counters) if record.subject == "tempi" else ""
        made.add_row(record.subject, f"{record.meta['cells']:,}", f"{record.meta['wrong']:,}", details)
    return made


def table(found: Sequence[Row], title: str, over: str = "library") -> Table:
    made = Table(title=title, title_justify="left")
    made.add_column("subject")
    for name in (*(f"{phase} us" for phase in PHASES), "exchange us [95%]", f"over {over} [95%]"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("accelerated")
    for one in found:
        micro = Interval(1e6 * one.exchange.low, 1e6 * one.exchange.value, 1e6 * one.exchange.high)
        made.add_row(
            one.subject,
            *(suite.format_time(one.phases[phase]) if phase in one.phases else "-" for phase in PHASES),
            suite.format_interval(micro, 0 if micro.value >= 100 else 1),
            suite.format_interval(one.speedup) if one.speedup else "1" * (one.subject == over),
            accelerated(one.counters) if one.subject == "tempi" else "",
        )
    return made


def _stamp(record: Record) -> Record:
    mpi = " ".join(str(record.meta["mpi"]).split())
    return record.with_meta(machine=machine(), mpi=mpi)


def _run(
    launcher: launch.Launcher,
    program: str,
    ranks: int,
    arguments: Sequence[str],
    variables: Mapping[str, str],
) -> Iterator[Record]:
    line = launch.command(launcher, ranks, [program, "--json", "-", *arguments], variables)
    return map(_stamp, launch.stream(launcher, line))


def _check(console: Console, found: Sequence[Record], ranks: int) -> None:
    """Reports how many cells were right; raises if some were wrong or tempi was not active."""
    checks = [record for record in found if record.op == "check"]
    wrong = {record.subject: record.meta["wrong"] for record in checks if record.meta["wrong"]}
    if wrong or not checks:
        details = ", ".join(f"{count} of {subject}" for subject, count in wrong.items())
        raise LaunchError(f"the halo is wrong on {ranks} ranks: {details or 'no answer'}")
    subjects = ", ".join(record.subject for record in checks)
    console.print(f"{checks[0].meta['cells']:,} cells right on {ranks} ranks: {subjects}", highlight=False)


def emulated(found: Sequence[Record]) -> bool:
    """Whether the device was a test device, which has no times."""
    return any(record.meta.get("emulated") for record in found)


def _time(
    console: Console,
    run_program: Callable[[Sequence[str], Mapping[str, str]], Iterator[Record]],
    options: Options,
    turn: int,
) -> Iterator[Record]:
    """One launch with tempi preloaded and one without."""
    of = f"({turn + 1} of {TURNS})"
    budget = options.seconds / TURNS
    timing = [*options.program, "--seconds", str(0.7 * budget)]
    with suite.step(console, f"timing on {options.ranks} ranks: library, tempi, hand {of}"):
        timed = list(run_program(timing, _preload()))
    _check(console, timed, options.ranks)
    if not any(record.subject == "library" for record in timed):  # the next launch would not have it either
        yield from (record.with_meta(repeat=turn) for record in timed)
        return
    plain = [*options.program, "--seconds", str(0.3 * budget), "--label", "plain"]
    with suite.step(console, f"timing the same program without tempi in the process {of}"):
        untouched = list(run_program(plain, {}))
    yield from (record.with_meta(repeat=turn) for record in timed)
    for record in untouched:
        subject = BESIDE_PLAIN if record.subject == "hand" else record.subject
        yield replace(record, subject=subject).with_meta(repeat=turn)


def demo_name(memory: str | None) -> str:
    """Name of a demonstration's files; marks emulated ones."""
    if memory != "device":
        return "halo"
    return "halo-emulated" if os.environ.get("TEMPI_CUDA_DRIVER") == "emulated" else "halo-device"


def _on_emulator(options: Options) -> bool:
    """Whether the ranks will use the emulated device."""
    return "device" in options.program and os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"


def _rehearse(
    console: Console, run_program: Callable[[Sequence[str], Mapping[str, str]], Iterator[Record]], options: Options
) -> list[Record]:
    """Runs exchanges without timing, verified before and after."""
    with suite.step(console, f"exchanging on {options.ranks} ranks"):
        found = list(run_program(options.program, _preload()))
    _check(console, found, options.ranks)
    return found


def measure(console: Console, common: suite.Common, options: Options) -> list[Record]:
    """Steps 1 to 4."""
    launcher = launch.find_launcher(common.mpirun)
    with suite.step(console, "compiling the halo program"):
        program = str(halo_program.build(options.mpicc))
    found: list[Record] = []
    if options.check_ranks:
        with suite.step(console, f"checking every cell on {options.check_ranks} ranks"):
            checked = list(
                _run(
                    launcher,
                    program,
                    options.check_ranks,
                    [*options.program, "--check"],
                    _preload(),
                )
            )
        _check(console, checked, options.check_ranks)
        found += checked
    if _on_emulator(options):
        return found + _rehearse(console, partial(_run, launcher, program, options.ranks), options)
    for turn in range(TURNS):
        found += _time(console, partial(_run, launcher, program, options.ranks), options, turn)
    return found


def _title(found: Sequence[Record]) -> str:
    record = next(record for record in found if record.op == "exchange")
    device = f", {record.meta['device']}" if "device" in record.meta else ""
    return f"{record.case}; {record.meta['ranks']} ranks{device}\n{record.meta['mpi'].split(',')[0]}"


def _draw(found: Sequence[Row], path: str, title: str) -> None:
    """Draws the interleaved subjects; "plain" ran at another time."""
    plots.save(path, title, [drawing([one for one in found if one.subject != "plain"])], height=3.2)


def drawing(found: Sequence[Row]) -> plots.Draw:
    """Draws the rows as bars."""
    return partial(
        plots.draw_halo,
        exchange={one.subject: one.exchange for one in found},
        phases={one.subject: one.phases for one in found},
        speedups={one.subject: one.speedup for one in found if one.speedup is not None},
    )


def _show_checked(console: Console, found: Sequence[Record]) -> list[Row]:
    last = {record.subject: record for record in found if record.op == "check"}
    record = next(iter(last.values()))
    title = f"{record.case}; {record.meta['ranks']} ranks, {record.meta['device']}\n{record.meta['mpi'].split(',')[0]}"
    console.print(checked_table(list(last.values()), title))
    return []


def show(console: Console, found: Sequence[Record]) -> list[Row]:
    """Prints the table, and what makes its figures doubtful."""
    if emulated(found):
        return _show_checked(console, found)
    timed = [record for record in found if record.op != "check"]
    made = rows(timed)
    for subject, group in exchange_group(timed).items():
        warning = stats.stability_warning(suite.samples(group))
        if warning and subject in ORDER:
            console.print(f"not stable: {subject}: {warning}", highlight=False)
    if not any(one.subject == "tempi" for one in made):
        console.print("tempi did not act (TEMPI_DISABLE, or no engine for this MPI: `tempi doctor`)")
    console.print(table(made, _title(timed), baseline(exchange_group(timed))))
    return made


def run(common: suite.Common, options: Options) -> list[Record]:
    """Measures, writes and prints."""
    console = common.console()
    found = measure(console, common, options)
    if common.json:
        records.write(common.json, found)
    made = show(console, found)
    if common.png and made:
        _draw(made, common.png, _title(found))
    written = [path for path in (common.json, common.png if made else None) if path and path != "-"]
    if written:
        console.print("written: " + ", ".join(written), highlight=False)
    return found


def program_arguments(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The program's own options from the command line's: flags, and names with values."""
    arguments: list[str] = []
    for name, value in values.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value not in (None, False):
            arguments += [f"--{name}", str(value)]
    return tuple(arguments)
