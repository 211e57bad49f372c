"""GPU measurements: shapes, memory of known bytes, subjects, and the targets."""

from __future__ import annotations
