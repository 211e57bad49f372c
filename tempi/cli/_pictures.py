"""Checks the packages that drawing commands need."""

from __future__ import annotations

from tempi.cli._optional import need

__all__ = ["need_matplotlib"]


def need_matplotlib(wanted: str) -> None:
    """Fails with a message that begins with `wanted` if matplotlib is not installed."""
    need("matplotlib", wanted)
    import matplotlib as mpl

    mpl.use("Agg")
