"""The device back end with the shipped kernels, on the emulated device (correctness; no time is taken).

Each case is a process of its own, since the driver is chosen when the engine starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tempi import _engine

PROGRAM = Path(__file__).resolve().parent / "cuda" / "emulated.py"
CASES = 40


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TEMPI_")}
    environment |= {"TEMPI_LIBRARY": _engine.library_path(), "TEMPI_CUDA_DRIVER": "emulated"}
    environment |= {f"TEMPI_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-P", str(PROGRAM), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module", autouse=True)
def emulator() -> None:
    folder = Path(_engine.library_path()).parent
    if not (folder / "libtempi-cuda.so").is_file():
        pytest.skip("this build has no emulated CUDA")
    if not list(folder.glob("tempi-ptx-*.so")):
        pytest.skip("this build has no GPU kernels")


@pytest.mark.parametrize("streams", ["deferred", "random", "immediate"])
@pytest.mark.parametrize("devices", ["1", "2"])
def test_random_datatypes_move_as_their_type_map_says(streams: str, devices: str) -> None:
    seed = {"deferred": "11", "random": "12", "immediate": "13"}[streams]
    done = run(seed, str(CASES), devices, EMULATOR_STREAMS=streams, EMULATOR_DEVICES=devices)
    assert done.returncode == 0, done.stderr
    assert "emulated: CUDA on the CPU, a test device" in done.stdout
    assert "'cuda_failures': 0" in done.stdout
    counted = int(done.stdout.split("'device_packs': ")[1].split(",")[0])
    assert counted >= CASES


@pytest.mark.parametrize("streams", ["deferred", "random"])
def test_copies_may_access_pageable_memory_as_late_as_they_run(streams: str) -> None:
    done = run("21", str(CASES), "2", EMULATOR_STREAMS=streams, EMULATOR_DEVICES="2", EMULATOR_PAGEABLE="late")
    assert done.returncode == 0, done.stderr
    assert "'cuda_failures': 0" in done.stdout


def test_the_emulated_device_is_named_loudly() -> None:
    done = run("1", "1")
    assert "warning: emulated: CUDA on the CPU, a test device" in done.stderr


def test_little_device_memory_gives_smaller_pieces_and_right_bytes() -> None:
    done = run("5", "12", DEVICE_MAX="300K")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call", ["cuLaunchKernel:2", "cuStreamWriteValue32:1", "cuStreamQuery:1", "cuMemcpyAsync:2"])
def test_a_single_failure_of_the_driver_is_retried(call: str) -> None:
    done = run("6", "8", EMULATOR_FAIL=call)
    assert done.returncode == 0, done.stderr
    assert "'cuda_failures': 0" not in done.stdout
