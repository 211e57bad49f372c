"""Scores of choosers among the methods for device memory, from made-up records; shapes; and jobs."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tempi.bench import cases
from tempi.bench.suites import gpu_page
from tempi.bench.suites import model_device as suite_model_device
from tempi.calibration import device_points, shapes
from tempi.calibration.device_points import Job
from tempi.measure import sampling
from tempi.measure.records import Record
from tempi.model import grid

pytestmark = pytest.mark.once

TIMES = {"oneshot": [2e-6] * 8, "staged": [1e-6, 3e-6] * 4, "pipelined": [4e-6] * 8, "model": [2.2e-6] * 8}
DEVICE = {"name": "NVIDIA Abacus", "cuda": "12.8", "capability": "9.0", "multiprocessors": 1, "memory": 1 << 30}


def made(*, emulated: bool = False, times: dict[str, list[float]] = TIMES) -> list[Record]:
    meta = {"predicted": {"oneshot": 1e-6, "staged": 3e-6}, "rule": "pipelined", "emulated": emulated}
    meta |= {"device": DEVICE, "machine": {"cpu": "abacus", "commit": "?"}}
    return [
        Record("model", "c", "one way", name, 64, tuple(taken), {**meta, "chosen": {"oneshot": 2}})
        for name, taken in times.items()
    ]


def test_the_models_own_time_is_scored_beside_the_methods() -> None:
    (row,) = suite_model_device.rows(made())
    assert row.regret("model") == pytest.approx(1.1)
    assert row.regret("rule") == pytest.approx(2.0)
    assert row.regret("oneshot") == 1.0
    assert row.regret("library") is None
    assert row.regret("perfect") == pytest.approx(1.5)  # picked on the half that is not scored
    assert row.took == "oneshot"
    assert row.error("oneshot") == pytest.approx(0.5)
    assert row.error("pipelined") is None


def test_a_case_without_the_models_time_is_left_out() -> None:
    assert suite_model_device.rows(made(times={**TIMES, "model": []})) == []
    assert suite_model_device.rows(made(times={"oneshot": TIMES["oneshot"], "staged": TIMES["staged"]})) == []


@pytest.mark.parametrize("emulated", [False, True])
def test_all_output_about_the_emulator_says_so(emulated: bool) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    assert len(suite_model_device.show(console, made(emulated=emulated))) == 1
    text = console.export_text()
    assert (suite_model_device.EMULATED in text) == emulated
    assert text.count("EMULATED: ") == (4 if emulated else 0)  # two tables, two sentences
    assert "always pipelined" in text
    assert "always library" not in text


def test_the_page_shows_the_model_of_a_gpu_and_refuses_the_emulators() -> None:
    text = "\n".join(gpu_page.model(made()))
    assert "| calibrated model | 1 | 1.100 |" in text
    assert list(gpu_page.model([])) == []
    with pytest.raises(gpu_page.PageError, match="emulated"):
        list(gpu_page.model(made(emulated=True)))


def test_packs_of_a_shape_are_rows_beside_its_messages() -> None:
    packs = [replace(record, op="MPI_Pack of device memory") for record in made()]
    assert [row.case for row in suite_model_device.rows([*made(), *packs])] == ["c", "c, MPI_Pack of device memory"]


def test_a_size_that_would_take_the_library_long_is_not_measured() -> None:
    ends: Any = SimpleNamespace(largest={})
    column, slow = grid.device_columns(True)[0], device_points.SLOW
    jobs = [Job(column, size, None) for size in (1024, 4096, 65536)]
    long, short = [(slow / 15,)] * 3, [(slow / 17,)] * 3
    taken = {"device_pack": [(1.0,)], "device_library_pack": long, "mapped_library_pack": short}
    device_points._note(ends, jobs[1], taken, sampling.alone)
    left_out = [{name for name in taken if device_points._is_too_slow(ends, job, name)} for job in jobs]
    assert left_out == [set(), set(), {"device_library_pack"}]
    assert not device_points._is_too_slow(ends, replace(jobs[2], peer="node"), "device_library_pack")


@pytest.mark.parametrize("quick", [True, False])
def test_jobs_come_coarse_first_and_each_once(quick: bool) -> None:
    for emulated in (True, False):
        for aware in (True, False):
            columns = device_points.jobs(quick, ["self", "node"], emulated, aware)
            plan = [job for column in columns for job in column]
            assert len(set(plan)) == len(plan)
            assert len(columns) == len(device_points.jobs(quick, ["self", "node"], emulated, not aware))
            peers = {job.peer for job in plan if job.column != grid.PLAIN}
            assert peers == ({None, "self", "node"} if aware else {None})
            assert {job.memory for job in plan} == {"device", "managed"}
            assert Job(grid.PLAIN, 256, "node") in plan
            assert len(plan) < (60 if emulated and not aware else 10000)


def test_the_sizes_of_a_piece_and_beyond_are_nodes() -> None:
    """A pipelined message is composed of pieces of 1 MiB."""
    for column in grid.device_columns(True):
        if column.family != "transposed":
            assert 1 << 20 in grid.device_sizes(column, True)
    assert max(grid.device_sizes(grid.PLAIN, False)) == 64 << 20


@pytest.mark.parametrize(("quick", "emulated"), [(True, False), (False, False), (True, True)])
def test_held_out_shapes_are_none_of_the_grids(quick: bool, emulated: bool) -> None:
    columns = {column for coarse in (True, False) for column in grid.device_columns(coarse)}
    chosen = cases.held_out_device(quick, emulated=emulated)
    vectors = [case for case in chosen if isinstance(case, cases.Vector)]
    assert vectors
    assert not {case.length for case in vectors} & {column.run for column in columns}
    assert len({case.name for case in chosen}) == len(chosen)
    assert all(shapes.Shape(column, size).span > 0 for column in columns for size in grid.device_sizes(column, True))
