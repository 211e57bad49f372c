"""Collectives that read other processes' memory by XPMEM, of which xpmem_standin.c has the functions.

This shows that tempi calls them as they are declared, and goes on where they fail; not that the kernel module works.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from preload.toolchains import HERE, TIMEOUT, Toolchain, counter, every_toolchain, preloaded

FORMS = ["blocking", "nonblocking"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xpmem")
    line: list[str | Path] = ["cc", "-shared", "-fPIC", "-O1", "-o", folder / "libxpmem.so.0", HERE / "xpmem_standin.c"]
    subprocess.run(line, check=True, timeout=TIMEOUT)
    return folder


def run(mpi: Toolchain, programs: Path, form: str, ranks: int = 2, **settings: str) -> tuple[str, int, str]:
    """What the program prints, bytes that were attached, and what it says on stderr."""
    program = programs / mpi.name
    if not program.exists():
        mpi.compile(program, HERE / "attached.c")
    own = {"LD_PRELOAD": preloaded(), "LD_LIBRARY_PATH": str(programs), "TEMPI_STATS": "1", "TEMPI_XPMEM": "1"}
    done = mpi.run(program, form, ranks=ranks, **own | settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (counter(done.stderr, "collectives") or 0) > 0
    return done.stdout, counter(done.stderr, "attached_bytes") or 0, done.stderr


@every_toolchain
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("form", FORMS)
def test_blocks_in_any_memory_are_read_where_they_lie(mpi: Toolchain, programs: Path, form: str, ranks: int) -> None:
    printed, attached, _ = run(mpi, programs, form, ranks)
    assert printed == "ok\n"
    assert attached > 0


@every_toolchain
def test_memory_is_not_attached_unless_it_is_asked_for(mpi: Toolchain, programs: Path) -> None:
    printed, attached, _ = run(mpi, programs, "blocking", TEMPI_XPMEM="0")
    assert (printed, attached) == ("ok\n", 0)


@every_toolchain
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", ["make", "get", "attach"])
def test_blocks_go_another_way_where_memory_cannot_be_attached(
    mpi: Toolchain, programs: Path, step: str, form: str
) -> None:
    printed, attached, said = run(mpi, programs, form, XPMEM_STANDIN_FAIL=step)
    assert (printed, attached) == ("ok\n", 0)
    assert said.count("does not let a process share its memory by XPMEM") == (2 if step == "make" else 0)


@every_toolchain
def test_a_missing_library_is_reported(mpi: Toolchain, programs: Path, tmp_path: Path) -> None:
    printed, attached, said = run(mpi, programs, "blocking", LD_LIBRARY_PATH=str(tmp_path))
    assert (printed, attached) == ("ok\n", 0)
    assert said.count("there is no libxpmem.so.0") == 2
