"""Numba's own arrays, if numba-cuda is installed: it uses the emulated driver as libcuda.so.1, or that of a GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tempi import _engine

#: Whether the device of this run is the machine's.
ON_CARD = os.environ.get("MPITEST_MEMORY") == "device" and os.environ.get("TEMPI_CUDA_DRIVER") != "emulated"
PROGRAM = """
import numpy as np
from numba import cuda
import tempi
host = np.arange(60.0).reshape(3, 4, 5)
array, back = cuda.to_device(host), cuda.to_device(np.zeros((3, 4, 5)))
packed = tempi.pack(array[:, 1])
assert type(packed) is type(array), type(packed)
assert packed.copy_to_host().tobytes() == host[:, 1].tobytes()
tempi.unpack(packed, back[:, 2])
assert (back.copy_to_host()[:, 2] == host[:, 1]).all()
stream = cuda.stream()
again = tempi.pack(cuda.to_device(host, stream=stream)[:, 3], stream=stream)
stream.synchronize()
assert again.copy_to_host().tobytes() == host[:, 3].tobytes()
"""
MESSAGES = """
from tempi import MPI
got = cuda.device_array((3, 5, 2))
request = MPI.COMM_SELF.Irecv(got[:, :, 0], 0)
MPI.COMM_SELF.Send(cuda.to_device(host, stream=stream)[:, 1], 0)
request.Wait()
assert (got.copy_to_host()[:, :, 0] == host[:, 1]).all()
MPI.COMM_SELF.Sendrecv(array, 0, 0, back, 0)
assert (back.copy_to_host() == host).all()
stats = tempi.stats()
assert (stats["device_packs"], stats["sends"], stats["recvs"], stats["self_moves"]) == (2, 2, 2, 2)
"""


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
@pytest.mark.parametrize("messages", [False, True])
def test_numbas_arrays_are_packed_and_sent(tmp_path: Path, messages: bool) -> None:
    if messages:
        pytest.importorskip("mpi4py")
    environment = {**os.environ, "LD_PRELOAD": "", "TEMPI_LIBRARY": _engine.library_path()}
    if not ON_CARD:
        environment |= emulated(tmp_path)
    command = [sys.executable, "-P", "-c", PROGRAM + MESSAGES * messages]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def emulated(tmp_path: Path) -> dict[str, str]:
    """What makes the emulated driver Numba's."""
    folder = Path(_engine.library_path()).parent
    (tmp_path / "libcuda.so.1").symlink_to(folder / "libtempi-cuda.so")
    paths = {"LD_LIBRARY_PATH": str(tmp_path), "TEMPI_EMULATOR_MODULES": str(folder)}
    return {**paths, "TEMPI_CUDA_DRIVER": "emulated"}
