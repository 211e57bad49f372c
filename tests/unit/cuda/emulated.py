"""Packs and unpacks random datatypes on the emulated device: `python emulated.py SEED CASES [DEVICES]`.

Without TEMPI_CUDA_DRIVER=emulated it is the machine's own GPU.

Prints one line with the counters. The program's side of CUDA is ctypes on the driver's library; the
answers are the type map's, by the offsets of `tempi_pack` on host memory (which other tests prove)."""

from __future__ import annotations

import ctypes
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI
from numpy.typing import NDArray

from tempi import _engine

CSRC = Path(__file__).resolve().parents[3] / "csrc"
ON_DEVICE, ONE_SHOT, STAGED, PIPELINED = 1, 2, 3, 4
PACK, UNPACK = 0, 1
GUARD = 4096
MOST = 64 << 20  # bytes of memory that a message may span
Bytes = NDArray[np.uint8]

ffi = FFI()
for name in ("tempi.h", "pack/pack.h"):
    ffi.cdef(_engine._declarations((CSRC / name).read_text(encoding="utf-8")))
ffi.cdef("""
typedef struct { int kind; int32_t device; uintptr_t base; int64_t size; uint64_t buffer_id; } tempi_memory;
int tempi_memory_ask(uintptr_t address, tempi_memory *out);
void tempi_memory_start(void);
void tempi_cuda_backend_start(void);
void tempi_cuda_flush_waiting(void);
void tempi_cuda_stop(void);
const char *tempi_cuda_driver_name(void);
void *tempi_cuda_pinned_get(int device, int64_t bytes);
void *tempi_cuda_buffer_get(int device, int64_t bytes);
bool tempi_cuda_pool_put(void *buffer);
void tempi_cuda_tables_trim(void);
void tempi_cuda_residents_trim(void);
int64_t tempi_cuda_pool_used(void);
int tempi_memory_copy(uintptr_t dst, uintptr_t src, int64_t n);
""")
lib = ffi.dlopen(_engine.library_path())
EMULATED = os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"
DRIVER = str(Path(_engine.library_path()).with_name("libtempi-cuda.so")) if EMULATED else "libcuda.so.1"
cuda = ctypes.CDLL(DRIVER)
u64 = ctypes.c_uint64


def call(name: str, *arguments: Any) -> None:
    result = getattr(cuda, name)(*arguments)
    assert result == 0, f"{name}: {result}"


