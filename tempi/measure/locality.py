"""How far apart two ranks of a node are, as the engine takes it (csrc/topology/locality.h).

Which message is quicker hangs on it. Ranks that are not bound, and virtual machines whose processors are not, go from
one to the other while they run, so it is looked at whenever something is measured.
"""

from __future__ import annotations

from typing import Any

from tempi import _engine
from tempi.measure import worker
from tempi.model import grid

LOOKS = 6  # in turns, until the last ones decide


def look(mpi: Any, comm: Any) -> str:
    """The peer class of the other one of two ranks, by rank 0's view. Collective; some 20 microseconds are spent."""
    handle, other = worker.handle(mpi, comm), 1 - comm.rank
    for _ in range(LOOKS):
        _engine.check(_engine.lib.tempi_comm_look(handle, other), doing="looking at a rank")
        comm.Barrier()
    out = _engine.ffi.new("int *")
    _engine.check(_engine.lib.tempi_comm_peer(handle, other, out), doing="the class of a rank")
    return str(comm.bcast(grid.PEERS[out[0]]))
