"""The parts of `make gpu` in the order of their worth, and the files of records that each writes."""

from __future__ import annotations

from collections.abc import Mapping

PARTS: Mapping[str, tuple[str, ...]] = {
    "rates": ("rates.json",),
    "launches": ("launches.json",),
    "tests": ("tests.json",),
    "kernels": ("kernels.json",),
    "halo": ("halo.json", "overlap.json"),
    "messages": ("messages.json",),
    "model": ("calibration.json", "model.json"),
}
