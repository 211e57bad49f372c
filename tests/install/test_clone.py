"""The sources, as a clone and as a source distribution: pip installs them on every Python, with one line
for each part that is not available."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from install.pythons import (
    ROOT,
    VERSIONS,
    Environment,
    check,
    constraints,
    every_python,
    interpreter,
    wheels_exist,
)

NEWEST = [version for version in VERSIONS if interpreter(version)][-1]
NO_MPI = "tempi: no mpi.h found: built without an engine"
NO_KERNELS = "tempi: GPU kernels are NOT in this build"
BUILD = ("setuptools>=77", "cffi>=1.15", "pympistandard>=0.2")  # pyproject.toml
#: Python 3.11 has it from 3.11.4 on, and Debian 12 has 3.11.2.
FILTER: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files, and nothing that was built."""
    target = tmp_path_factory.mktemp("clone") / "tempi"
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def compiler_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PATH with a C compiler and no mpicc."""
    folder = tmp_path_factory.mktemp("path")
    for tool in ("cc", "gcc", "as", "ld", "ar", "sh", "env"):
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    return folder


@pytest.fixture(scope="module")
def unpacked(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of the clone, which has its kernels by now."""
    folder = tmp_path_factory.mktemp("sdist")
    environment = Environment(folder / "environment", NEWEST)
    environment.pip("install", "--quiet", "--target", folder / "packages", *BUILD)
    code = "import sys; sys.path.insert(0, 'scripts/backend'); import tempi_build; tempi_build.build_sdist(sys.argv[1])"
    command = [environment.python, "-c", code, str(folder)]
    subprocess.run(command, cwd=clone, env={"PYTHONPATH": str(folder / "packages")}, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("tempi-*.tar.gz"))) as archive:
        archive.extractall(folder, **FILTER)
    return next(path for path in folder.glob("tempi-*") if path.is_dir())


@every_python
@pytest.mark.parametrize("age", ["newest", pytest.param("oldest", marks=pytest.mark.more)])
def test_a_clone_installs_and_compiles_its_kernels(
    clone: Path, compiler_only: Path, tmp_path: Path, version: str, age: str
) -> None:
    """The kernels' compilers have an environment of their own, with the newest packages."""
    if not wheels_exist(version, age):
        pytest.skip(f"constraints-{age}.txt names no versions for Python {version}")
    environment = Environment(tmp_path / "environment", version)
    shutil.rmtree(clone / "build" / "kernels", ignore_errors=True)
    wanted = f"{clone}[pictures]"
    said = environment.pip("install", "--prefer-binary", wanted, "-c", constraints(age), path=compiler_only)
    assert said.count(NO_MPI) == (not environment.has_mpi()), said
    assert NO_KERNELS not in said
    assert (clone / "build" / "kernels" / "kernels.json").is_file()
    check(environment, pictures=True)


@every_python
def test_a_source_distribution_installs_with_its_kernels(
    unpacked: Path, compiler_only: Path, tmp_path: Path, version: str
) -> None:
    """With the oldest packages, of the build too, from an index without compilers for kernels."""
    if not wheels_exist(version, "oldest"):
        pytest.skip(f"constraints-oldest.txt names no versions for Python {version}")
    environment = Environment(tmp_path / "environment", version)
    oldest = constraints("oldest")
    environment.pip("install", "--only-binary=:all:", "-c", oldest, *BUILD)
    environment.pip("install", "--no-build-isolation", f"{unpacked}[pictures]", "-c", oldest, path=compiler_only)
    assert not (unpacked / "build" / "kernels").exists()
    engine = next(environment.folder.glob("lib/python*/site-packages/tempi/lib/libtempi.so"))
    assert engine.read_bytes().count(b".version 7.0\n.target sm_") == 1
    check(environment, pictures=True)


def test_a_clone_installs_without_a_compiler_for_kernels(clone: Path, compiler_only: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment", NEWEST)
    environment.pip("download", "--quiet", "--only-binary=:all:", "--dest", tmp_path / "wheels", *BUILD)
    shutil.rmtree(clone / "build" / "kernels", ignore_errors=True)
    offline = ("--no-index", "--find-links", str(tmp_path / "wheels"))
    # --no-index on the command line must override an index in the environment.
    said = environment.pip(
        "install",
        "--quiet",
        "--no-deps",
        *offline,
        clone,
        path=compiler_only,
        PIP_CONFIG_FILE="/dev/null",
        PIP_FIND_LINKS="",
        PIP_EXTRA_INDEX_URL="",
    )
    lines = [line for line in said.splitlines() if line.strip()]
    assert [line.split(":")[1] for line in lines if line.startswith("tempi:")] == [
        NO_KERNELS.split(":")[1] + ", so that device buffers will have no fast path",
        NO_MPI.split(":")[1],
    ], said
    assert "pip cannot install their compilers: Could not find a version" in said
    assert len(lines) == 2, said


def test_a_missing_c_compiler_is_reported_in_one_line(clone: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment", NEWEST)
    done = environment.run(environment.python, "-m", "pip", "install", "--no-deps", clone, TEMPI_NO_KERNELS="1")
    assert done.returncode != 0
    assert "error: tempi: no C compiler found: install gcc, or name one with CC=..." in done.stdout
    assert "Traceback" not in done.stdout


def test_pip_refuses_an_old_python_in_one_line(clone: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment", "3.10")
    done = environment.run(environment.python, "-m", "pip", "install", "--no-deps", clone)
    assert done.returncode != 0
    assert "ERROR: Package 'tempi' requires a different Python: 3.10" in done.stdout
    assert "Traceback" not in done.stdout
