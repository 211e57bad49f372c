"""Adaptive sampling, and the saved part of an interrupted calibration; with artificial times."""

from __future__ import annotations

import io
import itertools
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tempi.calibration import adaptive, calibrate, shapes
from tempi.calibration.points import SPAN, Job, jobs
from tempi.measure.records import Record
from tempi.model import grid, samples, store

pytestmark = pytest.mark.once

STEADY = 300e-6


def steady(loops: int) -> tuple[float, ...]:
    return (loops * STEADY, loops * STEADY / 3)


def test_a_steady_subject_needs_the_fewest_samples() -> None:
    taken = adaptive.measure({"a": steady, "b": steady}, 10.0)
    assert {len(found) for found in taken.values()} == {samples.LEAST}
    assert taken["a"][0] == pytest.approx((STEADY, STEADY / 3))


def test_an_unsteady_subject_takes_more_until_the_most() -> None:
    draws = iter(range(100000))

    def unsteady(loops: int) -> tuple[float, ...]:
        return (loops * STEADY * (1 + next(draws) * 7919 % 13),)

    taken = adaptive.measure({"a": steady, "b": unsteady}, 1000.0)
    assert len(taken["a"]) == len(taken["b"])
    assert len(taken["a"]) >= samples.MOST


def test_the_budget_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = itertools.count()
    now = 0.0
    monkeypatch.setattr(adaptive.time, "monotonic", lambda: now)

    def unsteady(loops: int) -> tuple[float, ...]:
        nonlocal now
        now += 1.0
        return (loops * STEADY * (1 + next(draws) * 7919 % 13),)

    first_calls = 2  # to estimate the duration of one call
    budget = first_calls + samples.LEAST + 2 * adaptive.ROUND - 0.5
    assert len(adaptive.measure({"a": unsteady}, budget)["a"]) == samples.LEAST + 2 * adaptive.ROUND
    assert len(adaptive.measure({"a": unsteady}, 3.5)["a"]) == adaptive.FEWEST + 1  # slow beyond it


def test_a_later_round_of_a_slow_subject_takes_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(adaptive.time, "monotonic", lambda: now)

    def slow(loops: int) -> tuple[float, ...]:
        nonlocal now
        now += loops
        return (float(loops),)

    turns = adaptive.Turns({"a": slow, "b": slow})
    assert [len(found) for found in turns.take(5, 0.1).values()] == [adaptive.FEWEST] * 2
    assert [len(found) for found in turns.take(5, 0.1).values()] == [1, 1]
    assert [len(found) for found in turns.take(5, 100.0).values()] == [5, 5]
    assert turns.fewest == adaptive.FEWEST + 6


def test_a_steady_subject_is_settled_after_some_rounds() -> None:
    turns = adaptive.Turns({"a": steady, "b": steady})
    for _ in range(samples.LEAST):
        assert not turns.settled()
        turns.take(3, 10.0)
    assert turns.settled()


def test_the_samples_of_all_visits_are_one_point(cache: Path) -> None:
    collected = calibrate.Collected()
    for record in (start(1), measured(64), done(), measured(64), measured(256), done(1)):
        collected.add(record)
    assert collected.calibration is not None
    assert {point.size: len(point.seconds) for point in collected.calibration.points} == {64: 14, 256: 7}
    assert {point.size: point.visits for point in collected.calibration.points} == {64: (7, 7), 256: ()}
    assert collected.calibration.about["complete"] is True


def at(peer: str, sizes: range, quantity: str = "library_message") -> list[store.Point]:
    column = grid.PLAIN if quantity == "contiguous" else grid.columns(True)[0]
    return [store.Point(quantity, column, size, peer, (1e-6,)) for size in sizes]


def test_a_class_that_ranks_were_in_now_and_then_makes_no_tables() -> None:
    most = at("node", range(1, 101)) + at("node", range(1, 11), "contiguous")
    for peer, other in (("node", "far"), ("far", "node")):
        own = [replace(point, peer=peer) for point in most]
        enough = at(other, range(1, 81)) + at(other, range(1, 11), "contiguous")
        assert calibrate.covered(own + enough) == (*own, *enough)
        for few in (enough[1:], enough[:-1]):
            assert calibrate.covered(own + few) == tuple(own)
        assert calibrate.covered(own) == tuple(own)
    elsewhere = at("other", range(1, 3)) + at("self", range(1, 2))
    assert calibrate.covered(most + elsewhere) == (*most, *elsewhere)


def test_all_ranks_follow_the_decision_of_one() -> None:
    said: list[float] = []

    def agree(value: float) -> float:
        said.append(value)
        return 1.0 if len(said) > 8 else value

    assert len(adaptive.measure({"a": steady}, 10.0, agree)["a"]) >= samples.LEAST
    assert len(said) >= 2


