"""Invalid accesses and leaks of the engine: under valgrind, and built with AddressSanitizer.

MPI libraries leak and read uninitialised memory, so only reports with the engine on top of the stack count.
`overrun` is wrong on purpose and proves that both checkers detect errors.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from preload.toolchains import HERE, Toolchain, counter, engine_for_test, own_toolchain, preloaded
from sanitizers import address_reports, address_runtime

PROGRAMS = ["p2p", "forks", "leaving", "threads", "repeats"]
DELAYS = [pytest.param("0", marks=pytest.mark.more), "5"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def built(mpi: Toolchain, programs: Path, name: str) -> Path:
    target = programs / f"{name}-{mpi.name}"
    return target if target.exists() else mpi.compile(target, HERE / f"{name}.c", f"-I{HERE}", "-g")


# -- valgrind -------------------------------------------------------------------------------------------


def complaints(log: str) -> Iterator[str]:
    """Each error or leak with its stacks."""
    text = re.sub(r"^==\d+== ?", "", log, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n", text):
        if re.search(r"^ +at 0x", block, re.MULTILINE):
            yield block


def is_ours(complaint: str) -> bool:
    """The first frame that lies in a library or a program, not in libc or the checker, is the engine's."""
    frames = re.findall(r"^ +(?:at|by) 0x\w+: .*\(in (\S+)\)$", complaint, re.MULTILINE)
    outside = [frame for frame in frames if "valgrind" not in frame and "/libc" not in frame]
    return bool(outside) and "libtempi" in outside[0]


def under_valgrind(mpi: Toolchain, program: Path, log: Path, **settings: str) -> list[str]:
    found = shutil.which("valgrind")
    if found is None:
        pytest.skip("valgrind is not installed")
    # What a program never frees stays reachable, if only by a pointer into it: no leak.
    leaks = ["--leak-check=full", "--show-leak-kinds=definite"]
    options = [*leaks, "--num-callers=30", f"--log-file={log}.%p", "--trace-children=no"]
    on = {"LD_PRELOAD": preloaded(), "TEMPI_FORCE": "1", "TEMPI_STATS": "1", **settings}
    run = mpi.run(found, *options, program, ranks=2, **on)
    assert counter(run.stderr, "calls_seen"), run.stdout + run.stderr
    logs = [path.read_text(errors="replace") for path in log.parent.glob(f"{log.name}.*")]
    assert len(logs) >= 2
    return [complaint for text in logs for complaint in complaints(text) if is_ours(complaint)]


@pytest.mark.parametrize(
    ("name", "delay"),
    [
        ("p2p", "5"),
        ("repeats", "0"),
        *(pytest.param(name, delay, marks=pytest.mark.more) for name in ("p2p", "leaving") for delay in ("0", "5")),
    ],
)
@pytest.mark.once
def test_valgrind_finds_no_error_of_the_engine(programs: Path, tmp_path: Path, name: str, delay: str) -> None:
    mpi = own_toolchain()
    program = built(mpi, programs, name)
    assert under_valgrind(mpi, program, tmp_path / "log", TEMPI_TEST_DELAY=delay) == []


@pytest.mark.more
def test_valgrind_detects_an_overrun(programs: Path, tmp_path: Path) -> None:
    mpi = own_toolchain()
    found = under_valgrind(mpi, built(mpi, programs, "overrun"), tmp_path / "log")
    assert any("Invalid read" in complaint for complaint in found)


# -- AddressSanitizer ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sanitized() -> Path:
    """An engine of instrumented code, built for the MPI of this environment."""
    address_runtime()
    cc = ["gcc", "-fsanitize=address", "-fno-omit-frame-pointer", "-g1"]
    return engine_for_test("address", cc, "-O0", own_toolchain().abi)  # optimised, the kernels take a minute


def under_sanitizer(program: Path, engine: Path, folder: Path, **settings: str) -> tuple[list[str], str]:
    on = {"LD_PRELOAD": preloaded(address_runtime(), engine=engine), "TEMPI_FORCE": "1", "TEMPI_STATS": "1"}
    # Vector instructions are not instrumented; leaks of the MPI must not change a child's exit status.
    # A file for each process: on the terminal the lines of several would be mixed.
    checks = f"fast_unwind_on_malloc=0:log_path={folder}/report"
    options = {"ASAN_OPTIONS": checks, "LSAN_OPTIONS": "exitcode=0", "TEMPI_ISA": "scalar"}
    run = own_toolchain().run(program, ranks=2, **on, **options, **settings)
    texts = [path.read_text(errors="replace") for path in folder.glob("report.*")]
    return [one for text in texts for one in address_reports(text)], run.stdout + run.stderr


@pytest.mark.parametrize("delay", ["0", "5"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.more
def test_the_sanitizer_finds_no_error_of_the_engine(
    programs: Path, sanitized: Path, tmp_path: Path, name: str, delay: str
) -> None:
    program = built(own_toolchain(), programs, name)
    found, output = under_sanitizer(program, sanitized, tmp_path, TEMPI_TEST_DELAY=delay)
    assert found == []
    assert counter(output, "sends"), output
    assert "BAD" not in output


@pytest.mark.more
def test_the_sanitizer_detects_an_overrun(programs: Path, sanitized: Path, tmp_path: Path) -> None:
    program = built(own_toolchain(), programs, "overrun")
    found, output = under_sanitizer(program, sanitized, tmp_path)
    assert found, output
    assert "heap-buffer-overflow" in found[0]
