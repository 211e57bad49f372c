"""The trampolines themselves, above a fake MPI: natively, and for arm64 under an emulator."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import build
from preload.toolchains import ENGINE, HERE, TIMEOUT, clean_environment, engine_for_test

pytestmark = pytest.mark.once


@dataclass(frozen=True, slots=True)
class Machine:
    """A compiler for a machine, and how to run its programs with a library preloaded."""

    name: str
    cc: str
    emulator: str = ""

    def missing(self) -> str:
        wanted = [tool for tool in (self.cc, self.emulator) if tool]
        absent = [tool for tool in wanted if shutil.which(tool) is None]
        return f"no {', '.join(absent)} here" if absent else ""

    def run(self, program: Path, preload: str) -> subprocess.CompletedProcess[str]:
        prefix = ["env", *([f"LD_PRELOAD={preload}"] if preload else [])]
        if self.emulator:
            root = f"/usr/{self.cc.removesuffix('-gcc')}"
            prefix = [self.emulator, "-L", root, *(["-E", f"LD_PRELOAD={preload}"] if preload else [])]
        return subprocess.run(
            [*prefix, program],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )


MACHINES = (
    Machine("native", build.compiler()[0]),
    pytest.param(Machine("arm64", "aarch64-linux-gnu-gcc", "qemu-aarch64"), marks=pytest.mark.more),
)


@dataclass(frozen=True, slots=True)
class Built:
    machine: Machine
    program: Path
    engine: Path


@pytest.fixture(scope="module", params=MACHINES, ids=["native", "arm64"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    machine: Machine = request.param
    if reason := machine.missing():
        pytest.skip(reason)
    work = tmp_path_factory.mktemp(machine.name)
    source, library, program = HERE / "interposer_fake.c", work / "libfakempi.so", work / "program"
    flags: list[str | Path] = ["-O2", "-w", "-D_GNU_SOURCE"]
    shared = [machine.cc, *flags, "-DLIBRARY", "-shared", "-fPIC", source, "-o", library]
    linked = [machine.cc, *flags, source, library, f"-Wl,-rpath,{work}", "-lpthread", "-o", program]
    for command in (shared, linked):
        subprocess.run(command, check=True, timeout=TIMEOUT)
    if not machine.emulator:
        return Built(machine, program, Path(shutil.copy(ENGINE, work)))
    return Built(machine, program, engine_for_test(machine.name, [machine.cc], "-O0"))


def test_arguments_arrive_whole_without_tempi(built: Built) -> None:
    run = built.machine.run(built.program, "")
    assert (run.stdout, run.returncode) == ("wrong=0\n", 0), run.stderr


def test_arguments_arrive_whole_through_the_trampolines(built: Built) -> None:
    run = built.machine.run(built.program, str(built.engine))
    assert run.stdout == "wrong=0\nabsent=1\n", run.stderr  # absent: the preload took effect
    assert run.returncode == 0
    assert "MPI_Barrier: this MPI library" in run.stderr
    assert run.stderr.count("no engine for the standard ABI") == 1
