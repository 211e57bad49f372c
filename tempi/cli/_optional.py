"""Packages that only some commands need: one line names the missing package and the command that installs it."""

from __future__ import annotations

import importlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OPTIONAL", "missing", "need"]

#: Module: pip package. Other modules are installed under their own names.
OPTIONAL = {
    "cupy": "tempi[cuda12]",
    "llvmlite": "tempi[kernels]",
    "matplotlib": "matplotlib>=3.7",
    "mpi4py": "mpi4py>=4",
    "numba": "tempi[kernels]",
}


def need(module: str, wanted: str) -> None:
    """Raises `click.ClickException` if the module cannot be imported. `wanted`, the feature, begins the message."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise click.ClickException(missing(error, wanted) or str(error)) from error
    except ImportError as error:
        raise click.ClickException(f"{wanted} needs {module}, which cannot be imported: {error}") from error


def missing(error: ModuleNotFoundError, wanted: str) -> str | None:
    """The message for a package that is not installed; None for a module of tempi itself."""
    name = (error.name or "").partition(".")[0]
    if not name or name == "tempi":
        return None
    what = shlex.quote(OPTIONAL.get(name, name))
    return f"{wanted} needs {name}, which is not installed: {' '.join(_pip())} install {what}"


def _pip() -> Iterator[str]:
    """The pip command of this Python: the one on the PATH may belong to another."""
    own = Path(sys.prefix) / "bin" / "pip"
    if sys.prefix != sys.base_prefix and own.is_file():
        yield shlex.quote(str(own))
    else:
        yield from (shlex.quote(sys.executable), "-m", "pip")
