"""Shared by tests under mpirun: MPI by the entry under test, counters, buffers with guards.

The entry is how the engine comes into the process: "preload" (LD_PRELOAD, plain mpi4py) or "import"
(``from tempi import MPI``). The environment variable MPITEST_ENTRY names it; a run without the engine by that
entry stops at once, so a forgotten preload cannot pass.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import reject

import oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: TEMPI_METHOD, one for each rank in turn, set before the engine reads its settings.
METHODS = [name for name in os.environ.get("MPITEST_METHODS", "").split(",") if name]
if METHODS:
    _rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
    os.environ["TEMPI_METHOD"] = METHODS[_rank % len(METHODS)]

ENTRY = os.environ.get("MPITEST_ENTRY", "import")
if ENTRY == "preload":
    from mpi4py import MPI
elif ENTRY == "import":
    from tempi import MPI  # type: ignore[no-redef]
else:
    raise RuntimeError(f"MPITEST_ENTRY={ENTRY}: choose preload or import")

import tempi  # noqa: E402  (after the entry: the engine is found, not loaded a second time)
from devices import DeviceMemory  # noqa: E402
from tempi import _engine  # noqa: E402

__all__ = [
    "DELAY",
    "ENTRY",
    "FORCED",
    "HOSTS",
    "METHODS",
    "MPI",
    "Memory",
    "Placed",
    "acted",
    "carried",
    "committed",
    "disabled_if",
    "idle",
    "is_on_several_hosts",
    "needs_host_memory",
    "outcome",
    "partners",
    "placement",
    "same_without",
    "snapshot",
]

if not tempi.stats().interposed:
    raise RuntimeError(f"entry {ENTRY}: not interposed: {tempi.stats().reason}")
if _engine.preloaded != (ENTRY == "preload"):
    raise RuntimeError(f"entry {ENTRY}, but the engine was {'' if _engine.preloaded else 'not '}preloaded")

#: Tests of a pack until it is done, as TEMPI_TEST_DELAY sets it; 0: packs are done at once.
DELAY = int(os.environ.get("TEMPI_TEST_DELAY", "0"))

POISON = 0xA5
GUARD = 64


def snapshot() -> Mapping[str, int]:
    """The engine's counters."""
    counters: Mapping[str, int] = tempi.stats().counters
    return counters


#: The engine acts on all calls that it can, not only where the built-in rule expects a gain.
FORCED = os.environ.get("TEMPI_FORCE") == "1"


def acted(**expected: int) -> contextlib.AbstractContextManager[None]:
    """The block increases the named counters by exactly these amounts; with the built-in rule, which differs from
    library to library, by no more than these."""
    return counted(FORCED, expected)


@contextlib.contextmanager
def counted(exactly: bool, expected: Mapping[str, int]) -> Iterator[None]:
    """By exactly these amounts, or by no more."""
    before = snapshot()
    yield
    after = snapshot()
    moved = {name: after[name] - before[name] for name in expected}
    if exactly:
        assert moved == expected, (moved, expected)
    else:
        assert all(0 <= moved[name] <= n for name, n in expected.items())


#: Of each rank: scripts/two-hosts places them in turn.
HOSTS = MPI.COMM_WORLD.allgather(os.uname().nodename)

#: On several hosts only these are carried, and of the blocks those that stay on a host, or are packed.
IN_PART = ("Alltoallw", "Alltoallv", "Neighbor_alltoallw", "Neighbor_alltoallv", "Gatherv", "Scatterv")
#: And these, by each rank that packs for itself.
ALONE = ("Alltoall", "Neighbor_alltoall", "Neighbor_allgather", "Neighbor_allgatherv")


def is_on_several_hosts(comm: Any) -> bool:
    ranks = MPI.Group.Translate_ranks(comm.group, range(comm.size), MPI.COMM_WORLD.group)
    return len({HOSTS[rank] for rank in ranks}) > 1


def is_left_to_han(comm: Any) -> bool:
    """Between hosts Open MPI has another component for blocking collectives, coll/han. Without tempi it delivers wrong
    blocks from MPI_BOTTOM, and MPI_Scatter with a datatype that is not committed is a segmentation fault."""
    return "Open MPI" in MPI.Get_library_version() and is_on_several_hosts(comm)


def carried(comm: Any, name: str, calls: int = 1) -> contextlib.AbstractContextManager[None]:
    """The engine carries so many calls of the blocking function of this name, or its forms. Those with one type are
    carried on hosts where a rank has a derived one."""
    if is_on_several_hosts(comm):
        always = FORCED and not name.endswith("v") and name not in ALONE
        return counted(always, {"collectives": 0, "collectives_split": calls * (name in (*IN_PART, *ALONE))})
    return acted(collectives=calls, collectives_split=0)


def idle() -> contextlib.AbstractContextManager[None]:
    """The engine moves no data in the block."""
    return acted(sends=0, recvs=0, packs=0, unpacks=0)


class Placement:
    """Where `Memory` is made from now on."""

    def __init__(self, where: str) -> None:
        if where not in ("host", "device"):
            raise RuntimeError(f"MPITEST_MEMORY={where}: choose host or device")
        self.device = where == "device"

    @contextlib.contextmanager
    def host(self, only: bool = True) -> Iterator[None]:
        """Host memory in the block, unless `only` is false."""
        before, self.device = self.device, self.device and not only
        try:
            yield
        finally:
            self.device = before


