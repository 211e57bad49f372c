"""The tests of mpi4py-fft, whose redistributions are MPI_Alltoallw with subarrays, under tempi."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from launching import environment, launcher
from tempi import _engine
from tempi.measure import launch

VERSION = "2.0.6"
FILES = ("test_pencil.py", "test_darray.py", "test_mpifft.py")

pytestmark = pytest.mark.more


def pip(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400)


def has_fftw() -> bool:
    command = ["cc", "-E", "-include", "fftw3.h", "-x", "c", "/dev/null"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and its tests."""
    if not has_fftw():
        pytest.skip("no fftw3.h here (Debian: libfftw3-dev)")
    folder = tmp_path_factory.mktemp("fft")
    fetched = pip("download", "--no-deps", "--dest", folder, f"mpi4py-fft=={VERSION}")
    archives = list(folder.glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"cannot fetch the sources of mpi4py-fft: {fetched.stderr.strip()[-300:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    built = pip("install", "--no-deps", "--target", folder / "site", archives[0])
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize(("ranks", "files"), [(1, FILES[:2]), (2, FILES), (4, FILES)], ids=["1", "2", "4"])
def test_its_tests_pass(suite: Path, tmp_path: Path, ranks: int, files: Sequence[str]) -> None:
    ours = {"TEMPI_STATS": "1", "LD_PRELOAD": _engine.library_path(), "PYTHONPATH": str(suite / "site")}
    tests = [str(suite / f"mpi4py_fft-{VERSION}" / "tests" / name) for name in files]
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    job = launch.command(launcher(), ranks, command, ours)
    done = subprocess.run(job, env=environment(tmp_path), cwd=suite, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count(" passed") == ranks
    assert " failed" not in done.stdout
    carried = re.search(r"(\d+) +collectives: ", done.stderr + done.stdout)
    assert carried
    assert int(carried[1]) > 100
