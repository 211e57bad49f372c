"""Shared by measurements of device memory: tempi's packs on a device, an empty kernel, and whether the library is
CUDA-aware."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tempi import _engine
from tempi.measure import cuda_driver

OPS = ("pack", "unpack")

EMPTY_PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry tempi_bench_empty() { ret; }
\0"""


@dataclass(frozen=True, slots=True)
class Work:
    """Packs or unpacks submitted to the engine as one unit of work."""

    op: str
    ops: Any  # tempi_device_op[]
    layouts: tuple[Any, ...]  # keeps the layouts alive
    ordinal: int

    @property
    def arguments(self) -> tuple[Any, int, int, int]:
        return self.ops, len(self.ops), OPS.index(self.op), self.ordinal

    def run(self) -> None:
        """Submits the work and waits."""
        _engine.check(_engine.lib.tempi_device_run(*self.arguments), doing=f"{self.op} on the device")

    def time(self, loops: int) -> float:
        """Device seconds of `loops` repetitions."""
        return self._timed(loops)[0]

    def launches(self) -> int:
        """Number of kernels and copies."""
        return self._timed(1)[1]

    def _timed(self, loops: int) -> tuple[float, int]:
        ffi = _engine.ffi
        seconds, launches = ffi.new("double *"), ffi.new("int32_t *")
        status = _engine.lib.tempi_device_time(*self.arguments, loops, seconds, launches)
        _engine.check(status, doing=f"{self.op} on the device")
        return seconds[0], launches[0]

    def call(self) -> tuple[int, tuple[int, ...]]:
        """`run` for the timing loops in C."""
        ffi = _engine.ffi
        function = ffi.cast("uintptr_t", ffi.addressof(_engine.lib, "tempi_device_run"))
        ops, *rest = self.arguments
        return int(function), (int(ffi.cast("uintptr_t", ops)), *rest)


def work(op: str, parts: Sequence[tuple[Any, int, int]], ordinal: int) -> Work:
    """Work from parts (layout, address in memory, address of the packed bytes)."""
    ffi = _engine.ffi
    made = ffi.new("tempi_device_op[]", len(parts))
    for one, (layout, memory, packed) in zip(made, parts, strict=True):
        one.layout, one.count = layout, 1
        one.mem, one.packed = ffi.cast("void *", memory), ffi.cast("void *", packed)
    return Work(op, made, tuple(layout for layout, _, _ in parts), ordinal)


def counted(op: str, layout: int, count: int, memory: int, packed: int, ordinal: int) -> Work:
    """Work for `count` elements of the engine layout at that address."""
    made = work(op, [(_engine.ffi.cast("tempi_layout const *", layout), memory, packed)], ordinal)
    made.ops[0].count = count
    return made


def library_cuda_aware() -> bool:
    """Whether the library is CUDA-aware, by its own answer or TEMPI_CUDA_AWARE. tempi answers programs itself, so
    this queries the library directly. No library accepts the emulator's addresses."""
    said = os.environ.get("TEMPI_CUDA_AWARE")
    if cuda_driver.is_emulated():
        return False
    if said:
        return said != "0"
    query = _engine.lib.tempi_engine_symbol(b"MPIX_Query_cuda_support")
    return bool(query != _engine.ffi.NULL and _engine.ffi.cast("int (*)(void)", query)() == 1)
