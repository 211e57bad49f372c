"""mpi4py's collectives, extended to accept non-contiguous arrays.

A buffer is one contribution, or has a part for each rank, or neighbour: a view is cut along its first axis, as
mpi4py cuts a contiguous array; by counts in the functions that have them (`tempi._vectors`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from mpi4py.MPI import PROC_NULL
from numpy import ndarray

from tempi._arrays import incoming, outgoing
from tempi._ordered import PLAIN, arrive, depart
from tempi._vectors import array_of, by_addresses, with_counts

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAMES", "accepting"]

#: The functions with a root, and of neighbours. Those with counts, or datatypes, for each part have a letter more.
_ROOTED = ("Gather", "Scatter")
_NEIGHBORS = ("Neighbor_allgather", "Neighbor_alltoall")
_LETTERS = {"Alltoall": "vw", "Neighbor_alltoall": "vw"}
_PLAIN_NAMES = (*_ROOTED, "Allgather", "Alltoall", *_NEIGHBORS)
NAMES = tuple(name + letter for name in _PLAIN_NAMES for letter in ("", *_LETTERS.get(name, "v")))


def _is_view(buffer: Any) -> bool:
    return not buffer.flags.forc if isinstance(buffer, ndarray) else type(buffer) not in PLAIN


def _message(buffer: Any, sends: bool, parts: int) -> Any:
    if isinstance(buffer, ndarray):
        return (outgoing if sends else incoming)(buffer, parts)
    return (depart if sends else arrive)(buffer, wait=True, parts=parts)


def _parts(comm: Any, name: str, sends: bool) -> int:
    if name in _NEIGHBORS:
        return int(comm.outdegree if sends else comm.indegree)
    return int(comm.Get_remote_size() if comm.Is_inter() else comm.Get_size())


def _is_cut(name: str, sends: bool) -> bool:
    """Whether the buffer of that side has a part for each rank."""
    return name.lower().endswith("alltoall") or sends == (name == "Scatter")


def _examined(comm: Any, name: str, sends: bool, root: int) -> bool:
    """Whether this rank's buffer of that side is used."""
    if name not in _ROOTED:
        return True
    cut = _is_cut(name, sends)  # the root's
    if comm.Is_inter():
        return root == MPI.ROOT if cut else root not in (MPI.ROOT, PROC_NULL)
    return not cut or root == comm.Get_rank()


def accepting(full: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """mpi4py's method, a form of the function of that name."""
    name = full if full in _PLAIN_NAMES else full[:-1]
    letter = full.removeprefix(name)

    def prepared(comm: Any, buffer: Any, sends: bool, root: int) -> Any:
        array = array_of(buffer) if letter else buffer
        if not _is_view(array) or not _examined(comm, name, sends, root):
            return buffer
        if letter == "w":
            return by_addresses(buffer, sends)
        if not _is_cut(name, sends):
            return _message(buffer, sends, 0)
        return (with_counts if letter else _message)(buffer, sends, _parts(comm, name, sends))

    def call(self: Any, sendbuf: Any, recvbuf: Any, *rest: Any, **named: Any) -> Any:
        root = rest[0] if rest else named.get("root", 0)
        sent, received = prepared(self, sendbuf, True, root), prepared(self, recvbuf, False, root)
        return method(self, sent, received, *rest, **named)

    return call