def test_jobs_come_coarse_first_and_each_once() -> None:
    plan = [job for column in jobs(False, ["self", "node"]) for job in column]
    assert len(set(plan)) == len(plan)
    first = [job for column in jobs(True, ["self", "node"]) for job in column]
    assert plan[: len(first)] == first
    assert {job.peer for job in plan} == {None, "self", "node"}
    assert all(shapes.Shape(job.column, job.size).span <= SPAN for job in plan)


def test_no_message_is_larger_than_the_most() -> None:
    every = {job.column for column in jobs(False, ["node"]) for job in column}
    plan = [job for column in jobs(False, ["node"], grid.LEAST_MOST) for job in column]
    assert max(job.size for job in plan) == grid.LEAST_MOST
    assert {job.column for job in plan} == every


def test_plain_bytes_are_sent_to_every_peer() -> None:
    plan = [job for column in jobs(True, ["self", "node", "other"]) for job in column]
    plain = [job for job in plan if job.plain]
    assert {job.peer for job in plain} == {"self", "node", "other"}
    assert Job(grid.PLAIN, 64, "node") in plain


def start(columns: int) -> Record:
    meta = {"version": "some MPI 1.0", "machine": {}, "host": "here", "columns": columns, "peers": ["node"]}
    return Record("calibrate", "start", "machine", "here", 0, (), meta)


def measured(size: int, quantity: str = "library_message") -> Record:
    meta = {"family": "regular", "run": 8, "stride": 16, "peer": "node"}
    return Record("calibrate", "regular", quantity, "node", size, (1e-6,) * 7, meta)


def done(visit: int = 0) -> Record:
    return Record("calibrate", "regular", "done", "here", 0, (), {"visit": visit})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path))
    return tmp_path


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_an_interrupted_calibration_keeps_what_it_has(cache: Path) -> None:
    def records() -> Iterator[Record]:
        yield from (start(2), measured(64), measured(256, "stage_pack"), done())
        raise KeyboardInterrupt

    collected = calibrate.Collected()
    assert not calibrate.watch(records(), collected, 10.0, quiet())
    path = collected.save()
    assert path is not None
    found = store.read(path)
    assert [(point.quantity, point.size, point.peer) for point in found.points] == [
        ("library_message", 64, "node"),
        ("stage_pack", 256, None),
    ]
    assert found.about["complete"] is False
    assert path.with_suffix(".table").is_file()


def test_a_launcher_that_ends_the_ranks_interrupts_too(cache: Path) -> None:
    def records() -> Iterator[Record]:
        yield from (start(1), measured(64))
        os.kill(os.getpid(), signal.SIGTERM)
        yield measured(256)

    before = signal.getsignal(signal.SIGTERM)
    assert not calibrate.watch(records(), calibrate.Collected(), 10.0, quiet())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_whole_calibration_says_so(cache: Path) -> None:
    collected = calibrate.Collected()
    assert calibrate.watch([start(1), measured(64), done()], collected, 10.0, quiet())
    assert collected.calibration is not None
    assert collected.calibration.about["complete"] is True


def of_device(size: int) -> Record:
    meta = {"family": "regular", "run": 8, "stride": 16, "peer": None, "memory": "device"}
    return Record("calibrate", "regular", "device_pack", "here", size, (1e-6,) * 7, meta)


def test_device_memory_has_a_calibration_of_its_own(cache: Path) -> None:
    gpu = {"name": "NVIDIA Abacus", "driver": "570.1", "cuda": 12080, "emulated": False}
    meta = {**start(1).meta, "gpu": gpu, "emulated": False, "aware": True, "columns": 2}
    device = Record("calibrate", "device memory", "device", "here", 0, (), meta)
    finished = Record("calibrate", "regular", "done", "device", 0, (), {})
    collected = calibrate.Collected()
    records = [start(1), measured(64), done(), device, of_device(64), finished]
    assert calibrate.watch(records, collected, 10.0, quiet())
    host, card = collected.calibrations
    assert collected.save() == host.machine.file
    assert host.machine.gpu is None
    assert host.about["complete"] is True
    assert str(card.machine.gpu) == "NVIDIA Abacus, driver 570.1, CUDA 12.8"
    assert card.about["complete"] is False  # one of two columns
    assert card.about["aware"] is True
    assert [(point.quantity, point.memory, point.peer) for point in card.points] == [("device_pack", "device", None)]
    assert store.read(card.machine.file) == card
    assert len(list(cache.glob("*.table"))) == 2


def test_without_a_device_that_works_the_host_is_whole(cache: Path) -> None:
    without = Record("calibrate", "device memory", "no device", "here", 0, (), {"why": "it is hot"})
    collected = calibrate.Collected()
    assert calibrate.watch([start(1), measured(64), done(), without], collected, 10.0, quiet())
    assert collected.without_device == "it is hot"
    (host,) = collected.calibrations
    assert host.about["complete"] is True


def test_an_empty_calibration_is_not_saved(cache: Path) -> None:
    collected = calibrate.Collected()
    assert calibrate.watch([start(1)], collected, 10.0, quiet())
    assert collected.save() is None
    assert not list(cache.iterdir())
