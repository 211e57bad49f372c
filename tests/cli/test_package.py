"""The package's public names, and the frame of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

import tempi
from tempi import _engine, _stats
from tempi.cli.main import COMMANDS, main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TEMPI_LIBRARY": _engine.library_path(), "LD_PRELOAD": "", **variables}
    return subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_all_is_sorted_complete_and_importable() -> None:
    names = tempi.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert set(names) <= set(dir(tempi))
    for name in set(names) - {"MPI"}:
        assert getattr(tempi, name) is not None
    public = {name for name in vars(tempi) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(tempi, name)).__name__ == "module"}
    assert public - modules - {"TYPE_CHECKING", "Any", "annotations"} <= set(names)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tempi.nothing  # noqa: B018


def test_the_engine_is_of_this_version() -> None:
    assert _engine.text(_engine.lib.tempi_version()) == tempi.__version__
    try:
        assert metadata.version("tempi") == tempi.__version__
    except metadata.PackageNotFoundError:
        pytest.skip("tempi is not installed, only on the path")


def test_importing_tempi_loads_no_mpi() -> None:
    done = python("import sys, tempi; print(tempi.stats()); print([m for m in sys.modules if 'mpi4py' in m])")
    assert "not interposed (no MPI library is loaded" in done.stdout, done.stderr
    assert done.stdout.endswith("[]\n")
    assert done.stderr == ""


LATE = "import mpi4py.MPI, tempi; s = tempi.stats(); print(s.interposed, s.reason)"


def test_mpi4py_first_is_one_loud_line_and_not_interposed() -> None:
    pytest.importorskip("mpi4py")
    done = python(LATE + "; from tempi import MPI")
    assert done.stderr.count("\n") == 1
    assert "NOT INTERPOSED" in done.stderr
    assert done.stdout.startswith("False mpi4py.MPI was imported before tempi")


def test_mpi4py_first_is_fine_where_the_engine_is_preloaded() -> None:
    pytest.importorskip("mpi4py")
    done = python(LATE, LD_PRELOAD=_engine.library_path(), TEMPI_LIBRARY="/nonexistent")
    assert done.stdout == "True None\n", done.stderr
    assert done.stderr == ""


def test_tempi_first_is_interposed() -> None:
    pytest.importorskip("mpi4py")
    done = python("from tempi import MPI; import tempi; print(tempi.stats().interposed)")
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("late", [True, False])
def test_mpi_may_be_initialized_by_the_program(late: bool) -> None:
    pytest.importorskip("mpi4py")
    code = "import mpi4py; mpi4py.rc.initialize = False\nfrom tempi import MPI\n"
    use = "assert MPI.COMM_WORLD.size == 1 and MPI.COMM_SELF.Dup().rank == 0\n"
    done = python(code + ("MPI.Init()\n" + use if late else "") + "print(MPI.Is_initialized())")
    assert done.stdout == f"{late}\n", done.stderr
    assert done.stderr == ""


FREES = """
import numpy as np
from tempi import MPI, _arrays
_arrays._ViewType.Free = lambda t: (print("freed"), MPI.Datatype.Free(t))
for width in (2, 4):
    got = np.zeros((5, 3))[:, 1]
    MPI.COMM_SELF.Sendrecv(np.arange(5.0 * width)[::width], 0, 0, got, 0)
print(len(_arrays._views), "kept")
"""


@pytest.mark.parametrize("end", ["MPI.Finalize(); print('finalized')", "", "import mpi4py.MPI as P; P.Finalize()"])
def test_datatypes_of_views_are_freed_before_mpi_ends(end: str) -> None:
    pytest.importorskip("mpi4py")
    done = python(FREES + end)
    assert done.stdout.splitlines()[:4] == ["3 kept", "freed", "freed", "freed"], done.stderr
    assert done.returncode == 0


def test_the_preloaded_engine_is_the_one_that_is_bound(tmp_path: Path, library: Path) -> None:
    done = python(
        "from tempi import _engine; print(_engine.preloaded, _engine.library_path())",
        LD_PRELOAD=str(library),
        TEMPI_LIBRARY=str(tmp_path / "other.so"),
    )
    assert done.stdout == f"True {library}\n", done.stderr


def test_a_missing_engine_is_reported_on_first_use(tmp_path: Path) -> None:
    done = python("import tempi; print('fine'); tempi.stats()", TEMPI_LIBRARY=str(tmp_path / "none.so"))
    assert done.stdout == "fine\n"
    assert f"EngineNotFoundError: TEMPI_LIBRARY={tmp_path}/none.so: no such file" in done.stderr
    (tmp_path / "text.so").write_text("no library", encoding="utf-8")
    done = python("from tempi import _engine", TEMPI_LIBRARY=str(tmp_path / "text.so"))
    assert "cannot load the engine" in done.stderr


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("TEMPI_ERR_ARG", ValueError),
        ("TEMPI_ERR_MEMORY", MemoryError),
        ("TEMPI_ERR_UNSUPPORTED", tempi.UnsupportedError),
        ("TEMPI_ERR_NO_MPI", tempi.NoMPIError),
        ("TEMPI_ERR_OVERFLOW", OverflowError),
    ],
)
def test_a_status_becomes_an_exception_that_names_the_call(status: str, kind: type[Exception]) -> None:
    number = getattr(_engine.lib, status)
    with pytest.raises(kind, match="doing a thing: ") as caught:
        _engine.check(number, doing="doing a thing")
    if isinstance(caught.value, tempi.EngineError):
        assert caught.value.status == number
    _engine.check(_engine.lib.TEMPI_OK, doing="nothing")


def test_stats_are_a_frozen_snapshot_with_every_counter() -> None:
    seen = _stats.stats()
    assert list(seen.counters) == [name for name, _, _ in _engine.items("stats")]
    assert seen["sends"] == seen.counters["sends"]
    with pytest.raises(AttributeError):
        seen.abi = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        seen.counters["sends"] = 1  # type: ignore[index]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_help_and_json(name: str) -> None:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    assert found.name == name
    leaves = found.commands.values() if isinstance(found, click.Group) else [found]
    for leaf in leaves:
        assert "--json" in {option for parameter in leaf.params for option in parameter.opts}, leaf.name
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0


def test_the_group_lists_its_commands_without_importing_them() -> None:
    done = python(
        "import sys; from tempi.cli.main import main; main(['--help'], standalone_mode=False);"
        "print([m for m in sys.modules if m in ('tempi.cli.bench', 'tempi.cli.explain', 'numpy')])"
    )
    assert "explain" in done.stdout, done.stderr
    assert done.stdout.endswith("[]\n")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["nothing"]).exit_code == 2
    assert CliRunner().invoke(main, ["--version"]).output == f"tempi, version {tempi.__version__}\n"
