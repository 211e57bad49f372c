"""Random datatypes in the memory of the device of this run: a GPU, or the emulated one if
TEMPI_CUDA_DRIVER says so. `make gpu` runs these, and the MPI tests with their memory on the device."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tempi import _engine

PROGRAM = Path(__file__).resolve().parents[1] / "unit" / "cuda" / "emulated.py"
EMULATED = os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"
CASES = "200"


def command(seed: int, cases: str) -> list[str]:
    return [sys.executable, "-P", str(PROGRAM), str(seed), cases]


def run(line: list[str], limit: float = 500, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TEMPI_")}
    driver = {"TEMPI_CUDA_DRIVER": "emulated"} if EMULATED else {}
    environment = {**kept, **driver, "TEMPI_LIBRARY": _engine.library_path(), **settings}
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=limit)


@pytest.mark.parametrize("seed", [21, 22, 23])
def test_random_datatypes_move_as_their_type_map_says(seed: int) -> None:
    """By every method, in bursts and one by one, fragments and misaligned ones among them."""
    done = run(command(seed, CASES))
    assert done.returncode == 0, done.stderr
    assert ("emulated" in done.stdout) == EMULATED
    assert "'cuda_failures': 0" in done.stdout
    counted = int(done.stdout.split("'device_packs': ")[1].split(",")[0])
    assert counted >= int(CASES)


def test_little_device_memory_gives_smaller_pieces_and_right_bytes() -> None:
    done = run(command(24, "40"), TEMPI_DEVICE_MAX="300K")
    assert done.returncode == 0, done.stderr


#: What compute-sanitizer prints where it cannot work: with some virtual machines' drivers, for example.
UNUSABLE = re.compile(r"Device not supported|Failed to initialize|LibraryNotLoaded|Unable to find injection library")


def sanitized(sanitizer: str, tool: str, line: list[str], limit: float) -> tuple[bool | None, str]:
    """Whether the tool found nothing, with its output; None if it does not work here, with the reason."""
    try:
        done = run([sanitizer, "--tool", tool, "--error-exitcode", "9", *line], limit)
    except subprocess.TimeoutExpired:
        return None, f"compute-sanitizer takes longer than {limit:g} s here"
    output = done.stdout[-4000:] + done.stderr[-4000:]
    if done.returncode and (unusable := UNUSABLE.search(output)):
        return None, f"compute-sanitizer does not work here: {unusable.group()}"
    return done.returncode == 0, output


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_finds_nothing(tool: str) -> None:
    if EMULATED:
        pytest.skip("compute-sanitizer needs a real GPU; the emulated device checks every access itself")
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if sanitizer is None:
        pytest.skip("there is no compute-sanitizer on the PATH or in /usr/local/cuda/bin")
    good, output = sanitized(sanitizer, tool, command(25, "40"), 120)
    if good is None:
        pytest.skip(output)
    assert good, output


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("echo '========= ERROR SUMMARY: 0 errors'", True),
        ("echo '========= Invalid __global__ write of size 4'; exit 9", False),
        ("echo '========= Error: Device not supported'; exit 1", None),
        ("echo 'AssertionError: wrong bytes'; exit 1", False),
        ("sleep 20", None),
    ],
)
def test_a_sanitizer_that_does_not_work_is_no_fault(tmp_path: Path, text: str, good: bool | None) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)
    assert sanitized(str(tool), "memcheck", ["true"], 0.5)[0] is good
