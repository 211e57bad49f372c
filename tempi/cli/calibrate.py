"""``tempi calibrate``: measure this machine, so that tempi chooses by measurement."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tempi import _units
from tempi.cli._output import json_option, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from tempi.model.grid import Column
    from tempi.model.store import Calibration
    from tempi.model.sure import Doubt

__all__ = ["calibrate"]

_SHOWN = 5  # kinds of doubtful operations to list
EMULATED = "EMULATED DEVICE (CUDA on the CPU): its times are not those of a GPU, and only the emulator uses it"


def _summary(path: Path, found: Calibration) -> dict[str, object]:
    own = found.machine
    return {
        "file": str(path),
        "cpu": own.cpu,
        "cores": own.cores,
        "mpi": own.mpi,
        "tempi": own.tempi,
        "gpu": str(own.gpu) if own.gpu else None,
        "emulated": found.emulated,
        "when": found.about.get("when"),
        "complete": found.about.get("complete"),
        "peers": found.peers,
        "points": len(found.points),
        "samples": sum(len(point.seconds) for point in found.points),
        "spread": found.spread,
        "unstable": len(found.unstable),
    }


def _record(path: Path, found: Calibration) -> dict[str, object]:
    """The summary, including the results of `_sureness`."""
    from tempi.model import sure

    verdict = sure.verdict(found)
    return _summary(path, found) | {"choices": asdict(verdict) if verdict else None}


def _head(console: Console, path: Path, found: Calibration) -> None:
    summary = _summary(path, found)
    console.print(f"[bold]{path}[/]", highlight=False, soft_wrap=True)
    if summary["emulated"]:
        console.print(f"  [bold red]{EMULATED}[/]", highlight=False, soft_wrap=True)
    console.print(f"  {summary['mpi']}", highlight=False, soft_wrap=True)
    if summary["gpu"]:
        console.print(f"  device memory of {summary['gpu']}", highlight=False, soft_wrap=True)
    console.print(
        f"  {summary['cpu']}, {summary['cores']} cores, tempi {summary['tempi']}, {summary['when']}", highlight=False
    )
    text = f"  peers: {', '.join(found.peers)}; {summary['points']:,} points of {summary['samples']:,} samples, "
    text += f"known to {found.spread:.0%} in the median" + ("" if summary["complete"] else "; interrupted")
    console.print(text, highlight=False, soft_wrap=True)


def _by_family(
    console: Console, columns: list[Column], sizes: list[int], cell: Callable[[Column, int], str], what: str
) -> None:
    """A table for each family: columns of the grid as rows, packed sizes as columns."""
    from rich.table import Table

    from tempi.model import grid

    for family in grid.ALL_FAMILIES:
        own = [column for column in columns if column.family == family]
        shown = [size for size in sizes if any(cell(column, size) for column in own)]
        if not shown:
            continue
        table = Table(title=f"{family}, {what}", title_justify="left")
        table.add_column("shape")
        for size in shown:
            table.add_column(f"{size:,} B", justify="right", no_wrap=True)
        for column in own:
            table.add_row(column.name.removeprefix(f"{family} "), *(cell(column, size) for size in shown))
        console.print(table)


def _table(console: Console, found: Calibration, peer: str) -> None:
    """Messages: microseconds of the library and of tempi; the better one is marked."""
    from tempi.model import grid, store

    known = store.typical(found.points)
    points = [p for p in found.points if p.quantity == "library_message" and p.peer == peer]
    columns, sizes = sorted({p.column for p in points}), sorted({grid.nominal(p.column, p.size) for p in points})

    def cell(column: Column, size: int) -> str:
        library = known.get(("library_message", column, size, peer))
        parts = [known.get(("stage_pack", column, size, None)), known.get(("stage_unpack", column, size, None))]
        wire = _near({n: v for (q, c, n, p), v in known.items() if (q, c, p) == ("contiguous", column, peer)}, size)
        if library is None or None in parts or wire is None:
            return ""
        host = sum(part for part in parts if part is not None) + wire
        return f"{_units.microseconds(library)} {'>' if host < library else '<'} {_units.microseconds(host)}"

    _by_family(console, columns, sizes, cell, f"peer {peer}: us of the library <|> tempi")


def _kernels(console: Console, found: Calibration, memory: str) -> None:
    """Microseconds of the kernels, to device memory and to mapped host memory."""
    known = {p.key[:4]: p.typical for p in found.points if p.memory == memory}
    shaped = [p for p in found.points if p.memory == memory and p.quantity == "device_pack"]
    columns, sizes = sorted({p.column for p in shaped}), sorted({p.size for p in shaped})

    def cell(column: Column, size: int) -> str:
        both = [known.get((name, column, size, None)) for name in ("device_pack", "mapped_pack")]
        return " | ".join(_units.microseconds(one) for one in both if one is not None)

    mark = " [EMULATED]" if found.emulated else ""
    what = f"{memory} memory{mark}: us to pack into device memory | into mapped host memory"
    _by_family(console, columns, sizes, cell, what)


def _copies(console: Console, found: Calibration) -> None:
    """Microseconds of operations without a shape: copies over the bus, and messages of packed bytes."""
    from rich.table import Table

    from tempi.model import grid

    flat = [p for p in found.points if p.quantity in ("copy_out", "copy_in", "pinned_message", "device_message")]
    sizes = sorted({p.size for p in flat})
    table = Table(title=f"packed bytes{' [EMULATED]' if found.emulated else ''}: us", title_justify="left")
    table.add_column("what")
    for size in sizes:
        table.add_column(f"{size:,} B", justify="right", no_wrap=True)
    for name in dict.fromkeys((p.quantity, p.peer) for p in flat):
        own = {p.size: p.typical for p in flat if (p.quantity, p.peer) == name}
        label = name[0].replace("_", " ") + (f", {name[1]}" if name[1] else "")
        table.add_row(label, *(_units.microseconds(own[size]) if size in own else "" for size in sizes))
    launches = [p.typical for p in found.points if p.quantity == "launch"]
    if launches:
        console.print(f"  an empty launch and its wait: {_units.microseconds(launches[0])} us", highlight=False)
    if flat:
        console.print(table)
    for memory in grid.MEMORIES[1:]:
        _kernels(console, found, memory)


def _near(known: dict[int, float], size: int) -> float | None:
    """The time of a message of that size, interpolated between known sizes."""
    from math import exp, log

    from tempi.model import tables

    return exp(tables.fill({log(s): log(v) for s, v in known.items()}, [log(size)])[0]) if known else None


def _sureness(console: Console, found: Calibration) -> None:
    """The certainty of the choices, the doubtful kinds, and the advice."""
    from tempi.model import sure

    verdict = sure.verdict(found)
    if verdict is None:
        return
    text = f"  choices: {verdict.sure:,} of {verdict.choices:,} are sure ({verdict.sure / verdict.choices:.0%})"
    if verdict.sure < verdict.choices:
        middle, most = verdict.if_wrong
        text += f"; one of the others, if wrong, costs {middle:.1%} in the median, 1 of 20 more than {most:.0%}"
    text += f"; expected loss over all: {verdict.loss:.2%}"
    console.print(text, highlight=False, soft_wrap=True)
    for doubt in verdict.doubts[:_SHOWN]:
        console.print(f"  in doubt: {_doubt(doubt)}", highlight=False, soft_wrap=True)
    more = len(verdict.doubts) - _SHOWN
    if more > 0:
        console.print(f"  and {more} more kinds", highlight=False)
    if verdict.good:
        console.print("  nothing to do: a better calibration would gain less than 1%", highlight=False)
    else:
        advice = "  to do: calibrate again when the machine is quiet, or for longer (--seconds 300)"
        console.print(advice, style="yellow", highlight=False, soft_wrap=True)


def _doubt(doubt: Doubt) -> str:
    peer = f" (peer {doubt.peer})" if doubt.peer else ""
    sizes = _units.size(doubt.smallest)
    if doubt.largest > doubt.smallest:
        sizes += f" to {_units.size(doubt.largest)}"
    cost = f"{doubt.doubtful} of {doubt.choices}, {doubt.loss:.0%} if wrong"
    return f"{doubt.operation}{peer}, {doubt.kind}, {sizes}: {cost}"


def _mine() -> Iterator[tuple[Path, Calibration]]:
    """The calibrations in the cache folder, host memory first; prints a line about each unusable one."""
    from tempi.model import store

    for path, found in (*store.local(), *store.local(devices=True)):
        if isinstance(found, store.StoreError):
            click.echo(f"not used: {found}", err=True)
        elif why := found.mismatch():
            click.echo(f"not used: {path}: {why}", err=True)
        else:
            yield path, found


def _show(json_file: str | None) -> None:
    from rich.console import Console

    found = list(_mine())
    if json_file is not None:
        write_json(json_file, (_record(path, one) for path, one in found))
    if json_file == "-":
        return
    if not found:
        click.echo("no calibration for this machine: run `tempi calibrate`")
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 200)
    for path, one in found:
        _head(console, path, one)
        if one.machine.gpu is not None:
            _copies(console, one)
        for peer in one.peers if one.machine.gpu is None else ():
            _table(console, one, peer)
        _sureness(console, one)


def _export(target: Path, mpi: str | None) -> None:
    found = [one for _, one in _mine() if mpi is None or mpi.lower() in one.machine.mpi.lower()]
    if not found:
        raise click.ClickException("no such calibration for this machine: run `tempi calibrate`")
    libraries = dict.fromkeys(one.machine.mpi for one in found)
    if len(libraries) > 1:
        names = "; ".join(libraries)
        raise click.ClickException(f"several MPI libraries are calibrated: choose one by --mpi WORD ({names})")
    _ship(target, found)


def _ship(target: Path, found: list[Calibration]) -> None:
    from tempi.model import store

    try:
        store.write(target, *found)
    except OSError as error:
        raise click.ClickException(f"{target}: {error.strerror}") from error
    cards = "".join(f", {one.machine.gpu}" for one in found if one.machine.gpu)
    click.echo(f"{target} written: {found[0].machine.mpi}{cards}")


def _import(source: Path) -> None:
    from tempi.model import store

    shipped = store.read_all(source)
    for found in shipped:
        if why := found.mismatch():
            raise click.ClickException(f"{source}: {why}")
    for found in shipped:
        try:
            path = store.save(found)
        except OSError as error:
            raise click.ClickException(f"{error.filename}: {error.strerror}") from error
        card = f", {found.machine.gpu}" if found.machine.gpu else ""
        click.echo(f"{path} written: {found.machine.mpi}{card}")


def _check_writable(folder: Path, hint: str = "") -> None:
    """Fails before minutes of measuring instead of after."""
    import tempfile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror}: nothing was measured{hint}") from error


def _before(target: Path | None) -> None:
    """Checks everything that can fail before measuring."""
    from tempi.cli._optional import need
    from tempi.measure import launch
    from tempi.model import store

    need("mpi4py", "tempi calibrate")
    if launch.rank_of_launcher() == 0:  # only rank 0 writes
        _check_writable(store.machine("").table.parent, "; TEMPI_CACHE_DIR moves the calibration")
        if target is not None:
            _check_writable(target.absolute().parent)


def _measure(
    quick: bool, seconds: float | None, most: int | None, mpirun: str | None, target: Path | None,
    json_file: str | None,
) -> None:  # fmt: skip
    """`target`: a file that is also written, for export."""
    from rich.console import Console

    _before(target)
    from tempi.calibration import calibrate as measuring
    from tempi.calibration.points import CalibrateOptions
    from tempi.measure.launch import LaunchError
    from tempi.measure.worker import WorkerError
    from tempi.model import grid

    os.environ["TEMPI_FORCE"] = "1"  # read at the first MPI call
    console = Console(stderr=True)
    options = CalibrateOptions(quick, seconds or (measuring.QUICK if quick else measuring.FULL), most or grid.MOST)
    try:
        made = measuring.run(options, mpirun, console)
    except (LaunchError, WorkerError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if made is None:
        return
    parts, whole = made
    if json_file is not None:
        write_json(json_file, [_record(path, found) for path, found in parts])
    for path, found in parts:
        _head(console, path, found)
        _sureness(console, found)
    if not whole:
        unwritten = f"; {target} is not written" if target is not None else ""
        raise click.ClickException(f"interrupted: finished measurements are saved{unwritten}")
    if target is not None:
        _ship(target, [found for _, found in parts])


@click.command()
@click.option("--quick", is_flag=True, help="A coarser grid, below 40 seconds.")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), help="Total time of the measurement [default: 150; 30]."
)
@click.option("--most", type=click.IntRange(4096, 16 << 20), metavar="BYTES", help="Largest message [default: 16 MiB].")
@click.option("--mpirun", metavar="PATH", help="The MPI launcher [default: that of this Python, then PATH].")
@click.option("--show", is_flag=True, help="Show the calibrations of this machine, and stop.")
@click.option("--export", "target", metavar="FILE", type=click.Path(path_type=Path),
              help="Write it to this file; with --quick, --seconds, --most or --mpirun: measure first.")  # fmt: skip
@click.option(
    "--import", "source", metavar="FILE", type=click.Path(path_type=Path), help="Use the calibration in this file."
)
@click.option("--mpi", metavar="WORD", help="With --export: select the MPI library by a word of its name.")
@json_option
def calibrate(
    quick: bool, seconds: float | None, most: int | None, mpirun: str | None, show: bool, target: Path | None,
    source: Path | None, mpi: str | None, json_file: str | None,
) -> None:  # fmt: skip
    """Measure this machine and its MPI, so that tempi chooses by measurement.

    Where there is a GPU it measures kernels, copies and messages of device memory as well.

    Starts two ranks itself, or takes part as the ranks of mpirun -n 2: to measure messages between nodes,
    start it on two of them. On a cluster, measure one node of each type and distribute the file (--export,
    --import). Without a calibration, built-in rules choose.
    """
    if show + (target is not None) + (source is not None) > 1:
        raise click.UsageError("--show, --export and --import: one at a time")
    measures = quick or any(value is not None for value in (seconds, most, mpirun))
    if measures and (show or source is not None):
        raise click.UsageError("--show and --import measure nothing: drop --quick, --seconds, --most, --mpirun")
    if mpi is not None and (target is None or measures):
        raise click.UsageError("--mpi selects one of several calibrations for --export")
    if show:
        _show(json_file)
    elif target is not None and not measures:
        _export(target, mpi)
    elif source is not None:
        _import(source)
    else:
        _measure(quick, seconds, most, mpirun, target, json_file)
