"""Locality of two ranks of a node, same or other last-level cache, as the engine uses it (csrc/topology/locality.h).

The faster message path depends on it. Unbound ranks, and virtual machines with unbound processors, migrate between
the two while they run, so every measurement probes it again.
"""

from __future__ import annotations

from typing import Any

from tempi import _engine
from tempi.measure import worker
from tempi.model import grid

PROBES = 6  # alternating; the last ones decide


def probe(mpi: Any, comm: Any) -> str:
    """The peer class of the other of two ranks, by rank 0's view. Collective; takes some 20 microseconds."""
    handle, other = worker.handle(mpi, comm), 1 - comm.rank
    for _ in range(PROBES):
        _engine.check(_engine.lib.tempi_comm_probe_locality(handle, other), doing="probing the locality of a rank")
        comm.Barrier()
    out = _engine.ffi.new("int *")
    _engine.check(_engine.lib.tempi_comm_peer(handle, other, out), doing="the class of a rank")
    return str(comm.bcast(grid.PEERS[out[0]]))
