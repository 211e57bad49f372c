"""Memory that processes write and others read rests before it is written again: from C, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanitizers import ADDRESSES, exchange_program, output

HERE = Path(__file__).resolve().parent
KIB, MIB, LARGE = 1 << 10, 1 << 20, 1 << 40


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    return exchange_program(HERE / "rest_driver.c", folder, *ADDRESSES, wrapped=("posix_fallocate", "fstatvfs"))


@pytest.mark.parametrize("cache", [MIB, 2 * MIB])
def test_blocks_of_messages_rest_before_they_are_used_again(driver: Path, folder: Path, cache: int) -> None:
    output(driver, "rest", folder, cache)


def rings(
    driver: Path,
    folder: Path,
    members: int,
    *,
    limit: int = LARGE,
    free: int = LARGE,
    room: int = LARGE,
    cache: int = MIB,
    of_another: int = MIB,
) -> list[str]:
    return output(driver, "rings", folder, members, limit, free, room, cache, of_another).split()


@pytest.mark.parametrize(
    ("members", "ring"),
    [(2, 2 * MIB), (3, MIB), (4, 512 * KIB), (5, 512 * KIB), (8, 256 * KIB), (9, 128 * KIB), (32, 16 * KIB)],
)
def test_the_rings_of_a_process_have_twice_the_level_2_cache_if_all_have_no_more_than_16_mib(
    driver: Path, folder: Path, members: int, ring: int
) -> None:
    assert rings(driver, folder, members) == [str(ring), str(ring)]


@pytest.mark.parametrize(
    ("cache", "ring"),
    [(256 * KIB, 2 * MIB), (MIB, 2 * MIB), (1280 * KIB, 4 * MIB), (2 * MIB, 4 * MIB), (8 * MIB, 4 * MIB)],
)
@pytest.mark.parametrize("of_another", [256 * KIB, 8 * MIB])
def test_rings_have_two_to_four_mebibytes_by_the_level_2_cache(
    driver: Path, folder: Path, cache: int, ring: int, of_another: int
) -> None:
    """Of the process that makes them: another one may be told of another cache."""
    assert rings(driver, folder, 2, cache=cache, of_another=of_another) == [str(ring), str(ring)]


@pytest.mark.parametrize(("bytes_", "ring"), [(3 * MIB, MIB), (7 * MIB // 4, 512 * KIB), (MIB, 256 * KIB)])
def test_rings_are_shorter_where_there_is_less_memory(driver: Path, folder: Path, bytes_: int, ring: int) -> None:
    """Or no file may be as long, or they would take more than a sixteenth of what is free."""
    assert rings(driver, folder, 2, limit=bytes_) == [str(ring), str(ring)]
    assert rings(driver, folder, 2, free=16 * bytes_) == [str(ring), str(ring)]
    assert rings(driver, folder, 2, room=bytes_) == [str(ring), str(ring)]


def test_there_is_no_ring_that_is_too_short(driver: Path, folder: Path) -> None:
    assert rings(driver, folder, 2, free=KIB) == [str(256 * KIB), str(256 * KIB)]
    assert rings(driver, folder, 2, limit=512 * KIB) == ["none"]
    assert rings(driver, folder, 2, room=512 * KIB) == ["none"]
