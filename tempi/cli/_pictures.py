"""The requirements of every command that draws."""

from __future__ import annotations

from tempi.cli._optional import need

__all__ = ["need_matplotlib"]


def need_matplotlib(wanted: str) -> None:
    """Fails with a message that begins with `wanted` if it is not installed, as on a login node without a network."""
    need("matplotlib", wanted)
    import matplotlib as mpl

    mpl.use("Agg")
