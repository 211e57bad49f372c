"""Communicators of every kind, for tests of the drop-in."""

from __future__ import annotations

from tempi import MPI

__all__ = ["graph", "halves", "ring"]


def ring(comm: MPI.Intracomm) -> tuple[list[int], list[int]]:
    return [(comm.rank - 1) % comm.size], [(comm.rank + 1) % comm.size]


def graph(comm: MPI.Intracomm) -> MPI.Graphcomm:
    size = comm.size
    return comm.Create_graph([i + 1 for i in range(size)], [(i + 1) % size for i in range(size)])


def halves(comm: MPI.Intracomm) -> MPI.Intercomm:
    """An intercommunicator of the even and the odd ranks."""
    local = comm.Split(comm.rank % 2, comm.rank)
    made = local.Create_intercomm(0, comm, 1 - comm.rank % 2)
    local.Free()
    return made
