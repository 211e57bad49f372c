"""The build backend: setuptools, and before it the kernels, compiled by compilers that are fetched for it.

A build from a clone asks an index for 300 MB of compilers. pip gives up an install where one package that a
build asks for cannot be had, and says so in 80 lines; tempi without kernels is worth having. So they are not
among the requirements: the hook in which a front end asks for these, which it does only where a build may
fetch something (not with --no-build-isolation), fetches and uses the compilers itself, in an environment
that is gone afterwards. What goes wrong is one line, kept for the build to tell.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
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

__all__ = [  # what a backend is made of: PEP 517 and PEP 660
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
MACHINES = ("x86_64", "aarch64")  # where NVIDIA's compiler wheels are
LIMIT = 1800  # seconds for the download


def _kernels() -> Any:
    spec = importlib.util.spec_from_file_location("tempi_kernels_build", ROOT / "tempi" / "kernels" / "_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(*command: str, folder: str | None = None) -> str | None:
    """Why a command failed, in a line; None where it did not."""
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
    # pip's first error is the cause, what follows are its conclusions; of another program the last line is.
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors[:1] or lines[-1:] or [f"exit status {done.returncode}"])[0]


def _install(environment: Path, wanted: list[str]) -> str | None:
    """Makes a virtual environment with what is wanted, by the pip of this Python; why it could not, or None."""
    options = ["install", "--quiet", "--only-binary=:all:", *tempi_frontend.index_options(), *wanted]
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip"]
    own = _run(*pip, "--version") is not None  # no pip beside this Python: the one that Python brings
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


def _prepare() -> None:
    """The kernels in build/kernels, or the reason in their place."""
    if sys.version_info < (3, 11) or not os.access(ROOT, os.W_OK):  # refused without our help
        return
    build = _kernels()
    build.forget_reason(KERNELS)
    if build.unwanted() or build.find(KERNELS) is not None:
        return
    try:
        why = _fetch_and_compile(build)
    except OSError as error:  # no room, no permission
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
    _prepare()
    return build_meta.get_requires_for_build_sdist(config_settings)
