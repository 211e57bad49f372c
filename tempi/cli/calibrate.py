"""``tempi calibrate``: measure this machine, so that tempi chooses by measurement."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tempi.cli._output import json_option, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from tempi.model.grid import Column
    from tempi.model.store import Calibration

__all__ = ["calibrate"]

_SHOWN = 12  # unstable points that are listed
EMULATED = "EMULATED DEVICE (CUDA on the CPU): no time in it is a GPU's, and only the emulator takes it"
_BUSY = 0.25  # more unstable points than that share are the machine's doing


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


def _head(console: Console, path: Path, found: Calibration) -> None:
    told = _summary(path, found)
    console.print(f"[bold]{path}[/]", highlight=False, soft_wrap=True)
    if told["emulated"]:
        console.print(f"  [bold red]{EMULATED}[/]", highlight=False, soft_wrap=True)
    console.print(f"  {told['mpi']}", highlight=False, soft_wrap=True)
    if told["gpu"]:
        console.print(f"  device memory of {told['gpu']}", highlight=False, soft_wrap=True)
    console.print(f"  {told['cpu']}, {told['cores']} cores, tempi {told['tempi']}, {told['when']}", highlight=False)
    text = f"  peers: {', '.join(found.peers)}; {told['points']} points of {told['samples']} samples, "
    text += f"known to {found.spread:.0%} in the median, {told['unstable']} not stable"
    text += "" if told["complete"] else "; interrupted"
    console.print(text, highlight=False, soft_wrap=True)


def _by_family(
    console: Console, columns: list[Column], sizes: list[int], cell: Callable[[Column, int], str], what: str
) -> None:
    """A table for each family: its columns down, the packed sizes across."""
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
    """Messages: microseconds of the library and of tempi's way; the better one is marked."""
    from tempi.model import grid, store

    known = store.typical(found.points)
    told = [p for p in found.points if p.quantity == "library_message" and p.peer == peer]
    columns, sizes = sorted({p.column for p in told}), sorted({grid.nominal(p.column, p.size) for p in told})
    def cell(column: Column, size: int) -> str:
        library = known.get(("library_message", column, size, peer))
        parts = [known.get(("stage_pack", column, size, None)), known.get(("stage_unpack", column, size, None))]
        wire = _near({n: v for (q, c, n, p), v in known.items() if (q, c, p) == ("contiguous", column, peer)}, size)
        if library is None or None in parts or wire is None:
            return ""
        host = sum(part for part in parts if part is not None) + wire
        return f"{1e6 * library:.3g} {'>' if host < library else '<'} {1e6 * host:.3g}"

    _by_family(console, columns, sizes, cell, f"peer {peer}: us of the library <|> tempi")


def _kernels(console: Console, found: Calibration, memory: str) -> None:
    """Microseconds of the kernels: into device memory, and into mapped host memory."""
    known = {p.key[:4]: p.typical for p in found.points if p.memory == memory}
    shaped = [p for p in found.points if p.memory == memory and p.quantity == "device_pack"]
    columns, sizes = sorted({p.column for p in shaped}), sorted({p.size for p in shaped})

    def cell(column: Column, size: int) -> str:
        both = [known.get((name, column, size, None)) for name in ("device_pack", "mapped_pack")]
        return " | ".join(f"{1e6 * one:.3g}" for one in both if one is not None)

    mark = " [EMULATED]" if found.emulated else ""
    what = f"{memory} memory{mark}: us to pack into device memory | into mapped host memory"
    _by_family(console, columns, sizes, cell, what)


def _copies(console: Console, found: Calibration) -> None:
    """Microseconds of what has no shape: copies over the bus, and messages of packed bytes."""
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
        table.add_row(label, *(f"{1e6 * own[size]:.3g}" if size in own else "" for size in sizes))
    launches = [p.typical for p in found.points if p.quantity == "launch"]
    if launches:
        console.print(f"  an empty launch and its wait: {1e6 * launches[0]:.3g} us", highlight=False)
    if flat:
        console.print(table)
    for memory in grid.MEMORIES[1:]:
        _kernels(console, found, memory)


