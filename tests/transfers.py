"""One message a rank round a ring, by any kind of send into any kind of receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from world import MPI, disabled_if, partners

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PAIRS", "RECEIVES", "SENDS", "Side", "exchange", "together"]

_MODES = ("Send", "Ssend", "Rsend", "Bsend")
SENDS = (*_MODES, *(f"I{mode.lower()}" for mode in _MODES), *(f"{mode}_init" for mode in _MODES))
RECEIVES = ("Recv", "Irecv", "Mrecv", "Imrecv", "Recv_init")
_EARLY = ("Irecv", "Recv_init")


def _ready(send: str) -> bool:
    return "rsend" in send.lower()


#: Ready mode needs a receive that is posted first.
PAIRS = tuple((s, r) for s in SENDS for r in RECEIVES if r in _EARLY or not _ready(s))


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an exchange: its memory, its datatype, and whether tempi is off for it."""

    memory: Any  # Memory, or what has its methods
    datatype: Any
    off: bool = False

    @property
    def message(self) -> list[Any]:
        return self.memory.message(self.datatype)


def _nothing() -> None:
    pass


def _send(comm: Any, kind: str, side: Side, to: int, tag: int) -> Callable[[], None]:
    """Starts it; the result completes it."""
    with disabled_if(side.off):
        made = getattr(comm, kind)(side.message, to, tag)
    if made is None:
        return _nothing
    if not kind.endswith("_init"):
        return lambda: made.Wait()
    made.Start()

    def end() -> None:
        made.Wait()
        made.Free()

    return end


def _receive_early(comm: Any, kind: str, side: Side, source: int, tag: int) -> Callable[[Any], None]:
    with disabled_if(side.off):
        made = getattr(comm, kind)(side.message, source, tag)
    if kind == "Irecv":
        return lambda status: made.Wait(status)
    made.Start()

    def end(status: Any) -> None:
        made.Wait(status)
        made.Free()

    return end


def _receive_late(comm: Any, kind: str, side: Side, source: int, tag: int, status: Any) -> None:
    if kind == "Recv":
        with disabled_if(side.off):
            comm.Recv(side.message, source, tag, status)
        return
    message = comm.Mprobe(source, tag)
    with disabled_if(side.off):
        if kind == "Mrecv":
            message.Recv(side.message, status)
            return
        request = message.Irecv(side.message)
    request.Wait(status)


def _late(comm: Any, send: str, out: Side, receive: str, into: Side, tag: int, status: Any) -> None:
    """A blocking send into a receive that is not there yet needs an order of the ranks."""
    to, source = partners(comm)
    alone = comm.size == 1 and send in ("Send", "Ssend")
    if alone:
        send = f"I{send.lower()}"
    if send in ("Send", "Ssend") and comm.rank > 0:
        _receive_late(comm, receive, into, source, tag, status)
        _send(comm, send, out, to, tag)()
        return
    end = _send(comm, send, out, to, tag)
    _receive_late(comm, receive, into, source, tag, status)
    end()


def exchange(comm: Any, send: str, out: Side, receive: str, into: Side, tag: int = 3) -> Any:
    """Every rank sends to its right and receives from its left; the status of the receive."""
    status = MPI.Status()
    to, source = partners(comm)
    if receive not in _EARLY:
        _late(comm, send, out, receive, into, tag, status)
        return status
    finish = _receive_early(comm, receive, into, source, tag)
    if _ready(send):
        comm.Barrier()
    end = _send(comm, send, out, to, tag)
    finish(status)
    end()
    return status


def together(comm: Any, action: Callable[[], None]) -> None:
    """Runs the action on every rank; if it fails on any, it fails on all.

    For generated examples: the ranks must agree on what is shown next.
    """
    error: AssertionError | None = None
    try:
        action()
    except AssertionError as caught:
        error = caught
    failed = [rank for rank, bad in enumerate(comm.allgather(error is not None)) if bad]
    if error is not None:
        raise error
    assert not failed, f"failed on rank {failed}"
