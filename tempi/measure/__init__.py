"""Shared by benchmarks and calibration: starting ranks, interleaved timing, records, and the CUDA driver."""

from __future__ import annotations
