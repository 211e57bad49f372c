"""The GPU suite on the emulated device: every part, checked against NumPy, and the timing code, whose figures
are ignored."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tempi import _engine
from tempi.bench.gpu import cases as gpu_cases
from tempi.bench.gpu.cases import Face, Indexed, Vector
from tempi.bench.options import GPU_PARTS, METHODS, GpuOptions, MessageOptions, parse_gpu, parse_messages
from tempi.bench.suites import gpu as suite_gpu
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


def test_options_come_back() -> None:
    given = GpuOptions(True, 0.25, 1 << 30, ("rates", "launches"))
    assert parse_gpu(given.arguments()) == given
    message = MessageOptions(False, 0.5, "staged")
    assert parse_messages(message.arguments()) == message


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
    subjects = {record.subject for record in found if record.meta["part"] == "launches"}
    assert subjects == {"driver", "tempi", "fused", "one by one", "memcpy", "empty launches"}


def bench(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(environment, "-m", "tempi", "bench", "gpu", "--quick", "--out", str(folder), *arguments)


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
        assert of_tempi == set(METHODS) - {"device"}


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
    assert "--part moon: choose one of rates, kernels, launches, messages, halo" in done.stderr


def test_records_are_whole(emulated: dict[str, str], tmp_path: Path) -> None:
    done = bench(emulated, tmp_path / "out", "--part", "launches", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {record["meta"]["part"] for record in found} == {"launches"}
    assert "EMULATED" in done.stderr
