"""The programs that measure, one a module: ``python -m tempi.bench.workers.NAME`` prints records."""

from __future__ import annotations
