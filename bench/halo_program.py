"""The C program of the halo benchmark: compiled with the MPI library's compiler on first use, and cached."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import platformdirs

from tempi.measure.launch import LaunchError, find_tool

SOURCES = Path(__file__).resolve().parent / "halo"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O3")


def _header_directory() -> Path:
    """The folder of tempi.h: in the installed package, or in the source tree."""
    import tempi

    package = Path(tempi.__file__).resolve().parent
    for where in (package / "include", package.parent / "csrc"):
        if (where / "tempi.h").is_file():
            return where
    raise LaunchError(f"tempi.h is not in {package}: this installation of tempi is incomplete")


def cache_directory() -> Path:
    """The folder of compiled programs."""
    given = os.environ.get("TEMPI_CACHE_DIR")
    return Path(given) if given else Path(platformdirs.user_cache_dir("tempi"))


def _fingerprint(mpicc: str, files: Iterable[Path]) -> str:
    """A hash of the sources, the flags, and the versions of compiler and MPI library."""
    digest = hashlib.sha256()
    shown = subprocess.run([mpicc, "-show"], capture_output=True, check=False).stdout
    version = subprocess.run([mpicc, "--version"], capture_output=True, check=False).stdout
    for part in (mpicc.encode(), shown, version, " ".join(FLAGS).encode()):
        digest.update(part + b"\0")
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _compile(mpicc: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    os.close(handle)
    units = [str(file) for file in sorted(SOURCES.glob("*.c"))]
    line = [mpicc, *FLAGS, "-I", str(_header_directory()), *units, "-o", name, "-ldl"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LaunchError(f"{' '.join(line)} failed:\n{done.stderr.strip()}")
        Path(name).chmod(0o755)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)


def build(given: str | None = None) -> Path:
    """Path of the program; `given` is the value of ``--mpicc``. Raises `LaunchError`."""
    mpicc = find_tool(("mpicc",), given, "--mpicc")
    files = [*sorted(SOURCES.glob("*.[ch]")), _header_directory() / "tempi.h"]
    try:
        target = cache_directory() / f"halo-{_fingerprint(mpicc, files)}" / "halo"
        if not target.is_file():
            _compile(mpicc, target)
    except OSError as error:
        raise LaunchError(f"cannot compile the halo program: {error}; TEMPI_CACHE_DIR moves the cache") from error
    return target
