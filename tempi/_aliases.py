"""Former names of counters, accepted for one release in `tempi.stats()`, statistics files and records.

The engine knows only the new names. Former names of environment variables are in csrc/base/config.c.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType

__all__ = ["COUNTERS", "Counters", "current", "renamed"]

#: Former name: current name.
COUNTERS = MappingProxyType(
    {
        "collectives_apart": "collectives_split",
        "distance_looks": "locality_probes",
        "distance_moves": "locality_changes",
        "known_wrong": "quirks",
        "left_argument": "fallback_argument",
        "left_aware": "fallback_cuda_aware",
        "left_disabled": "fallback_disabled",
        "left_first": "fallback_first",
        "left_function": "fallback_function",
        "left_memory": "fallback_memory",
        "left_rule": "fallback_rule",
        "left_stage": "fallback_stage",
        "left_type": "fallback_type",
    }
)


def current(name: str, stacklevel: int = 2) -> str:
    """The current name of a counter; warns if `name` is a former name."""
    new = COUNTERS.get(name)
    if new is None:
        return name
    warnings.warn(f"the counter {name} is named {new} now", DeprecationWarning, stacklevel=stacklevel + 1)
    return new


def renamed(counters: Mapping[str, int]) -> dict[str, int]:
    """Counters written by an earlier version, under their current names."""
    return {COUNTERS.get(name, name): value for name, value in counters.items()}


class Counters(Mapping[str, int]):
    """Read-only mapping; a former name also finds its counter, and warns."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, int] = MappingProxyType({})) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> int:
        found = self._values.get(name)
        return found if found is not None else self._values[current(name, stacklevel=2)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)
