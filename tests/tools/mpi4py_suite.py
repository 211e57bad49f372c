"""mpi4py's own test suite, plain and with tempi under it: the same tests must pass, fail and be skipped.

    python tests/tools/mpi4py_suite.py [--all] [--include REGEX] [--set NAME=VALUE]

Takes the source distribution of the installed version from the registry (kept under build/) and runs it
plain, with the engine preloaded, and with the drop-in in place of mpi4py.MPI, tempi acting on all that it
can (TEMPI_FORCE=1; --set adds to it or changes it): by import on 1 rank and by preload on 2; with --all by
both on each. A test counts as failed if tempi
changed its outcome on any rank, and not if it fails without tempi too. The last line is
`N passed, N failed, N skipped in S s`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = ("preload", "import")
SOME = {1: ("import",), 2: ("preload",)}
LIMIT = 400.0  # seconds, one run
#: What the drop-in is there to change; and objects that C code makes of a handle are of mpi4py's classes.
CHANGED = {"import": re.compile(r"testNotContiguous\b|TestMessageCAIBuf.testNonContiguous\b|testCAPI\b")}
#: Start further processes, which a machine may not allow.
LEFT_OUT = ("test_spawn", "test_dynproc")
#: A third of the time, for a Python walk over datatypes. Run with --all.
SLOW = ("test_util_dtlib",)

Outcomes = dict[str, str]


def leave_lies_out() -> None:
    """That test gives strides that reach behind its memory and expects a refusal; the drop-in takes strides."""
    tests = importlib.import_module("test_msgspec").TestMessageCAIBuf
    tests.testNonContiguous = unittest.skip("its strides reach behind its memory")(tests.testNonContiguous)


# -- inside one rank --------------------------------------------------------------------------------------


class Recorder(unittest.TextTestResult):
    """Notes the outcome of each test, the worst of its subtests'."""

    outcomes: Outcomes

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.outcomes = {}

    def note(self, test: unittest.TestCase, outcome: str) -> None:
        if self.outcomes.get(test.id()) != "failed":
            self.outcomes[test.id()] = outcome

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self.note(test, "failed")

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self.note(test, "failed")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self.note(test, "failed")


def child(entry: str, tests: Path, leave_out: Sequence[str], include: str, out: Path) -> None:
    """Runs the suite in this rank and writes what came of each test."""
    if entry == "import":
        from tempi import MPI

        package: Any = importlib.import_module("mpi4py")
        package.MPI = MPI
    sys.path.insert(0, str(tests))
    if entry == "import":
        leave_lies_out()
    program = importlib.import_module("main").TestProgram
    runner = unittest.TextTestRunner(resultclass=Recorder, verbosity=0)
    arguments = ["main.py", "-q", *(f"-e{name}" for name in leave_out)]
    if include:
        arguments.append(f"-i{include}")
    result: Any = None

    class Program(program):  # type: ignore[misc, valid-type]
        def runTests(self) -> None:
            nonlocal result
            result = runner.run(self.test)

    Program(module=None, argv=arguments)
    from mpi4py import MPI as Below

    if entry != "plain":
        import tempi

        assert tempi.stats().interposed, tempi.stats().reason
    (out / f"{Below.COMM_WORLD.rank}.json").write_text(json.dumps(result.outcomes))


# -- outside ----------------------------------------------------------------------------------------------


def sources() -> Path:
    """The tests of the installed mpi4py's source distribution."""
    version = metadata.version("mpi4py")
    folder = ROOT / "build" / f"mpi4py-{version}"
    if not (folder / "test" / "main.py").is_file():
        with tempfile.TemporaryDirectory() as temporary:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            options = ["--no-deps", "--no-binary", "mpi4py", "-d", temporary]
            subprocess.run([*pip, *options, f"mpi4py=={version}"], check=True, stdout=sys.stderr)
            archive = next(Path(temporary).glob("mpi4py-*.tar.gz"))
            with tarfile.open(archive) as opened:
                opened.extractall(temporary, filter="data")
            folder.parent.mkdir(exist_ok=True)
            shutil.move(str(archive).removesuffix(".tar.gz"), folder)
    return folder / "test"


