"""Collectives by an engine that is built with AddressSanitizer and UndefinedBehaviorSanitizer.

Buffers of the program `every_collective` end with their last block, so an access beyond it is in no allocation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from preload.toolchains import HERE, engine_for_test, own_toolchain, preloaded
from sanitizers import address_reports, address_runtime, undefined_reports

pytestmark = pytest.mark.more  # the engine takes minutes to compile so
FORMS = ["blocking", "nonblocking", "persistent"]
TYPES = 9  # pairs of them in every_collective.c
OTHERS = [("each", 8), ("duplicates", 3), ("errors", 9), ("threads", 1), ("together", 1), ("full", 8)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def engine() -> Path:
    address_runtime()
    cc = ["gcc", "-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g1"]
    # Not optimised, as that takes the longer the more is checked; frames are larger than of other builds.
    return engine_for_test("undefined", cc, "-O0 -Wno-frame-larger-than", own_toolchain().abi)


def run(
    programs: Path, engine: Path, folder: Path, name: str, *arguments: str, ranks: int, **settings: str
) -> tuple[list[str], list[str], str]:
    """Reports, lines of stdout, and everything that was written."""
    mpi, program = own_toolchain(), programs / name
    if not program.exists():
        mpi.compile(program, HERE / f"{name}.c", f"-I{HERE}", "-g")
    on = {"LD_PRELOAD": preloaded(address_runtime(), engine=engine), "TEMPI_ISA": "scalar"}
    # A file for each process: on the terminal the lines of several would be mixed. Leaks of the MPI are not tempi's.
    checks = f"fast_unwind_on_malloc=0:log_path={folder}/report"
    options = {"ASAN_OPTIONS": checks, "UBSAN_OPTIONS": checks, "LSAN_OPTIONS": "exitcode=0"}
    done = mpi.run(program, *arguments, ranks=ranks, **on, **options, **settings)
    texts = [done.stderr, *(path.read_text(errors="replace") for path in folder.glob("report.*"))]
    found = [report for text in texts for report in (*address_reports(text), *undefined_reports(text))]
    return found, done.stdout.splitlines(), f"{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("form", FORMS)
def test_every_collective_is_carried_without_a_report(
    programs: Path, engine: Path, tmp_path: Path, form: str, ranks: int
) -> None:
    found, lines, output = run(programs, engine, tmp_path, "every_collective", form, ranks=ranks)
    assert found == [], output
    # Of other forms than blocking: one turn more, in which processes agree, and requests of freed communicators.
    turns = TYPES if form == "blocking" else TYPES + 1 + TYPES
    assert [line[:3] for line in lines] == ["ok "] * turns, output


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("what", "verdicts"), OTHERS, ids=[what for what, _ in OTHERS])
def test_exchanges_without_a_report(
    programs: Path, engine: Path, tmp_path: Path, what: str, verdicts: int, form: str
) -> None:
    of_form = {} if form == "blocking" else {"EXCHANGES_FORM": form}
    found, lines, output = run(programs, engine, tmp_path, "exchanges", what, ranks=2, **of_form)
    assert found == [], output
    assert [line[:3] for line in lines] == ["ok "] * verdicts, output


def test_an_overrun_is_reported(programs: Path, engine: Path, tmp_path: Path) -> None:
    found, _, output = run(programs, engine, tmp_path, "overrun", ranks=2, TEMPI_FORCE="1")
    assert found, output
    assert "heap-buffer-overflow" in found[0]
