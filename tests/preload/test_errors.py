"""Errors are the same as without tempi: messages that are too long, calls that fail, a simulated MPI."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from preload.toolchains import HERE, TIMEOUT, Toolchain, clean_environment, counter, every_toolchain, preloaded

ON = {"TEMPI_FORCE": "1", "TEMPI_STATS": "1"}


def outputs(mpi: Toolchain, folder: Path, name: str) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    """Of the program without tempi; and its run with it."""
    program = mpi.compile(folder / name, HERE / f"{name}.c")
    plain = mpi.run(program, ranks=2)
    assert plain.returncode == 0, plain.stdout + plain.stderr
    on = mpi.run(program, ranks=2, LD_PRELOAD=preloaded(), **ON)
    assert on.returncode == 0, on.stdout + on.stderr
    return plain.stdout.splitlines(), on


def without_statuses(lines: list[str]) -> list[str]:
    """Of Waitall with statuses, as the program prints one that gives no error of a request."""
    with_statuses = (line for line in lines if line.startswith("Waitall from "))
    return [re.sub(r"\(\d+,", "(0,", line).replace("Waitall", "Waitall without statuses") for line in with_statuses]


@every_toolchain
def test_truncation_is_reported_as_without_tempi(mpi: Toolchain, tmp_path: Path) -> None:
    """Open MPI's Waitall without statuses may miss an error of a request that was complete before; not tempi's. That of
    Intel MPI completes requests that it leaves with statuses, for which tempi asks in any case."""
    plain, on = outputs(mpi, tmp_path, "truncated")
    missed = [line for line in plain if line.startswith("Waitall without statuses") and ": class 0;" in line]
    assert not missed or mpi.abi == "openmpi"
    found = on.stdout.splitlines()
    assert len(found) == len(plain) > 100
    asked = without_statuses(plain)
    differ = [pair for pair in zip(found, plain, strict=True) if pair[0] != pair[1] and pair[1] not in missed]
    assert [pair for pair in differ if pair[0] not in asked] == []
    assert counter(on.stderr, "recvs")


@every_toolchain
def test_a_failed_call_changes_nothing(mpi: Toolchain, tmp_path: Path) -> None:
    """MPICH returns MPI_SUCCESS where the handler returns, and leaves the variable, in which a live request may stand;
    by its standard ABI it writes something there."""
    plain, on = outputs(mpi, tmp_path, "failed_calls")
    if mpi.abi == "standard":
        plain = [line.replace("changed", "as it was") for line in plain]
    assert sorted(on.stdout.splitlines()) == sorted(plain)
    assert sum("3 of 3 receives are whole" in line for line in plain) == 2 * 11  # ranks, calls
    assert counter(on.stderr, "recvs")


PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
<cluster id="c" prefix="n" suffix="" radical="0-1" speed="1Gf" bw="125MBps" lat="50us"/>
</platform>
"""
SAID = "under SimGrid the ranks are threads of one process"


def test_tempi_is_off_in_a_simulation(tmp_path: Path) -> None:
    """smpirun: the ranks are threads of one process."""
    if not (shutil.which("smpicc") and shutil.which("smpirun")):
        pytest.skip("no SimGrid")
    (tmp_path / "platform.xml").write_text(PLATFORM)
    (tmp_path / "hosts").write_text("n0\nn1\n")
    compiled: list[str | Path] = ["smpicc", "-w", "-o", "simulated", HERE / "simulated.c"]
    subprocess.run(compiled, cwd=tmp_path, check=True, timeout=TIMEOUT)
    run = subprocess.run(
        ["smpirun", "-np", "2", "-platform", "platform.xml", "-hostfile", "hosts", "./simulated"],
        cwd=tmp_path,
        env=clean_environment() | {"LD_PRELOAD": preloaded()},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert sorted(run.stdout.splitlines()) == ["ok 0", "ok 1"]
    assert run.stderr.count(SAID) == 1


def test_a_simulation_is_known_by_its_library(tmp_path: Path) -> None:
    """The same where SimGrid is not installed: a library with its functions."""
    library, program = tmp_path / "libsimgrid.so", tmp_path / "program"
    source = HERE / "simulated_fake.c"
    subprocess.run(["cc", "-w", "-DLIBRARY", "-shared", "-fPIC", source, "-o", library], check=True, timeout=TIMEOUT)
    subprocess.run(["cc", "-w", source, library, f"-Wl,-rpath,{tmp_path}", "-o", program], check=True, timeout=TIMEOUT)
    own = clean_environment() | {"LD_PRELOAD": preloaded()}
    run = subprocess.run([program], env=own, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (run.stdout, run.returncode) == ("Init by the library\n", 0), run.stderr
    assert run.stderr.count(SAID) == 1
