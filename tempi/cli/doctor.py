"""``tempi doctor``: what is here, what works, and what to do about the rest."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tempi._errors import EngineNotFoundError
from tempi.cli._output import json_option, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tempi.cli._machine import Finding

__all__ = ["doctor"]

_MARKS = {"ok": ("+", "green"), "note": ("-", None), "warning": ("!", "yellow"), "problem": ("x", "red")}


def _findings(programs: tuple[str, ...]) -> Iterator[Finding]:
    from tempi.cli import _gpu, _machine, _pages, _program

    yield from _machine.engine()
    yield from _gpu.gpu()
    yield from _machine.model()
    yield from _machine.environment()
    yield _pages.finding()
    if programs:
        for each in programs:
            yield from _program.program(each)
    else:
        yield from _machine.mpis()


def _show(finding: Finding) -> None:
    mark, colour = _MARKS[finding.status]
    click.secho(f"{mark} {finding.topic}: {finding.text}", fg=colour)
    if finding.advice is not None and finding.status != "ok":
        click.echo(f"    {finding.advice}")


@click.command()
@json_option
@click.argument("program", nargs=-1)
def doctor(json_file: str | None, program: tuple[str, ...]) -> None:
    """Check the installation, its MPIs and programs; give advice for each problem.

    Without PROGRAM, each MPI that is found is started in a process of its own, which checks that its
    calls pass through tempi. With PROGRAM, report whether `tempi run PROGRAM` can reach its MPI calls. The exit
    status is 1 if something must be fixed first.
    """
    quiet = json_file == "-"
    found = []
    try:
        for finding in _findings(program):
            found.append(finding)
            if not quiet:
                _show(finding)
    except EngineNotFoundError as error:
        raise click.ClickException(str(error)) from error
    if json_file is not None:
        write_json(json_file, [asdict(each) for each in found])
    sys.exit(any(each.status == "problem" for each in found) or os.EX_OK)