def _near(known: dict[int, float], size: int) -> float | None:
    """The message of that size, between those that are known."""
    from math import exp, log

    from tempi.model import tables

    return exp(tables.fill({log(s): log(v) for s, v in known.items()}, [log(size)])[0]) if known else None


def _unstable(console: Console, found: Calibration) -> None:
    for point in found.unstable[:_SHOWN]:
        where = f"{point.quantity}, {point.column.name}, {point.size:,} B" + (f", {point.peer}" if point.peer else "")
        console.print(f"  not stable: {where}: {point.trouble}", highlight=False, soft_wrap=True)
    more = len(found.unstable) - _SHOWN
    if more > 0:
        console.print(f"  and {more} more", highlight=False)


def _mine() -> Iterator[tuple[Path, Calibration]]:
    """What the cache folder has, host memory first, with a line about each that cannot be used."""
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
        write_json(json_file, (_summary(path, one) for path, one in found))
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
        _unstable(console, one)


def _export(target: Path, mpi: str | None) -> None:
    from tempi.model import store

    found = [one for _, one in _mine() if mpi is None or mpi.lower() in one.machine.mpi.lower()]
    if not found:
        raise click.ClickException("no such calibration for this machine: run `tempi calibrate`")
    libraries = dict.fromkeys(one.machine.mpi for one in found)
    if len(libraries) > 1:
        names = "; ".join(libraries)
        raise click.ClickException(f"several MPI libraries are calibrated: choose one by --mpi WORD ({names})")
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


def _measure(quick: bool, seconds: float | None, most: int | None, mpirun: str | None, json_file: str | None) -> None:
    from rich.console import Console

    from tempi.bench import calibrate as measuring
    from tempi.bench.launch import LaunchError
    from tempi.bench.worker import WorkerError
    from tempi.bench.worker_calibrate import CalibrateOptions
    from tempi.model import grid

    os.environ["TEMPI_FORCE"] = "1"  # read when the first MPI function is called
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
        write_json(json_file, [_summary(path, found) for path, found in parts])
    for path, found in parts:
        _head(console, path, found)
        _unstable(console, found)
    if any(len(found.unstable) > _BUSY * len(found.points) for _, found in parts):
        console.print("much of it is not stable: calibrate again when the machine is quiet", style="yellow")
    if not whole:
        raise click.ClickException("interrupted: what was measured is kept")


@click.command()
@click.option("--quick", is_flag=True, help="A coarser grid, below 40 seconds.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="For all of it [default: 150; 30].")
@click.option("--most", type=click.IntRange(4096, 16 << 20), metavar="BYTES", help="Largest message [default: 16 MiB].")
@click.option("--mpirun", metavar="PATH", help="The MPI launcher [default: that of this Python, then PATH].")
@click.option("--show", is_flag=True, help="Show what was measured on this machine, and stop.")
@click.option("--export", "target", metavar="FILE", type=click.Path(path_type=Path), help="Write it to a file.")
@click.option("--import", "source", metavar="FILE", type=click.Path(path_type=Path), help="Take it from a file.")
@click.option("--mpi", metavar="WORD", help="With --export: of the MPI library that has this in its name.")
@json_option
def calibrate(
    quick: bool, seconds: float | None, most: int | None, mpirun: str | None, show: bool, target: Path | None,
    source: Path | None, mpi: str | None, json_file: str | None,
) -> None:  # fmt: skip
    """Measure this machine and its MPI, so that tempi chooses by measurement.

    Where there is a GPU it measures kernels, copies and messages of device memory as well.

    Starts two ranks itself, or takes part as the ranks of mpirun -n 2: to measure messages between nodes,
    start it on two of them. A cluster measures one node of each type and ships the file (--export,
    --import). Without a calibration, built-in rules choose.
    """
    if show + (target is not None) + (source is not None) > 1:
        raise click.UsageError("--show, --export and --import: one at a time")
    if show:
        _show(json_file)
    elif target is not None:
        _export(target, mpi)
    elif source is not None:
        _import(source)
    else:
        _measure(quick, seconds, most, mpirun, json_file)
