"""One libtempi.so preloaded into programs of every ABI, with profiling tools, and where tempi has nothing to do.

TEMPI_STATS proves each time that the shim was entered, or that it was not.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from preload.toolchains import (
    ENGINE,
    HERE,
    NOT_STARTED,
    STARTS,
    TIMEOUT,
    Toolchain,
    clean_environment,
    counter,
    every_toolchain,
    preloaded,
    toolchains,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DERIVED_CALLS = 5  # of interposer_program.c: three MPI_Send, one PMPI_Isend, one MPI_Pack


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def built(mpi: Toolchain, programs: Path, source: str, *more: str | Path, name: str = "") -> Path:
    target = programs / f"{name or Path(source).stem}-{mpi.name}"
    return target if target.exists() else mpi.compile(target, HERE / source, *more)


def tool_library(mpi: Toolchain, programs: Path) -> Path:
    return built(mpi, programs, "interposer_tool.c", "-shared", "-fPIC", name="libtool.so")


def test_an_mpi_is_installed() -> None:
    assert toolchains(), "no mpicc: the tests of the interposer would test nothing"


@pytest.mark.parametrize(("fails", "status"), [(STARTS - 1, 0), (STARTS, 7)])
def test_a_launcher_that_cannot_start_is_started_again(
    tmp_path: Path, executable: Callable[[str, str], Path], fails: int, status: int
) -> None:
    text = f"#!/bin/sh\necho >>{tmp_path}/starts\n[ $(wc -l <{tmp_path}/starts) -gt {fails} ] && exit 0\n"
    launcher = executable("mpirun", f'{text}echo "The {NOT_STARTED}." >&2; exit 7\n')
    done = Toolchain("none", "none", "", (str(launcher),)).run("true")
    assert (done.returncode, (tmp_path / "starts").read_text().count("\n")) == (status, STARTS)


def test_a_program_without_mpi_does_not_notice() -> None:
    run = subprocess.run(
        ["/bin/true"],
        env=clean_environment() | {"LD_PRELOAD": str(ENGINE), "TEMPI_STATS": "1"},
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


@every_toolchain
def test_programs_of_every_abi_run_plain_preloaded_and_off(mpi: Toolchain, programs: Path) -> None:
    program = built(mpi, programs, "interposer_program.c")
    plain = mpi.run(program, TEMPI_STATS="1")
    on = mpi.run(program, LD_PRELOAD=preloaded(), TEMPI_STATS="1")
    off = mpi.run(program, LD_PRELOAD=preloaded(), TEMPI_STATS="1", TEMPI_DISABLE="1")
    for run in (plain, on, off):
        assert "ok sends=3" in run.stdout, run.stdout + run.stderr
    assert counter(on.stderr, "calls_seen") == DERIVED_CALLS
    assert counter(plain.stderr, "calls_seen") is None
    assert counter(off.stderr, "calls_seen") is None


@every_toolchain
@pytest.mark.parametrize("place", ["after", "before", "linked", "needed"])
def test_a_profiling_tool_and_tempi_each_see_every_send(mpi: Toolchain, programs: Path, place: str) -> None:
    tool = tool_library(mpi, programs)
    program = {
        "linked": lambda: built(mpi, programs, "interposer_program.c", HERE / "interposer_tool.c", name="linked"),
        "needed": lambda: built(mpi, programs, "interposer_program.c", tool, f"-Wl,-rpath,{programs}", name="needed"),
    }.get(place, lambda: built(mpi, programs, "interposer_program.c"))()
    preload = {
        "after": preloaded(after=(tool,)),
        "before": preloaded(tool),
    }.get(place, preloaded())
    run = mpi.run(program, LD_PRELOAD=preload, TEMPI_STATS="1", TEMPI_FORCE="1")
    assert "tool sends=3" in run.stdout, run.stdout + run.stderr
    assert "ok sends=3" in run.stdout
    assert counter(run.stderr, "sends") == 4  # PMPI_Isend passes no tool, and is a send too


@every_toolchain
def test_an_mpi_loaded_late_and_locally_is_found(mpi: Toolchain, programs: Path) -> None:
    plain = built(mpi, programs, "interposer_program.c")
    compiler = shutil.which("cc") or "gcc"
    late = programs / "late"
    if not late.exists():
        command: list[str | Path] = [compiler, "-D_GNU_SOURCE", "-o", late, HERE / "interposer_late.c", "-ldl"]
        subprocess.run(command, check=True, timeout=TIMEOUT)
    run = mpi.run(late, linked_mpi(plain), LD_PRELOAD=preloaded(), TEMPI_STATS="1")
    assert "before: initialized=0 finalized=0 pinitialized=0" in run.stdout, run.stderr
    assert "refused=1 init=0 initialized=1" in run.stdout, run.stderr
    assert "MPI_Init was called, but no MPI library is loaded" in run.stderr
    assert "tempi: rank 0:" in run.stderr  # the engine was above it, from MPI_Init to MPI_Finalize


def linked_mpi(program: Path) -> str:
    """Path of the MPI library that a program is linked to."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    names = [line.split() for line in listed.splitlines() if "libmpi" in line]
    return names[0][2]


@every_toolchain
def test_without_the_engine_for_its_abi_a_program_runs_and_is_warned_once(
    mpi: Toolchain, programs: Path, tmp_path: Path
) -> None:
    alone = Path(shutil.copy(ENGINE, tmp_path))
    program = built(mpi, programs, "interposer_program.c")
    run = mpi.run(program, LD_PRELOAD=preloaded(engine=alone), TEMPI_STATS="1")
    assert "ok sends=3" in run.stdout, run.stderr
    assert run.stderr.count(f"no engine for the {mpi.abi} ABI") == 1
    assert counter(run.stderr, "calls_seen") is None


@every_toolchain
def test_an_engine_of_another_build_is_refused(mpi: Toolchain, programs: Path, tmp_path: Path) -> None:
    alone = Path(shutil.copy(ENGINE, tmp_path))
    source = tmp_path / "other.c"
    source.write_text(
        "void *tempi_shim_load(const unsigned long *interposer, const char **reason);\n"
        "void *tempi_shim_load(const unsigned long *interposer, const char **reason)\n"
        '{ if (interposer[0] == 0) return (void *)interposer; *reason = "of another build"; return 0; }\n'
    )
    shim = tmp_path / f"libtempi-{mpi.abi}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source], check=True, timeout=TIMEOUT)
    run = mpi.run(built(mpi, programs, "interposer_program.c"), LD_PRELOAD=preloaded(engine=alone))
    assert "ok sends=3" in run.stdout, run.stderr
    assert "of another build; MPI runs without tempi" in run.stderr


@every_toolchain
@pytest.mark.parametrize("off", ["", "1"], ids=["on", "off"])
def test_large_count_names_have_a_function_behind_them(mpi: Toolchain, programs: Path, off: str) -> None:
    program = built(mpi, programs, "interposer_large.c")
    native = ["native"] if mpi.abi != "openmpi" else []
    settings = {"TEMPI_DISABLE": off} if off else {}
    run = mpi.run(program, *native, ranks=2, LD_PRELOAD=preloaded(), **settings)
    assert "ok large" in run.stdout, run.stdout + run.stderr
    assert run.returncode == 0
