"""Data races in the engine, built with ThreadSanitizer, under programs of many threads.

An MPI library is not instrumented, so its memory accesses are not checked, and only reports with the engine on
top of a stack count. `racing` is wrong on purpose and proves that a race is detected.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from preload.toolchains import HERE, counter, engine_for_test, own_toolchain, preloaded
from sanitizers import THREADS, needs_thread_sanitizer, without_randomisation

FLAGS = f"{THREADS} -fno-omit-frame-pointer -g1"
#: Features of MPI libraries that ThreadSanitizer does not survive: UCX's hooks in the C library, one process's
#: reading another's memory, and PMIx's mapping memory at an address of its own.
TAMED = {
    "UCX_MEM_EVENTS": "n",
    "UCX_TLS": "posix,self",
    "UCX_ERROR_SIGNALS": "",
    "OMPI_MCA_smsc": "^cma,xpmem",
    "PMIX_MCA_gds": "hash",
}
OPTIONS = "ignore_noninstrumented_modules=1 history_size=4 exitcode=0"
pytestmark = pytest.mark.more  # the engine takes most of a minute to compile so


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For programs, where ThreadSanitizer works."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    out = tmp_path_factory.mktemp("threads")
    needs_thread_sanitizer(out)
    return out


@pytest.fixture(scope="module")
def engine(folder: Path) -> Path:
    """Of instrumented code, built for the MPI of this environment."""
    assert folder.is_dir()
    return engine_for_test("threads", ["gcc", *FLAGS.split()], "-O0", own_toolchain().abi)


def races(output: str) -> list[str]:
    """Those reports of which one side is the engine's own code."""
    found = re.findall(r"^WARNING: ThreadSanitizer: .*?(?=^SUMMARY)", output, re.M | re.S)
    return [report for report in found if re.search(r"^ +#0 .*(?:libtempi|/csrc/)", report, re.MULTILINE)]


def under_sanitizer(
    folder: Path, engine: Path, name: str, *arguments: str, ranks: int = 2, **settings: str
) -> tuple[list[str], str]:
    mpi = own_toolchain()
    program = mpi.compile(folder / name, HERE / f"{name}.c", f"-I{HERE}", *FLAGS.split())
    on = {"LD_PRELOAD": preloaded(engine=engine), "TEMPI_FORCE": "1", "TEMPI_STATS": "1", "TEMPI_ISA": "scalar"}
    command = [*without_randomisation(), str(program), *arguments]
    run = mpi.run(*command, ranks=ranks, TSAN_OPTIONS=OPTIONS, **TAMED, **on, **settings)
    output = run.stdout + run.stderr
    assert run.returncode == 0, output
    assert counter(run.stderr, "calls_seen") or counter(run.stderr, "collectives"), output
    return races(output), output


@pytest.mark.parametrize("delay", ["0", "5", "1000"])
def test_threads_do_not_race(folder: Path, engine: Path, delay: str) -> None:
    found, output = under_sanitizer(folder, engine, "threads", TEMPI_TEST_DELAY=delay)
    assert found == []
    assert "BAD" not in output
    assert bool(counter(output, "deferred")) == (delay != "0")


EXCHANGES = [("threads", ""), ("threads", "nonblocking"), ("threads", "persistent"), ("together", "persistent")]


@pytest.mark.parametrize(("what", "form"), EXCHANGES)
def test_threads_in_collectives_do_not_race(folder: Path, engine: Path, what: str, form: str) -> None:
    of_form = {"EXCHANGES_FORM": form} if form else {}
    found, output = under_sanitizer(folder, engine, "exchanges", what, ranks=2, **of_form)
    assert found == []
    assert f"ok {what}" in output
    assert counter(output, "collectives")


def test_a_race_is_detected(folder: Path, engine: Path) -> None:
    found, output = under_sanitizer(folder, engine, "racing", ranks=1)
    assert found, output
