"""The exchange through shared memory from C: random flows under the sanitizers, between processes and threads."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sanitizers import BASE, THREADS, needs_thread_sanitizer, output

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"


def build(folder: Path, kernels: Sequence[Path], *flags: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = folder / "exchange_driver"
    pack = sorted(set((CSRC / "pack").glob("*.c")) - set((CSRC / "pack").glob("kernels_*.c")))
    parts = [path for name in ("exchange", "datatype") for path in sorted((CSRC / name).glob("*.c"))]
    sources = [HERE / "exchange_driver.c", *BASE, *parts, *pack, *kernels]
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{CSRC}"]
    wrapped = "-Wl,--wrap=process_vm_readv,--wrap=process_vm_writev,--wrap=open"
    subprocess.run([*command, "-g1", *flags, *sources, wrapped, "-o", program, "-lpthread"], check=True, timeout=300)
    return program


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, sanitized_kernels: list[Path]) -> Path:
    sanitizers = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return build(tmp_path_factory.mktemp("driver"), sanitized_kernels, *sanitizers)


@dataclass(frozen=True, slots=True)
class Seen:
    """By all members together, but `positions`, of headers in the ring, by the one that saw least."""

    positions: int
    offered: int
    refused: int
    failed: int
    stored: int
    gathered: int
    mapped: int


def exchanged(*command: object) -> Seen:
    lines = output(*command).splitlines()
    found = [tuple(map(int, re.findall(r"\d+", line))) for line in lines]
    assert len(found) == int(str(command[-4]))
    positions, offered, refused, failed, stored, gathered, mapped = zip(*found, strict=True)
    return Seen(min(positions), *map(sum, (offered, refused, failed, stored, gathered, mapped)))


@pytest.mark.parametrize("capacity", [4096, 16384, 0])
@pytest.mark.parametrize("members", [2, 3])
def test_every_byte_arrives_between_processes(driver: Path, tmp_path: Path, members: int, capacity: int) -> None:
    """4096: the shortest rings that there are, shorter than most flows; 0: the segment's own."""
    seen = exchanged(driver, "processes", tmp_path, members, capacity, 1500 // members, 1 + capacity)
    assert seen.positions > 50  # of 64
    assert seen.offered > seen.refused > 5
    assert seen.failed > 5
    assert seen.stored > 5
    assert seen.gathered > 5
    assert seen.mapped > 10_000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(20, 24))
@pytest.mark.more
def test_every_byte_arrives_with_other_seeds(driver: Path, tmp_path: Path, seed: int) -> None:
    for capacity in (4096, 65536):
        assert exchanged(driver, "processes", tmp_path, 4, capacity, 500, seed).positions == 64


def test_both_flows_of_a_pair_go_the_way_that_one_side_chooses(driver: Path, tmp_path: Path) -> None:
    assert output(driver, "alike", tmp_path, 200, 11) == "200 alike\n"


def test_blocks_are_walked_read_and_moved_within_a_process(driver: Path) -> None:
    nests, between = map(int, re.findall(r"\d+", output(driver, "self", 6000, 7)))
    assert nests > 2000
    assert between > 300


def kernels_for_threads(folder: Path) -> list[Path]:
    """The scalar ones, which the driver uses. Of the others there are only the names by which it finds these: compiling
    them took as long as the rest of the test."""
    scalar, names = folder / "kernels_scalar.o", folder / "names.c"
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-g1", "-O1", THREADS, f"-I{CSRC}", "-c"]
    subprocess.run([*command, CSRC / "pack" / "kernels_scalar.c", "-o", scalar], check=True, timeout=300)
    others = [path.stem.removeprefix("kernels_") for path in (CSRC / "pack").glob("kernels_*.c")]
    lines = [f'const tempi_kernels tempi_kernels_{isa} = {{.name = "{isa}"}};' for isa in others if isa != "scalar"]
    names.write_text("\n".join(['#include "pack/nest.h"', *lines, ""]))
    return [scalar, names]


@pytest.mark.more
def test_threads_that_exchange_do_not_race(tmp_path: Path) -> None:
    start = needs_thread_sanitizer(tmp_path)
    program = build(tmp_path, kernels_for_threads(tmp_path), "-O1", THREADS, "-DSCALAR")
    folder = tmp_path / "shm"
    folder.mkdir()
    for members, capacity in ((2, 4096), (3, 8192), (2, 0)):
        seen = exchanged(*start, program, "threads", folder, members, capacity, 80, capacity + 3)
        assert seen.offered > 0
        assert seen.failed > 0
        assert seen.mapped > 0
