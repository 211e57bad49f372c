"""``tempi calibrate``: measures this machine's tables, and saves partial results if it is interrupted."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tempi.calibration import points
from tempi.calibration.points import CalibrateOptions
from tempi.measure import launch
from tempi.measure.launch import LaunchError
from tempi.measure.records import Record
from tempi.model import grid, store

#: Seconds of measuring, without start and shutdown.
FULL, QUICK = 140.0, 30.0
SAVE_EVERY = 10.0  # seconds


def point(record: Record) -> store.Point:
    """The record of one quantity as a point of the store."""
    column = grid.Column(record.meta["family"], record.meta["run"], record.meta["stride"])
    peer = record.meta["peer"] if record.op in (*grid.MESSAGES, *grid.DEVICE_MESSAGES) else None
    return store.Point(record.op, column, record.bytes, peer, record.seconds, record.meta.get("memory"))


#: To make tables, one locality class needs at least this fraction of the other class's points.
COVERED = 0.8


def covered(points: Iterable[store.Point]) -> tuple[store.Point, ...]:
    """Drops the locality class of this node's ranks that they were in only occasionally, if they migrated: it has too
    few points, or lacks some of the packed-bytes points."""
    taken = tuple(points)
    seen = Counter((made.peer, made.quantity == "contiguous") for made in taken)
    few = {
        peer for peer, other in (("node", "far"), ("far", "node"))
        if seen[peer, True] < seen[other, True] or seen[peer, False] < COVERED * seen[other, False]
    }  # fmt: skip
    return tuple(made for made in taken if made.peer not in few or len(few) == 2)


class _Part:
    """The points of host memory, or of one GPU."""

    def __init__(self, start: Record, columns: int) -> None:
        meta = self._meta = start.meta
        gpu = store.Gpu(**meta["gpu"]) if "gpu" in meta else None
        self._machine = replace(store.machine(meta["version"]), gpu=gpu)
        self._old = _readable(self._machine.file)
        self._points: dict[tuple[Any, ...], store.Point] = {}
        self.columns, self.done = columns, 0
        self._when = ""  # of the last point

    def add(self, made: store.Point) -> None:
        """Adds a later round's samples to the existing ones."""
        self._when = datetime.now(UTC).isoformat(timespec="seconds")
        before = self._points.get(made.key)
        self._points[made.key] = made if before is None else before.joined(made)

    @property
    def calibration(self) -> store.Calibration | None:
        """None before the first point."""
        if not self._points:
            return None
        meta = self._meta
        about: dict[str, Any] = {"when": self._when, "host": meta["host"]}
        about |= {"machine": meta["machine"], "complete": self.done == self.columns}
        if "gpu" in meta:
            about |= {"aware": meta["aware"], "emulated": meta["emulated"]}
        return store.merge(self._old, store.Calibration(self._machine, covered(self._points.values()), about))


class Collected:
    """All measurements so far, saved regularly so that an interruption loses little."""

    def __init__(self, save: Callable[[store.Calibration], Path] = store.save) -> None:
        self._parts: dict[str, _Part] = {}
        self._save = save
        self._saved = time.monotonic()
        self.without_device: str | None = None

    def add(self, record: Record) -> None:
        if record.op == "machine":
            self._parts["host"] = _Part(record, int(record.meta["columns"]))
        elif record.op == "device":
            self._parts["device"] = _Part(record, int(record.meta["columns"]))
        elif record.op == "no device":
            self.without_device = str(record.meta["why"])
        elif record.op == "done":
            if record.meta.get("visit", 0) == 0:
                self._parts["device" if record.subject == "device" else "host"].done += 1
            if time.monotonic() - self._saved > SAVE_EVERY:
                self.save()
        else:
            made = point(record)
            self._parts["host" if made.memory is None else "device"].add(made)

    @property
    def calibrations(self) -> list[store.Calibration]:
        """That of host memory first; empty before the first point."""
        found = (part.calibration for part in self._parts.values())
        return [one for one in found if one is not None]

    @property
    def calibration(self) -> store.Calibration | None:
        """Of host memory."""
        return next((one for one in self.calibrations if one.machine.gpu is None), None)

    def save(self) -> Path | None:
        """Saves all; returns the path of the first."""
        self._saved = time.monotonic()
        paths = [self._save(one) for one in self.calibrations]
        return paths[0] if paths else None


def _readable(path: Path) -> store.Calibration | None:
    try:
        return store.read(path)
    except store.StoreError:
        return None  # there is none, or losing it does no harm


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM, which launchers send to ranks, end the process as Ctrl-C does."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _estimate(seconds: float, fraction: float) -> str:
    return f"about {max(0.0, seconds * (1 - fraction)):.0f} s left"


def watch(records: Iterable[Record], collected: Collected, seconds: float, console: Console) -> bool:
    """Collects with a progress bar; returns whether it ran to the end."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    if not console.is_terminal:
        console.print(f"calibrating, at most {seconds:.0f} s", highlight=False)
    start = time.monotonic()
    try:
        with interruptible(), Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("starting", total=1.0)
            for record in records:
                collected.add(record)
                part = min((time.monotonic() - start) / seconds, 1.0)
                progress.update(task, completed=part, description=f"{record.case}, {_estimate(seconds, part)}")
    except KeyboardInterrupt:
        return False
    return True


def _quiet_launch(options: CalibrateOptions, mpirun: str | None) -> Iterator[Record]:
    launcher = launch.find_launcher(mpirun)
    return launch.run_worker(launcher, "tempi.calibration.points", options.arguments(), 2, {"TEMPI_FORCE": "1"})


def run(
    options: CalibrateOptions, mpirun: str | None, console: Console
) -> tuple[list[tuple[Path, store.Calibration]], bool] | None:
    """Measures and saves. Returns the calibration and its path, and whether it is complete; None on ranks other than 0.

    Raises `LaunchError` if nothing was measured.
    """
    collected = Collected()
    if launch.under_launcher():
        from mpi4py import MPI

        records = points.run(options)
        if MPI.COMM_WORLD.rank != 0:
            for _ in records:
                pass
            return None
    else:
        records = _quiet_launch(options, mpirun)
    whole = watch(records, collected, options.seconds, console)
    why = collected.without_device
    if collected.save() is None:
        raise LaunchError(f"nothing was measured: {why}" if why else "interrupted before anything was measured")
    if why:
        console.print(f"device memory was not measured: {why}", highlight=False)
    return [(one.machine.file, one) for one in collected.calibrations], whole
