"""The driver's life cycle: failures on demand, a lost device, fork, deinitialisation, counts, reports."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.driver import (
    DEINITIALIZED,
    NOT_INITIALIZED,
    OUT_OF_MEMORY,
    UNAVAILABLE,
    CudaError,
    Driver,
    int32,
)

TESTS = Path(__file__).resolve().parents[1]


def command_of(driver: Driver, text: str, *arguments: str) -> list[str]:
    """The command that runs a program in which `cuda` is the driver."""
    head = (
        "import sys, os, ctypes; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from emulator.driver import *\ncuda = Driver(Path(sys.argv[2]), Path(sys.argv[3]))\n"
    )
    return [sys.executable, "-c", head + text, str(TESTS), driver.library._name, str(driver.modules), *arguments]


def program(driver: Driver, text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own; it must end well."""
    command = command_of(driver, text, *arguments)
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_kth_call_fails_once(cuda: Driver) -> None:
    calls = cuda.count("cuMemAlloc")
    cuda.fail(f"cuMemAlloc:{calls + 2},cuMemFree:{cuda.count('cuMemFree') + 1}:CUDA_ERROR_UNKNOWN")
    pointer = cuda.alloc(64)
    with pytest.raises(CudaError) as caught:
        cuda.alloc(64)
    assert caught.value.code == OUT_OF_MEMORY
    assert cuda.result("cuMemFree_v2", pointer) == 999
    cuda.free(pointer)
    cuda.free(cuda.alloc(64))
    assert cuda.count("cuMemAlloc") == calls + 3


NAME = """
cuda("cuInit", int32(0))
name = ctypes.create_string_buffer(256)
cuda("cuDeviceGetName", name, int32(256), int32(0))
print(name.value.decode(), cuda.get("cuDriverGetVersion", kind=ctypes.c_int32))
"""


def test_only_in_a_rehearsal_a_device_does_not_say_that_it_is_emulated(driver: Driver) -> None:
    plain = program(driver, NAME, TEMPI_EMULATOR_DRIVER="").stdout
    assert plain == "tempi EMULATED device 0 (CUDA on the CPU) 12040\n"
    rehearsed = program(driver, NAME, TEMPI_EMULATOR_DRIVER="", _TEMPI_REHEARSAL="1").stdout
    assert rehearsed == "tempi REHEARSAL device 0 (CUDA on the CPU) 13000\n"


@pytest.mark.parametrize("rule", ["cuMemAlloc", "cuMemAlloc:0", "cuMemAlloc:x", "cuMemAlloc:1:0"])
def test_invalid_rules_are_refused(cuda: Driver, rule: str) -> None:
    assert cuda.library.tempi_emulator_fail(rule.encode()) != 0


def test_a_lost_device_fails_every_call_from_then_on(driver: Driver) -> None:
    text = f"""
cuda.start(); p = cuda.alloc(64); s = cuda.get("cuStreamCreate", int32(1))
cuda("cuMemsetD8Async", p, 1, 64, s)
assert cuda.result("cuStreamSynchronize", s) == {UNAVAILABLE}
assert cuda.result("cuMemFree_v2", p) == {UNAVAILABLE}
assert cuda.result("cuInit", int32(0)) == {UNAVAILABLE}
"""
    program(driver, text, TEMPI_EMULATOR_FAIL="cuStreamSynchronize:1:lost")


def test_nothing_works_before_init_and_after_deinit(driver: Driver) -> None:
    text = f"""
n = ctypes.c_int()
assert cuda.result("cuDeviceGetCount", ctypes.byref(n)) == {NOT_INITIALIZED}
assert cuda.get("cuDriverGetVersion", kind=ctypes.c_int) == 13000
cuda.start(); p = cuda.alloc(64)
cuda.library.tempi_emulator_deinit()
assert cuda.result("cuMemFree_v2", p) == {DEINITIALIZED}
assert cuda.result("cuDriverGetVersion", ctypes.byref(n)) == {DEINITIALIZED}
"""
    program(driver, text)


def test_a_forked_child_has_no_driver(driver: Driver) -> None:
    text = f"""
if os.fork() == 0:  # before cuInit: the child may have its own
    cuda.start(); cuda.free(cuda.alloc(64)); os._exit(0)
assert os.wait()[1] == 0
cuda.start(); p = cuda.alloc(64)
cuda("cuMemsetD8Async", p, 1, 64, 0)
if os.fork() == 0:
    codes = cuda.result("cuMemFree_v2", p), cuda.result("cuInit", int32(0))
    os._exit(codes != ({NOT_INITIALIZED}, {NOT_INITIALIZED}))
assert os.wait()[1] == 0
assert cuda.read(p, 64) == b"\\1" * 64
"""
    program(driver, text)


def test_no_device(driver: Driver) -> None:
    program(driver, 'assert cuda.result("cuInit", int32(0)) == 100', TEMPI_EMULATOR_DEVICES="0")


def test_the_report_counts_calls_and_leaks(driver: Driver, tmp_path: Path) -> None:
    report = tmp_path / "report"
    for _ in range(2):
        program(driver, "cuda.start(); cuda.alloc(64); cuda.free(cuda.alloc(64))", TEMPI_EMULATOR_REPORT=str(report))
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["calls"]["cuMemAlloc_v2"] for line in lines] == [2, 2]
    assert [(line["live"]["device"], line["live"]["stream"]) for line in lines] == [(1, 0), (1, 0)]
    assert lines[0]["pid"] != lines[1]["pid"]


def test_unknown_options_are_named(driver: Driver) -> None:
    done = program(driver, "cuda.start()", TEMPI_EMULATOR_STREAMS="later", TEMPI_EMULATOR_MEMORY="much")
    assert "TEMPI_EMULATOR_STREAMS=later: choose immediate, deferred or random" in done.stderr
    assert "TEMPI_EMULATOR_MEMORY=much is no number" in done.stderr


def test_functions_are_found_by_name(cuda: Driver) -> None:
    status = ctypes.c_int(9)
    out = ctypes.c_void_p()
    cuda("cuGetProcAddress_v2", b"cuMemAlloc", ctypes.byref(out), int32(12040), 0, ctypes.byref(status))
    address = ctypes.cast(cuda.library.cuMemAlloc_v2, ctypes.c_void_p).value
    assert (out.value, status.value) == (address, 0)
    assert cuda.result("cuGetProcAddress_v2", b"cuTexRefCreate", ctypes.byref(out), int32(12040), 0, None) == 500
    text = ctypes.c_char_p()
    cuda("cuGetErrorName", int32(700), ctypes.byref(text))
    assert text.value == b"CUDA_ERROR_ILLEGAL_ADDRESS"


def test_the_device_says_that_it_is_emulated(cuda: Driver) -> None:
    name = ctypes.create_string_buffer(100)
    cuda("cuDeviceGetName", name, int32(100), int32(1))
    assert b"EMULATED device 1" in name.value
