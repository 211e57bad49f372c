"""Two ranks that exchange vectors of several shapes (each argument: run,stride in bytes), each with the tables that its
own variable names, or without tempi if it is "off"; prints a line of counters a rank. Started by test_calibrate.py.
"""

from __future__ import annotations

import os
import sys

RANK = next(int(os.environ[name]) for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
if f"MODEL_OF_{RANK}" in os.environ:
    own = os.environ[f"MODEL_OF_{RANK}"]
    os.environ.update({"TEMPI_DISABLE": "1"} if own == "off" else {"TEMPI_MODEL": own})

import numpy as np  # noqa: E402

import tempi  # noqa: E402
from tempi import MPI, _engine  # noqa: E402

ROUNDS = 2
SHAPES = sys.argv[1:] or ("8,16", "64,512")


def exchange(comm: MPI.Comm, run: int, stride: int, size: int) -> None:
    blocks = size // run
    datatype = MPI.BYTE.Create_vector(blocks, run, stride).Commit()
    sent = np.random.default_rng(size + comm.rank).integers(0, 256, blocks * stride, np.uint8)
    expected = np.random.default_rng(size + 1 - comm.rank).integers(0, 256, blocks * stride, np.uint8)
    got = np.zeros_like(sent)
    for _ in range(ROUNDS):
        request = comm.Irecv([got, 1, datatype], 1 - comm.rank)
        comm.Send([sent, 1, datatype], 1 - comm.rank)
        request.Wait()
    inside = np.arange(blocks * stride) % stride < run
    assert np.array_equal(got[inside], expected[inside])
    assert not got[~inside].any()
    datatype.Free()


def main() -> None:
    comm = MPI.COMM_WORLD
    for size in (128, 4096, 1 << 16):
        for shape in SHAPES:
            run, stride = map(int, shape.split(","))
            exchange(comm, run, stride, size)
    own, stats = _engine.text(_engine.lib.tempi_model_in_use()), tempi.stats()
    where = tempi.peer(comm, 1 - comm.rank) if own else "nowhere"
    counters = [stats[name] for name in ("sends", "recvs", "fallback_rule", "model_choices")]
    line = f"rank {comm.rank}: {own} {' '.join(map(str, counters))} {stats['locality_probes']} {where}\n"
    sys.stdout.write("".join(comm.allgather(line)) if comm.rank == 0 else "" * len(comm.allgather(line)))


main()
