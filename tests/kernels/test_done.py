"""The end of every kernel: its last block writes the flag, and leaves the counter at 0 for the next launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import emulated
from planning import kernel_table

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(emulated.missing() is not None, reason=str(emulated.missing()))
STRIDED = [kernel.name for kernel in kernel_table().ALL if kernel.family == "strided"]
WORDS = 5000


@pytest.fixture
def machine() -> Iterator[emulated.EmulatedMachine]:
    made = emulated.EmulatedMachine()
    yield made
    made.close()


def number(machine: emulated.EmulatedMachine, address: int) -> int:
    return int(machine.memory.gather(address + np.arange(4)).view(np.uint32)[0])


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("grid", [1, 2, 7, 30])
def test_the_last_block_writes_the_flag(machine: emulated.EmulatedMachine, name: str, grid: int) -> None:
    """A copy of a run; more blocks than words for them in the last case."""
    width = next(kernel.width for kernel in kernel_table().ALL if kernel.name == name)
    size = WORDS * width
    source, target, word = (machine.memory.allocate(n) for n in (size, size, 8))
    data = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    machine.memory.scatter(source + np.arange(size), data)
    params = [target, source, 0, WORDS, 1, *([0] * 15), width, width]
    for done in (word, 0, word):
        machine.memory.scatter(word + np.arange(8), 0)
        machine.memory.scatter(target + np.arange(size), 0)
        machine.launch(name, grid, kernel_table().BLOCK, params, (done, word + 4))
        np.testing.assert_array_equal(machine.memory.gather(target + np.arange(size)), data)
        assert number(machine, word) == (1 if done else 0)
        assert number(machine, word + 4) == 0
