"""What benchmarks and the calibration share: starting ranks, timing in turns, records, and the CUDA driver."""

from __future__ import annotations
