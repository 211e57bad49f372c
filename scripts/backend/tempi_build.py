"""The build backend: setuptools, preceded by the kernels' compilation with compilers fetched for it.

A build from a clone downloads 300 MB of compilers. pip aborts an install, with 80 lines of output, if a single build
requirement is unavailable; but tempi without kernels is still useful. So the compilers are not requirements: the
requirements hook, which front ends call only if a build may download (not with --no-build-isolation), fetches and
uses them itself, in a temporary environment. An error becomes one line, stored for the build to print. Meanwhile the
engine is compiled: the build finds its objects.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tempi_frontend
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [  # the hooks of a backend: PEP 517 and PEP 660
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "build" / "kernels"
ENGINE = ROOT / "build" / "engine"  # where setup.py builds it
MACHINES = ("x86_64", "aarch64")  # machines with NVIDIA's compiler wheels
LIMIT = 1800  # seconds for the download


def _kernels() -> Any:
    spec = importlib.util.spec_from_file_location("tempi_kernels_build", ROOT / "tempi" / "kernels" / "_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(*command: str, folder: str | None = None) -> str | None:
    """Runs a command. Returns the reason of a failure in one line, or None."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=tempi_frontend.pip_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    # pip's first error is the cause, later ones follow from it; for other programs the last line counts.
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors[:1] or lines[-1:] or [f"exit status {done.returncode}"])[0]


def _install(environment: Path, wanted: list[str]) -> str | None:
    """Makes a virtual environment with the wanted packages, by this Python's pip; the reason of a failure, or None."""
    options = ["install", "--quiet", "--only-binary=:all:", *tempi_frontend.index_options(), *wanted]
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip"]
    own = _run(*pip, "--version") is not None  # this Python has no pip: use its bundled one
    made = _run(sys.executable, "-m", "venv", *([] if own else ["--without-pip"]), str(environment))
    if made:
        return made
    command = [python, "-m", "pip"] if own else [*pip, "--python", python]
    return _run(*command, *options, folder=tempi_frontend.working_folder())


def _fetch_and_compile(build: Any) -> str | None:
    if platform.machine() not in MACHINES or sys.platform != "linux":
        return f"there is no compiler for {sys.platform} on {platform.machine()}"
    with tempfile.TemporaryDirectory(prefix="tempi-kernels-") as scratch:
        environment = Path(scratch) / "compilers"
        why = _install(environment, [*build.COMPILER, *build.BOUNDS])
        if why:
            return f"pip cannot install their compilers: {why}"
        why = build.compile_with(str(environment / "bin" / "python"), environment, KERNELS)
        return f"their compilers fail: {why}" if why else None


def _compiling() -> subprocess.Popen[bytes]:
    """The engine, by a process of its own. What fails there fails again in the build, and is reported by it."""
    command = [sys.executable, str(ROOT / "csrc" / "build.py"), "--out", str(ENGINE / "lib"), "--work", str(ENGINE)]
    silent = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)


def _prepare(engine: bool = True) -> None:
    """Puts the kernels into build/kernels, or the reason why there are none."""
    if sys.version_info < (3, 11) or not os.access(ROOT, os.W_OK):  # pip refuses these itself
        return
    build = _kernels()
    build.forget_reason(KERNELS)
    if build.unwanted() or build.find(KERNELS) is not None:
        return
    try:
        with _compiling() if engine else nullcontext():
            why = _fetch_and_compile(build)
    except OSError as error:  # disk full, no permission
        why = str(error)
    if why:
        build.keep_reason(KERNELS, why)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    _prepare()
    return build_meta.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    _prepare()
    return build_meta.get_requires_for_build_editable(config_settings)


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    _prepare(engine=False)
    return build_meta.get_requires_for_build_sdist(config_settings)
