"""The built-in rule: where measurements require that it acts, and where not (docs/benchmarks.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tempi import _engine
from tempi.expression import parse
from tempi.model import grid

PACK, UNPACK, SEND, RECEIVE = range(4)
MPICH, OPENMPI = "MPICH Version: 5.0.2", "Open MPI v5.0.11"
INTEL = "Intel(R) MPI Library 2021.18.1 for Linux* OS\n"
KIB, MIB = 1 << 10, 1 << 20


def vector(run: int, stride: int) -> str:
    return f"hvector(4,1,{stride},contiguous({run},BYTE))"


IRREGULAR = "hindexed([16,16,16,16,16,16],[0,48,208,304,672,1008],BYTE)"
FIELD = "resized(0,40,hindexed([1],[8],DOUBLE))"
TRANSPOSE = "hvector(8,1,8,vector(8,1,8,DOUBLE))"
TRANSPOSE_OF_PAGES = "hvector(8,1,8,vector(8,1,512,DOUBLE))"


def single_copy(scope: str) -> bool:
    return not Path(scope).is_file() or Path(scope).read_text(encoding="utf-8").strip() == "0"


def acts(version: str, text: str, nbytes: int, operation: int, peer: str = "node") -> bool:
    kept, where = parse(text), grid.PEERS.index(peer)
    return bool(_engine.lib.tempi_rule_choice(version.encode(), kept.canonical(), nbytes, operation, where))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (vector(8, 16), {64: False, 128: True, 3 * KIB: True, 4 * KIB: False, MIB: False}),
        (vector(32, 512), {64: False, 512: False, KIB: True, 3 * KIB: True, 4 * KIB: False}),
        (vector(64, 128), {256: False, KIB: False, 2 * KIB: True, 4 * KIB: False, MIB: False}),
        (vector(128, 256), {KIB: False, MIB: False}),
        (vector(8, 4096), {KIB: False, 64 * KIB: False}),
        (IRREGULAR, {32: False, KIB: True, 4 * KIB: False, 8 * KIB: False, 12 * KIB: True, MIB: True}),
        (TRANSPOSE, {512: True, 4 * KIB: False, MIB: False}),
    ],
)
def test_open_mpi_is_left_alone_where_its_pieces_overlap(text: str, sizes: dict[int, bool]) -> None:
    for operation in (SEND, RECEIVE):
        assert {n: acts(OPENMPI, text, n, operation) for n in sizes} == sizes


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (vector(8, 16), 0),
        (vector(16, 32), MIB),
        (vector(24, 48), MIB),
        (vector(16, 64), 0),
        (vector(32, 64), 0),
        (vector(64, 128), 0),
        (vector(8, 512), 0),
        (vector(16, 512), 0),
        (vector(64, 512), 0),
        (vector(64, 4096), 0),
        (vector(128, 4096), 0),
        (vector(1024, 4096), 0),
        (vector(4096, 8192), 0),
        (TRANSPOSE, 0),
        (FIELD, MIB),
    ],
)
def test_between_other_llc_ranks_open_mpis_pieces_pay_later(text: str, last: int) -> None:
    for operation in (SEND, RECEIVE):
        for nbytes in (12 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 3 * MIB):
            assert acts(OPENMPI, text, nbytes, operation, "far") == (nbytes <= last)
            assert acts(OPENMPI, text, nbytes, operation) == (text == FIELD and nbytes <= last)
        assert acts(OPENMPI, text, 8 * KIB, operation, "far") == (text == FIELD)
        assert not acts(OPENMPI, text, 16 * MIB, operation, "far")
    assert acts(OPENMPI, text, 16 * KIB, PACK, "far") == acts(OPENMPI, text, 16 * KIB, PACK)


@pytest.mark.parametrize("peer", ["self", "node", "far", "other"])
def test_on_a_node_mpich_overlaps_pieces_of_runs_on_pages_of_their_own(peer: str) -> None:
    for nbytes in (KIB, 64 * KIB, MIB):
        assert acts(MPICH, vector(16, 4096), nbytes, SEND, peer) == (nbytes <= 256 * KIB or peer == "other")
        assert acts(MPICH, vector(8, 4096), nbytes, SEND, peer) == (peer == "other")


@pytest.mark.parametrize("operation", [SEND, RECEIVE])
@pytest.mark.parametrize("peer", ["self", "node", "far", "other"])
def test_mpich_copies_long_runs_from_memory_to_memory_on_a_node_only(operation: int, peer: str) -> None:
    for run, nbytes in ((1024, 64 * KIB), (4096, MIB), (512, 16 * MIB), (4096, 16 * MIB)):
        assert acts(MPICH, vector(run, 2 * run), nbytes, operation, peer) == (peer == "other")
    assert acts(MPICH, vector(4096, 8192), 64 * KIB, PACK, peer) == acts(MPICH, vector(4096, 8192), 64 * KIB, PACK)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (vector(8, 16), {16: True, 64 * KIB: True, 16 * MIB: True}),
        (vector(8, 4096), {32: False, 4 * KIB: False, MIB: False}),
        (vector(16, 4096), {4 * KIB: True, 64 * KIB: True, MIB: False}),
        (vector(4096, 8192), {8 * KIB: True, 64 * KIB: False, 4 * MIB: False, 16 * MIB: False}),
        (vector(1024, 2048), {16 * KIB: True, 64 * KIB: False, MIB: False, 2 * MIB: True, 16 * MIB: False}),
        (vector(256, 512), {64 * KIB: True, 4 * MIB: True, 16 * MIB: False}),
        (vector(64, 128), {64 * KIB: True, 4 * MIB: True, 16 * MIB: False}),
        (vector(32, 64), {64 * KIB: True, 16 * MIB: True}),
        (FIELD, {16 * KIB: True, 64 * KIB: False, 16 * MIB: False}),
        (IRREGULAR, {KIB: True, MIB: True}),
    ],
)
def test_mpich_is_left_alone_where_runs_lie_pages_apart(text: str, sizes: dict[int, bool]) -> None:
    assert {n: acts(MPICH, text, n, SEND) for n in sizes} == sizes


def test_intel_mpi_is_taken_for_mpich_without_cma() -> None:
    pages = {n: acts(INTEL, vector(64, 4096), n, SEND) for n in (64 * KIB, 4 * MIB, 16 * MIB)}
    assert pages == {64 * KIB: True, 4 * MIB: True, 16 * MIB: False}


@pytest.mark.parametrize("cma", [True, False])
def test_mpich_without_cma_moves_lines_on_pages_of_their_own_in_pieces(cma: bool) -> None:
    """Whether it has it is asked once in a process."""
    if cma and not single_copy("/proc/sys/kernel/yama/ptrace_scope"):
        pytest.skip("no CMA here")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_rule import *\n"
        "print([acts(MPICH, vector(run, 4096), n, SEND) for run in (32, 64) for n in (4 * MIB, 16 * MIB)])"
    )
    own = {**os.environ, "MPIR_CVAR_CH4_CMA_ENABLE": str(int(cma)), "TEMPI_LIBRARY": _engine.library_path()}
    command = [sys.executable, "-P", "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(command, env={**own, "LD_PRELOAD": ""}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([True, True, True, cma])


@pytest.mark.parametrize(
    ("version", "operation", "text", "sizes"),
    [
        (OPENMPI, UNPACK, vector(16, 2048), {2 * KIB: False, 4 * KIB: True, 128 * KIB: True, 256 * KIB: False}),
        (OPENMPI, UNPACK, vector(64, 4096), {8 * KIB: False, 64 * KIB: True, MIB: False}),
        (OPENMPI, UNPACK, vector(16, 2064), {4 * KIB: False, 128 * KIB: False}),
        (OPENMPI, PACK, vector(8, 4096), {4 * KIB: False, 16 * KIB: True, 64 * KIB: True, 128 * KIB: False}),
        (OPENMPI, UNPACK, vector(2, 2048), {512: False}),
        (OPENMPI, PACK, vector(32, 4096), {16 * KIB: False, 64 * KIB: True, MIB: False}),
        (OPENMPI, PACK, vector(64, 4096), {64 * KIB: False}),
        (MPICH, PACK, vector(8, 4096), {4 * KIB: True, 64 * KIB: True, MIB: False}),
        (MPICH, UNPACK, vector(8, 4096), {4 * KIB: True, 64 * KIB: True, MIB: True}),
        (MPICH, UNPACK, vector(64, 4096), {4 * KIB: True, MIB: True, 2 * MIB: False, 16 * MIB: True}),
        (MPICH, PACK, TRANSPOSE_OF_PAGES, {4 * KIB: True, 16 * MIB: True}),
    ],
)
def test_tempi_packs_lines_that_compete_up_to_the_last_level_cache(
    version: str, operation: int, text: str, sizes: dict[int, bool]
) -> None:
    assert {n: acts(version, text, n, operation) for n in sizes} == sizes


@pytest.mark.parametrize(
    ("operation", "text", "sizes"),
    [
        (PACK, "hvector(128,1,139392,hvector(2,1,1056,contiguous(16,BYTE)))", {KIB: True, MIB: True}),
        (UNPACK, "hvector(128,1,139392,hvector(2,1,1056,contiguous(16,BYTE)))", {KIB: True, MIB: True}),
        (PACK, vector(96, 1536), {512: False, KIB: True, 16 * MIB: True}),
        (UNPACK, vector(128, 4096), {4 * KIB: False, 64 * KIB: False}),
        (PACK, vector(8, 1040), {KIB: False, 64 * KIB: True, MIB: False}),
        (UNPACK, vector(8, 1040), {64 * KIB: False}),
        (PACK, vector(8, 16), {8: True, 16 * MIB: True}),
        (PACK, vector(24, 72), {720: False, KIB: True}),
    ],
)
def test_open_mpi_packs_run_by_run_more_slowly(operation: int, text: str, sizes: dict[int, bool]) -> None:
    assert {n: acts(OPENMPI, text, n, operation) for n in sizes} == sizes


@pytest.mark.parametrize("version", [MPICH, OPENMPI])
@pytest.mark.parametrize("operation", [PACK, UNPACK, SEND, RECEIVE])
def test_a_type_without_gaps_is_always_left_to_the_library(version: str, operation: int) -> None:
    assert not any(acts(version, "contiguous(100,DOUBLE)", n, operation) for n in (1, 800, MIB))
