"""Two machines that run plans: the kernels' Python, interpreted, and their PTX on the emulated driver."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import emulated
from interpreter import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planning import Machines


@contextlib.contextmanager
def _emulated() -> Iterator[emulated.EmulatedMachine]:
    machine = emulated.EmulatedMachine()
    try:
        yield machine
    finally:
        machine.close()


@pytest.fixture(scope="session", params=["python", "ptx"])
def machines(request: pytest.FixtureRequest) -> Machines:
    """Makes a machine with a memory of its own, for the time of a block."""
    if request.param == "python":
        return lambda: contextlib.nullcontext(Machine())
    if reason := emulated.missing():
        pytest.skip(reason)
    return _emulated
