"""Two ranks that exchange types which Open MPI 5 sends wrongly, and types of the same families without that fault: for
each whether it arrived and the changes of some counters. Started by test_quirks_beside_tables.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import oracle
import tempi
from astray import ASTRAY, DOUBLE, INT
from tempi import MPI, _engine

COUNTERS = ("quirks", "sends", "recvs", "fallback_rule", "model_choices")
MORE = 30  # elements for one of ASTRAY: of so many some are sent in several pieces
#: So long that not even their first messages are the library's without a look at the tables.
PLAIN = {
    "a vector": (oracle.Vector(40, 1, 2, DOUBLE), 90),
    "blocks of ints": (oracle.IndexedBlock(3, tuple(8 * i + i % 3 for i in range(40)), INT), 900),
}
ASTRAY_LONG = {name: (tree, MORE * count) for name, (tree, count, _) in ASTRAY.items()}
ROUNDS = 2


def arrives(comm: MPI.Comm, tree: oracle.Tree, count: int) -> bool:
    low, high = oracle.span(tree, count)
    size = len(oracle.element_offsets(tree, count))
    out, into, wanted = (np.full(high - min(low, 0), 0xA5, np.uint8) for _ in range(3))
    origin = -min(low, 0)
    mine, others = (np.random.default_rng(rank).integers(0, 256, size, np.uint8) for rank in (comm.rank, 1 - comm.rank))
    oracle.unpack(tree, count, mine, out, origin)
    oracle.unpack(tree, count, others, wanted, origin)
    datatype = oracle.as_mpi(tree, MPI).Commit()
    same = True
    for _ in range(ROUNDS):
        into[:] = 0xA5
        request = comm.Irecv([into[origin:], count, datatype], 1 - comm.rank)
        comm.Send([out[origin:], count, datatype], 1 - comm.rank)
        request.Wait()
        same &= bool((into == wanted).all())
    datatype.Free()
    return same


def main() -> None:
    comm = MPI.COMM_WORLD
    lines = [f"tables: {_engine.text(_engine.lib.tempi_model_in_use())}"]
    for name, (tree, count) in (PLAIN | ASTRAY_LONG).items():
        before = tempi.stats().counters
        arrived = comm.allreduce(arrives(comm, tree, count), MPI.LAND)
        after = tempi.stats().counters
        moved = comm.allreduce(np.array([after[key] - before[key] for key in COUNTERS]))
        counters = " ".join(f"{key}={n}" for key, n in zip(COUNTERS, moved, strict=True))
        lines.append(f"{name}: {'right' if arrived else 'wrong'} {counters}")
    if comm.rank == 0:
        sys.stdout.write("\n".join(lines) + "\n")


main()
