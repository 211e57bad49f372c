"""tempi's requirements are written in several places, which must agree."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import build

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def backend(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "backend" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_extra_is_what_the_build_fetches() -> None:
    kernels = build.kernels()
    assert PROJECT["optional-dependencies"]["kernels"] == [*kernels.COMPILER, *kernels.BOUNDS]


def test_the_compilers_numpy_is_older_than_the_one_that_breaks_them() -> None:
    """numba-cuda 0.30 takes any NumPy, and 2.5 has no row_stack."""
    assert any(re.match(r"numpy.*<2\.5$", bound) for bound in build.kernels().BOUNDS)


@pytest.mark.parametrize("age", ["oldest", "newest"])
def test_the_constraints_are_of_every_dependency(age: str) -> None:
    lines = (ROOT / "tests" / "install" / f"constraints-{age}.txt").read_text().splitlines()
    pinned = [re.match(r"([\w-]+)==([\d.]+)", line) for line in lines if not line.startswith("#")]
    versions: dict[str, list[str]] = {}
    for match in pinned:
        assert match is not None
        versions.setdefault(match[1], []).append(match[2])
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["pictures"]]
    bounds = dict(one.split(">=") for one in wanted)
    assert set(bounds) <= set(versions)
    if age == "oldest":
        for name, bound in bounds.items():
            assert f"{versions[name][0]}.".startswith(f"{bound}."), name


def test_the_demo_has_what_it_draws_with() -> None:
    """`tempi bench halo --demo` writes a picture, and refuses to begin where it cannot."""
    rule = (ROOT / "Makefile").read_text().split("\n$(KINDS:%=.venv/tempi-%):")[1].split("\n\n")[0]
    assert "scripts/install .venv '.[pictures]'" in rule


def test_compilers_that_fail_are_one_line(tmp_path: Path) -> None:
    """An installation continues without kernels and gives the reason in one line, not a traceback."""
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\nprintf 'Traceback:\\n 1\\n 2\\nAttributeError: no x\\n' >&2\nexit 1\n")
    failing.chmod(0o755)
    kernels = build.kernels()
    assert kernels.compile_with(str(failing), tmp_path, tmp_path / "out") == "AttributeError: no x"


def test_the_reason_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = build.kernels()
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(kernels, "SHIPPED", tmp_path / "none")
    kernels.keep_reason(tmp_path / "kernels", "no network")
    assert kernels.ensure(tmp_path / "kernels") == "no network"
    assert kernels.ensure(tmp_path / "kernels") == "numba-cuda is not installed"


def test_shipped_kernels_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = build.kernels()
    shipped, built = tmp_path / "shipped", tmp_path / "built"
    for folder in (shipped, built):
        folder.mkdir()
        for name in (kernels.PTX, *(f"{target}.cubin" for target in kernels.table.TARGETS)):
            (folder / name).write_bytes(b"x")
        kernels.note(folder, [])
    monkeypatch.setattr(kernels, "SHIPPED", shipped)
    assert kernels.find(built) == shipped
    (shipped / kernels.USAGE).write_text('{"digest": "of other sources"}')
    assert kernels.find(built) == built
    assert kernels.images(built)[-1] == ("ptx", built / kernels.PTX)
    (built / kernels.USAGE).unlink()
    assert kernels.images(built) == []


def test_pip_gets_the_options_of_the_user() -> None:
    options = backend("tempi_frontend").index_options
    command = "/usr/bin/python3 -m pip install -q --no-index -f wheels --index-url=https://x/simple --target T ."
    assert options(command.split()) == ["--no-index", "-f", "wheels", "--index-url=https://x/simple"]
    assert options(["uv", "pip", "install", "--offline", "."]) == ["--no-index"]


CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import tempi_frontend; tempi_frontend.tell('tempi: a line')"
PARENT = (
    "import subprocess, sys; print('before', file=sys.stderr, flush=True); "
    "subprocess.run([sys.executable, '-c', sys.argv[2], sys.argv[1]], stdout=-1, stderr=-1, check=True); "
    "print('after', file=sys.stderr)"
)


def reported(tmp_path: Path, kind: str) -> str:
    """The standard error of a program that captures its child's output, as pip does."""
    command = [sys.executable, "-c", PARENT, str(ROOT / "scripts" / "backend"), CHILD]
    if kind == "pipe":
        return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr
    with (tmp_path / "log").open("w+") as log:
        subprocess.run(command, stderr=log, check=True)
        log.seek(0)
        return log.read()


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_a_line_reaches_the_user_of_a_program_that_captures(tmp_path: Path, kind: str) -> None:
    said = reported(tmp_path, kind).splitlines()
    if kind == "file" and said == ["before", "after"]:
        pytest.skip("this system does not let a child share its parent's files (ptrace)")
    assert said == ["before", "tempi: a line", "after"]
