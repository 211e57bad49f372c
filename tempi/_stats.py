"""Statistics of the engine in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from tempi import _engine
from tempi._aliases import Counters, current

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Fallback", "Stats", "stats"]

_LATE = "mpi4py.MPI was imported before tempi: import tempi first, or start the program with `tempi run`"


@dataclass(frozen=True, slots=True)
class Fallback:
    """Calls of one function with a derived datatype that went to the library, and their bytes."""

    calls: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of the engine in this process.

    `interposed`: whether this process's MPI calls pass through the engine; if not, `reason` says why.
    `abi` and `library` name the MPI library that was found. `counters` are the engine's, since the start of the
    process or the last reset. `fallbacks`: for each function that tempi does not implement, the number of calls
    with a derived datatype and their bytes.
    """

    interposed: bool
    reason: str | None
    abi: str
    library: str | None
    counters: Mapping[str, int] = field(default_factory=Counters)
    fallbacks: Mapping[str, Fallback] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, name: str) -> int:
        """The value of the counter of that name."""
        return self.counters[current(name)]

    def __str__(self) -> str:
        head = "interposed" if self.interposed else f"not interposed ({self.reason})"
        lines = [f"tempi: {head}; MPI {self.abi} {self.library or ''}".rstrip()]
        lines += [f"  {name} {value}" for name, value in self.counters.items() if value]
        lines += [f"  {name} left: {left.calls} calls, {left.bytes} B" for name, left in self.fallbacks.items()]
        return "\n".join(lines)


def stats() -> Stats:
    """Counters of this process, and whether the engine interposes its MPI calls."""
    info = _engine.ffi.new("tempi_engine_info *")
    _engine.check(_engine.lib.tempi_engine_query(info), doing="tempi.stats()")
    active = bool(info.active)
    reason = _engine.text(info.reason)
    if _engine.late:
        reason = _LATE
    elif not active and reason is None:
        reason = "no MPI library is loaded in this process"
    interposed = active and not _engine.late
    counters = {name: int(_engine.lib.tempi_stats_value(i)) for name, _, i in _engine.items("stats")}
    return Stats(
        interposed=interposed,
        reason=None if interposed else reason,
        abi=_engine.abi_name(info.abi),
        library=_engine.text(info.library),
        counters=Counters(counters),
        fallbacks=MappingProxyType(dict(_fallbacks())),
    )


def _fallbacks() -> Iterator[tuple[str, Fallback]]:
    for index in range(_engine.lib.tempi_fallback_count()):
        if calls := int(_engine.lib.tempi_fallback_calls(index)):
            name = _engine.text(_engine.lib.tempi_fallback_name(index)) or ""
            yield name, Fallback(calls, int(_engine.lib.tempi_fallback_bytes(index)))
