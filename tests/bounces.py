"""One MPI call by its C name, on buffers in host or device memory, for tests of the bounce buffers.

A scenario makes its buffers through a `Kit` and gives the call's arguments. It runs twice: with all buffers
in host memory, which tests the library alone, and with some of them on a device. Afterwards the whole of
each buffer, guards and gaps included, must be the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import calls
import oracle
from table.rows import Bounce, all_rows
from tempi import _engine
from world import MPI, Memory, committed, placement, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "MPICH_4",
    "MPICH_4_OR_INTEL",
    "PLACES",
    "TYPES",
    "UNAVAILABLE",
    "Kit",
    "Places",
    "Requests",
    "bouncing",
    "committed_plainly",
    "same_on_device",
    "xor",
]

#: Faults of this library version, of which Intel MPI 2021.18 has some, too; docs/device.md lists them.
MPICH_4 = "MPICH Version:\t4.0" in MPI.Get_library_version()
MPICH_4_OR_INTEL = MPICH_4 or "Intel" in MPI.Get_library_version()

_int = oracle.Named("INT")

#: Datatypes of the buffers' elements; none overlap.
TYPES: dict[str, oracle.Tree] = {
    "plain": _int,
    "strided": oracle.Vector(3, 1, 3, _int),
    "irregular": oracle.Hindexed((2, 1), (24, 0), _int),
    "below": oracle.Resized(-24, 40, oracle.Hindexed((1, 1), (-16, 4), _int)),
}

Places = dict[str, "Callable[[int], bool]"]

#: The buffers on the device, by rank: inputs (in), outputs (out).
PLACES: dict[str, Places] = {
    "device": {"in": lambda rank: True, "out": lambda rank: True},
    "device to host": {"in": lambda rank: True, "out": lambda rank: False},
    "host to device": {"in": lambda rank: False, "out": lambda rank: True},
    "every other rank": {"in": lambda rank: rank % 2 == 0, "out": lambda rank: rank % 2 == 0},
}
HOST: Places = {"in": lambda rank: False, "out": lambda rank: False}

#: The result of a function that the library lacks.
UNAVAILABLE = -1431655766


Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_reduced: list[oracle.Tree] = []  # the type being reduced


def _xor(into: int, inout: int, length: int, _datatype: int) -> None:
    """Only the bytes of the type map: the library also applies it to the program's own memory."""
    count = ctypes.cast(length, ctypes.POINTER(ctypes.c_int))[0]
    offsets = oracle.element_offsets(_reduced[-1], count)
    low, size = int(offsets.min()), int(offsets.max() - offsets.min()) + 1
    one, other = (
        np.ctypeslib.as_array(ctypes.cast(at + low, ctypes.POINTER(ctypes.c_uint8)), (size,)) for at in (into, inout)
    )
    other[offsets - low] ^= one[offsets - low]


_callback = Callback(_xor)


@functools.cache
def xor() -> Any:
    """The handle of a user-defined operation for every datatype."""
    entry = _engine.ffi.cast("uintptr_t", _engine.lib.tempi_engine_symbol(b"MPI_Op_create"))
    made = ctypes.c_void_p()
    assert ctypes.CFUNCTYPE(ctypes.c_int)(int(entry))(_callback, 1, ctypes.byref(made)) == 0
    return made if MPI._sizeof(MPI.SUM) == 8 else ctypes.c_uint((made.value or 0) & 0xFFFFFFFF)


@dataclass
class Kit:
    """Makes the arguments of one call in one form. `large`: the _c form."""

    comm: Any
    tree: oracle.Tree
    datatype: Any
    places: Places
    large: bool = False
    in_place: bool = False
    memories: list[Memory] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        return int(self.comm.remote_size if self.comm.is_inter else self.comm.size)

    @property
    def rank(self) -> int:
        return int(self.comm.rank)

    @property
    def op(self) -> Any:
        _reduced[:] = [self.tree]
        return MPI.SUM if self.tree is TYPES["plain"] else xor()

    def _memory(self, role: str, count: int, tree: oracle.Tree | None = None) -> Memory:
        here = placement.device
        placement.device = self.places[role](MPI.COMM_WORLD.rank)
        try:
            made = Memory(tree or self.tree, count).fill(100 * MPI.COMM_WORLD.rank + len(self.memories))
        finally:
            placement.device = here
        self.memories.append(made)
        return made

    @property
    def on_device(self) -> bool:
        return any(memory.on_device for memory in self.memories)

    def send(self, count: int, *, here: bool = True) -> Any:
        """An input buffer, or MPI_IN_PLACE if the run uses it, if the rank has one (`here`)."""
        if self.in_place and here:
            return ctypes.c_void_p(int(MPI.IN_PLACE))
        return self._memory("in", count)

    def input(self, count: int, tree: oracle.Tree | None = None) -> Memory:
        return self._memory("in", count, tree)

    def recv(self, count: int, tree: oracle.Tree | None = None) -> Memory:
        return self._memory("out", count, tree)

    def refill(self, seed: int) -> None:
        for i, memory in enumerate(self.memories):
            memory.fill(1000 * seed + 100 * MPI.COMM_WORLD.rank + i)

    def contents(self) -> list[Any]:
        return [memory.copy() for memory in self.memories]

    # -- arguments in the form's widths ---------------------------------------------------------------

    def n(self, count: int) -> Any:
        return ctypes.c_int64(count) if self.large else ctypes.c_int(count)

    def _array(self, values: Any, dtype: Any) -> Any:
        self.kept.append(np.array(values, dtype))
        return self.kept[-1]

    def counts(self, values: Any) -> Any:
        return self._array(values, np.int64 if self.large else np.intc)

    displs = counts

    def aints(self, values: Any) -> Any:
        return self._array(values, np.int64)

    def types(self, n: int) -> Any:
        size = MPI._sizeof(self.datatype)
        handle = self.datatype.handle & ((1 << 8 * size) - 1)
        return self._array([handle] * n, np.uint64 if size == 8 else np.uint32)


