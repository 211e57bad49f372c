"""The driver under several threads, by the sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def program(request: pytest.FixtureRequest, compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("threads") / "threads"
    sources = [HERE / "stream_threads.c", *sorted((CSRC / "emulator").rglob("*.c"))]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", f"-fsanitize={request.param}", f"-I{CSRC}"]
    command = [compiler, *flags, *map(str, sources), "-o", str(made), "-lpthread", "-ldl", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr:
        pytest.skip(f"no {request.param} sanitizer here")
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize("mode", ["immediate", "deferred", "random"])
def test_sanitizers_find_nothing(program: Path, mode: str) -> None:
    environment = {"TEMPI_EMULATOR_STREAMS": mode, "TEMPI_EMULATOR_DELAY": "200", "ASAN_OPTIONS": "detect_leaks=0"}
    command = [str(program)]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 wrong\n", "")
