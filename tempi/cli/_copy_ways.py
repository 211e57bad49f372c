"""The part of `tempi explain` that shows which ways a block can go in a collective (docs/collectives.md)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tempi import _engine
from tempi.model.peers import BY_WORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tempi._datatypes import Datatype

__all__ = ["lines", "records"]

_TEXTS = {
    "twice": "two copies, through a ring in shared memory",
    "nontemporal": "the same with non-temporal stores",
    "packed": "packed, then read by the receiver",
    "once": "one copy, by the receiver",
    "stored": "one copy, by the sender",
    "mapped": "one copy, by the receiver, of mapped memory",
    "reused": "two copies, through the memory that was read last",
}


@dataclass(frozen=True, slots=True)
class Side:
    """Whether one side's block can go a way: `limit` is a TEMPI_WAY_* of the engine, `least` the bytes needed."""

    limit: int
    least: int

    @property
    def possible(self) -> bool:
        return bool(self.limit == _engine.lib.TEMPI_WAY_POSSIBLE)

    @property
    def needs(self) -> str:
        """What the block lacks; "" for nothing."""
        texts = {
            _engine.lib.TEMPI_WAY_BLOCK_SHORT: f"{self.least:,} B or more",
            _engine.lib.TEMPI_WAY_RUNS_SHORT: f"runs of {self.least:,} B or more",
            _engine.lib.TEMPI_WAY_IRREGULAR: "one nest of equal runs",
        }
        return texts.get(self.limit, "")


@dataclass(frozen=True, slots=True)
class Way:
    """A way between two processes of a node, for a block as it is sent and as it is received."""

    name: str
    sent: Side
    received: Side

    @property
    def text(self) -> str:
        """The way, and what the block needs for it."""
        needs = [("sent", self.sent.needs), ("received", self.received.needs)]
        if self.sent.needs == self.received.needs:
            needs = [("", self.sent.needs)]
        missing = "; ".join(f"{side} needs {need}".strip() for side, need in needs if need)
        return _TEXTS.get(self.name, self.name) + (f" ({missing})" if missing else "")


def _side(way: int, direction: int, layout: Any, count: int) -> Side:
    least = _engine.ffi.new("int64_t *")
    limit = _engine.lib.tempi_copy_way_check(way, direction, layout, count, least)
    return Side(int(limit), int(least[0]))


def ways(datatype: Datatype, count: int) -> Iterator[Way]:
    """In the engine's order."""
    layout = datatype.canonical()
    names = (_engine.text(_engine.lib.tempi_copy_way_name(i)) for i in itertools.count())
    for way, name in enumerate(itertools.takewhile(lambda name: name is not None, names)):
        sent, received = (_side(way, d, layout, count) for d in (_engine.lib.TEMPI_PACK, _engine.lib.TEMPI_UNPACK))
        yield Way(name or "", sent, received)


def _shared(datatype: Datatype, count: int, peer: str) -> bool:
    """Whether there is a block, for another process of the node."""
    return int(datatype.canonical().size) * count > 0 and BY_WORD[peer].name in ("node", "far")


def records(datatype: Datatype, count: int, peer: str) -> Iterator[dict[str, Any]]:
    """One JSON object for each way."""
    if _shared(datatype, count, peer):
        for way in ways(datatype, count):
            yield {
                "collective_way": way.name,
                "sent": way.sent.possible,
                "sent_needs": way.sent.needs or None,
                "received": way.received.possible,
                "received_needs": way.received.needs or None,
            }


def lines(datatype: Datatype, count: int, peer: str) -> Iterator[str]:
    """As text."""
    size = int(datatype.canonical().size) * count
    if BY_WORD[peer].name == "self":
        yield "In a collective: copied from layout to layout."
    elif not _shared(datatype, count, peer):
        yield "In a collective: packed where a message of it would be, if the function is one of several nodes."
    else:
        yield f"In a collective, a block of {size:,} B goes the fastest of the ways that both sides allow:"
        yield "  way          sent  received"
        for way in ways(datatype, count):
            sent, received = ("yes" if side.possible else "no" for side in (way.sent, way.received))
            yield f"  {way.name:<12} {sent:<5} {received:<9} {way.text}"
