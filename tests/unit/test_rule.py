"""The built-in rule: where it must act and where it must not, by what was measured (docs/benchmarks.md)."""

from __future__ import annotations

import pytest

from tempi import _engine
from tempi.expression import parse

PACK, UNPACK, SEND, RECEIVE = range(4)
MPICH, OPENMPI = "MPICH Version: 5.0.2", "Open MPI v5.0.11"
KIB, MIB = 1 << 10, 1 << 20


def vector(run: int, stride: int) -> str:
    return f"hvector(4,1,{stride},contiguous({run},BYTE))"


IRREGULAR = "hindexed([16,16,16,16,16,16],[0,48,208,304,672,1008],BYTE)"
TRANSPOSE = "hvector(8,1,8,vector(8,1,8,DOUBLE))"


def acts(version: str, text: str, nbytes: int, operation: int) -> bool:
    kept = parse(text)
    return bool(_engine.lib.tempi_rule_choice(version.encode(), kept.canonical(), nbytes, operation))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (vector(8, 16), {64: False, 128: True, 3 * KIB: True, 4 * KIB: False, MIB: False}),
        (vector(32, 512), {64: False, 3 * KIB: True, 4 * KIB: False}),
        (vector(64, 128), {512: False, 2 * KIB: True, 4 * KIB: False, MIB: False}),
        (vector(128, 256), {KIB: False, MIB: False}),
        (vector(8, 4096), {KIB: False, 64 * KIB: False}),
        (IRREGULAR, {32: False, KIB: True, 4 * KIB: False, 8 * KIB: True, MIB: True}),
        (TRANSPOSE, {512: True, 4 * KIB: False, MIB: False}),
    ],
)
def test_open_mpi_is_left_alone_where_its_pieces_overlap(text: str, sizes: dict[int, bool]) -> None:
    for operation in (SEND, RECEIVE):
        assert {n: acts(OPENMPI, text, n, operation) for n in sizes} == sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (vector(8, 16), {16: True, 64 * KIB: True, 16 * MIB: True}),
        (vector(8, 4096), {32: True, 32 * KIB: True, 64 * KIB: False}),
        (vector(16, 4096), {4 * KIB: True, 64 * KIB: True, MIB: True}),
        (vector(4096, 8192), {64 * KIB: False, 4 * MIB: True}),
        (IRREGULAR, {KIB: True, MIB: True}),
    ],
)
def test_mpich_is_left_alone_where_runs_lie_pages_apart(text: str, sizes: dict[int, bool]) -> None:
    assert {n: acts(MPICH, text, n, SEND) for n in sizes} == sizes


@pytest.mark.parametrize("version", [MPICH, OPENMPI])
@pytest.mark.parametrize("operation", [PACK, UNPACK, SEND, RECEIVE])
def test_what_has_no_gaps_is_never_ours(version: str, operation: int) -> None:
    assert not any(acts(version, "contiguous(100,DOUBLE)", n, operation) for n in (1, 800, MIB))
