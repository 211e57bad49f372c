"""Data that the drop-in leaves to a CUDA-aware library is ready when the library reads it.

The emulated device's memory is out of the libraries' reach; its managed memory is not, so that stands for
what a CUDA-aware library would read by itself.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import tempi
from tempi import MPI, _engine

if os.environ.get("TEMPI_CUDA_DRIVER") != "emulated" or os.environ.get("TEMPI_CUDA_AWARE") != "1":
    pytest.skip("needs TEMPI_CUDA_DRIVER=emulated and TEMPI_CUDA_AWARE=1", allow_module_level=True)

from foreign import Interface, Pack, Stream, on_device, overwrite, patient

CASES = {
    "contiguous": (np.s_[:], "fallback_cuda_aware"),
    "strided": (np.s_[::2], "device_packs"),
}


@pytest.fixture
def ours(comm: Any) -> MPI.Intracomm:
    return MPI.Intracomm(comm)


def test_the_library_counts_as_cuda_aware() -> None:
    info = _engine.ffi.new("tempi_engine_info *")
    _engine.check(_engine.lib.tempi_engine_query(info), doing="a test")
    assert info.cuda_aware == 1


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wrap", [Interface, Pack])
@pytest.mark.parametrize("name", ["Send", "Isend"])
def test_a_send_is_ready_when_the_library_reads_it(ours: MPI.Intracomm, name: str, wrap: Any, case: str) -> None:
    index, counter = CASES[case]
    array, stream = on_device(np.zeros(64, np.uint8), "managed"), Stream()
    got = np.zeros(64, np.uint8)[index].copy()
    before = tempi.stats()[counter]
    with patient():
        request = ours.Irecv(got, ours.rank)
        source = overwrite(array, 7, stream.ptr)
        sent = getattr(ours, name)(wrap(array[index], stream=stream.ptr), ours.rank)
        MPI.Request.Waitall([request, *([sent] if sent is not None else [])])
    assert tempi.stats()[counter] > before
    assert (got == 7).all()
    del source


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["Recv", "Irecv"])
def test_a_receive_comes_after_the_arrays_stream(ours: MPI.Intracomm, name: str, case: str) -> None:
    index = CASES[case][0]
    array, stream = on_device(np.zeros(64, np.uint8), "managed"), Stream()
    with patient():
        source = overwrite(array, 7, stream.ptr)
        sent = ours.Isend(np.full(64, 3, np.uint8)[index].copy(), ours.rank)
        got = getattr(ours, name)(Interface(array[index], stream=stream.ptr), ours.rank)
        MPI.Request.Waitall([sent, *([got] if got is not None else [])])
        stream.synchronize()
    expected = np.full(64, 7)
    expected[index] = 3
    np.testing.assert_array_equal(array.to_numpy(), expected)
    del source
