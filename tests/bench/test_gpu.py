"""The GPU suite on the emulated device: every part, checked against NumPy, and the timing code, whose figures
are ignored."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempi import _engine
from tempi.bench.gpu import cases as gpu_cases
from tempi.bench.gpu.cases import Face, Indexed, Vector
from tempi.bench.options import (
    GPU_PARTS,
    METHODS,
    GpuOptions,
    MessageOptions,
    OverlapOptions,
    parse_gpu,
    parse_messages,
    parse_overlap,
)
from tempi.bench.suites import gpu as suite_gpu
from tempi.bench.workers import gpu as worker_gpu
from tempi.measure import cuda_driver, launch, records
from tempi.measure.records import Record

pytestmark = pytest.mark.once

HERE = Path(__file__).resolve().parent
VECTORS = [Vector(256, 8, 24), Vector(256, 1, 2), Vector(256, 16, 512, True)]
SHAPES = [*VECTORS, *(Face(6, axis) for axis in range(3)), Indexed(256)]


@pytest.fixture(scope="module")
def emulated() -> dict[str, str]:
    """The environment that selects the emulated device, or a skip."""
    here = Path(_engine.library_path()).parent
    if not (here / "libtempi-cuda.so").is_file() or not list(here.glob("tempi-ptx-*.so")):
        pytest.skip("this build has no emulated CUDA device, or no kernels")
    return {**os.environ, "TEMPI_CUDA_DRIVER": "emulated"}


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_places_are_those_of_the_layout(case: gpu_cases.Case) -> None:
    """tempi_pack is the reference, through the offsets that it gathers."""
    layout, source = gpu_cases.layout_of(case), np.arange(case.span, dtype=np.uint64)
    packed = np.zeros(case.nbytes, np.uint8)
    found = np.zeros(case.nbytes, np.uint64)
    for byte in range(2):
        plane = ((source >> np.uint64(8 * byte)) & np.uint64(255)).astype(np.uint8)
        pointers = [_engine.ffi.from_buffer(array) for array in (plane, packed)]
        _engine.lib.tempi_pack(layout, 1, pointers[0], 0, case.nbytes, pointers[1])
        found |= packed.astype(np.uint64) << np.uint64(8 * byte)
    assert (found == case.places(np.arange(case.nbytes))).all()


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_a_pitched_copy_means_the_same_bytes(case: gpu_cases.Case) -> None:
    shape = case.pitched()
    if shape is None:
        assert isinstance(case, Indexed)
        return
    steps = (shape.plane * np.arange(shape.depth), shape.pitch * np.arange(shape.height), np.arange(shape.width))
    places = shape.offset + steps[0][:, None, None] + steps[1][:, None] + steps[2]
    assert (places.reshape(-1) == case.places(np.arange(case.nbytes))).all()
    assert all(number % shape.element == 0 for number in (shape.offset, shape.width, shape.pitch, shape.plane))


def test_there_is_every_shape_that_the_targets_name() -> None:
    names = {case.name for case in gpu_cases.all_cases()}
    assert len(names) == len(gpu_cases.all_cases())
    for wanted in ("vector run 1 stride 2, 64 KiB", "vector run 4096 stride 8192, 1024 MiB", "face y of 514^3"):
        assert wanted in names
    assert {case.run for case in gpu_cases.all_cases() if isinstance(case, Vector)} == set(gpu_cases.RUNS)


def test_what_matters_most_is_measured_first() -> None:
    names = [case.name for case in gpu_cases.chosen(quick=False, emulated=False)]
    assert sorted(names) == sorted(case.name for case in gpu_cases.all_cases())
    order = ["face x of 258^3", "vector run 8 stride 16, 64 MiB", "vector run 8 stride 16 at 8, 16 MiB",
             "vector run 8 stride 16, 1024 MiB"]  # fmt: skip
    assert [name for name in names if name in order] == order
    sizes = [case.nbytes for case in gpu_cases.chosen(False, False) if case.name.startswith("vector run 8 stride 16,")]
    assert sizes == sorted(sizes)


CONTROL = """#!/bin/sh
echo "$CUDA_MPS_PIPE_DIRECTORY" >>"$0.pipes"
[ "$1" = -d ] && exit {status}
cat >>"$0.said"
"""


@pytest.mark.parametrize("status", [0, 3])
def test_mps_is_started_and_stopped_or_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    control = tmp_path / suite_gpu.MPS_CONTROL
    control.write_text(CONTROL.format(status=status))
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with suite_gpu.mps() as why:
        assert why == (None if status == 0 else "MPS does not start: 3")
        assert ("CUDA_MPS_PIPE_DIRECTORY" in os.environ) == (status == 0)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert (tmp_path / f"{control.name}.said").exists() == (status == 0)
    if status == 0:
        assert (tmp_path / f"{control.name}.said").read_text() == "quit\n"
        assert len(set((tmp_path / f"{control.name}.pipes").read_text().split())) == 1


def test_without_mps_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with suite_gpu.mps() as why:
        assert why == "there is no nvidia-cuda-mps-control"


def test_options_come_back() -> None:
    given = GpuOptions(True, 0.25, 1 << 30, 440.0, ("rates", "launches"), "--64 MiB|face")
    assert parse_gpu(given.arguments()) == given
    message = MessageOptions(False, 0.5, "staged")
    assert parse_messages(message.arguments()) == message
    alone = MessageOptions(True, 0.5, "auto", alone=True)
    assert parse_messages(alone.arguments()) == alone
    overlap = OverlapOptions(0.5, blocking=True)
    assert parse_overlap(overlap.arguments()) == overlap


def test_a_card_has_a_folder() -> None:
    assert cuda_driver.slug("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"


def test_structures_have_the_sizes_of_the_driver() -> None:
    """sizeof CUDA_MEMCPY2D and CUDA_MEMCPY3D on 64-bit machines."""
    assert cuda_driver.ctypes.sizeof(cuda_driver.Copy2D) == 128
    assert cuda_driver.ctypes.sizeof(cuda_driver.Copy3D) == 200


def python(environment: dict[str, str], *arguments: str, limit: float = 200.0) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=limit)


def test_the_timing_records_seconds(emulated: dict[str, str], tmp_path: Path, compiler: str) -> None:
    done = python(emulated, str(HERE / "gpu_pretend.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = list(records.parse_lines(done.stdout.splitlines(), "pretend"))
    assert not [record for record in found if "refused" in record.meta]
    untimed = [record for record in found if not record.seconds]
    assert {record.case for record in untimed} == {"cases"}
    assert all(value > 0 for record in found for value in record.seconds)
    fused = [record for record in found if record.subject == "fused"]
    assert [record.meta["launches"] for record in fused] == [1, 1]
    assert fused[0].meta["messages"] == 208
    probes = [record for record in found if record.subject == "probe"]
    assert {(r.op, r.meta["stride"]) for r in probes} == {(o, s) for o in ("gather", "scatter") for s in (512, 4096)}
    oneshot = {(record.op, record.subject) for record in found if record.op.startswith("one-shot")}
    assert oneshot >= {("one-shot pack", "8 blocks"), ("one-shot unpack", "copy of packed bytes")}
    calls = {record.op for record in found if record.case == "driver calls"}
    assert calls >= {"stream query, idle", "6 pointer attributes", "event record, of 16 and a wait"}
    subjects = {record.subject for record in found if record.meta["part"] == "launches"}
    assert subjects == {"driver", "tempi", "fused", "fused, device alone", "one by one", "memcpy", "empty launches"}


def bench(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(environment, "-m", "tempi", "bench", "gpu", "--quick", "--out", str(folder), *arguments)


@pytest.mark.more
def test_every_part_is_checked_on_the_emulated_device(emulated: dict[str, str], tmp_path: Path) -> None:
    try:
        launch.find_launcher()
        parts: Sequence[str] = suite_gpu.PARTS
    except launch.LaunchError:
        parts = GPU_PARTS
    done = bench({**emulated, "TEMPI_CACHE_DIR": str(tmp_path / "cache")}, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "EMULATED DEVICE (CUDA on the CPU): correctness only, no times" in done.stdout
    assert not any(word in done.stdout for word in ("GB/s", " us", "of bound"))
    taken = {file.stem: records.read(file) for file in (tmp_path / "out").iterdir()}
    assert set(taken) == set(parts)
    for found in taken.values():
        assert not [record for record in found if record.seconds or "refused" in record.meta]
        assert all(record.meta["emulated"] for record in found)
    checked = {record.subject for record in taken["kernels"] if record.meta.get("checked")}
    assert checked == {"tempi", "memcpy"}
    if "messages" in taken:
        of_tempi = {r.subject for r in taken["messages"] if r.meta.get("checked") and "beside" not in r.subject}
        alone = {f"{method}{suite_gpu.ALONE}" for method in suite_gpu.QUICK_METHODS}
        assert of_tempi == set(METHODS) - {"device"} | alone
        assert {record.subject for record in taken["overlap"] if record.meta.get("checked")} >= {"interior within"}


def test_an_emulated_device_under_a_real_ones_name_is_not_timed(emulated: dict[str, str], tmp_path: Path) -> None:
    """As if the test device were the machine's driver, libcuda.so.1."""
    here, fake = Path(_engine.library_path()).parent, tmp_path / "libcuda.so.1"
    shutil.copy(here / "libtempi-cuda.so", fake)
    for module in here.glob("tempi-ptx-*.so"):
        shutil.copy(module, tmp_path)
    environment = {name: value for name, value in emulated.items() if name != "TEMPI_CUDA_DRIVER"}
    environment |= {"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(fake)}
    done = bench(environment, tmp_path / "out", "--part", "launches")
    assert done.returncode == 0, done.stderr
    assert "EMULATED DEVICE (CUDA on the CPU): correctness only, no times" in done.stdout
    found = records.read(tmp_path / "out" / "launches.json")
    assert any(record.meta.get("checked") for record in found)
    assert not any(record.seconds for record in found)


@pytest.fixture
def broken(emulated: dict[str, str], tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """An environment whose Python runs a line before the worker, to break something."""

    def make(line: str) -> dict[str, str]:
        (tmp_path / "sitecustomize.py").write_text(line)
        return {**emulated, "PYTHONPATH": str(tmp_path)}

    return make


def test_a_wrong_answer_is_refused_and_reported(broken: Callable[[str], dict[str, str]], tmp_path: Path) -> None:
    """One byte of the reference is changed."""
    line = (
        "import sys\n"
        "if 'tempi.bench.workers.gpu' in sys.orig_argv:\n"
        "    from tempi.bench.gpu import memory as gpu_memory\n"
        "    right = gpu_memory.Memory.at\n"
        "    gpu_memory.Memory.at = lambda self, offsets: right(self, offsets) ^ (offsets == 16)\n"
    )
    done = bench(broken(line), tmp_path / "out", "--part", "kernels")
    assert done.returncode == 1
    assert "WRONG: vector run 8 stride 16, 16 KiB, pack, tempi: 1 wrong packed bytes" in done.stdout
    found: list[Record] = records.read(tmp_path / "out" / "kernels.json")
    assert any("refused" in record.meta for record in found)


def test_a_missing_gpu_is_reported_at_once(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    environment = {name: value for name, value in os.environ.items() if name != "TEMPI_CUDA_DRIVER"}
    done = bench(environment, tmp_path / "out")
    assert done.returncode == 1
    assert "no NVIDIA GPU here" in done.stderr
    assert "TEMPI_CUDA_DRIVER=emulated checks everything without a GPU" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_part_is_reported(emulated: dict[str, str], tmp_path: Path) -> None:
    done = bench(emulated, tmp_path, "--part", "moon")
    assert done.returncode == 2
    assert "--part moon: choose one of rates, launches, kernels, halo, overlap, messages" in done.stderr


def test_what_was_measured_is_there_when_it_is_killed(emulated: dict[str, str], tmp_path: Path) -> None:
    line = [sys.executable, "-P", "-m", "tempi", "bench", "gpu", "--out", str(tmp_path), "--part", "kernels"]
    file = tmp_path / "kernels.json"
    with subprocess.Popen(line, env=emulated, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        until = time.monotonic() + 60
        while not (file.is_file() and file.read_text().count("\n") > 3):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    whole = file.read_text().count("\n")
    assert whole > 3
    assert len(records.read(file)) >= whole


def test_nothing_new_is_begun_when_the_time_is_over(emulated: dict[str, str], tmp_path: Path) -> None:
    done = bench(broken_clock(emulated, tmp_path), tmp_path / "out", "--part", "kernels", "--limit", "5")
    assert done.returncode == 0, done.stderr
    assert "shapes: the time was over" in done.stdout
    found = records.read(tmp_path / "out" / "kernels.json")
    assert [record for record in found if record.meta.get("checked")]
    assert len({record.case for record in found}) < len(gpu_cases.tiny_cases())


def test_only_shapes_whose_names_match_are_measured(emulated: dict[str, str], tmp_path: Path) -> None:
    done = bench(emulated, tmp_path, "--part", "kernels", "--cases", "face [xz]|run 8 ")
    assert done.returncode == 0, done.stderr
    shapes = {record.case for record in records.read(tmp_path / "kernels.json") if record.op in ("pack", "unpack")}
    assert shapes == {case.name for case in gpu_cases.tiny_cases() if re.search("face [xz]|run 8 ", case.name)} != set()
    assert bench(emulated, tmp_path, "--part", "kernels", "--cases", "(").returncode == 2
    none = bench(emulated, tmp_path, "--part", "kernels", "--cases", "no such shape")
    assert none.returncode != 0
    assert "no shape has such a name" in none.stderr


def broken_clock(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """An environment in which a second of the worker lasts 50 ms."""
    line = "import time\nreal = time.monotonic\ntime.monotonic = lambda: 20 * real()\n"
    (folder / "sitecustomize.py").write_text(
        f"import sys\nif 'tempi.bench.workers.gpu' in sys.orig_argv:\n    exec({line!r})"
    )
    return {**environment, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("known", "rows", "left"),
    [(None, 1 << 22, False), (None, 1 << 23, True), (1e-9, 1 << 30, True), (1e-12, 1 << 30, False)],
)
def test_a_copy_of_very_many_rows_is_left_out(known: float | None, rows: int, left: bool) -> None:
    """By the seconds of a row at a smaller size, or by the number of rows."""
    case = Vector(rows, 1, 2)
    none: Any = None
    plan = worker_gpu.Plan(True, 0, 0, (), none)
    bench = worker_gpu.Bench(none, plan, 0.3, 1 << 40, {})
    if known:
        bench.taken[worker_gpu.shape_key(Vector(1 << 16, 1, 2), "pack", "memcpy")] = (1 << 16, known * (1 << 16))
        bench.taken[worker_gpu.shape_key(Vector(1 << 16, 1, 2), "unpack", "memcpy")] = (1 << 16, 1e3)
    assert (worker_gpu.capped(bench, case, "pack", "memcpy") is not None) == left


def test_records_are_whole(emulated: dict[str, str], tmp_path: Path) -> None:
    done = bench(emulated, tmp_path / "out", "--part", "launches", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {record["meta"]["part"] for record in found} == {"launches"}
    assert "EMULATED" in done.stderr
