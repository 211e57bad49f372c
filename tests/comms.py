"""Communicators of every kind, and collectives in every form, for tests of the drop-in."""

from __future__ import annotations

from typing import Any

import pytest

from tempi import MPI

__all__ = ["COMMS", "FORMS", "collect", "graph", "halves", "make", "ring"]

#: Kinds of communicators for `make`.
COMMS = ["Intracomm", "Cartcomm", "Graphcomm", "Distgraphcomm", "Split", "Dup"]


def ring(comm: MPI.Intracomm) -> tuple[list[int], list[int]]:
    return [(comm.rank - 1) % comm.size], [(comm.rank + 1) % comm.size]


def graph(comm: MPI.Intracomm) -> MPI.Graphcomm:
    size = comm.size
    return comm.Create_graph([i + 1 for i in range(size)], [(i + 1) % size for i in range(size)])


def halves(comm: MPI.Intracomm) -> MPI.Intercomm:
    """An intercommunicator of the even and the odd ranks."""
    local: Any = comm.Split(comm.rank % 2, comm.rank)
    made = local.Create_intercomm(0, comm, 1 - comm.rank % 2)
    local.Free()
    return made


def make(kind: str, comm: MPI.Intracomm) -> MPI.Comm:
    match kind:
        case "Cartcomm":
            return comm.Create_cart([comm.size], [True])
        case "Graphcomm":
            return graph(comm)
        case "Distgraphcomm":
            return comm.Create_dist_graph_adjacent(*ring(comm))
        case "Split":
            return comm.Split(0, comm.rank)
        case _:
            return comm.Dup()


#: The forms of a collective: blocking, nonblocking, persistent.
FORMS = ["{}", "I{}", "{}_init"]


def collect(comm: Any, form: str, name: str, *arguments: Any) -> None:
    """One collective in that form, completed."""
    full = form.format(name.lower() if form[0] == "I" else name)
    try:
        request = getattr(comm, full)(*arguments)
    except NotImplementedError:
        pytest.skip("new in MPI-4.0")
    if form.endswith("_init"):
        request.Start()
    if request is not None:
        request.Wait()
    if form.endswith("_init"):
        request.Free()
