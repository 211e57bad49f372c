"""The device back end of csrc/cuda over a driver without a device (tests/unit/cuda/fake.c), under the
sanitizers. Real kernels are tested on the emulator: test_cuda_emulated.py."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent / "cuda"
CSRC = HERE.parents[2] / "csrc"
WARNINGS = ("-std=c11", "-D_GNU_SOURCE", "-g1", "-O0", "-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CASES = re.findall(r"X\((\w+)\)", (HERE / "cases.h").read_text())
# In these the driver is lost, or the program ends with work under way: the fake has no end of its own.
LOSING = ("a_lost_device_ends_the_gpu_path", "a_driver_that_is_gone_is_silent", "every_call_may_fail_once",
          "a_forked_child_leaves_the_driver_alone")  # fmt: skip


def sources() -> list[Path]:
    """Without the files that are compiled for several programs (conftest.py)."""
    parts = ("base", "datatype", "pack", "memory", "cuda", "api")
    engine = [f for part in parts for f in sorted((CSRC / part).glob("*.c"))]
    engine.remove(CSRC / "base" / "fallback.c")  # counts by MPI function, whose numbers are generated
    tests = [f for f in sorted(HERE.glob("*.c")) if f.name != "fake.c"]
    return [f for f in engine if not f.name.startswith(("plan", "kernels_"))] + tests


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, sanitized_kernels: list[Path]) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    library: list[str | Path] = [
        "-shared",
        "-fPIC",
        HERE / "fake.c",
        "-Wl,-soname,libcuda.so.1",
        "-o",
        folder / "libcuda.so.1",
    ]
    engine = [f"-I{CSRC}", f"-I{HERE}", *sources(), *sanitized_kernels, "-ldl", "-lpthread", "-lm"]
    for command in (library, [*engine, "-o", folder / "program"]):
        subprocess.run(["gcc", *WARNINGS, *SANITIZERS, *command], check=True, timeout=600)
    return folder / "program"


LONG = pytest.param("every_call_may_fail_once", marks=pytest.mark.more)


@pytest.mark.parametrize("case", [LONG if case == LONG.values[0] else case for case in CASES])
def test_the_back_end_over_a_fake_driver(program: Path, case: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TEMPI_")}
    environment["ASAN_OPTIONS"] = f"detect_leaks={int(case not in LOSING)}"
    command: list[str | Path] = [program, program.parent / "libcuda.so.1", case]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    warned = case in ("a_lost_device_ends_the_gpu_path", "a_named_stream_of_another_device_is_waited_for")
    assert warned or done.stderr == ""


def test_the_program_has_all_cases(program: Path) -> None:
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == CASES


#: Names under which programs open the driver: Numba and LLVM's OpenMP, a version, a copy under a name of its own.
NAMES = ("libcuda.so", "libcuda.so.580.65.06", "libcuda.so.1.1", "driver-of-another-name")


@pytest.mark.parametrize("name", NAMES)
def test_the_driver_is_found_by_any_name(program: Path, tmp_path: Path, name: str) -> None:
    library = tmp_path / name
    library.write_bytes((program.parent / "libcuda.so.1").read_bytes())
    command: list[str | Path] = [program, library, "cuda_that_comes_later_is_found"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
