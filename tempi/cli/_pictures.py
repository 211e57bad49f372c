"""What every command that draws needs first."""

from __future__ import annotations

import click

__all__ = ["need_matplotlib"]


def need_matplotlib(wanted: str) -> None:
    """`wanted` is the start of the message where it is not installed, as on a login node without a network."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise click.ClickException(f"{wanted}: pictures need matplotlib: pip install matplotlib ({error})") from error
    mpl.use("Agg")
