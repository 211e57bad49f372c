"""Settings and their former names, by the table in csrc/base/config.c."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tempi import _engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CSRC = ROOT / "csrc"
READ = re.compile(r"""(?:environ(?:\.get)?[\[(]|getenv\()["'](TEMPI_[A-Z_]+)["']""")
METHODS = ("library", "device", "oneshot", "staged", "pipelined", "auto")

Settle = Callable[..., tuple[str, list[str]]]


@pytest.fixture(scope="module")
def settle(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Settle:
    """The settings of a process with these variables, and the lines that it logs."""
    program = tmp_path_factory.mktemp("settings") / "settings_driver"
    sources = [
        HERE / "settings_driver.c",
        CSRC / "base" / "config.c",
        *(CSRC / "base" / f"{name}.c" for name in ("log", "method")),
    ]
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{CSRC}"]
    subprocess.run([*command, *sources, "-pthread", "-o", program], check=True, timeout=60)

    def run(**variables: str) -> tuple[str, list[str]]:
        done = subprocess.run([program], env=variables, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip(), done.stderr.splitlines()

    return run


def test_without_settings_all_is_automatic_and_nothing_is_logged(settle: Settle) -> None:
    assert settle() == ("method auto locality 0 isa none collectives 0", [])


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_named(settle: Settle, method: str) -> None:
    assert settle(TEMPI_METHOD=method) == (f"method {method} locality 0 isa none collectives 0", [])


@pytest.mark.parametrize("method", METHODS[1:])
def test_the_papers_switches_are_aliases(settle: Settle, method: str) -> None:
    name = f"TEMPI_DATATYPE_{method.upper()}"
    assert settle(**{name: "1"}) == settle(TEMPI_METHOD=method)
    assert settle(**{name: "0"}) == settle()


def test_collectives_are_the_librarys_where_it_tolerates_failures(settle: Settle) -> None:
    """As under Open MPI's mpirun --with-ft ulfm; an explicit setting counts more."""
    assert settle(OMPI_MCA_mpi_ft_enable="1") == settle(TEMPI_COLLECTIVES="library")
    assert settle(OMPI_MCA_mpi_ft_enable="0") == settle(OMPI_MCA_mpi_ft_enable="false") == settle()
    assert settle(OMPI_MCA_mpi_ft_enable="1", TEMPI_COLLECTIVES="auto") == settle()


def test_collectives_are_left_to_the_library_by_the_papers_switch(settle: Settle) -> None:
    settled = settle(TEMPI_NO_ALLTOALLV="1")
    assert settled == settle(TEMPI_COLLECTIVES="library") == ("method auto locality 0 isa none collectives 1", [])
    assert settle(TEMPI_NO_ALLTOALLV="0") == settle()


@pytest.mark.parametrize(("now", "former"), [("auto", "auto"), ("same-llc", "near"), ("other-llc", "far")])
def test_localities_have_former_names(settle: Settle, now: str, former: str) -> None:
    settled = settle(TEMPI_LOCALITY=now)
    assert settled[1] == []
    assert settle(TEMPI_DISTANCE=former) == settle(TEMPI_DISTANCE=now) == settled
    assert settle(TEMPI_DISTANCE=former, TEMPI_LOCALITY=now) == settled


def test_the_instruction_set_has_a_former_name(settle: Settle) -> None:
    settled = settle(TEMPI_CPU_LEVEL="sse2")
    assert settled == settle(TEMPI_ISA="sse2") == ("method auto locality 0 isa sse2 collectives 0", [])
    assert settle(TEMPI_ISA="") == settle()


def test_a_conflict_is_logged_in_one_line_and_the_current_name_wins(settle: Settle) -> None:
    settled, (line,) = settle(TEMPI_METHOD="staged", TEMPI_DATATYPE_ONESHOT="1")
    assert settled.startswith("method staged ")
    assert "TEMPI_DATATYPE_ONESHOT=1 is ignored: TEMPI_METHOD=staged is set as well" in line
    assert settle(TEMPI_METHOD="staged", TEMPI_DATATYPE_STAGED="1")[1] == []


def test_of_several_switches_auto_wins_and_then_oneshot(settle: Settle) -> None:
    settled, said = settle(TEMPI_DATATYPE_STAGED="1", TEMPI_DATATYPE_ONESHOT="1", TEMPI_DATATYPE_AUTO="1")
    assert settled.startswith("method auto ")
    assert len(said) == 2
    settled, (line,) = settle(TEMPI_DATATYPE_STAGED="1", TEMPI_DATATYPE_ONESHOT="1")
    assert settled.startswith("method oneshot ")
    assert "TEMPI_DATATYPE_STAGED=1 is ignored: TEMPI_DATATYPE_ONESHOT=1 is set as well" in line


def test_a_warning_of_a_bad_value_names_the_variable_that_was_set(settle: Settle) -> None:
    settled, (line,) = settle(TEMPI_DISTANCE="there")
    assert settled.startswith("method auto locality 0 ")
    assert "TEMPI_DISTANCE=there is not understood and is ignored" in line
    (line,) = settle(TEMPI_METHOD="teleport")[1]
    assert "TEMPI_METHOD=teleport is not understood and is ignored" in line


@pytest.mark.parametrize("name", ["TEMPI_PLACEMENT_RANDOM", "TEMPI_PLACEMENT_METIS", "TEMPI_PLACEMENT_KAHIP"])
def test_a_setting_without_effect_is_reported_in_one_line(settle: Settle, name: str) -> None:
    (line,) = settle(**{name: "1"})[1]
    assert f"{name} has no effect: " in line


def test_every_former_name_is_known_and_explained() -> None:
    settled = {name: text for name, text, _ in _engine.items("config")}
    assert len(settled) == len(list(_engine.items("config")))
    assert settled["TEMPI_DATATYPE_STAGED"] == "the same as TEMPI_METHOD=staged"
    assert settled["TEMPI_DISTANCE"] == "former name of TEMPI_LOCALITY"
    assert settled["TEMPI_CPU_LEVEL"] == "former name of TEMPI_ISA"
    assert settled["TEMPI_NO_ALLTOALLV"] == "the same as TEMPI_COLLECTIVES=library"


def test_every_variable_that_is_read_is_known() -> None:
    """Else the engine warns of it, and no page names it."""
    folders = ("csrc", "tempi", "bench", "scripts")
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".c", ".h", ""}
    ]
    read = {name for path in (ROOT / "setup.py", *files) if path.is_file() for name in READ.findall(path.read_text())}
    assert len(read) > 10
    assert read <= {name for name, _, _ in _engine.items("config")}