placement = Placement(os.environ.get("MPITEST_MEMORY", "host"))


def needs_host_memory(reason: str = "without tempi the library cannot reach device memory") -> None:
    """Skips a test on a device, by default one in which the library alone accesses the memory under test."""
    if placement.device:
        pytest.skip(reason)


def disabled_if(off: bool) -> contextlib.AbstractContextManager[None]:
    return tempi.disabled() if off else contextlib.nullcontext()


def partners(comm: Any) -> tuple[int, int]:
    """The ranks that this rank sends to and receives from, in a ring."""
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


@contextlib.contextmanager
def committed(tree: oracle.Tree) -> Iterator[Any]:
    """The tree as a committed datatype, freed at the end. A drawn tree that the library refuses to make
    (Open MPI: a darray of an empty struct, among others) is drawn again."""
    try:
        datatype = oracle.as_mpi(tree, MPI)
    except MPI.Exception as error:
        if error.Get_error_class() != MPI.ERR_TYPE:
            raise
        reject()
    datatype.Commit()
    try:
        yield datatype
    finally:
        datatype.Free()


class Memory:
    """The memory around `count` elements of a tree, with guards on both sides.

    `shift` misaligns the buffer argument by that many bytes. Filled with POISON, or by `fill`. It is host
    memory, or, if MPITEST_MEMORY says so, device memory with a copy on the host. `where` overrides that for this
    object: "host", or one of devices.KINDS, with ":1" behind it for the second device.
    """

    def __init__(self, tree: oracle.Tree, count: int, *, shift: int = 0, where: str | None = None) -> None:
        low, high = oracle.span(tree, count)
        below = GUARD + max(0, -low)
        below += -below % 64
        self.tree, self.count, self.origin = tree, count, below
        size = below + max(0, high) + GUARD
        raw = np.empty(size + 64 + shift, np.uint8)
        start = -raw.ctypes.data % 64 + shift
        self._whole = raw[start : start + size]
        self._shift = shift
        self._device = self._allocate(size + shift, where or ("device" if placement.device else "host"))
        self._put(np.full(size, POISON, np.uint8))

    @staticmethod
    def _allocate(size: int, where: str) -> DeviceMemory | None:
        kind, _, device = where.partition(":")
        return None if kind == "host" else DeviceMemory(size, int(device or 0), kind)

    def _put(self, data: Any) -> None:
        self._whole[:] = data
        if self._device:
            self._device.write(np.concatenate([np.zeros(self._shift, np.uint8), self._whole]))

    def _get(self) -> Any:
        if self._device:
            self._whole[:] = self._device.read()[self._shift :]
        return self._whole

    @property
    def on_device(self) -> bool:
        return self._device is not None

    def fill(self, seed: int) -> Memory:
        """Bytes that differ from seed to seed, the same on every rank."""
        self._put(np.random.default_rng(seed).integers(0, 256, len(self._whole), np.uint8))
        return self

    @property
    def address(self) -> int:
        start = self._device.address + self._shift if self._device else int(self._whole.ctypes.data)
        return start + self.origin

    @property
    def packed(self) -> Any:
        """The bytes of the message, by the type map."""
        return oracle.pack(self.tree, self.count, self._get(), self.origin)

    def message(self, datatype: Any) -> list[Any]:
        """The buffer, count and type of a call. A request made with it keeps the memory alive."""
        if self._device:
            return [self._device.at(self._shift + self.origin), self.count, datatype]
        return [self._whole[self.origin :], self.count, datatype]

    def copy(self) -> Any:
        return self._get().copy()

    def check(self, packed: Any, before: Any = None) -> None:
        """Received exactly these packed bytes, and no other byte was touched."""
        expected = np.full_like(self._whole, POISON) if before is None else before
        oracle.unpack(self.tree, self.count, packed, expected, self.origin)
        np.testing.assert_array_equal(self._get(), expected)


class Placed:
    """Bytes where the run says: in host memory, or in device memory with a copy on the host."""

    def __init__(self, array: Any) -> None:
        """A contiguous array, which is the copy, or the memory itself."""
        self.array = array
        self._bytes = array.reshape(-1).view(np.uint8)
        self._device = DeviceMemory(self._bytes.size) if placement.device else None
        self.put()

    def put(self) -> None:
        """Brings what was written into the array to the device."""
        if self._device:
            self._device.write(self._bytes)

    def get(self) -> Any:
        """The array, with the bytes as they are now."""
        if self._device:
            self._bytes[:] = self._device.read()
        return self.array

    def fill(self, value: Any) -> None:
        self.array[...] = value
        self.put()

    def at(self, offset: int = 0) -> Any:
        """The bytes from that one on as a buffer. A request made with it keeps the memory alive."""
        return self._device.at(offset) if self._device else self._bytes[offset:]

    @property
    def address(self) -> int:
        return self._device.address if self._device else int(self._bytes.ctypes.data)


def outcome(action: Callable[[], Any]) -> Any:
    """The action's result, or the class of the MPI error that it raises."""
    try:
        return action()
    except MPI.Exception as error:
        return f"error {MPI.Get_error_string(error.Get_error_class())}"


def same_without(scenario: Callable[[], Any]) -> Any:
    """The scenario's result, which must be the same with tempi off and in host memory."""
    with tempi.disabled(), idle(), placement.host():
        plain = scenario()
    with_tempi = scenario()
    assert with_tempi == plain
    return with_tempi
