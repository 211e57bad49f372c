"""Fixtures of the benchmark tests."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from tempi.measure import _native
from tempi.measure.records import Record


@pytest.fixture(scope="session")
def native() -> ctypes.CDLL:
    """The timing library built with the engine."""
    try:
        return _native.load()
    except _native.NativeError as error:
        pytest.skip(str(error))


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """A record with defaults for the fields that a test does not set."""

    def make(subject: str, *seconds: float, case: str = "c", op: str = "pack", **meta: object) -> Record:
        return Record("pack", case, op, subject, 64, seconds, {"run": 8, **meta})

    return make


@pytest.fixture
def json_file(tmp_path: Path) -> Path:
    return tmp_path / "records.json"
