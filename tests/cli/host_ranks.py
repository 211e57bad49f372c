"""Ranks on one or two hosts: the peer classes as seen by each rank, and messages of a derived datatype between all
of them. Rank 0 prints every rank's results as JSON. Started by test_two_hosts.py as

    host_ranks.py world      with MPI_COMM_WORLD; HOSTS_OFF=N disables tempi on rank N
    host_ranks.py session    with a session alone
    host_ranks.py spawn      starts two more processes, and reports how the two groups see each other
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

RANK = next(int(os.environ[name]) for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
if os.environ.get("HOSTS_OFF") == str(RANK):
    os.environ["TEMPI_DISABLE"] = "1"

import mpi4py  # noqa: E402

WAY = sys.argv[1]
mpi4py.rc.initialize = WAY != "session"

import numpy as np  # noqa: E402

import tempi  # noqa: E402
from tempi import MPI  # noqa: E402

BLOCKS, RUN, STRIDE = 1 << 14, 16, 48
ROUNDS = 2


def peers(comm: Any) -> list[str] | None:
    """Every rank's location, and at the end that of any rank."""
    size = comm.Get_remote_size() if comm.Is_inter() else comm.size
    try:
        return [tempi.peer(comm, rank) for rank in (*range(size), MPI.ANY_SOURCE)]
    except tempi.NoMPIError:
        return None


def received() -> int:
    """Bytes received over the host's network."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return sum(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("eth0:"))


def data(sender: int, receiver: int) -> Any:
    return np.random.default_rng(10 * sender + receiver).integers(0, 256, BLOCKS * STRIDE, np.uint8)


def exchange(comm: MPI.Comm) -> bool:
    """Exchanges with every other rank at once; returns whether exactly the right bytes arrived."""
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    datatype = MPI.DOUBLE.Create_vector(BLOCKS, RUN // 8, STRIDE // 8).Commit()
    inside = np.arange(BLOCKS * STRIDE) % STRIDE < RUN
    good = True
    for _ in range(ROUNDS):
        got = {rank: np.zeros(BLOCKS * STRIDE, np.uint8) for rank in others}
        sent = {rank: data(comm.rank, rank) for rank in others}
        requests = [comm.Irecv([got[rank], 1, datatype], rank) for rank in others]
        requests += [comm.Isend([sent[rank], 1, datatype], rank) for rank in others]
        MPI.Request.Waitall(requests)
        good &= all(np.array_equal(got[rank], np.where(inside, data(rank, comm.rank), 0)) for rank in others)
    datatype.Free()
    return good


def made(comm: MPI.Comm) -> dict[str, Any]:
    """Communicators made from this one; each is checked while it reuses the handle of a freed one."""
    found: dict[str, Any] = {}
    for name, color, key in (("backwards", 0, -comm.rank), ("parity", comm.rank % 2, 0), ("halves", comm.rank // 2, 0)):
        part = comm.Split(color, key)
        found[name] = peers(part)
        part.Free()
    if comm.size > 1:
        half: Any = comm.Split(comm.rank % 2)
        inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2)
        found["other parity"] = peers(inter)
        inter.Free()
        half.Free()
    return found


def print_peers(comm: MPI.Comm) -> None:
    comm.Barrier()
    before, start = received(), dict(tempi.stats().counters)
    good = exchange(comm)
    comm.Barrier()
    counters = tempi.stats().counters
    line = {
        "host": os.uname().nodename,
        "memory": Path("/dev/shm").stat().st_dev,
        "came": received() - before,
        "good": good,
        "whole": peers(comm),
        **{name: counters[name] - start[name] for name in ("sends", "recvs", "fallback_rule")},
        **(made(comm) if WAY == "world" else {}),
    }
    lines = comm.gather(line)
    if lines is not None:
        print(json.dumps(lines), flush=True)


def in_session() -> None:
    session = MPI.Session.Init()
    group = session.Create_group("mpi://WORLD")
    comm = MPI.Intracomm.Create_from_group(group, "tempi.test")
    group.Free()
    print_peers(comm)
    comm.Free()
    session.Finalize()


def spawned() -> None:
    parent = MPI.Comm.Get_parent()
    if parent == MPI.COMM_NULL:
        child = MPI.COMM_WORLD.Spawn(sys.executable, ["-P", __file__, "spawn"], 2)
        print(json.dumps([peers(MPI.COMM_WORLD), peers(child), child.recv(source=0)]), flush=True)
        child.Disconnect()
    else:
        if MPI.COMM_WORLD.rank == 0:
            parent.send([peers(MPI.COMM_WORLD), peers(parent)], dest=0)
        parent.Disconnect()


{"world": lambda: print_peers(MPI.COMM_WORLD), "session": in_session, "spawn": spawned}[WAY]()
