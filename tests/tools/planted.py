"""Plants faults in a copy of the engine, one at a time, and tells whether the tests find them.

    python tests/tools/planted.py VENV [MPI] [--only EXPRESSION] [--list] [--whole]

A fault that no test finds is a hole in the suite, or is none: then put another in its place. The copy is
build/planted, with an installed package and its engine, which the tests take by PYTHONPATH; only what a fault
changes is compiled again. Each fault has its area's tests (`AREAS`), stopped at the first failure; with --whole
what they do not find is looked for by all of `make test`. The last line is `N found, N not found`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "planted"
PLANTED = COPY / "planted.txt"  # the file with the last fault
PARTS = ("csrc", "bench", "tempi", "tests", "scripts", "pyproject.toml", "setup.py")
LIMIT = 240.0  # seconds for a test file; a hang counts as found

#: Test files of `make test` that are for an area, quick ones first. FILE@GROUP: an MPI test in a group that is not
#: its first one (tests/tools/groups.py).
AREAS: Mapping[str, Sequence[str]] = {
    "datatype": (
        "tests/unit/test_layout_canonical.py",
        "tests/unit/test_layout_hypothesis.py",
        "tests/unit/test_layout_native.py",
    ),
    "pack": (
        "tests/unit/test_pack_submit.py",
        "tests/unit/test_pack_fragments.py",
        "tests/unit/test_pack_kernels.py",
    ),
    "memory": ("tests/mpi/test_memories.py", "tests/mpi/test_mixed.py", "tests/preload/test_devices.py"),
    "transfer": (
        "tests/unit/test_staging_native.py",
        "tests/mpi/test_stage.py",
        "tests/mpi/test_completion.py",
        "tests/mpi/test_bounce_requests.py",
        "tests/mpi/test_bounce_windows.py",
    ),
    "choose": (
        "tests/unit/test_rule.py",
        "tests/unit/test_tables.py",
        "tests/unit/test_model_sure.py",
        "tests/unit/test_autotune.py",
        "tests/unit/test_message_trials.py",
        "tests/unit/test_message_probes.py",
        "tests/bench/test_model.py",
        "tests/mpi/test_rule_repeated.py",
        "tests/mpi/test_rule_to_self.py",
        "tests/cli/test_calibrate.py",
    ),
    "cuda": (
        "tests/kernels/test_plans.py",
        "tests/kernels/test_plans_fuzz.py",
        "tests/unit/test_cuda_emulated.py",
        "tests/unit/test_cuda_native.py",
    ),
    "p2p": (
        "tests/mpi/test_status.py",
        "tests/mpi/test_pairings.py",
        "tests/mpi/test_self.py",
        "tests/mpi/test_self_requests.py",
        "tests/mpi/test_deferred.py",
        "tests/mpi/test_memories.py",
    ),
    "request": (
        "tests/mpi/test_completion.py",
        "tests/mpi/test_status.py",
        "tests/mpi/test_bursts.py",
        "tests/mpi/test_device_errors.py",
        "tests/mpi/test_deferred.py",
        "tests/mpi/test_self_requests.py",
    ),
    "type": ("tests/mpi/test_types.py", "tests/mpi/test_pack.py", "tests/mpi/test_quirks.py"),
    "bounce": (
        "tests/mpi/test_bounce_requests.py",
        "tests/mpi/test_bounce_collectives.py",
        "tests/mpi/test_bounce_windows.py",
    ),
    "comm": (
        "tests/unit/test_peers_native.py",
        "tests/mpi/test_communicators.py",
        "tests/cli/test_two_hosts.py",
    ),
    "exchange": ("tests/unit/test_post_native.py", "tests/mpi/test_collective_memory.py"),
    "coll": (
        "tests/mpi/test_collective_requests.py",
        "tests/mpi/test_collective_neighbors.py",
        "tests/mpi/test_collective_memory.py",
        "tests/mpi/test_collective_requests.py@device, collectives",
        "tests/preload/test_exchanges.py",
    ),
    "interposer": ("tests/preload/test_interposer.py", "tests/preload/test_programs.py"),
    "topology": ("tests/unit/test_peers_native.py", "tests/cli/test_two_hosts.py"),
}


@dataclass(slots=True)
class Engine:
    """The copy of the tree and its processes."""

    venv: Path
    mpi: str
    passed: set[str]  # tests that were seen to pass without a fault

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(COPY / "site"), "PYTEST_ADDOPTS": "-x -m 'not more'"}

    def copy(self) -> None:
        """Made anew, but for what was compiled; with the times of the files, so that it is not compiled again."""
        COPY.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            source, target = ROOT / part, COPY / part
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target)
        shutil.copytree(ROOT / "build" / "kernels", COPY / "build" / "kernels", dirs_exist_ok=True)
        if PLANTED.exists():  # a run that was killed may have left an object that is newer than the file as it is now
            (COPY / PLANTED.read_text()).touch()
        (package,) = self.venv.glob("lib/python*/site-packages/tempi")
        besides = shutil.ignore_patterns("__pycache__", "*.so")  # the engine is built there
        shutil.copytree(package, COPY / "site" / "tempi", ignore=besides, dirs_exist_ok=True)

    def build(self) -> str:
        """What the compiler says, if it fails."""
        prefixes = subprocess.run(["scripts/prefixes"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        python = str(self.venv / "bin" / "python")
        done = subprocess.run(
            [python, "csrc/build.py", "--out", "site/tempi/lib", "--work", "build/engine"],
            cwd=COPY,
            env=os.environ | {"TEMPI_MPI_PREFIX": prefixes},
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.stderr if done.returncode else ""

    def fails(self, test: str) -> bool:
        file, _, group = test.partition("@")
        suite = (str(self.venv / "bin" / "python"), "-P", "tests/tools/suite.py", str(self.venv), self.mpi)
        chosen = ("--test", file, *(("--group", group) if group else ())) if file else ()
        environment = {k: v for k, v in self.environment.items() if file or k != "PYTEST_ADDOPTS"}
        process = subprocess.Popen(
            [*suite, *chosen],
            cwd=COPY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(LIMIT if file else 10 * LIMIT) != 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)
            process.wait()
            return True

    def check(self, tests: Sequence[str]) -> None:
        for test in tests:
            if test not in self.passed and self.fails(test):
                raise SystemExit(f"planted.py: {test} fails without a fault")
            self.passed.add(test)


def found_by(engine: Engine, fault: Fault, whole: bool) -> str | None:
    """The test that fails with the fault, "the compiler", or None."""
    tests = [*fault.tests, *(test for test in AREAS[fault.area] if test not in fault.tests)]
    path = COPY / fault.file
    text = path.read_text()
    planted = fault.planted(text)
    PLANTED.write_text(fault.file)
    try:
        path.write_text(planted)
        if engine.build():
            return "the compiler"
        return next((test for test in (*tests, *([""] if whole else [])) if engine.fails(test)), None)
    finally:
        path.write_text(text)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("mpi", nargs="?", default="mpich", choices=["mpich", "openmpi", "intel", "system"])
    parser.add_argument("--only", default="", help="faults with this expression in `area file name`")
    parser.add_argument("--list", action="store_true", help="show the faults and stop")
    parser.add_argument("--whole", action="store_true", help="look for the rest by all of `make test`")
    options = parser.parse_args(arguments)
    shown = [fault for fault in FAULTS if fault.mpi in ("", options.mpi)]
    chosen = [fault for fault in shown if re.search(options.only, f"{fault.area} {fault.file} {fault.name}")]
    if options.list:
        print("\n".join(f"{fault.area:10}  {fault.file}: {fault.name}" for fault in chosen))
        return 0
    engine = Engine(options.venv.resolve(), options.mpi, set())
    engine.copy()
    if said := engine.build():
        raise SystemExit(f"planted.py: the copy does not compile:\n{said}")
    missed = 0
    for area in dict.fromkeys(fault.area for fault in chosen):
        own = [fault for fault in chosen if fault.area == area]
        engine.check([*dict.fromkeys([*AREAS[area], *(test for fault in own for test in fault.tests)])])
        for fault in own:
            start = time.monotonic()
            by = found_by(engine, fault, options.whole)
            missed += by is None
            told = f"found by {by or 'make test'}" if by is not None else "NOT FOUND"
            print(f"{area:10}  {fault.name}: {told} ({time.monotonic() - start:.0f} s)", flush=True)
        if said := engine.build():  # without a fault, for the next area's check
            raise SystemExit(said)
    print(f"{len(chosen) - missed} found, {missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
