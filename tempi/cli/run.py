"""``tempi run``: the shell script does the work; this is its entry point for ``python -m tempi``."""

from __future__ import annotations

import os
import subprocess
from importlib import metadata
from pathlib import Path

import click

from tempi import _engine
from tempi.cli._output import json_option, write_json

__all__ = ["run"]


def script_path() -> Path:
    """The shell script ``tempi`` of this installation or source tree."""
    source = Path(__file__).resolve().parents[2] / "scripts" / "tempi"
    if source.is_file():
        return source
    try:
        files = metadata.files("tempi") or []
    except metadata.PackageNotFoundError:
        files = []
    for each in files:
        if each.name == "tempi" and each.parent.name == "bin":
            return Path(str(each.locate())).resolve()
    raise click.ClickException("the script `tempi` of this installation is missing; reinstall tempi")


def _plan(words: tuple[str, ...], environment: dict[str, str]) -> dict[str, object]:
    """The command line that the script would execute: {"command": [...], "preload": value or None}."""
    shown = subprocess.run(
        [script_path(), "run", "--print", "--", *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if shown.returncode != 0:
        raise SystemExit(shown.returncode)
    lines = shown.stdout.splitlines()
    preload = None
    if lines and lines[0].startswith("LD_PRELOAD="):
        preload = lines.pop(0).removeprefix("LD_PRELOAD=")
    return {"command": lines, "preload": preload}


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--print", "show", is_flag=True, help="Print the command that would be executed, and stop.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(show: bool, json_file: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND with tempi under its MPI.

    After the launcher (``mpirun -n 4 tempi run ./app``) or before it (``tempi run mpirun -n 4
    ./app``: the launcher passes LD_PRELOAD to its ranks). With TEMPI_DISABLE set the command runs as
    it is.
    """
    environment = {**os.environ, "TEMPI_LIBRARY": _engine.library_path()}
    if json_file is not None:
        write_json(json_file, [_plan(command, environment)])
    flags = ["--print"] if show else []
    script = str(script_path())
    os.execve(script, [script, "run", *flags, "--", *command], environment)
