"""The files that a build compiles and links again, and those that it reuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import build


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "part" / "answer.c"
    path.parent.mkdir()
    path.write_text("int answer(void);\nint answer(void) { return 42; }\n")
    return path


@pytest.fixture
def compiled(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> build.Unit:
    monkeypatch.setenv("CFLAGS", "-Werror")
    unit = unit_of(source, tmp_path)
    assert unit.compile()
    assert not unit.compile()
    return unit


def unit_of(source: Path, folder: Path) -> build.Unit:
    return build.unit(build.compiler(), source, folder / "objects", [])


def later(path: Path, than: Path) -> None:
    """Without waiting for the clock."""
    time = than.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(time, time))


def test_an_object_is_reused_if_it_was_made_as_strictly(
    compiled: build.Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CFLAGS")
    lax = unit_of(compiled.source, tmp_path)
    assert lax.fresh()
    later(compiled.source, compiled.target)
    assert lax.compile()
    assert not compiled.fresh()
    monkeypatch.setenv("CFLAGS", "-O0")
    assert not unit_of(compiled.source, tmp_path).fresh()


def test_an_object_that_was_interrupted_is_compiled_again(compiled: build.Unit) -> None:
    later(compiled.source, compiled.target)
    broken = ("sh", "-c", f"echo part of it >{compiled.target}; exit 1")
    with pytest.raises(build.BuildError):
        build.Unit(compiled.source, compiled.target, broken).compile()
    later(compiled.target, compiled.source)
    assert not compiled.fresh()


def test_a_library_is_linked_again_if_only_its_objects_were_made(compiled: build.Unit, tmp_path: Path) -> None:
    library = tmp_path / "libanswer.so"
    command = [*build.compiler(), *build.LINK, str(compiled.target)]
    build.link(command, library, changed=True)
    first = library.stat().st_ino
    build.link(command, library, changed=False)
    assert library.stat().st_ino == first
    later(compiled.target, library)
    build.link(command, library, changed=False)
    assert library.stat().st_ino != first


@pytest.mark.more
def test_clang_builds_the_engine_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = shutil.which("clang") or pytest.skip("no clang here")
    monkeypatch.setenv("CFLAGS", "-Werror -O0 -Wno-frame-larger-than")  # frames mean nothing there
    assert build.build_neutral([clang], tmp_path / "lib", tmp_path / "work")
    assert (tmp_path / "lib" / "libtempi.so").is_file()
    mpi, *_ = build.find_mpis([clang])
    build.build_shim([clang], mpi, tmp_path / "lib", tmp_path / "work", engine_changed=True)
    assert (tmp_path / "lib" / f"libtempi-{mpi.abi}.so").is_file()
