"""What every command that draws needs first."""

from __future__ import annotations

from tempi.cli._optional import need

__all__ = ["need_matplotlib"]


def need_matplotlib(wanted: str) -> None:
    """`wanted` begins the message where it is not installed, as on a login node without a network."""
    need("matplotlib", wanted)
    import matplotlib as mpl

    mpl.use("Agg")
