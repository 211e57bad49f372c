"""Device memory in a C program on every installed library, and tempi's answers to its queries."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from preload.toolchains import ENGINE, HERE, Toolchain, counter, every_toolchain, own_toolchain, preloaded

DRIVER = str(ENGINE.with_name("libtempi-cuda.so"))
EMULATED: dict[str, Any] = {"TEMPI_CUDA_DRIVER": "emulated", "TEMPI_EMULATOR_STREAMS": "random"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("device")


def run(mpi: Toolchain, programs: Path, driver: str, **settings: str) -> tuple[list[str], dict[str, str], str]:
    """The steps' lines, the answers, and stderr."""
    target = programs / f"device_calls-{mpi.name}"
    if not target.exists():
        mpi.compile(target, HERE / "device_calls.c")
    done = mpi.run(target, driver, programs / "file", ranks=2, TEMPI_STATS="1", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    answers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return [line for line in lines if ": " not in line], answers, done.stderr


def plain(mpi: Toolchain, programs: Path) -> tuple[list[str], dict[str, str]]:
    """Without tempi, in host memory."""
    steps, answers, _ = run(mpi, programs, "none")
    assert steps
    assert all(step.startswith("ok ") for step in steps)
    return steps, answers


@every_toolchain
def test_device_memory_works_on_a_library_that_is_not_cuda_aware(mpi: Toolchain, programs: Path) -> None:
    steps, answers, stderr = run(mpi, programs, DRIVER, LD_PRELOAD=preloaded(), **EMULATED)
    assert steps == plain(mpi, programs)[0]
    assert answers["MPIX_Query_cuda_support"] == answers["MPIX_GPU_query_support"] == "1"
    kinds = answers["mpi_memory_alloc_kinds"].split(",")
    assert {"mpi", "system", "cuda", "cuda:host", "cuda:device", "cuda:managed"} <= set(kinds)
    assert len(kinds) == len(set(kinds))
    assert (counter(stderr, "bounced") or 0) >= 2 * 8


@every_toolchain
def test_device_memory_is_a_crash_without_tempi(mpi: Toolchain, programs: Path) -> None:
    """The test above would detect it: host code cannot access the emulated device's memory."""
    target = programs / f"device_calls-{mpi.name}"
    if not target.exists():
        mpi.compile(target, HERE / "device_calls.c")
    assert mpi.run(target, DRIVER, programs / "file", **EMULATED).returncode != 0


@every_toolchain
@pytest.mark.parametrize(
    "settings",
    [{"TEMPI_CUDA_DRIVER": "none"}, {"TEMPI_DISABLE": "1"} | EMULATED, {"TEMPI_NO_TYPE_COMMIT": "1"} | EMULATED],
    ids=["no driver", "disabled", "no types"],
)
def test_where_tempi_gives_nothing_the_library_answers(
    mpi: Toolchain, programs: Path, settings: dict[str, Any]
) -> None:
    steps, answers, stderr = run(mpi, programs, "none", LD_PRELOAD=preloaded(), **settings)
    alone_steps, alone = plain(mpi, programs)
    assert steps == alone_steps
    for question, answer in answers.items():
        assert answer == alone[question] or alone[question] == "-1", question  # a function that it lacks
        assert answer != "1" or alone[question] == "1"
    assert not counter(stderr, "bounced")


@every_toolchain
def test_a_library_that_is_set_cuda_aware_gets_device_memory(mpi: Toolchain, programs: Path) -> None:
    """With host memory, since these libraries cannot access device memory."""
    on = {"TEMPI_CUDA_AWARE": "1", "LD_PRELOAD": preloaded()} | EMULATED
    _, answers, stderr = run(mpi, programs, "none", **on)
    assert answers["MPIX_Query_cuda_support"] == "1"
    assert not counter(stderr, "bounced")
    assert mpi.run(programs / f"device_calls-{mpi.name}", DRIVER, programs / "file", **on).returncode != 0


@every_toolchain
def test_a_library_that_is_set_not_cuda_aware_gets_no_device_memory(mpi: Toolchain, programs: Path) -> None:
    on = {"TEMPI_CUDA_AWARE": "0", "LD_PRELOAD": preloaded()} | EMULATED
    steps, answers, stderr = run(mpi, programs, DRIVER, **on)
    assert steps == plain(mpi, programs)[0]
    assert answers["MPIX_Query_cuda_support"] == "1"
    assert (counter(stderr, "bounced") or 0) > 0


# -- a driver that fails ------------------------------------------------------------------------------------------

FAILURES = ("cuMemcpyAsync:1", "cuMemcpyAsync:4", "cuMemcpyAsync:3:lost", "cuEventRecord:2", "cuStreamWaitEvent:2",
            "cuEventCreate:1", "cuStreamCreateWithPriority:1", "cuPointerGetAttributes:1", "cuPointerGetAttributes:3",
            "cuEventQuery:1", "cuDeviceGet:1", "cuDevicePrimaryCtxRetain:2", "cuMemHostRegister:1",
            "cuStreamWriteValue32:1", "cuStreamQuery:1")  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
def test_a_call_that_fails_is_retried_or_an_mpi_error(programs: Path, failure: str) -> None:
    mpi = own_toolchain()
    target = programs / f"device_calls-{mpi.name}"
    if not target.exists():
        mpi.compile(target, HERE / "device_calls.c")
    on = {"LD_PRELOAD": preloaded(), "TEMPI_EMULATOR_FAIL": failure} | EMULATED
    done = mpi.run(target, DRIVER, programs / "file", **on)
    output = done.stdout + done.stderr
    assert not re.search(r"segmentation fault|SIGSEGV|received signal", output, re.IGNORECASE)
    if done.returncode == 0:
        assert "BAD" not in done.stdout
        assert done.stdout.count("ok ") >= 6
    else:
        assert re.search(r"MPI_Abort|MPI_ERR|fatal", output, re.IGNORECASE)


# -- an unchanged mpi4py program ------------------------------------------------------------------------------------

ARRAYS = """
import numpy as np
from mpi4py import MPI
from tempi.emulator.array import DeviceArray

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
x = DeviceArray.from_numpy(np.arange(1000.0) + rank)
y = DeviceArray.from_numpy(np.zeros(1000))
comm.Allreduce(x, y)
assert np.array_equal(y.to_numpy(), size * np.arange(1000.0) + sum(range(size)))
comm.Bcast(x, root=0)
assert np.array_equal(x.to_numpy(), np.arange(1000.0))
z = DeviceArray.from_numpy(np.zeros((size, 1000)))
comm.Allgather(x, z)
assert np.array_equal(z.to_numpy(), np.tile(np.arange(1000.0), (size, 1)))
into = DeviceArray.from_numpy(np.zeros(1000))
MPI.Request.Waitall([comm.Irecv(into, (rank - 1) % size), comm.Isend(y, (rank + 1) % size)])
assert np.array_equal(into.to_numpy(), y.to_numpy())
print("right")
"""


def arrays(tmp_path: Path, *launcher: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "arrays.py"
    program.write_text(ARRAYS)
    return own_toolchain().run(*launcher, sys.executable, "-P", program, ranks=2, **EMULATED, **settings)


def test_an_mpi4py_program_with_device_arrays_just_works(tmp_path: Path, script: Path) -> None:
    pytest.importorskip("mpi4py")
    done = arrays(tmp_path, script, "run")
    assert done.stdout.replace("\n", "") == "rightright", done.stderr  # two ranks' lines may run into one another
    assert arrays(tmp_path).returncode != 0, "without tempi it crashes"
