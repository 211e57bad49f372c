"""Nonblocking and persistent collectives of a test: the forms, ways to complete them, and exchanges under way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from redistribution import Block, Side, blocks_between, bytes_of
from world import MPI

if TYPE_CHECKING:
    from collections.abc import Callable

STARTS = 3


def agree(comm: Any) -> None:
    """In the first blocking collective after the first nonblocking one."""
    sent, received = ([np.zeros(1, np.uint8), *[[0] * comm.size] * 2, [MPI.BYTE] * comm.size] for _ in range(2))
    comm.Ialltoallw(sent, received).Wait()
    comm.Barrier()


def poll(request: Any) -> None:
    while not request.Test():
        pass


def asked(request: Any) -> None:
    while not request.Get_status():
        pass
    request.Wait()


WAITS: list[Callable[[Any], Any]] = [MPI.Request.Wait, poll, asked, lambda request: MPI.Request.Waitall([request])]


def nonblocking(comm: Any, name: str, wait: Callable[[Any], Any] = WAITS[0]) -> Callable[..., None]:
    return lambda *buffers: wait(getattr(comm, f"I{name.lower()}")(*buffers))


#: It commits the duplicate of a type that is not committed, and on one process its persistent collectives do not return
#: if a persistent request was freed before.
MPICH_4_0 = re.match(r"MPICH Version:\s*4\.0", MPI.Get_library_version()) is not None


def request_of(comm: Any, name: str, *buffers: Any) -> Any:
    """A persistent one."""
    if MPICH_4_0 and comm.size == 1:
        pytest.skip("this MPICH may not return from it")
    try:
        return getattr(comm, f"{name}_init")(*buffers)
    except NotImplementedError:
        pytest.skip("new in MPI-4.0")


def persistent(comm: Any, name: str, again: Callable[[], None] = lambda: None) -> Callable[..., None]:
    """Started several times, each completed in another way, and after a call of `again`."""

    def call(*buffers: Any) -> None:
        request = request_of(comm, name, *buffers)
        try:
            for wait in WAITS[:STARTS]:
                again()
                request.Start()
                wait(request)
        finally:
            request.Free()

    return call


FORMS: dict[str, tuple[Callable[..., Callable[..., None]], int]] = {
    "nonblocking": (nonblocking, 1),
    "persistent": (persistent, STARTS),
}
forms = pytest.mark.parametrize("form", FORMS)


class Pending:
    """A started exchange of all with all, and what it must bring."""

    def __init__(self, comm: Any, seed: int) -> None:
        blocks = self.blocks(comm, seed)
        self.out, self.into = blocks[comm.rank], [row[comm.rank] for row in blocks]
        self.sent, self.received = Side([b.sent for b in self.out]), Side([b.received for b in self.into])
        self.fill()

    def blocks(self, comm: Any, seed: int) -> list[list[Block]]:
        return blocks_between(seed, comm.size)

    def fill(self) -> None:
        self.sent.put([bytes_of(b.seed, self.sent.size(i)) for i, b in enumerate(self.out)])
        self.received.memory[:] = 0xA5
        self.received.put([None] * len(self.into))

    def check(self) -> None:
        self.received.check([bytes_of(b.seed, self.received.size(i)) for i, b in enumerate(self.into)])

    def free(self) -> None:
        self.sent.free()
        self.received.free()

    @property
    def arguments(self) -> tuple[Any, Any]:
        return self.sent.message, self.received.message
