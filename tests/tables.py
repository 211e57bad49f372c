"""Artificial tables of the emulated device, in which one method is the fastest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launching import version
from tempi import _engine
from tempi.model import grid, store

__all__ = ["CARD", "made_up", "without_emulator"]

COLUMN = grid.Column("regular", 64, 128)
SIZES = (64, 1 << 20, 1 << 22)
CARD = store.Gpu("EMULATED device (CUDA on the CPU)", "", 12040, True)


def without_emulator() -> None:
    """Skips the test where the build has none."""
    here = Path(_engine.library_path()).parent
    if not (here / "libtempi-cuda.so").is_file() or not list(here.glob("tempi-ptx-*.so")):
        pytest.skip("this build has no emulated CUDA device, or no kernels")


def seconds(quantity: str, size: int, method: str) -> float:
    """Times for which "library", "oneshot", "staged" or "pipelined" is the fastest: without latency pieces are best,
    with latency alone they are not."""
    if quantity == "launch":
        return 1e-9
    if quantity in grid.AWARE_QUANTITIES:
        return 1e-12 * size if method == "library" else 1.0
    if quantity.startswith("mapped"):
        return 1e-12 * size if method == "oneshot" else 1.0
    return 1e-3 if method == "staged" else 1e-9 * size


def made_up(method: str, card: store.Gpu = CARD) -> store.Calibration:
    points = []
    for quantity in grid.DEVICE_QUANTITIES:
        peer = "node" if quantity in grid.DEVICE_MESSAGES else None
        column = COLUMN if "pack" in quantity else grid.PLAIN
        for size in SIZES if quantity != "launch" else (1,):
            taken = (seconds(quantity, size, method),) * 9
            points.append(store.Point(quantity, column, size, peer, taken, "device"))
    return store.Calibration(replace(store.machine(version()), gpu=card), tuple(points), {"when": "now"})
