"""Parallel execution of the suite's steps."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import lanes

ALONE = "mkdir alone && sleep 0.1 && rmdir alone"  # fails where another one does the same


def job(name: str, line: str, cores: int = 1, limit: float = 20.0) -> lanes.Job:
    return lanes.Job(name, ("sh", "-c", line), cores, limit)


def run(folder: Path, room: int, jobs: Sequence[lanes.Job]) -> list[lanes.Ended]:
    return list(lanes.run(jobs, room, folder, os.environ))


def until(name: str) -> str:
    return f"until [ -e {name} ]; do sleep 0.01; done"


def test_jobs_for_which_there_is_room_run_side_by_side(tmp_path: Path) -> None:
    jobs = [job("a", f"touch a; {until('b')}"), job("b", f"touch b; {until('a')}")]
    assert sorted((ended.job.name, ended.status) for ended in run(tmp_path, 2, jobs)) == [("a", 0), ("b", 0)]


@pytest.mark.parametrize(("room", "cores"), [(1, (1, 1)), (2, (2, 1, 2)), (2, (4, 1, 4)), (3, (2, 2))])
def test_jobs_for_which_there_is_no_room_wait(tmp_path: Path, room: int, cores: tuple[int, ...]) -> None:
    ended = run(tmp_path, room, [job(str(i), ALONE, n) for i, n in enumerate(cores)])
    assert sorted((one.job.name, one.status) for one in ended) == [(str(i), 0) for i in range(len(cores))]


def test_no_job_is_begun_when_time_is_up_and_those_begun_end(tmp_path: Path) -> None:
    second = replace(job("second", "touch begun"), always=False)
    jobs = [job("first", "sleep 0.2; touch ended"), second, job("always", "true")]
    ended = list(lanes.run(jobs, 1, tmp_path, os.environ, time.monotonic() + 0.05))
    assert [(one.job.name, one.status) for one in ended] == [("first", 0), ("always", 0)]
    assert [(tmp_path / name).exists() for name in ("ended", "begun")] == [True, False]


def test_two_jobs_at_once_are_detected(tmp_path: Path) -> None:
    assert any(ended.status for ended in run(tmp_path, 2, [job("a", ALONE), job("b", ALONE)]))


def test_a_job_that_fits_goes_before_one_that_does_not_yet(tmp_path: Path) -> None:
    jobs = [job("first", until("small")), job("wide", "true", cores=2), job("small", "touch small")]
    assert [(ended.job.name, ended.status) for ended in run(tmp_path, 2, jobs)][-1] == ("wide", 0)


def test_the_output_and_resources_of_a_job_are_reported(tmp_path: Path) -> None:
    busy = f"'{sys.executable}' -c 'sum(range(2_000_000))'; echo out; echo error >&2; exit 3"
    (ended,) = run(tmp_path, 2, [job("a", busy)])
    assert (ended.status, ended.output) == (3, "out\nerror\n")
    assert ended.busy > 0
    assert ended.seconds > 0


def test_each_job_has_temporary_files_of_its_own_that_end_with_it(tmp_path: Path) -> None:
    first, second = run(tmp_path, 2, [job(name, "touch $TMPDIR/left; echo $TMPDIR") for name in "ab"])
    assert first.output != second.output
    assert not any(Path(ended.output.strip()).exists() for ended in (first, second))


@pytest.mark.parametrize("first", ["", "trap '' TERM; "])
def test_a_job_past_its_limit_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    monkeypatch.setattr(lanes, "GRACE", 0.2)
    (ended,) = run(tmp_path, 1, [job("a", f"{first}echo begun; while :; do sleep 0.05; done", limit=0.3)])
    assert ended.status < 0
    assert ended.output == "begun\n\nstopped after 0.3 s"


def test_nothing_is_left_running_when_its_caller_is_interrupted(tmp_path: Path) -> None:
    jobs = [job("long", "echo $$ >pid.part; mv pid.part pid; exec sleep 60"), job("short", until("pid"))]
    with closing(lanes.run(jobs, 2, tmp_path, os.environ)) as ends:
        assert next(ends).job.name == "short"
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
