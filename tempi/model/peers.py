"""The peer classes of the model and their names. Numbers are those of csrc/tempi.h."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BY_WORD", "PEERS", "Peer"]


class Peer(NamedTuple):
    name: str  #: In calibrations and tables.
    word: str  #: For tempi.peer() and `tempi explain --peer`.
    where: str  #: In sentences about a message.


#: In the engine's order.
PEERS = (
    Peer("self", "self", "to itself"),
    Peer("node", "same-node", "to a rank of the same node"),  # same LLC: their cores share a cache
    Peer("other", "other-node", "to another node"),
    Peer("far", "same-node-far", "to a rank of the same node with another last-level cache"),
)
BY_WORD = {peer.word: peer for peer in PEERS}
