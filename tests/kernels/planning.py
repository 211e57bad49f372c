"""The engine's planner from Python, and a runner for its plans.

`Runner` plans operations on a machine's memory and carries the plan out: copies, descriptors, launches.
A machine is anything with `memory` (allocate, gather, scatter, allow, copy) and `launch`.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cffi import FFI

from tempi import _engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Offsets = NDArray[np.int64]
    Machines = Callable[[], AbstractContextManager[Any]]

ROOT = Path(__file__).resolve().parents[2]
PACK, UNPACK = 0, 1
READ, WRITE = 1, 2
POISON = 0xA5


def kernel_table() -> Any:
    """tempi/kernels/_table.py of this source tree."""
    name = "tempi_kernels_table"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tempi" / "kernels" / "_table.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _internal() -> tuple[Any, Any]:
    ffi = FFI()
    csrc = ROOT / "csrc"
    texts = [(csrc / name).read_text(encoding="utf-8") for name in ("tempi.h", "pack/pack.h")]
    texts += [kernel_table().c_header(), (csrc / "cuda/kernels.h").read_text(), (csrc / "cuda/plan.h").read_text()]
    for text in texts:
        ffi.cdef(_engine._declarations(text))
    return ffi, ffi.dlopen(_engine.library_path())


ffi, lib = _internal()


def grouped(kernel: str, direction: int) -> str:
    """The kernel for narrow words, "groups": words of two bytes are unpacked one by one."""
    if direction == PACK:
        return kernel.replace("groups", "gather")
    return kernel.replace("groups_w2", "strided_w2").replace("groups", "scatter")


@dataclass(frozen=True, slots=True)
class Op:
    """Bytes [first, first + n) of count elements of a layout (tempi_layout *); addresses are numbers."""

    layout: Any
    count: int
    mem: int
    packed: int
    first: int
    n: int
    direction: int


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: str
    grid: int
    block: int
    params: tuple[int, ...]
    whole: int = 0  # blocks of its whole grid, if it has one


@dataclass(frozen=True, slots=True)
class Plan:
    copies: tuple[tuple[int, int, int], ...]  # destination, source, bytes; a row of several each
    launches: tuple[Launch, ...]
    descriptors: bytes

    @property
    def kernels(self) -> list[str]:
        return [launch.kernel.removeprefix("tempi_") for launch in self.launches]


@dataclass
class Planner:
    """tempi_cuda_plan over a machine's memory, with a cache of tables as the engine has one."""

    machine: Any
    multiprocessors: int = 2
    copied_rows: int = 0
    tables: dict[tuple[Any, bool], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._hook = ffi.callback(
            "int(void *, const tempi_table *, bool, tempi_device_table *)", self._table, error=lib.TEMPI_ERR_ARG
        )
        numbers = {"multiprocessors": self.multiprocessors, "copied_rows": self.copied_rows}
        self._hooks = ffi.new("tempi_plan_hooks *", {"table": self._hook, **numbers})
        self._plan = ffi.gc(ffi.new("tempi_plan *"), lib.tempi_cuda_plan_free)

    def _table(self, _context: Any, table: Any, variable: bool, out: Any) -> int:
        key = (table, variable)
        if key not in self.tables:
            made = ffi.new("tempi_device_table *")
            status = lib.tempi_table_form_of(table, variable, ffi.addressof(made, "form"))
            if status != lib.TEMPI_OK:
                return int(status)
            size = made.form.bytes
            encoded = ffi.new("char[]", size)
            lib.tempi_table_encode(table, variable, ffi.addressof(made, "form"), encoded)
            made.address = self.upload(ffi.buffer(encoded, size)[:])
            self.tables[key] = made
        out[0] = self.tables[key][0]
        return int(lib.TEMPI_OK)

    def upload(self, data: bytes) -> int:
        """Bytes in the machine's memory that kernels may read."""
        memory = self.machine.memory
        address = int(memory.allocate(len(data)))
        bytes_there = address + np.arange(len(data))
        memory.scatter(bytes_there, np.frombuffer(data, np.uint8))
        memory.allow(bytes_there, READ)
        return address

    def plan(self, ops: Sequence[Op]) -> Plan:
        made = ffi.new("tempi_op[]", len(ops))
        for to, op in zip(made, ops, strict=True):
            to.layout = ffi.cast("tempi_layout *", op.layout)
            to.count, to.first, to.n, to.direction = op.count, op.first, op.n, op.direction
            to.mem, to.packed = ffi.cast("void *", op.mem), ffi.cast("void *", op.packed)
        status = lib.tempi_cuda_plan(made, len(ops), self._hooks, self._plan)
        return self._done(status)

    def plan_self(self, src: tuple[Any, int, int], dst: tuple[Any, int, int], n: int) -> Plan | None:
        """For (layout, count, mem) on both sides; None if the engine has no such plan."""
        sides = [ffi.new("tempi_side *", (ffi.cast("tempi_layout *", side[0]), *side[1:])) for side in (src, dst)]
        status = lib.tempi_cuda_plan_strided(*sides, n, self._hooks, self._plan)
        return None if status == lib.TEMPI_ERR_UNSUPPORTED else self._done(status)

    def _done(self, status: int) -> Plan:
        assert status == lib.TEMPI_OK, ffi.string(lib.tempi_status_string(status)).decode()
        plan = self._plan
        descriptors = ffi.buffer(plan.bytes, plan.nbytes)[:] if plan.nbytes else b""
        if descriptors:
            lib.tempi_cuda_plan_patch(plan, self.upload(descriptors))
        launches = []
        for i in range(plan.nlaunches):
            made = plan.launches[i]
            assert made.nparams == lib.tempi_kernel_nparams[made.kernel]
            kernel = kernel_table().ALL[made.kernel]
            masks = [2 ** int(kind[1:]) - 1 for kind in kernel.types]
            params = tuple(p & mask for p, mask in zip(made.params[0 : made.nparams], masks, strict=True))
            whole = made.whole if made.when != lib.TEMPI_WHOLE_NEVER else 0
            launches.append(Launch(kernel.name, made.grid, made.block, params, whole))
        copies = [
            (copy.dst + row * copy.dst_pitch, copy.src + row * copy.src_pitch, copy.n)
            for copy in (plan.copies[0 : plan.ncopies] if plan.ncopies else ())
            for row in range(copy.rows or 1)
        ]
        return Plan(tuple(copies), tuple(launches), descriptors)

    def run(self, plan: Plan, whole: bool = False) -> None:
        """Carries the plan out, by whole grids where launches have them."""
        for dst, src, n in plan.copies:
            self.machine.memory.copy(dst, src, n)
        for launch in plan.launches:
            grid = launch.whole if whole and launch.whole else launch.grid
            self.machine.launch(launch.kernel, grid, launch.block, launch.params)


@dataclass(frozen=True, slots=True)
class Message:
    """`count` elements of a layout in a machine's memory, and the address of each packed byte."""

    layout: Any
    count: int
    where: Offsets  # of each packed byte, from `mem`
    mem: int
    packed: int
    first: int
    n: int

    @classmethod
    def on(cls, machine: Any, layout: Any, count: int, element: Offsets, extent: int, first: int = 0,
           n: int | None = None, shift: int = 0, memory_shift: int = 0) -> Message:  # fmt: skip
        """In fresh memory; the shifts misalign the two sides by so many bytes."""
        where = (element[None, :] + extent * np.arange(count, dtype=np.int64)[:, None]).ravel()
        n = where.size - first if n is None else n
        low, high = int(where.min()), int(where.max()) + 1
        # As the type says: an offset that is a multiple of 16 has an address that is one.
        base = machine.memory.allocate(high - low + 256) + (low % 16) + memory_shift - low
        packed = machine.memory.allocate(n + 64) + (first % 16) + shift
        return cls(layout, count, where, base, packed, first, n)

    def op(self, direction: int) -> Op:
        return Op(self.layout, self.count, self.mem, self.packed, self.first, self.n, direction)

    def stream(self) -> Offsets:
        """Addresses of the packed bytes."""
        return self.packed + np.arange(self.n)

    def places(self) -> Offsets:
        """Addresses of the same bytes in memory."""
        return self.mem + self.where[self.first : self.first + self.n]

    def around(self) -> Offsets:
        """Addresses that must not change: all between the lowest byte and the highest, if that is not too much."""
        low, high = int(self.where.min()), int(self.where.max()) + 1
        near = np.arange(low, high) if high - low < 1 << 20 else self.where
        return self.mem + np.setdiff1d(near, self.where[self.first : self.first + self.n])

    def prepare(self, machine: Any, direction: int, rng: np.random.Generator) -> Bytes:
        """Fills the source, poisons all else, and permits only the intended accesses; returns the packed bytes."""
        memory = machine.memory
        source, target = (self.places(), self.stream()) if direction == PACK else (self.stream(), self.places())
        memory.scatter(self.around(), POISON)
        memory.scatter(target, POISON)
        memory.scatter(source, rng.integers(0, 256, source.size, np.uint8))
        memory.allow(source, READ)
        memory.allow(target, WRITE)
        return np.asarray(memory.gather(source))

    def check(self, machine: Any, direction: int, wanted: Bytes) -> None:
        target = self.stream() if direction == PACK else self.places()
        np.testing.assert_array_equal(machine.memory.gather(target), wanted)
        if direction == UNPACK:
            assert (machine.memory.gather(self.around()) == POISON).all()


def carry_out(
    machine: Any, messages: Sequence[Message], direction: int, multiprocessors: int = 2, copied_rows: int = 0,
    whole: bool = False,
) -> Plan:  # fmt: skip
    """Plans, runs and checks the messages as one submission."""
    rng = np.random.default_rng(len(messages))
    planner = Planner(machine, multiprocessors, copied_rows)
    wanted = [message.prepare(machine, direction, rng) for message in messages]
    plan = planner.plan([message.op(direction) for message in messages])
    planner.run(plan, whole)
    for message, bytes_wanted in zip(messages, wanted, strict=True):
        message.check(machine, direction, bytes_wanted)
    return plan
