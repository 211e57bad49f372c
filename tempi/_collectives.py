"""mpi4py's collectives with one datatype a buffer, extended to accept non-contiguous arrays.

A buffer is one contribution, or has an equal part for each rank, or neighbour: a view is cut along its first axis, as
mpi4py cuts a contiguous array. The forms with counts (Gatherv and others) take buffer specifications, as in mpi4py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from mpi4py.MPI import PROC_NULL
from numpy import ndarray

from tempi._arrays import incoming, outgoing
from tempi._ordered import PLAIN, arrive, depart

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NEIGHBORS", "ROOTED", "SYMMETRIC", "accepting"]

#: Whether the sent and the received buffer have a part for each rank, by function.
ROOTED = {"Gather": (False, True), "Scatter": (True, False)}
SYMMETRIC = {"Allgather": (False, True), "Alltoall": (True, True)}
NEIGHBORS = {"Neighbor_allgather": (False, True), "Neighbor_alltoall": (True, True)}


def _is_view(buffer: Any) -> bool:
    return not buffer.flags.forc if isinstance(buffer, ndarray) else type(buffer) not in PLAIN


def _message(buffer: Any, sends: bool, parts: int) -> Any:
    if isinstance(buffer, ndarray):
        return (outgoing if sends else incoming)(buffer, parts)
    return (depart if sends else arrive)(buffer, wait=True, parts=parts)


def _parts(comm: Any, name: str, sends: bool) -> int:
    if name in NEIGHBORS:
        return int(comm.outdegree if sends else comm.indegree)
    return int(comm.Get_remote_size() if comm.Is_inter() else comm.Get_size())


def _examined(comm: Any, name: str, sends: bool, root: int) -> bool:
    """Whether this rank's buffer of that side is used."""
    if name not in ROOTED:
        return True
    cut = ROOTED[name][not sends]  # the root's
    if comm.Is_inter():
        return root == MPI.ROOT if cut else root not in (MPI.ROOT, PROC_NULL)
    return not cut or root == comm.Get_rank()


def accepting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """mpi4py's method, a form of the function `name`."""
    cut = (ROOTED | SYMMETRIC | NEIGHBORS)[name]

    def prepared(comm: Any, buffer: Any, sends: bool, root: int) -> Any:
        if not _is_view(buffer) or not _examined(comm, name, sends, root):
            return buffer
        return _message(buffer, sends, _parts(comm, name, sends) if cut[not sends] else 0)

    def call(self: Any, sendbuf: Any, recvbuf: Any, *rest: Any, **named: Any) -> Any:
        root = rest[0] if rest else named.get("root", 0)
        sent, received = prepared(self, sendbuf, True, root), prepared(self, recvbuf, False, root)
        return method(self, sent, received, *rest, **named)

    return call
