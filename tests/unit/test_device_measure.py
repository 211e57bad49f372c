"""tempi_device_run and tempi_device_time on the emulated device: refused arguments, and failures of the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tempi import _engine

ffi, lib = _engine.ffi, _engine.lib

PROGRAM = """
import sys
from tempi.bench.gpu import cases as gpu_cases
from tempi.measure import device_work
from tempi.measure.cuda_driver import Driver
from tempi import _engine
ffi, lib = _engine.ffi, _engine.lib
driver = Driver()
case = gpu_cases.Vector(4096, 8, 24)
memory, packed = driver.allocate(case.span), driver.allocate(case.nbytes)
work = device_work.work("pack", [(gpu_cases.layout_of(case), memory, packed)] * 3, 0)
work.run()
live = driver.library.tempi_emulator_live
def count():
    return [live(kind) for kind in (b"event", b"device", b"host")]
work.time(2)
before = count()
driver.library.tempi_emulator_fail(sys.argv[1].encode())
seconds = ffi.new("double *", -1.0)
status = lib.tempi_device_time(*work.arguments, 2, seconds, ffi.NULL)
driver.library.tempi_emulator_fail(b"")
again = lib.tempi_device_time(*work.arguments, 2, ffi.new("double *"), ffi.NULL)
print(status, seconds[0] >= 0, again, [a - b for a, b in zip(count(), before)])
"""


def test_invalid_work_is_refused() -> None:
    op = ffi.new("tempi_device_op[1]")
    assert lib.tempi_device_run(op, 0, 0, 0) == lib.TEMPI_ERR_ARG
    assert lib.tempi_device_run(op, 1, 2, 0) == lib.TEMPI_ERR_ARG
    assert lib.tempi_device_run(ffi.NULL, 1, 0, 0) == lib.TEMPI_ERR_ARG


def test_without_cuda_there_is_no_device() -> None:
    code = (
        "from tempi import _engine\n"
        "op = _engine.ffi.new('tempi_device_op[1]')\n"
        "seconds = _engine.ffi.new('double *', -1.0)\n"
        "print(_engine.lib.tempi_device_run(op, 1, 0, 0))\n"
        "print(_engine.lib.tempi_device_time(op, 1, 0, 0, 1, seconds, _engine.ffi.NULL), seconds[0])\n"
    )
    environment = {**os.environ, "TEMPI_CUDA_DRIVER": "none"}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)
    unsupported = lib.TEMPI_ERR_UNSUPPORTED
    assert done.stdout == f"{unsupported}\n{unsupported} -1.0\n", done.stderr


@pytest.mark.parametrize(
    "call",
    ["cuEventCreate", "cuEventRecord", "cuLaunchKernel", "cuStreamSynchronize", "cuEventElapsedTime", "cuMemcpyAsync"],
)
@pytest.mark.parametrize("which", [1, 2])
def test_one_failure_of_the_driver_leaves_nothing_behind(call: str, which: int) -> None:
    """The status reports it, or a retry succeeded; the output is written only on success."""
    here = Path(_engine.library_path()).parent
    if not (here / "libtempi-cuda.so").is_file() or not list(here.glob("tempi-ptx-*.so")):
        pytest.skip("this build has no emulated CUDA device, or no kernels")
    environment = {**os.environ, "TEMPI_CUDA_DRIVER": "emulated"}
    line = [sys.executable, "-P", "-c", PROGRAM, f"{call}:{which}"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    status, written, again, leaked = done.stdout.split(maxsplit=3)
    assert int(status) in (lib.TEMPI_OK, lib.TEMPI_ERR_DEVICE, lib.TEMPI_ERR_MEMORY)
    assert written == str(int(status) == lib.TEMPI_OK)
    assert int(again) == lib.TEMPI_OK
    assert leaked.strip() == "[0, 0, 0]"
