"""The click group. Commands are imported on demand, so that each starts fast."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

import click

import tempi
from tempi.cli._interrupt import Interrupt

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["main"]

#: command: (module that defines a click command of that name, one line of help)
COMMANDS: Mapping[str, tuple[str, str]] = {
    "bench": ("tempi.cli.bench", "Measure packing, messages, overhead, halo exchange."),
    "calibrate": ("tempi.cli.calibrate", "Measure this machine, so that tempi chooses by measurement."),
    "compare": ("tempi.cli.compare", "Compare two files of benchmark records."),
    "doctor": ("tempi.cli.doctor", "Check the installation, its MPIs and programs; give advice for each problem."),
    "explain": ("tempi.cli.explain", "Show the layout of a datatype, pass by pass."),
    "preload": ("tempi.cli.preload", "Print the path for LD_PRELOAD."),
    "report": ("tempi.cli.report", "Write a page with pictures: calibration, choices, benchmarks, statistics."),
    "run": ("tempi.cli.run", "Run a program with tempi under its MPI."),
}


_interrupt = Interrupt()


class _Commands(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        return cast("click.Command", getattr(module, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(COMMANDS.items())])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = super().resolve_command(ctx, args)  # imports its module
        _interrupt.catch()
        return found

    def invoke(self, ctx: click.Context) -> object:
        result = None
        try:
            result = self._invoke(ctx)
        except click.ClickException as error:
            if not _interrupt.pressed:
                raise
            error.show()
        except (Exception, KeyboardInterrupt):  # Python before 3.12 wraps the one of a `__set_name__` in a RuntimeError
            if not _interrupt.pressed:
                raise
        if _interrupt.pressed:
            _interrupt.end()
        return result

    def _invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except tempi.TempiError as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            from tempi.cli._optional import missing

            message = missing(error, f"tempi {ctx.invoked_subcommand or ''}".strip())
            if message is None:
                raise
            raise click.ClickException(message) from error
        finally:
            _interrupt.release()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tempi.__version__, prog_name="tempi")
def main() -> None:
    """Fast MPI derived datatypes, for any MPI and without a change to the application."""
