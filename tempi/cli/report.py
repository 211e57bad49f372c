"""``tempi report``: a page with pictures of calibrations, measurements and counters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tempi.cli._output import json_option, write_json
from tempi.cli._pictures import need_matplotlib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tempi.measure.records import Record
    from tempi.model.store import Calibration
    from tempi.report.calibrated import Part
    from tempi.report.counted import Statistics
    from tempi.report.figures import Gallery

__all__ = ["report"]


def _named(path: Path, force: bool) -> tuple[Path, Calibration, str | None]:
    """The requested file. A calibration of another machine is shown but not used here."""
    from tempi.model import store

    found = store.read(path)
    why = found.mismatch()
    if why and not force:
        raise click.ClickException(f"{path}: {why}; --force draws it anyway")
    return path, found, why and f"This calibration does not choose here: {why}."


def _stored(mpi: str | None) -> tuple[Path, Calibration, str | None] | None:
    """The newest calibration of this machine whose MPI library's name contains `mpi`."""
    from tempi.model import store

    fitting = []
    for path, found in store.local():
        if isinstance(found, store.StoreError):
            click.echo(f"not used: {found}", err=True)
        elif why := found.mismatch():
            click.echo(f"not used: {path}: {why}", err=True)
        elif mpi is None or mpi.lower() in found.machine.mpi.lower():
            fitting.append((path, found))
    fitting.sort(key=lambda each: str(each[1].about.get("when", "")))
    for _, other in fitting[:-1]:
        click.echo(f"not shown: {other.machine.mpi} (--mpi WORD chooses)", err=True)
    return (*fitting[-1], None) if fitting else None


def _calibration(named: Path | None, mpi: str | None, force: bool) -> Part | None:
    from tempi.model import survey
    from tempi.report.calibrated import Part

    chosen = _named(named, force) if named is not None else _stored(mpi)
    if chosen is None and mpi is not None:
        raise click.ClickException(f"--mpi {mpi}: no calibration of this machine has that in its MPI's name")
    if chosen is None:
        return None
    path, found, warning = chosen
    if not found.points:
        raise click.ClickException(f"{path}: the calibration has no points: run `tempi calibrate`")
    return Part(path, found, warning, tuple(survey.fields_of(found)))


def _records(paths: Sequence[str]) -> dict[str, list[Record]]:
    from tempi.measure import records

    made = {}
    for path in paths:
        try:
            made[path] = records.read(path)
        except OSError as error:
            raise click.ClickException(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise click.ClickException(f"{path}: not JSON") from error
        except records.RecordError as error:
            raise click.ClickException(str(error)) from error
        if not made[path]:
            raise click.ClickException(f"{path}: no records in it")
    return made


def _check_writable(output: Path) -> None:
    """Fails before half a minute of drawing instead of after."""
    import tempfile

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output.parent):
            pass
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}") from error
    if output.is_dir():
        raise click.ClickException(f"{output}: it is a folder")


def _title(part: Part | None) -> tuple[str, str]:
    from datetime import UTC, datetime

    import tempi
    from tempi import _units

    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    made = f"Written by tempi {tempi.__version__} on {when}. This page loads nothing from anywhere else."
    if part is None:
        return "tempi report", made
    own = part.calibration.machine
    return f"tempi on {own.cpu}, {_units.cores(own.cores)}, with {own.mpi.split(',')[0]}", made


def _page(
    part: Part | None, benches: Mapping[str, Sequence[Record]], runs: Sequence[Statistics], gallery: Gallery,
    step: Callable[[str], None],
) -> str:  # fmt: skip
    from tempi.report import calibrated, counted, measured
    from tempi.report.page import Page

    made = Page(*_title(part))
    if part is not None:
        step("choices")
        made.add("machine", "The machine, in short", calibrated.about(part))
        made.add("choices", "Which method wins where", calibrated.choices(part, gallery))
    judged = {name: found for name, found in benches.items() if found[0].bench == "model"}
    for sections, name, title in (
        (judged, "regret", "How good the choices are"),
        ({name: found for name, found in benches.items() if name not in judged}, "benchmarks", "Benchmarks"),
    ):
        step(title)
        if sections:
            made.add(name, title, "".join(measured.section(file, found, gallery) for file, found in sections.items()))
    if runs:
        made.add("statistics", "What a run did", "".join(counted.section(run, gallery) for run in runs))
    if part is not None:
        made.add("tables", "What was measured", calibrated.tables(part, gallery, step))
        made.add("unstable", "Points that are not stable", calibrated.unstable(part))
    return made.html()


def _objects(
    part: Part | None, benches: Mapping[str, Sequence[Record]], runs: Sequence[Statistics]
) -> Iterator[Mapping[str, object]]:
    from tempi.report import calibrated, counted, measured

    if part is not None:
        yield from calibrated.objects(part)
    for name, found in benches.items():
        yield from measured.objects(name, found)
    for run in runs:
        yield from counted.objects(run)


@click.command()
@click.option("--calibration", "named", metavar="FILE", type=click.Path(path_type=Path),
              help="Samples to draw [default: the newest of this machine].")  # fmt: skip
@click.option("--mpi", metavar="WORD", help="Select the MPI library by a word of its name.")
@click.option("--bench", "benches", metavar="FILE", multiple=True,
              help="Records of `tempi bench ... --json`; repeatable.")  # fmt: skip
@click.option("--stats", "runs", metavar="FILE", multiple=True,
              help="A run's TEMPI_STATS_FILE, or its output with TEMPI_STATS=1; repeatable.")  # fmt: skip
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), default="report.html", show_default=True)
@click.option("--png", metavar="DIR", type=click.Path(path_type=Path), help="Also write each picture to this folder.")
@click.option("--force", is_flag=True, help="Draw a calibration of another machine or version anyway.")
@json_option
def report(
    named: Path | None, mpi: str | None, benches: tuple[str, ...], runs: tuple[str, ...], output: Path,
    png: Path | None, force: bool, json_file: str | None,
) -> None:  # fmt: skip
    """Write one HTML page with pictures; it needs no network and no other file.

    \b
    tempi bench model --json model.json
    TEMPI_STATS_FILE=run.json mpirun -n 4 tempi run ./app
    tempi report --bench model.json --stats run.json

    In it: the machine, which method wins where, how good predictions and choices are (with records of
    `tempi bench model`), other benchmarks, what a run did, and every table with its raw samples.
    """
    from rich.console import Console

    need_matplotlib("tempi report")
    from tempi.model import store
    from tempi.report import counted
    from tempi.report.figures import Gallery

    found, runs_read = _records(benches), [counted.read(path) for path in runs]
    part = _calibration(named, mpi, force)
    if part is None and not found and not runs_read:
        raise click.ClickException("nothing to report: this machine is not calibrated: run `tempi calibrate`")
    _check_writable(output)
    gallery = Gallery(png)
    try:
        with Console(stderr=True).status("drawing") as status:
            html = _page(part, found, runs_read, gallery, lambda text: status.update(f"drawing: {text}"))
    except OSError as error:
        raise click.ClickException(f"{error.filename or png}: {error.strerror}") from error
    try:
        store.write_whole(output, html.encode())
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}") from error
    if json_file is not None:
        write_json(json_file, _objects(part, found, runs_read))
    if json_file != "-":
        text = f"{output} written: {len(gallery.names)} pictures"
        click.echo(text + (f", also in {png}" if png is not None else ""))
