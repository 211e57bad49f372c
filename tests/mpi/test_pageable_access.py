"""Memory of malloc on devices that access it: kernels pack what lives on a device, the host what does not."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest

from devices import EMULATED, driver
from examples import strided
from transfers import Side, exchange
from world import Memory, acted, committed, partners

pytestmark = pytest.mark.skipif(
    not EMULATED or os.environ.get("TEMPI_EMULATOR_PAGEABLE_ACCESS") != "1", reason="no device accesses such memory"
)

TREE = strided(500)
CPU, UNKNOWN = -1, -2


def locate(memory: Memory, device: int, how: str = "locate") -> Memory:
    """How: `locate`, it was last prefetched there; `prefer`, it is advised to be there."""
    where = ctypes.c_uint64(memory._whole.ctypes.data), ctypes.c_uint64(memory._whole.nbytes)
    assert getattr(driver(), f"tempi_emulator_{how}")(*where, device) == 0
    return memory


@pytest.mark.parametrize("how", ["locate", "prefer"])
@pytest.mark.parametrize("device", [0, 1, CPU, UNKNOWN])
def test_kernels_pack_what_is_known_to_live_on_a_device(comm: Any, device: int, how: str) -> None:
    out, into = (locate(Memory(TREE, 1, where="host"), device, how) for _ in range(2))
    out.fill(comm.rank)
    packs = int(device >= 0)
    with committed(TREE) as datatype, acted(device_packs=packs, device_unpacks=packs):
        exchange(comm, "Isend", Side(out, datatype), "Irecv", Side(into, datatype))
    into.check(Memory(TREE, 1).fill(partners(comm)[1]).packed)
    for memory in (out, into):
        locate(memory, UNKNOWN, how)  # its address may come again
