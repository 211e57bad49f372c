"""``tempi calibrate``: measures the points of this machine's tables and saves them in the store of `tempi.model`."""

from __future__ import annotations
