"""Runs processes in parallel, as many as keep the machine's cores busy, and reports the end of each."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PAUSE = 0.02  # seconds between two polls of the running processes
GRACE = 5.0  # seconds that a launcher has to end its ranks


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    command: tuple[str, ...]
    cores: float = 1.0  # that it keeps busy
    limit: float = 300.0  # seconds
    always: bool = True  # also if the time is up


@dataclass(frozen=True, slots=True)
class Ended:
    job: Job
    status: int
    output: str
    seconds: float
    busy: float  # seconds of all cores, for its processes together


@dataclass(slots=True)
class Running:
    """A job's process, the leader of a session, so that its group contains the whole job; its output goes to a file.

    Its folder of temporary files ends with it. Open MPI's launcher names its own there by its process number and
    leaves it when it is killed; a later one of that number would not start.
    """

    job: Job
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    temporary: tempfile.TemporaryDirectory[str]
    since: float = field(default_factory=time.monotonic)

    def ended(self) -> Ended | None:
        """Stops it first if it is past its limit."""
        late = time.monotonic() - self.since > self.job.limit
        if late:
            self.stop()
        pid, status, used = os.wait4(self.process.pid, 0 if late else os.WNOHANG)
        if pid == 0:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        self.close()
        text += f"\nstopped after {self.job.limit:g} s" if late else ""
        seconds = time.monotonic() - self.since
        return Ended(self.job, self.process.returncode, text, seconds, used.ru_utime + used.ru_stime)

    def close(self) -> None:
        self.output.close()
        self.temporary.cleanup()

    def stop(self) -> None:
        """First by a signal that a launcher passes on to its ranks, which need not be of its group."""
        os.killpg(self.process.pid, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while time.monotonic() < until and not self._is_dead():
            time.sleep(PAUSE)
        os.killpg(self.process.pid, signal.SIGKILL)

    def _is_dead(self) -> bool:
        """It is left to be waited for, so that the group's number stays its own."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def started(job: Job, folder: Path, variables: Mapping[str, str]) -> Running:
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the job)
    temporary = tempfile.TemporaryDirectory(prefix="tempi-", ignore_cleanup_errors=True)
    process = subprocess.Popen(
        job.command,
        cwd=folder,
        env=dict(variables) | {"TMPDIR": temporary.name},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return Running(job, process, output, temporary)


def run(
    jobs: Sequence[Job], room: int, folder: Path, variables: Mapping[str, str], until: float = math.inf
) -> Generator[Ended, None, None]:
    """In the order in which they end; after `until` (of time.monotonic) only those are started that always are. With
    such an end they also come first, even if another one would fit.

    There is room for so many cores' jobs; one that asks for more has the machine to itself. Whenever there is
    room, the first of those waiting that fits is started: those that come first should be the longest. When
    the caller is interrupted, what runs is stopped.
    """
    waiting, running = list(jobs), list[Running]()
    try:
        while waiting or running:
            if time.monotonic() >= until:
                waiting = [job for job in waiting if job.always]
            free = room - sum(min(one.job.cores, room) for one in running)
            first = [job for job in waiting if job.always] if until < math.inf else []
            fitting = next((job for job in first or waiting if min(job.cores, room) <= free), None)
            if fitting is not None:
                running.append(started(fitting, folder, variables))
                waiting.remove(fitting)
                continue
            for one in list(running):
                if (ended := one.ended()) is not None:
                    running.remove(one)
                    yield ended
            time.sleep(PAUSE)
    finally:
        for one in running:
            one.stop()
            one.process.wait()
            one.close()
