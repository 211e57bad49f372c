"""Hypothesis strategies: datatypes over all combiners, as trees of `oracle`.

`trees()` draws anything that the standard allows: any nesting, strides and displacements of any sign
and zero, zero counts and lengths, empty types, any bounds. `receive_trees()` draws types no byte of
which occurs twice, also not in several elements. Sizes stay small: what is wrong at a kilobyte is
wrong at a gigabyte, and shrinks better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import oracle
from oracle import Tree

__all__ = ["counts", "named", "receive_trees", "trees"]

_Draw = Callable[[st.SearchStrategy[Any]], Any]

#: Elements of a message.
counts = st.sampled_from([1, 1, 1, 2, 3, 5])


def named() -> st.SearchStrategy[Tree]:
    """Predefined types, the parametrised Fortran ones included."""
    real = st.sampled_from([(6, 37), (15, 307)])
    return st.one_of(
        st.sampled_from(["BYTE", "SHORT", "INT", "DOUBLE"]).map(oracle.Named),  # shrinks to these
        st.sampled_from(oracle.NAMED).map(oracle.Named),
        st.sampled_from([2, 4, 9, 18]).map(oracle.F90Integer),
        real.map(lambda pr: oracle.F90Real(*pr)),
        real.map(lambda pr: oracle.F90Complex(*pr)),
    )


class _Maker:
    """Draws constructors around inner types within a budget of bytes.

    `safe`: blocks are laid so that no byte occurs twice.
    """

    def __init__(self, draw: _Draw, max_bytes: int, *, safe: bool) -> None:
        self.draw, self.max_bytes, self.safe = draw, max_bytes, safe

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, max(low, high))))

    def integers(self, low: int, high: int, n: int) -> list[int]:
        return [self.integer(low, high) for _ in range(n)]

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def order(self) -> str:
        return "F" if self.flag() else "C"

    def room(self, inner: Tree, most: int) -> int:
        """How many elements of `inner` there may be: at least one, at most `most`."""
        return max(1, min(most, self.max_bytes // max(1, inner.type_map.size)))

    def count(self, inner: Tree, most: int) -> int:
        """A number of elements, now and then zero."""
        return self.integer(0 if self.integer(0, 15) == 15 else 1, self.room(inner, most))

    def reach(self, inner: Tree, blocklength: int) -> tuple[int, int]:
        """Lowest and past the highest byte of a block."""
        m = inner.type_map
        far = max(0, blocklength - 1) * m.extent
        return m.true_lb + min(0, far), m.true_ub + max(0, far)

    def inner(self, depth: int) -> Tree:
        if depth == 0 or self.integer(0, 9) == 9:
            tree: Tree = self.draw(named())
            return tree
        maker = self.draw(st.sampled_from(_CONSTRUCTORS))
        made: Tree = maker(self, depth - 1)
        return made

    # -- one method per combiner

    def dup(self, depth: int) -> Tree:
        return oracle.Dup(self.inner(depth))

    def contiguous(self, depth: int) -> Tree:
        inner = self.inner(depth)
        return oracle.Contiguous(self.count(inner, 9), inner)

    def vector(self, depth: int) -> Tree:
        inner = self.inner(depth)
        blocklength = self.count(inner, 4)
        count = self.count(inner, max(1, self.room(inner, 40) // max(1, blocklength)))
        in_elements = self.flag()
        if self.safe:
            low, high = self.reach(inner, blocklength)
            stride = high - low + self.draw(st.sampled_from([0, 1, 4, 8, 16]))
            if in_elements:
                stride = -(-stride // max(1, abs(inner.type_map.extent)))
            stride *= -1 if self.integer(0, 3) == 0 else 1
        else:
            stride = self.integer(-6, 6) if in_elements else self.integer(-70, 130)
        kind = oracle.Vector if in_elements else oracle.Hvector
        return kind(count, blocklength, stride, inner)

    def places(self, inner: Tree, lengths: list[int], unit: int) -> list[int]:
        """Displacements in units of `unit` bytes, in any order."""
        regular = self.integer(0, 2) == 0
        if not self.safe:
            if regular:
                start, step = self.integer(-20, 20), self.integer(-9, 20)
                return [start + i * step for i in range(len(lengths))]
            return self.integers(-40, 80, len(lengths))
        at, placed = self.integer(-20, 20), []
        for length in self.draw(st.permutations(list(enumerate(lengths)))):
            low, high = self.reach(inner, length[1])
            start = -(-(at - low) // unit)
            placed.append((length[0], start))
            at = start * unit + high + (0 if regular else self.draw(st.sampled_from([0, 1, 8])))
        return [start for _, start in sorted(placed)]

    def unit(self, inner: Tree, in_elements: bool) -> int:
        return max(1, abs(inner.type_map.extent)) if in_elements else 1

    def indexed(self, depth: int) -> Tree:
        inner = self.inner(depth)
        n = self.count(inner, 12)
        lengths = [self.count(inner, 4) for _ in range(n)]
        in_elements = self.flag() and inner.type_map.extent >= 0
        places = self.places(inner, lengths, self.unit(inner, in_elements))
        kind = oracle.Indexed if in_elements else oracle.Hindexed
        return kind(tuple(lengths), tuple(places), inner)

    def indexed_block(self, depth: int) -> Tree:
        inner = self.inner(depth)
        n = self.count(inner, 20)
        length = self.count(inner, 3)
        in_elements = self.flag() and inner.type_map.extent >= 0
        places = self.places(inner, [length] * n, self.unit(inner, in_elements))
        kind = oracle.IndexedBlock if in_elements else oracle.HindexedBlock
        return kind(length, tuple(places), inner)

    def struct(self, depth: int) -> Tree:
        n = self.draw(st.sampled_from([2, 1, 3, 4, 5, 0]))
        inners = [self.inner(depth - 1 if depth else 0) for _ in range(n)]
        lengths = [self.count(inner, 3) for inner in inners]
        if not self.safe:
            return oracle.Struct(tuple(lengths), tuple(self.integers(-60, 120, n)), tuple(inners))
        at, places = self.integer(-20, 20), [0] * n
        for i in self.draw(st.permutations(range(n))):
            low, high = self.reach(inners[i], lengths[i])
            places[i] = at - low
            at += high - low + self.draw(st.sampled_from([0, 0, 1, 4, 8]))
        return oracle.Struct(tuple(lengths), tuple(places), tuple(inners))

    def resized(self, depth: int) -> Tree:
        inner = self.inner(depth)
        m = inner.type_map
        width = m.true_ub - m.true_lb
        if not self.safe:
            return oracle.Resized(self.integer(-20, 20), self.integer(-width - 8, width + 40), inner)
        extent = width + self.draw(st.sampled_from([0, 1, 8, 24]))
        return oracle.Resized(m.true_lb + self.integer(-9, 9), extent, inner)

    def subarray(self, depth: int) -> Tree:
        inner = self.inner(depth)
        ndims = self.integer(1, 5)
        room = self.room(inner, 120)
        sizes, subsizes, starts = [], [], []
        for _ in range(ndims):
            size = self.integer(1, min(5, max(1, room)))
            room //= size
            sub = self.integer(1, size)
            sizes.append(size)
            subsizes.append(sub)
            starts.append(self.integer(0, size - sub))
        shape = (tuple(sizes), tuple(subsizes), tuple(starts))
        return oracle.Subarray(*shape, inner, self.order())

    def darray(self, depth: int) -> Tree:
        inner = self.inner(depth)
        room = self.room(inner, 120)
        gsizes, distribs, dargs, psizes = [], [], [], []
        for _ in range(self.integer(1, 3)):
            gsize = self.integer(1, min(11, max(1, room)))
            room //= gsize
            kind = self.draw(st.sampled_from(["BLOCK", "CYCLIC", "NONE"]))
            processes = 1 if kind == "NONE" else self.integer(1, 4)
            least = -(-gsize // processes) if kind == "BLOCK" else 1
            argument = None if kind == "NONE" or self.flag() else self.integer(least, least + 3)
            gsizes.append(gsize)
            distribs.append(kind)
            dargs.append(argument)
            psizes.append(processes)
        size = 1
        for processes in psizes:
            size *= processes
        shape = (tuple(gsizes), tuple(distribs), tuple(dargs), tuple(psizes))
        return oracle.Darray(size, self.integer(0, size - 1), *shape, inner, self.order())


_CONSTRUCTORS: tuple[Callable[[_Maker, int], Tree], ...] = (
    _Maker.contiguous,
    _Maker.vector,
    _Maker.indexed,
    _Maker.indexed_block,
    _Maker.struct,
    _Maker.subarray,
    _Maker.darray,
    _Maker.resized,
    _Maker.dup,
)


@st.composite
def trees(draw: _Draw, *, depth: int = 4, max_bytes: int = 1500) -> Tree:
    """Any datatype, of up to `depth` constructors around a named type."""
    maker = _Maker(draw, max_bytes, safe=False)
    return maker.inner(maker.integer(0, depth))


@st.composite
def _spread(draw: _Draw, *, depth: int, max_bytes: int) -> Tree:
    maker = _Maker(draw, max_bytes, safe=True)
    return maker.inner(maker.integer(0, depth))


def receive_trees(*, depth: int = 4, max_bytes: int = 1500, count: int = 3) -> st.SearchStrategy[Tree]:
    """Datatypes no byte of which occurs twice in up to `count` elements."""
    return _spread(depth=depth, max_bytes=max_bytes).filter(lambda tree: not oracle.overlaps(tree, count))