class Requests:
    """Request handles in C's memory."""

    def __init__(self, n: int = 1) -> None:
        size = MPI._sizeof(MPI.REQUEST_NULL)
        null = MPI.REQUEST_NULL.handle & ((1 << 8 * size) - 1)
        self.handles = np.full(n, null, np.uint64 if size == 8 else np.uint32)
        self.statuses = np.zeros(64 * n, np.uint8)

    def at(self, i: int = 0) -> Any:
        return ctypes.c_void_p(self.handles.ctypes.data + i * self.handles.itemsize)

    def wait(self) -> None:
        calls.call("MPI_Waitall", len(self.handles), self.handles, self.statuses)


def bouncing(kind: str) -> set[str]:
    """Functions with bounces in the table that take a COMMUNICATOR, FILE or WINDOW; "": none of these."""
    rows = [row for row in all_rows() if row.bounce not in (Bounce.NONE, Bounce.REFUSED)]
    kinds = ("FILE", "WINDOW", "COMMUNICATOR")
    of = {row.name: next((k for k in kinds if row.function.of_kind(k)), "") for row in rows}
    return {name for name, found in of.items() if found == kind}


def moved_somewhere(before: Mapping[str, int], counter: str) -> bool:
    """Whether some rank has counted there since `before`."""
    return any(MPI.COMM_WORLD.allgather(snapshot()[counter] > before[counter]))


@contextlib.contextmanager
def committed_plainly(tree: oracle.Tree) -> Iterator[Any]:
    """A vector or hindexed of TYPES, made by the function without _c, which mpi4py never calls."""
    made = np.zeros(1, np.uint64 if MPI._sizeof(MPI.INT) == 8 else np.uint32)
    if isinstance(tree, oracle.Vector):
        calls.call("MPI_Type_vector", tree.count, tree.blocklength, tree.stride, MPI.INT, made)
    else:
        assert isinstance(tree, oracle.Hindexed)
        lengths, places = np.array(tree.blocklengths, np.intc), np.array(tree.displacements, np.int64)
        calls.call("MPI_Type_create_hindexed", len(lengths), lengths, places, MPI.INT, made)
    datatype = MPI.Datatype.fromhandle(int(made[0])).Commit()
    try:
        yield datatype
    finally:
        datatype.Free()


def same_on_device(
    comm: Any,
    run: Callable[[Kit], Any],
    tree: str,
    places: str,
    *,
    everywhere: bool = True,
    carried: bool = False,
    making: Callable[[oracle.Tree], Any] = committed,
    **options: Any,
) -> None:
    """The scenario leaves the same bytes in all its buffers, in any memory. `everywhere`: every rank uses all buffers
    that it makes, so that the counter shows whether they were on a device. `carried`: tempi does it, with no
    bounce buffer."""
    with contextlib.nullcontext(MPI.INT) if tree == "plain" else making(TYPES[tree]) as datatype:
        plain, device = (Kit(comm, TYPES[tree], datatype, where, **options) for where in (HOST, PLACES[places]))
        before = snapshot()
        expected = run(plain) or plain.contents()
        assert snapshot()["bounced"] == before["bounced"], "host memory needs no bounce"
        before = snapshot()
        got = run(device) or device.contents()
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        made = any(MPI.COMM_WORLD.allgather(device.on_device))
        bounced = moved_somewhere(before, "bounced")
        if carried:
            assert moved_somewhere(before, "collectives")
            assert not bounced
        else:
            assert bounced == made or not everywhere
