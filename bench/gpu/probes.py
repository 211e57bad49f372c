"""Kernels of the benchmark's own, independent of tempi's: the rate at which any kernel can read or write strided runs,
and a strided copy by a given number of blocks.

A run is 16 << shift bytes, one every `stride` bytes. Word i, of 16 bytes, is word i mod (1 << shift) of run
i >> shift; adjacent threads take adjacent words, and each thread has four of them in flight.

- gather    reads the runs and writes nothing: a bound for packs
- scatter   writes the runs and reads nothing: a bound for unpacks
- pack      reads the runs, writes packed words
- unpack    reads packed words, writes the runs
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

from tempi.measure import device_work
from tempi.measure.cuda_driver import Driver

WORD = 16
THREADS = 256
UNROLLED = 4
KERNELS = ("gather", "scatter", "pack", "unpack")
Call = tuple[int, tuple[int, ...]]

_ENTRY = """
.visible .entry tempi_probe_{name}(.param .u64 memory, .param .u64 packed, .param .u64 words, .param .u64 stride,
    .param .u32 shift)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<8>, %w<16>, %x<4>;
    .reg .b64 %rd<12>, %i<4>, %a<4>, %b<4>;
    ld.param.u64 %rd1, [memory];
    ld.param.u64 %rd2, [packed];
    ld.param.u64 %rd3, [words];
    ld.param.u64 %rd4, [stride];
    ld.param.u32 %r0, [shift];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    mad.lo.s32 %r5, %r1, %r2, %r3;
    mul.lo.s32 %r6, %r4, %r2;
    cvt.u64.u32 %i0, %r5;
    cvt.u64.u32 %rd5, %r6;
    mov.u64 %rd6, 1;
    shl.b64 %rd6, %rd6, %r0;
    sub.s64 %rd6, %rd6, 1;
    mov.u32 %x0, 0;
{start}LOOP:
    setp.ge.u64 %p4, %i0, %rd3;
    @%p4 bra DONE;
{addresses}{loads}{stores}    add.s64 %i0, %i3, %rd5;
    bra LOOP;
DONE:
{end}    ret;
}}
"""

_ADDRESS = """    shr.u64 %rd7, %i{k}, %r0;
    mul.lo.s64 %rd7, %rd7, %rd4;
    and.b64 %rd8, %i{k}, %rd6;
    shl.b64 %rd8, %rd8, 4;
    add.s64 %rd7, %rd7, %rd8;
    add.s64 %a{k}, %rd1, %rd7;
    shl.b64 %rd9, %i{k}, 4;
    add.s64 %b{k}, %rd2, %rd9;
    setp.lt.u64 %p{k}, %i{k}, %rd3;
"""


def _words(k: int) -> str:
    return "{" + ", ".join(f"%w{4 * k + i}" for i in range(4)) + "}"


def _entry(name: str) -> str:
    each = range(UNROLLED)
    addresses = "".join((f"    add.s64 %i{k}, %i{k - 1}, %rd5;\n" if k else "") + _ADDRESS.format(k=k) for k in each)
    loads = stores = end = ""
    start = "".join(f"    mov.u32 %w{i}, 0;\n" for i in range(4 * UNROLLED))
    read, written = ("b" if name == "unpack" else "a"), ("b" if name == "pack" else "a")
    if name != "scatter":
        loads = "".join(f"    @%p{k} ld.global.v4.u32 {_words(k)}, [%{read}{k}];\n" for k in each)
    if name != "gather":
        stores = "".join(f"    @%p{k} st.global.v4.u32 [%{written}{k}], {_words(k)};\n" for k in each)
    else:  # the words must not be dead
        stores = "".join(f"    xor.b32 %x0, %x0, %w{i};\n" for i in range(4 * UNROLLED))
        end = "    setp.eq.u32 %p5, %x0, 2654435769;\n    @%p5 st.global.u32 [%rd2], %x0;\n"
    return _ENTRY.format(name=name, start=start, addresses=addresses, loads=loads, stores=stores, end=end)


PTX = (".version 7.0\n.target sm_70\n.address_size 64\n" + "".join(map(_entry, KERNELS))).encode() + b"\0"
#: Everything that a driver without a compiler must know in advance.
MODULES = (device_work.EMPTY_PTX, PTX)


def shift_of(run: int) -> int:
    """For a run of so many bytes, a power of two; of fewer than a word, a word is moved."""
    return max(run // WORD, 1).bit_length() - 1


def full(driver: Driver) -> int:
    """Blocks that fill the device."""
    from tempi.measure import cuda_driver

    return driver.attribute(cuda_driver.MULTIPROCESSORS) * (2048 // THREADS)


@dataclass(frozen=True, slots=True)
class Probes:
    """The kernels on a device; what their launches refer to lives as long as this object."""

    driver: Driver
    functions: dict[str, int]
    kept: list[Any] = field(default_factory=list)

    @classmethod
    def on(cls, driver: Driver) -> Probes:
        return cls(driver, {name: driver.function(PTX, f"tempi_probe_{name}") for name in KERNELS})

    def call(
        self, name: str, memory: int, packed: int, runs: int, run: int, stride: int,
        blocks: int | None = None, stream: int | None = None,
    ) -> Call:  # fmt: skip
        """A launch, for `_native.sequence`: over `runs` runs of `run` bytes."""
        shift = shift_of(run)
        values = (c_uint64(memory), c_uint64(packed), c_uint64(runs << shift), c_uint64(stride), c_uint32(shift))
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.kept.append((values, pointers))
        grid = blocks or min(full(self.driver), max(1, (runs << shift) // THREADS))
        where = self.driver.stream if stream is None else stream
        launch = (self.functions[name], grid, 1, 1, THREADS, 1, 1, 0, where, ctypes.addressof(pointers), 0)
        return self.driver.address("cuLaunchKernel"), launch