def launcher() -> list[str]:
    own = Path(sys.prefix) / "bin" / "mpirun"
    mpirun = str(own) if own.is_file() else "mpirun"
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    is_open_mpi = any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE"))
    return [mpirun, "--oversubscribe"] if is_open_mpi else [mpirun]


def library() -> str:
    code = "from tempi import _engine; print(_engine.library_path())"
    found = subprocess.run([sys.executable, "-P", "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip()


def settings_of(entry: str, extra: Sequence[str]) -> dict[str, str]:
    if entry == "plain":
        return {}
    preload = {"LD_PRELOAD": library()} if entry == "preload" else {}
    return {"TEMPI_FORCE": "1"} | dict(pair.split("=", 1) for pair in extra) | preload


def run(settings: Mapping[str, str], entry: str, ranks: int, tests: Path, words: Sequence[str]) -> list[Outcomes]:
    """What each rank wrote; nothing of a rank that did not get so far."""
    with tempfile.TemporaryDirectory() as out:
        me = [sys.executable, "-P", __file__, "--child", entry, "--tests", str(tests), "--out", out, *words]
        line = [*launcher(), "-n", str(ranks), "env", *(f"{k}={v}" for k, v in settings.items()), *me]
        process = subprocess.Popen(
            line,
            cwd=tests,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0] + f"\nstopped after {LIMIT:.0f} s"
        written = [json.loads(path.read_text()) for path in sorted(Path(out).iterdir())]
    if len(written) < ranks:
        print(f"{entry}, {ranks} ranks: {ranks - len(written)} ranks did not finish", output[-3000:], sep="\n")
    return written


def differences(entry: str, plain: Outcomes, with_tempi: Outcomes) -> Iterator[str]:
    allowed = CHANGED.get(entry)
    for name in sorted(plain.keys() | with_tempi.keys()):
        before, after = plain.get(name, "not run"), with_tempi.get(name, "not run")
        if before != after and not (allowed and allowed.search(name)):
            yield f"{name}: {before} without tempi, {after} with it by {entry}"


def compare(
    ranks: int, entries: Sequence[str], tests: Path, words: Sequence[str], extra: Sequence[str]
) -> tuple[int, int, int]:
    """Passed, failed, skipped: of tests with tempi, over entries; the worst rank's outcome."""
    passed = failed = skipped = 0
    plain = run({}, "plain", ranks, tests, words)
    for entry in entries:
        done = run(settings_of(entry, extra), entry, ranks, tests, words)
        complete = len(plain) == len(done) == ranks
        changed: set[str] = set()
        for rank, (before, after) in enumerate(zip(plain, done, strict=False)):
            found = list(differences(entry, before, after))
            changed |= {line.split(":")[0] for line in found}
            print(*(f"rank {rank}: {line}" for line in found), sep="\n", end="\n" if found else "")
        outcomes = done[0] if done else {}
        passed += sum(o != "skipped" for n, o in outcomes.items() if n not in changed)
        skipped += sum(o == "skipped" for n, o in outcomes.items() if n not in changed)
        failed += len(changed) + (not complete)
        print(f"{ranks} ranks, {entry}: {len(outcomes)} tests, {len(changed)} changed", flush=True)
    return passed, failed, skipped


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--all", action="store_true", help="all tests by both entries on 1 and on 2 ranks")
    parser.add_argument("--include", default="", help="test modules whose name matches")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of tempi's")
    parser.add_argument("--child", choices=("plain", *ENTRIES), help=argparse.SUPPRESS)
    parser.add_argument("--tests", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        leave_out = LEFT_OUT if options.all else LEFT_OUT + SLOW
        child(options.child, options.tests, leave_out, options.include, options.out)
        return 0
    start, tests = time.monotonic(), sources()
    words = [*(["--all"] if options.all else []), "--include", options.include]
    plan = dict.fromkeys(SOME, ENTRIES) if options.all else SOME
    totals = [compare(ranks, entries, tests, words, options.set) for ranks, entries in plan.items()]
    passed, failed, skipped = (sum(column) for column in zip(*totals, strict=True))
    seconds = time.monotonic() - start
    print(f"{passed} passed, {failed} failed, {skipped} skipped in {seconds:.1f}s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
