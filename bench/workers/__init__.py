"""The measuring programs, one per module: ``python -m tempi.bench.workers.NAME`` prints records."""

from __future__ import annotations
