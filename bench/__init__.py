"""Benchmarks of tempi: suites, records, statistics and plots behind ``tempi bench``."""

from __future__ import annotations
