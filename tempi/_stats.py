"""What the engine did in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Stats", "stats"]

_LATE = "mpi4py.MPI was imported before tempi: import tempi first, or start the program with `tempi run`"


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of the engine in this process.

    `interposed` tells whether this process's MPI calls pass through the engine; where they do not,
    `reason` says why. `abi` and `library` name the MPI that was found. `counters` are the engine's,
    since the start of the process or the last reset.
    """

    interposed: bool
    reason: str | None
    abi: str
    library: str | None
    counters: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, name: str) -> int:
        """The counter of that name."""
        return self.counters[name]

    def __str__(self) -> str:
        head = "interposed" if self.interposed else f"not interposed ({self.reason})"
        lines = [f"tempi: {head}; MPI {self.abi} {self.library or ''}".rstrip()]
        lines += [f"  {name} {value}" for name, value in self.counters.items() if value]
        return "\n".join(lines)


def stats() -> Stats:
    """Counters of this process, and whether the engine is under its MPI calls."""
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
        counters=MappingProxyType(counters),
    )
