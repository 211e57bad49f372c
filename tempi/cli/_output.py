"""``--json FILE|-``: one object per line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["json_option", "write_json"]

F = TypeVar("F", bound="Callable[..., Any]")


def json_option(function: F) -> F:
    """The option of every command."""
    option = click.option(
        "--json",
        "json_file",
        metavar="FILE|-",
        help="Also write the result as JSON, one object a line; - is stdout.",
    )
    return option(function)


def write_json(target: str, objects: Iterable[Mapping[str, object]]) -> None:
    """Write each object as one line of JSON to the file `target`, or to stdout for "-"."""
    lines = "".join(json.dumps(each) + "\n" for each in objects)
    if target == "-":
        sys.stdout.write(lines)
        sys.stdout.flush()
        return
    try:
        Path(target).write_text(lines, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"--json {target}: {error.strerror}") from error
