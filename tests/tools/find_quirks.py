"""Searches the datatypes that an MPI library packs or carries otherwise than the type map says, without tempi.

    mpirun -n 1 python tests/tools/find_quirks.py [--seed N] [--types N] [--bytes N] [--shrink] [--json FILE]
    mpirun -n 2 ...        messages between two processes, instead of to oneself

Draws small random types and counts, and moves each by MPI_Pack, by MPI_Unpack, and as a message up to
`--bytes`: derived at the sender, at the receiver, at both. What arrives is held against the type map
(tests/oracle.py). Each failing type is printed as `oracle` writes it, with its marks; the last lines count for
each mark how many of the types with it fail. `--shrink` reduces each to a smaller one that fails in the same
way. The classes that are found so stand in csrc/shim/type/quirks.c and tests/mpi/test_quirks.py.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

os.environ["TEMPI_DISABLE"] = "1"  # even if tempi is preloaded: the library is under test
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from mpi4py import MPI

import oracle
from oracle import Tree

WAYS = ("pack", "unpack", "send", "receive", "both")
NAMES = (
    *("BYTE", "SHORT", "INT", "FLOAT", "DOUBLE", "LONG_DOUBLE"),
    *("C_FLOAT_COMPLEX", "C_DOUBLE_COMPLEX", "SHORT_INT", "DOUBLE_INT", "FLOAT_INT"),
)
POISON = 0xA5
#: The last 6 of its 16 bytes are padding, which a library need not copy: tested only in types made of it alone.
PADDED, VALUE = "LONG_DOUBLE", 10


# -- drawing ---------------------------------------------------------------------------------------------------


class Draw:
    """Random trees. Strides and displacements are whole elements, or bytes that need not be."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def tree(self, depth: int) -> Tree:
        if depth == 0:
            return oracle.Named(self.random.choice(NAMES))
        makers: tuple[Callable[[Tree], Tree], ...]
        makers = (self.hvector, self.hvector, self.indexed, self.block, self.contiguous, self.resized, self.dup)
        if self.random.random() < 0.1:
            return self.struct(depth)
        return self.random.choice(makers)(self.tree(depth - 1))

    def gap(self, inner: Tree) -> int:
        return self.random.choice((0, 1, 2, 4, 8, 10, 12, 16, 24, inner.type_map.extent, self.random.randrange(64)))

    def width(self, inner: Tree, length: int) -> int:
        m = inner.type_map
        return m.true_ub - m.true_lb + max(0, length - 1) * abs(m.extent)

    def hvector(self, inner: Tree) -> Tree:
        count, length = self.random.randint(1, 9), self.random.randint(1, 6)
        stride = self.width(inner, length) + self.gap(inner)
        return oracle.Hvector(count, length, stride * self.random.choice((1, 1, 1, -1)), inner)

    def places(self, inner: Tree, lengths: list[int]) -> tuple[int, ...]:
        at, places = 0, []
        for length in lengths:
            places.append(at)
            at += self.width(inner, length) + self.gap(inner)
        if self.random.random() < 0.3:
            self.random.shuffle(places)
        return tuple(places)

    def indexed(self, inner: Tree) -> Tree:
        lengths = [self.random.randint(0, 4) for _ in range(self.random.randint(1, 5))]
        return oracle.Hindexed(tuple(lengths), self.places(inner, lengths), inner)

    def block(self, inner: Tree) -> Tree:
        length, n = self.random.randint(1, 4), self.random.randint(1, 5)
        return oracle.HindexedBlock(length, self.places(inner, [length] * n), inner)

    def contiguous(self, inner: Tree) -> Tree:
        return oracle.Contiguous(self.random.randint(1, 6), inner)

    def resized(self, inner: Tree) -> Tree:
        return oracle.Resized(self.random.choice((0, 0, -4, 3)), self.width(inner, 1) + self.gap(inner), inner)

    def dup(self, inner: Tree) -> Tree:
        return oracle.Dup(inner)

    def struct(self, depth: int) -> Tree:
        inners = tuple(self.tree(depth - 1) for _ in range(self.random.randint(1, 3)))
        at, places = 0, []
        for inner in inners:
            places.append(at - inner.type_map.true_lb)
            at += self.width(inner, 1) + self.gap(inner)
        return oracle.Struct((1,) * len(inners), tuple(places), inners)

    def message(self, most: int) -> tuple[Tree, int]:
        """A tree that has a gap, no byte twice, and a count."""
        while True:
            tree = self.tree(self.random.randint(1, 4))
            size = tree.type_map.size
            if not 0 < size <= min(most, 30_000):
                continue
            count = max(1, int(most ** self.random.uniform(0.3, 1.0)) // size)
            low, high = oracle.span(tree, count)
            if PADDED in (names := {str(leaf) for leaf in leaves(tree)}) and len(names) > 1:
                continue
            if high - low < 16 * most and not oracle.overlaps(tree, count):
                return tree, count


# -- properties of a type --------------------------------------------------------------------------------------


def leaves(tree: Tree) -> Iterator[Tree]:
    if not tree.children():
        yield tree
    for child in tree.children():
        yield from leaves(child)


def element_sizes(tree: Tree) -> set[int]:
    """Bytes of the predefined types that it is made of, a pair's members each."""
    sizes = set()
    for leaf in leaves(tree):
        if isinstance(leaf, oracle.Named) and leaf.name.endswith("_INT"):
            value, _, index, _ = leaf.pair()
            sizes |= {value, index}
        else:
            sizes.add(leaf.type_map.size)
    return sizes


def elements(tree: Tree) -> list[tuple[int, int]]:
    """Offset in itself and size of each predefined member, in type-map order; of a pair's hole nothing is known."""
    if isinstance(tree, oracle.Named) and tree.name.endswith("_INT"):
        value, index, index_size, _ = tree.pair()
        return [(0, value), (index, index_size)]
    if not tree.children():
        return [(0, tree.type_map.size)]
    if isinstance(tree, oracle.Struct):
        members = zip(tree.blocklengths, tree.inners, strict=True)
        return [element for length, inner in members for element in elements(inner) * length]
    inner = elements(tree.children()[0])
    size = sum(size for _, size in inner)
    return inner * (tree.type_map.size // size if size else 0)


def astray(tree: Tree, count: int) -> bool:
    """Do elements of one size lie at distances that are no multiple of it?"""
    sizes = np.array([size for _, size in elements(tree)] * count)
    starts = oracle.element_offsets(tree, count)[np.cumsum(sizes) - sizes]
    return any(len(set((starts[sizes == size] % size).tolist())) > 1 for size in set(sizes.tolist()))


def marks(tree: Tree, count: int) -> list[str]:
    """Properties of the whole message: its elements and the gaps between its runs."""
    offsets = oracle.element_offsets(tree, count)
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    gaps = offsets[breaks + 1] - offsets[breaks] - 1
    runs = np.diff(np.concatenate([[-1], breaks, [len(offsets) - 1]]))
    least, largest = min(element_sizes(tree)), max(element_sizes(tree))
    names = {str(leaf) for leaf in leaves(tree)}
    found = {
        f"largest element of {largest}": True,
        "several sizes of element": least != largest,
        "elements astray": astray(tree, count),
        "complex": any("COMPLEX" in name.upper() for name in names),
        "a pair": any(name.endswith("_INT") for name in names),
        "one run": len(breaks) == 0,
        "gaps of whole least, not largest elements": bool((gaps % largest).any() and not (gaps % least).any()),
        "gaps not of whole least elements": bool((gaps % least).any()),
        "gaps of whole largest elements": not (gaps % largest).any(),
        "backwards": bool((gaps < 0).any()),
        "one byte backwards": bool((gaps == -1 - runs[1:]).any()),
        "runs of one length": len(set(runs.tolist())) == 1,
        "runs of several elements": bool((runs > largest).any()),
        "above 4 KiB": len(offsets) > 4096,
        "above 32 KiB": len(offsets) > 32768,
    }
    return [name for name, holds in found.items() if holds]


def value_bytes(tree: Tree, count: int) -> Any:
    """Which bytes of the packed message mean something."""
    padded = str(next(leaves(tree), "")) == PADDED
    each = np.arange(tree.type_map.size * count)
    return each % 16 < VALUE if padded else each >= 0


# -- moving ------------------------------------------------------------------------------------------------------


class Side:
    """Memory around a message, and the same bytes as the type map picks them."""

    def __init__(self, tree: Tree, count: int, seed: int | None) -> None:
        low, high = oracle.span(tree, count)
        self.tree, self.count, self.origin = tree, count, 64 + max(0, -low)
        size = self.origin + max(0, high) + 64
        self.bytes = np.full(size, POISON, np.uint8)
        if seed is not None:
            self.bytes[:] = np.random.default_rng(seed).integers(0, 256, size, np.uint8)

    def message(self, datatype: Any) -> list[Any]:
        return [self.bytes[self.origin :], self.count, datatype]

    def elements(self, datatype: Any) -> Any:
        """As mpi4py's Pack wants it, which finds the count by the extent."""
        return MPI.buffer.fromaddress(self.bytes.ctypes.data + self.origin, self.count * datatype.Get_extent()[1])

    @property
    def packed(self) -> Any:
        return oracle.pack(self.tree, self.count, self.bytes, self.origin)

    def holds(self, packed: Any) -> bool:
        """These bytes, and none other was touched."""
        found, places = self.bytes.copy(), self.origin + oracle.element_offsets(self.tree, self.count)
        same = bool((found[places] == packed)[value_bytes(self.tree, self.count)].all())
        found[places] = POISON
        return same and bool((found == POISON).all())


def exchange(comm: Any, out: list[Any], into: list[Any]) -> None:
    """From rank 0 to the last rank."""
    requests = [comm.Irecv(into, 0, 1)] if comm.rank == comm.size - 1 else []
    if comm.rank == 0:
        requests.append(comm.Isend(out, comm.size - 1, 1))
    MPI.Request.Waitall(requests)


def right(comm: Any, way: str, tree: Tree, count: int) -> bool:
    """Is it moved as the type map says? The same answer on all ranks."""
    try:
        datatype = oracle.as_mpi(tree, MPI).Commit()
    except MPI.Exception:
        return True  # the library does not make it
    out, into = Side(tree, count, 1), Side(tree, count, None)
    packed = out.packed
    size, valued = len(packed), value_bytes(tree, count)
    wire = np.zeros(size, np.uint8) if way in ("pack", "send") else packed.copy()
    if way == "pack":
        datatype.Pack(out.elements(datatype), wire, 0, MPI.COMM_SELF)
        good = bool((wire == packed)[valued].all())
    elif way == "unpack":
        datatype.Unpack(wire, 0, into.elements(datatype), MPI.COMM_SELF)
        good = into.holds(packed)
    else:
        plain = [wire, size, MPI.PACKED]
        sent = plain if way == "receive" else out.message(datatype)
        exchange(comm, sent, plain if way == "send" else into.message(datatype))
        good = bool((wire == packed)[valued].all()) if way == "send" else into.holds(packed)
        good = good or comm.rank != comm.size - 1
    datatype.Free()
    return bool(comm.allreduce(good, MPI.LAND)) if comm.size > 1 else good


def wrong(comm: Any, way: str, tree: Tree, count: int) -> bool:
    return not right(comm, way, tree, count)


# -- searching ---------------------------------------------------------------------------------------------------


def smaller(tree: Any) -> Iterator[Tree]:
    """The tree with one thing less."""
    yield from tree.children()
    values = {own.name: getattr(tree, own.name) for own in fields(tree)}
    for name in ("count", "blocklength"):
        if values.get(name, 1) > 1:
            yield replace(tree, **{name: 1})
            yield replace(tree, **{name: values[name] - 1})
    lists = {name: value for name, value in values.items() if isinstance(value, tuple)}
    members = len(next(iter(lists.values()), ()))
    for i in range(members if members > 1 else 0):
        yield replace(tree, **{name: value[:i] + value[i + 1 :] for name, value in lists.items()})
    if "inner" in values:
        for inner in smaller(tree.inner):
            yield replace(tree, inner=inner)


def shrink(tree: Tree, count: int, fails: Callable[[Tree, int], bool]) -> tuple[Tree, int]:
    """A minimal failing message: removing any part makes it pass; larger counts replace removed parts."""
    size = tree.type_map.size * count
    progress = True
    while progress:
        progress = False
        for other in smaller(tree):
            each = other.type_map.size
            if each == 0 or oracle.overlaps(other, 2):
                continue
            for n in {max(1, count), max(1, -(-size // each))}:
                if not oracle.overlaps(other, n) and fails(other, n):
                    tree, count, progress = other, n, True
                    break
            if progress:
                break
    while count > 1 and fails(tree, count // 2):
        count //= 2
    while count > 1 and fails(tree, count - 1):
        count -= 1
    return tree, count


@dataclass
class Tally:
    """How many messages were moved in each way, and what failed, by mark."""

    tried: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    failed: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    failing: list[dict[str, Any]] = field(default_factory=list)

    def add(self, way: str, tree: Tree, count: int, good: bool) -> None:
        own = marks(tree, count)
        for mark in ("all", *own):
            self.tried[way, mark] += 1
            self.failed[way, mark] += not good
        if not good:
            bytes_ = count * tree.type_map.size
            self.failing.append({"way": way, "type": str(tree), "count": count, "bytes": bytes_, "marks": own})


def search(comm: Any, options: argparse.Namespace) -> Tally:
    tally = Tally()
    ways = [way for way in WAYS if comm.size == 1 or way not in ("pack", "unpack")]
    for i in range(options.types):
        tree, count = Draw(f"{options.seed}/{i}").message(options.bytes)
        for way in ways:
            good = right(comm, way, tree, count)
            if not good and options.shrink:
                tree, count = shrink(tree, count, functools.partial(wrong, comm, way))
            tally.add(way, tree, count, good)
            if not good and comm.rank == 0:
                entry = tally.failing[-1]
                print(f"{way}: {count} of {tree}: {entry['bytes']} bytes; {', '.join(entry['marks'])}", flush=True)
    return tally


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=100_000, help="the most that a message has")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    options, comm = parse(), MPI.COMM_WORLD
    tally = search(comm, options)
    if comm.rank:
        return
    print(MPI.Get_library_version().splitlines()[0])
    for way, mark in sorted(tally.tried):
        if tally.failed[way, mark]:
            print(f"{way:8} {mark:40} {tally.failed[way, mark]:6} of {tally.tried[way, mark]}")
    if not tally.failing:
        print(f"all {options.types} types are right")
    if options.json:
        options.json.write_text(json.dumps(tally.failing, indent=1))


if __name__ == "__main__":
    main()