class Device:
    """One emulated device, as a CUDA program sees it."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.context = ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), ordinal)

    def current(self) -> None:
        call("cuCtxSetCurrent", self.context)

    def array(self, data: Bytes) -> int:
        """Device memory with these bytes."""
        address = u64()
        self.current()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(data.size, 1)))
        self.write(address.value, data)
        return address.value

    def write(self, address: int, data: Bytes) -> None:
        self.current()
        call("cuMemcpyHtoD_v2", u64(address), data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.size))

    def read(self, address: int, n: int) -> Bytes:
        data = np.zeros(n, np.uint8)
        self.current()
        call("cuMemcpyDtoH_v2", data.ctypes.data_as(ctypes.c_void_p), u64(address), ctypes.c_size_t(n))
        return data

    def free(self, address: int) -> None:
        self.current()
        call("cuMemFree_v2", u64(address))


# ---- random datatypes ---------------------------------------------------------------------------------


def made(status: int, out: Any) -> Any:
    assert status == lib.TEMPI_OK
    return out[0]


def random_layout(rng: random.Random) -> Any:
    """A canonical layout of two or three levels over 1 to 16 bytes."""
    raw = made(lib.tempi_layout_bytes(rng.choice((1, 2, 3, 4, 8, 12, 16)), out := ffi.new("tempi_layout **")), out)
    for _ in range(rng.randint(1, 3)):
        inner, out = raw, ffi.new("tempi_layout **")
        extent, n = max(inner.extent, 1), rng.choice((1, 2, 3, 5, 17, 33))
        block = rng.randint(1, 4)
        if rng.random() < 0.6:
            stride = extent * block + rng.choice((0, 1, 4, 8, 64)) * rng.randint(0, 5)
            raw = made(lib.tempi_layout_hvector(n, block, stride, inner, out), out)
        else:
            places = np.cumsum([extent * block + rng.randint(0, 40) for _ in range(n)]).tolist()
            rng.shuffle(places)
            raw = made(lib.tempi_layout_hindexed_block(n, block, places, inner, out), out)
        lib.tempi_layout_free(inner)
    result = made(lib.tempi_layout_canonical(raw, ffi.NULL, ffi.NULL, out := ffi.new("const tempi_layout **")), out)
    lib.tempi_layout_free(raw)
    return result


def transpose(n: int, size: int) -> Any:
    element = made(lib.tempi_layout_bytes(size, out := ffi.new("tempi_layout **")), out)
    column = made(lib.tempi_layout_hvector(n, 1, n * size, element, out := ffi.new("tempi_layout **")), out)
    raw = made(lib.tempi_layout_hvector(n, 1, size, column, out := ffi.new("tempi_layout **")), out)
    return made(lib.tempi_layout_canonical(raw, ffi.NULL, ffi.NULL, out := ffi.new("const tempi_layout **")), out)


# ---- one message ----------------------------------------------------------------------------------------


class Message:
    """A fragment of `count` elements in device memory, and a packed buffer of the kind its method wants."""

    def __init__(self, layout: Any, device: Device, method: int, rng: random.Random) -> None:
        self.layout, self.device, self.method = layout, device, method
        self.count = rng.choice((1, 1, 2, 5))
        total = layout.size * self.count
        self.first = rng.choice((0, 0, rng.randint(0, total - 1)))
        self.n = rng.choice((total - self.first, rng.randint(1, total - self.first)))
        ends = [layout.true_lb, layout.true_ub, layout.true_lb + (self.count - 1) * layout.extent]
        ends.append(ends[2] - layout.true_lb + layout.true_ub)
        self.low, self.size = min(ends), max(ends) - min(ends)
        self.memory = np.frombuffer(rng.randbytes(self.size + 2 * GUARD), np.uint8)
        self.shift = rng.choice((0, 0, 1, 4, 8))
        self.address = device.array(self.memory)
        self.wanted = np.zeros(self.n, np.uint8)
        lib.tempi_pack(layout, self.count, self.base(self.memory.ctypes.data), self.first, self.n, pointer(self.wanted))
        take = lib.tempi_cuda_buffer_get if method == ON_DEVICE else lib.tempi_cuda_pinned_get
        self.packed = int(ffi.cast("uintptr_t", take(device.ordinal, self.n + 64)))
        assert self.packed

    def base(self, address: int) -> Any:
        return ffi.cast("char *", address + GUARD - self.low)

    def op(self, direction: int) -> dict[str, Any]:
        return {
            "layout": self.layout, "count": self.count, "mem": self.base(self.address),
            "packed": ffi.cast("char *", self.packed + self.shift), "first": self.first, "n": self.n,
            "direction": direction, "method": self.method, "device": self.device.ordinal,
        }  # fmt: skip

    def check_packed(self) -> None:
        if self.method == ON_DEVICE:
            got = self.device.read(self.packed + self.shift, self.n)
        else:
            got = np.frombuffer(ffi.buffer(ffi.cast("char *", self.packed + self.shift), self.n), np.uint8)
        np.testing.assert_array_equal(got, self.wanted)

    def poison(self) -> None:
        self.device.write(self.address, np.full(self.memory.size, 0xA5, np.uint8))

    def check_unpacked(self) -> None:
        wanted = np.full(self.memory.size, 0xA5, np.uint8)
        lib.tempi_unpack(
            self.layout, self.count, pointer(self.wanted), self.first, self.n, self.base(wanted.ctypes.data)
        )
        np.testing.assert_array_equal(self.device.read(self.address, self.memory.size), wanted)

    def free(self) -> None:
        self.device.free(self.address)
        assert lib.tempi_cuda_pool_put(ffi.cast("void *", self.packed))


def pointer(data: Bytes) -> Any:
    return ffi.cast("char *", data.ctypes.data)


def finish(tickets: list[Any], rng: random.Random) -> None:
    """By tests and waits, in any order."""
    for ticket in rng.sample(tickets, len(tickets)):
        tests = rng.choice((0, 3))
        while tests and not lib.tempi_pack_test(ticket):
            tests -= 1
        lib.tempi_pack_wait(ticket)
        assert lib.tempi_pack_error(ticket) == lib.TEMPI_OK


def submit(messages: list[Message], direction: int, rng: random.Random) -> list[Any]:
    """In one call, or one by one; flushed or not."""
    parts = [messages] if rng.random() < 0.3 else [[m] for m in messages]
    tickets = []
    for part in parts:
        ticket = ffi.new("tempi_ticket *")
        ops = ffi.new("tempi_op[]", [m.op(direction) for m in part])
        assert lib.tempi_pack_submit(ops, len(part), ticket) == lib.TEMPI_OK
        tickets.append(ticket)
    if rng.random() < 0.5:
        lib.tempi_cuda_flush_waiting()
    return tickets


def reach(layout: Any) -> int:
    """Bytes that a few elements span at most."""
    return int(layout.true_ub - layout.true_lb + 4 * abs(layout.extent))


def burst(devices: list[Device], rng: random.Random) -> int:
    layouts = [random_layout(rng) if rng.random() < 0.9 else transpose(rng.choice((5, 33, 64)), 8) for _ in range(4)]
    layouts = [layout for layout in layouts if layout.size and reach(layout) < MOST]
    methods = (ON_DEVICE, ONE_SHOT, STAGED, PIPELINED)
    messages = [Message(layout, rng.choice(devices), rng.choice(methods), rng) for layout in layouts]
    finish(submit(messages, PACK, rng), rng)
    for message in messages:
        message.check_packed()
        message.poison()
    finish(submit(messages, UNPACK, rng), rng)
    for message in messages:
        message.check_unpacked()
        message.free()
    for layout in layouts:
        lib.tempi_layout_release(layout)
    return len(messages)


def check_kinds(device: Device) -> None:
    memory = ffi.new("tempi_memory *")
    address = device.array(np.zeros(1000, np.uint8))
    plain = np.zeros(10, np.uint8)
    assert lib.tempi_memory_ask(address + 999, memory) == 3
    assert (memory.base, memory.device) == (address, device.ordinal)
    assert memory.size == 1000 or (memory.size > 1000 and not EMULATED)  # a real driver may round up
    assert lib.tempi_memory_ask(plain.ctypes.data, memory) == 0
    device.write(address, np.arange(1000, dtype=np.uint8))
    assert lib.tempi_memory_copy(plain.ctypes.data, address + 90, 10) == lib.TEMPI_OK
    assert plain.tolist() == list(range(90, 100))
    device.free(address)


def main() -> None:
    rng, cases = random.Random(int(sys.argv[1])), int(sys.argv[2])
    lib.tempi_memory_start()
    lib.tempi_cuda_backend_start()
    call("cuInit", 0)
    devices = [Device(i) for i in range(int(sys.argv[3]) if len(sys.argv) > 3 else 1)]
    for device in devices:
        check_kinds(device)
    done = 0
    while done < cases:
        done += burst(devices, rng)
    lib.tempi_cuda_tables_trim()
    lib.tempi_cuda_residents_trim()
    assert lib.tempi_cuda_pool_used() == 0
    lib.tempi_cuda_stop()
    counters = {_engine.text(lib.tempi_stats_name(i)): lib.tempi_stats_value(i) for i in range(lib.tempi_stats_count())}
    shown = {name: counters[name] for name in ("device_packs", "device_unpacks", "launches", "cuda_failures")}
    sys.stdout.write(f"{_engine.text(lib.tempi_cuda_driver_name())}; {done} {shown}\n")


if __name__ == "__main__":
    main()
