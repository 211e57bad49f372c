"""Datatypes by name, and how many generated ones a test under mpirun draws."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

import oracle
from world import MPI

__all__ = ["COUNTEREXAMPLES", "examples", "strided"]

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def examples(most: int) -> Any:
    """That many examples on one rank, fewer on more; the same ones on all of them and in every run."""
    return settings(
        max_examples=max(10, most // MPI.COMM_WORLD.size),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=_SLOW,
    )


def strided(count: int) -> oracle.Tree:
    """`count` doubles, every third."""
    return oracle.Vector(count, 1, 3, oracle.Named("DOUBLE"))


_byte, _int, _float, _double = map(oracle.Named, ["BYTE", "INT", "FLOAT", "DOUBLE"])

#: Types that a plausible canonical form gets wrong; the first two are from the paper.
COUNTEREXAMPLES: dict[str, oracle.Tree] = {
    "transposed": oracle.Hvector(6, 1, 4, oracle.Vector(6, 1, 6, _float)),
    "offset of a count-1 stream": oracle.Subarray((16,) * 3, (1, 3, 4), (5, 1, 4), _byte),
    "negative stride": oracle.Vector(5, 2, -4, _int),
    "negative lower bound": oracle.Resized(-24, 40, oracle.Hindexed((1, 1), (-16, 4), _int)),
    "extent below the span": oracle.Resized(0, 4, oracle.Vector(4, 1, 4, _int)),
    "backwards list": oracle.Hindexed((1, 2, 1), (64, 32, 0), _double),
    "resized over hvector": oracle.Contiguous(3, oracle.Resized(0, 72, oracle.Hvector(4, 1, 18, _int))),
    "struct of unlike": oracle.Struct((1, 2, 3), (0, 16, 40), (_byte, _double, oracle.Vector(2, 1, 3, _int))),
    "pairs": oracle.Vector(3, 2, 3, oracle.Named("SHORT_INT")),
    "fortran darray": oracle.Darray(4, 1, (7, 5), ("CYCLIC", "BLOCK"), (2, None), (2, 2), _int, order="F"),
    "five dimensions": oracle.Subarray((3, 4, 2, 3, 4), (2, 2, 1, 2, 3), (1, 0, 1, 1, 0), _int, "F"),
}
