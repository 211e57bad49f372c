"""``tempi calibrate``: measures this machine's tables, and keeps what it has when it is interrupted."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from tempi.bench import launch, suite, worker_calibrate
from tempi.bench.launch import LaunchError
from tempi.bench.records import Record
from tempi.bench.worker_calibrate import CalibrateOptions

from tempi.model import grid, store

#: Seconds of measuring; starting and ending come on top.
FULL, QUICK = 140.0, 30.0
SAVE_EVERY = 10.0  # seconds


def point(record: Record) -> store.Point:
    """The record of one quantity as a point of the store."""
    column = grid.Column(record.meta["family"], record.meta["run"], record.meta["stride"])
    peer = record.meta["peer"] if record.op in grid.MESSAGES else None
    return store.Point(record.op, column, record.bytes, peer, record.seconds)


class Collected:
    """What has been measured so far; saved now and then, so that little is lost."""

    def __init__(self, save: Callable[[store.Calibration], Path] = store.save) -> None:
        self._points: list[store.Point] = []
        self._start: Record | None = None
        self._old: store.Calibration | None = None
        self._save = save
        self._saved = time.monotonic()
        self.columns, self.done = 0, 0

    def add(self, record: Record) -> None:
        if record.op == "machine":
            self._start = record
            self.columns = int(record.meta["columns"])
            self._old = _readable(store.machine(record.meta["version"]).file)
        elif record.op == "done":
            self.done += 1
            if time.monotonic() - self._saved > SAVE_EVERY:
                self.save()
        else:
            self._points.append(point(record))

    @property
    def calibration(self) -> store.Calibration | None:
        """None before there is anything."""
        if self._start is None or not self._points:
            return None
        meta = self._start.meta
        about: dict[str, Any] = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "host": meta["host"]}
        about |= {"machine": meta["machine"], "complete": self.done == self.columns}
        new = store.Calibration(store.machine(meta["version"]), tuple(self._points), about)
        return store.merge(self._old, new)

    def save(self) -> Path | None:
        found = self.calibration
        self._saved = time.monotonic()
        return self._save(found) if found else None


def _readable(path: Path) -> store.Calibration | None:
    try:
        return store.read(path)
    except store.StoreError:
        return None  # none, or one that is no loss


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM, which launchers send to ranks, ends this as Ctrl-C does."""

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
    """Collects with a bar; whether it came to its end."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    if not console.is_terminal:
        console.print(f"calibrating, at most {seconds:.0f} s", highlight=False)
    start = time.monotonic()
    try:
        with interruptible(), Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("starting", total=1.0)
            for record in records:
                collected.add(record)
                # By time where that is what ends it, else by what is done.
                part = max((time.monotonic() - start) / seconds, collected.done / max(1, collected.columns))
                part = min(part, 1.0)
                progress.update(task, completed=part, description=f"{record.case}, {_estimate(seconds, part)}")
    except KeyboardInterrupt:
        return False
    return True


def _quiet_launch(options: CalibrateOptions, mpirun: str | None) -> Iterator[Record]:
    launcher = launch.find_launcher(mpirun)
    return suite.run_worker(launcher, "worker_calibrate", options.arguments(), 2, {"TEMPI_FORCE": "1"})


def run(options: CalibrateOptions, mpirun: str | None, console: Console) -> tuple[store.Calibration, Path, bool] | None:
    """Measures and saves: what is there now, where, and whether it is all. None on ranks other than 0.

    Raises `LaunchError` where nothing was measured.
    """
    collected = Collected()
    if launch.under_launcher():
        from mpi4py import MPI

        records = worker_calibrate.run(options)
        if MPI.COMM_WORLD.rank != 0:
            for _ in records:
                pass
            return None
    else:
        records = _quiet_launch(options, mpirun)
    whole = watch(records, collected, options.seconds, console)
    path, calibration = collected.save(), collected.calibration
    if path is None or calibration is None:
        raise LaunchError("interrupted before anything was measured")
    return calibration, path, whole
