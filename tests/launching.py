"""Jobs that a test starts itself: their launcher, their environment, the MPI library that they run with."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tempi.measure import launch


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Sets all ranks of the node to same LLC; a test of the locality sets it otherwise."""
    apart = r"TEMPI_(?!LIBRARY|MPI_PREFIX)|LD_PRELOAD$|PMI|OMPI_COMM_WORLD"
    own = {name: value for name, value in launch.environment(launcher().path).items() if not re.match(apart, name)}
    return own | {"TEMPI_CACHE_DIR": str(folder), "TEMPI_LOCALITY": "same-llc"} | variables


def launcher() -> launch.Launcher:
    try:
        return launch.find_launcher()
    except launch.LaunchError as error:
        pytest.skip(str(error))


@cache
def version() -> str:
    code = "from tempi import MPI; print(MPI.Get_library_version())"
    own = environment(Path("/nonexistent"))
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout
