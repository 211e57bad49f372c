"""How much of the last-level cache copies may expect to find."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from packing import lib

CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3")
CORE = 16 << 20  # bytes for each processor of a virtual machine


def is_virtual() -> bool:
    words = Path("/proc/cpuinfo").read_text(encoding="ascii").split()
    return platform.machine() == "x86_64" and "hypervisor" in words


def test_a_virtual_machine_of_few_processors_expects_no_more_than_their_share() -> None:
    """One of two may be told of the 480 MiB of a processor whose other cores others use."""
    if not (CACHE / "shared_cpu_map").exists():
        pytest.skip("the system does not tell of a last-level cache")
    lib.tempi_cache_assume(0)
    size = int((CACHE / "size").read_text(encoding="ascii").removesuffix("K\n")) << 10
    sharers = bin(int((CACHE / "shared_cpu_map").read_text(encoding="ascii").replace(",", ""), 16)).count("1")
    assert lib.tempi_cache_bytes() == (min(size, CORE * sharers) if is_virtual() else size)


def test_the_cache_of_a_core_is_as_large_as_the_system_says() -> None:
    core = CACHE.with_name("index2") / "size"
    if not core.exists():
        pytest.skip("the system does not tell of a level 2 cache")
    assert lib.tempi_core_cache_bytes() == int(core.read_text(encoding="ascii").removesuffix("K\n")) << 10
