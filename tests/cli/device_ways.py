"""Two ranks that pack, unpack, exchange and broadcast emulated device memory, and report the methods used. The library
reads its messages from managed memory. Started by test_device_ways.py; prints a line of JSON per rank.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import numpy as np

import tempi
from tempi import MPI
from tempi.emulator.array import DeviceArray
from tempi.measure import _native, worker

RUN, STRIDE, BLOCKS = 64, 128, 5 << 12  # 1.25 MiB: more than one piece
SIZE, SPAN = RUN * BLOCKS, STRIDE * BLOCKS
AWARE = os.environ.get("TEMPI_CUDA_AWARE") == "1"
KIND = "managed" if AWARE else "device"
METHODS = {
    "device": "method_device", "oneshot": "method_oneshot", "staged": "method_staged", "pipelined": "method_pipelined",
    "left": "fallback_rule", "dense left": "fallback_cuda_aware", "bytes staged": "staged_bytes",
}  # fmt: skip
COMM = MPI.COMM_WORLD
OTHER = 1 - COMM.rank


def pattern(seed: int, size: int = SPAN) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def runs(memory: np.ndarray) -> np.ndarray:
    return memory.reshape(BLOCKS, STRIDE)[:, :RUN].reshape(-1)


def spread(packed: np.ndarray) -> np.ndarray:
    memory = np.zeros(SPAN, np.uint8)
    memory.reshape(BLOCKS, STRIDE)[:, :RUN] = packed.reshape(BLOCKS, RUN)
    return memory


def call(op: str, datatype: MPI.Datatype, memory: int, packed: int, size: int) -> None:
    transfer = _native.Transfer(
        function=worker.tempi_function(f"MPI_{op.capitalize()}"), type=worker.handle(MPI, datatype),
        comm=worker.handle(MPI, MPI.COMM_SELF), memory=memory, packed=packed, bytes=size, count=1,
    )  # fmt: skip
    _native.timer(_native.load(), f"bench_mpi_{op}", transfer)(1)


def packing(datatype: MPI.Datatype, place: str) -> None:
    """Packs into that memory and unpacks from it."""
    source, target = (DeviceArray.from_numpy(one, kind=KIND) for one in (pattern(1), np.zeros(SPAN, np.uint8)))
    plain = np.zeros(SIZE, np.uint8)
    packed = None if place == "plain" else DeviceArray.from_numpy(plain, kind=place)
    address = plain.ctypes.data if packed is None else packed.pointer
    call("pack", datatype, source.pointer, address, SIZE)
    got = plain if packed is None else packed.to_numpy()
    assert np.array_equal(got, runs(pattern(1)))
    call("unpack", datatype, target.pointer, address, SIZE)
    assert np.array_equal(target.to_numpy(), spread(runs(pattern(1))))


def two_memories(datatype: MPI.Datatype, act: Callable[[MPI.Datatype, MPI.Datatype], None]) -> None:
    """Half of a message is in host memory."""
    hosts, devices = (pattern(3), np.zeros(SPAN, np.uint8)), map(DeviceArray.from_numpy, (pattern(4), pattern(5)))
    arrays = list(zip(hosts, devices, strict=True))
    types = []
    for host, device in arrays:
        places = [host.ctypes.data, device.pointer]
        types.append(MPI.Datatype.Create_struct([1, 1], places, [datatype, datatype]).Commit())
    act(*types)
    host, device = arrays[1]
    assert np.array_equal(host, spread(runs(pattern(3))))
    assert np.array_equal(runs(device.to_numpy()), runs(pattern(4)))
    for made in types:
        made.Free()


def mixed_packing(sent: MPI.Datatype, received: MPI.Datatype) -> None:
    packed = DeviceArray.from_numpy(np.zeros(2 * SIZE, np.uint8), kind="pinned")
    call("pack", sent, 0, packed.pointer, 2 * SIZE)
    call("unpack", received, 0, packed.pointer, 2 * SIZE)


def mixed_plain(sent: MPI.Datatype, received: MPI.Datatype) -> None:
    packed = np.zeros(2 * SIZE, np.uint8)
    call("pack", sent, 0, packed.ctypes.data, 2 * SIZE)
    call("unpack", received, 0, packed.ctypes.data, 2 * SIZE)


def mixed_message(sent: MPI.Datatype, received: MPI.Datatype) -> None:
    COMM.Sendrecv([MPI.BOTTOM, 1, sent], OTHER, 1, [MPI.BOTTOM, 1, received], OTHER, 1)


def dense(_: MPI.Datatype) -> None:
    source, target = (DeviceArray.from_numpy(pattern(one), kind=KIND) for one in (COMM.rank, 7))
    COMM.Sendrecv([source, SPAN, MPI.BYTE], OTHER, 1, [target, SPAN, MPI.BYTE], OTHER, 1)
    assert np.array_equal(target.to_numpy(), pattern(OTHER))


def broadcast(datatype: MPI.Datatype) -> None:
    memory = DeviceArray.from_numpy(pattern(COMM.rank))
    COMM.Bcast([memory, 1, datatype], 0)
    assert np.array_equal(runs(memory.to_numpy()), runs(pattern(0)))


CASES: dict[str, Callable[[MPI.Datatype], None]] = {
    "pinned": lambda datatype: packing(datatype, "pinned"),
    "plain": lambda datatype: packing(datatype, "plain"),
    "dense": dense,
    "two memories": lambda datatype: two_memories(datatype, mixed_message),
    "two memories packed": lambda datatype: two_memories(datatype, mixed_packing),
    "two memories, plain": lambda datatype: two_memories(datatype, mixed_plain),
}
if not AWARE:
    CASES |= {"device": lambda datatype: packing(datatype, "device"), "broadcast": broadcast}


def methods() -> dict[str, int]:
    taken = tempi.stats()
    return {name: taken[counter] for name, counter in METHODS.items()}


def main() -> None:
    datatype = MPI.BYTE.Create_vector(BLOCKS, RUN, STRIDE).Commit()
    counted: dict[str, dict[str, int]] = {}
    for name, case in CASES.items():
        for again in (False, True):  # first choice, then the cached one
            before = methods()
            case(datatype)
            found = {method: n - before[method] for method, n in methods().items() if n > before[method]}
            assert not again or found == counted[name], (name, found)
            counted[name] = found
    datatype.Free()
    lines = COMM.gather(json.dumps(counted))
    sys.stdout.write("".join(f"{line}\n" for line in lines or ()))


main()
