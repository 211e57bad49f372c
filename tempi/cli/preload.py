"""``tempi preload``: the engine's path. The shell script handles the plain form itself."""

from __future__ import annotations

import click

from tempi import _engine
from tempi.cli._output import json_option, write_json

__all__ = ["preload"]


@click.command()
@json_option
def preload(json_file: str | None) -> None:
    """Print the path for LD_PRELOAD: ``LD_PRELOAD=$(tempi preload) ./app``."""
    if json_file is not None:
        write_json(json_file, [{"library": _engine.library_path()}])
    if json_file != "-":
        click.echo(_engine.library_path())
