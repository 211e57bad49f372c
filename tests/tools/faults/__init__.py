"""The faults that planted.py plants, by part of the engine; test_planted.py checks that they apply."""

from __future__ import annotations

from faults import choose, coll, cuda, exchange, memory, packing, shim
from faults.fault import Fault

__all__ = ["FAULTS", "Fault"]

FAULTS = (
    *packing.FAULTS,
    *choose.FAULTS,
    *cuda.FAULTS,
    *shim.FAULTS,
    *exchange.FAULTS,
    *memory.FAULTS,
    *coll.FAULTS,
)
