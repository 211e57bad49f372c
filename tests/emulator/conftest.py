"""The emulated driver for these tests: a fresh context for each, and no leaks."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.driver import Driver

THINGS = ("device", "pool", "mapped", "managed", "host", "registered", "stream", "event", "module")


@pytest.fixture(scope="session")
def driver_library() -> Path:
    """libtempi-cuda.so of this installation."""
    spec = importlib.util.find_spec("tempi")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "lib" / "libtempi-cuda.so"


@pytest.fixture(scope="session")
def driver(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """The driver of this process: two devices, any PTX version."""
    modules = tmp_path_factory.mktemp("modules")
    os.environ |= {
        "TEMPI_EMULATOR_MODULES": str(modules),
        "TEMPI_EMULATOR_DEVICES": "2",
        "TEMPI_EMULATOR_DRIVER": "13.0",
        "TEMPI_EMULATOR_MEMORY": "1G",
    }
    return Driver(driver_library, modules)


@pytest.fixture
def cuda(driver: Driver) -> Iterator[Driver]:
    """With a current context, in deferred mode; the context is destroyed after the test with all its objects."""
    driver.start(0)
    driver.streams("deferred")
    yield driver
    driver.fail("")
    driver.stop(0)


@pytest.fixture
def clean(cuda: Driver) -> Iterator[Driver]:
    """As `cuda`, for tests that free what they make: fails if something is left."""
    before = {name: cuda.live(name) for name in THINGS}
    yield cuda
    assert {name: cuda.live(name) for name in THINGS} == before
