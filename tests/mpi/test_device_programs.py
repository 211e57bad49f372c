"""mpi4py programs with arrays in device memory: our own, on the emulated device or a GPU; CuPy's, Numba's and
PyTorch's on a GPU.

The calls are those of any mpi4py program; NumPy checks the received data.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from world import MPI, partners, placement, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

EMULATED = os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"


class Own:
    """An array of tempi's with the same attributes as CuPy's."""

    def __init__(self, values: NDArray[Any]) -> None:
        from tempi.emulator.array import DeviceArray

        self.array = DeviceArray.from_numpy(values)
        self.__cuda_array_interface__ = self.array.__cuda_array_interface__


def _cupy(values: NDArray[Any]) -> Any:
    import cupy

    return cupy.asarray(values)


def _numba(values: NDArray[Any]) -> Any:
    from numba import cuda

    return cuda.to_device(values)


def _torch(values: NDArray[Any]) -> Any:
    import torch

    return torch.as_tensor(values, device="cuda")


#: By library: makes a device array of these values, and copies one to the host.
LIBRARIES: dict[str, tuple[Callable[[NDArray[Any]], Any], Callable[[Any], NDArray[Any]]]] = {
    "own": (Own, lambda array: array.array.to_numpy()),
    "cupy": (_cupy, lambda array: array.get()),
    "numba": (_numba, lambda array: array.copy_to_host()),
    "torch": (_torch, lambda array: array.cpu().numpy()),
}


@functools.cache
def why_not(name: str) -> str | None:
    """Why there are no arrays of that library, or None."""
    make, copy = LIBRARIES[name]
    try:
        copy(make(np.zeros(1)))
    except ImportError as error:
        return f"{name} is not installed: {error}"
    except Exception as error:  # of the library's own; CuPy and PyTorch need the CUDA runtime
        return f"{name} does not work with this driver: {str(error).splitlines()[0]}"
    return None


_library: list[str] = ["own"]  # of the test that runs


@pytest.fixture(params=LIBRARIES if placement.device and not EMULATED else ["own"], autouse=True)
def library(request: pytest.FixtureRequest) -> None:
    if not placement.device:
        pytest.skip("host memory in this run")
    if request.param != "own" and (why := why_not(request.param)):
        pytest.skip(why)
    _library[:] = [request.param]


def on_device(values: NDArray[Any]) -> Any:
    """A device array with these values."""
    return LIBRARIES[_library[0]][0](values)


def on_host(array: Any) -> NDArray[Any]:
    return LIBRARIES[_library[0]][1](array)


def numbered(rank: int, *shape: int) -> NDArray[np.float64]:
    """Values that differ from place to place and from rank to rank."""
    return np.arange(np.prod(shape), dtype=float).reshape(shape) + 10000.0 * (rank + 1)


def subarray(shape: tuple[int, ...], sizes: tuple[int, ...], starts: tuple[int, ...]) -> Any:
    return MPI.DOUBLE.Create_subarray(shape, sizes, starts).Commit()


def test_a_column_goes_to_the_next_rank(comm: Any) -> None:
    to, source = partners(comm)
    x, y = on_device(numbered(comm.rank, 33, 17)), on_device(np.zeros((33, 17)))
    column = subarray((33, 17), (33, 1), (0, 5))
    before = snapshot()
    request = comm.Irecv([y, 1, column], source)
    comm.Send([x, 1, column], to)
    request.Wait()
    column.Free()
    expected = np.zeros((33, 17))
    expected[:, 5] = numbered(source, 33, 17)[:, 5]
    np.testing.assert_array_equal(on_host(y), expected)
    moved = "self_moves" if comm.size == 1 else "device_packs"
    assert snapshot()[moved] > before[moved]


@pytest.mark.parametrize("kind", ["nonblocking", "persistent", "sendrecv"])
def test_a_halo_of_a_cube_is_exchanged(comm: Any, kind: str) -> None:
    """The two faces of axis 2, which are runs of one double, in a ring."""
    to, source = partners(comm)
    shape, face = (12, 10, 8), (10, 8, 1)
    x = on_device(numbered(comm.rank, *shape))
    first, last = subarray(shape, face, (1, 1, 1)), subarray(shape, face, (1, 1, 6))
    below, above = subarray(shape, face, (1, 1, 0)), subarray(shape, face, (1, 1, 7))
    ways = [(first, above, source, to, 1), (last, below, to, source, 2)]
    for _ in range(2):
        if kind == "sendrecv":
            for outgoing, incoming, dest, origin, tag in ways:
                comm.Sendrecv([x, 1, outgoing], dest, tag, [x, 1, incoming], origin, tag)
        else:
            make = (comm.Recv_init, comm.Send_init) if kind == "persistent" else (comm.Irecv, comm.Isend)
            requests = [make[0]([x, 1, incoming], origin, tag) for _, incoming, _, origin, tag in ways]
            requests += [make[1]([x, 1, outgoing], dest, tag) for outgoing, _, dest, _, tag in ways]
            if kind == "persistent":
                MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
            if kind == "persistent":
                for request in requests:
                    request.Free()
    for datatype in (first, last, below, above):
        datatype.Free()
    expected, inner = numbered(comm.rank, *shape), (slice(1, 11), slice(1, 9))
    expected[(*inner, 7)] = numbered(to, *shape)[(*inner, 1)]
    expected[(*inner, 0)] = numbered(source, *shape)[(*inner, 6)]
    np.testing.assert_array_equal(on_host(x), expected)


def test_many_fields_are_sent_in_a_burst(comm: Any) -> None:
    to, source = partners(comm)
    fields = [on_device(numbered(comm.rank + 10 * i, 9, 9)) for i in range(8)]
    ghosts = [on_device(np.zeros((9, 9))) for _ in range(8)]
    diagonal = MPI.DOUBLE.Create_vector(9, 1, 10).Commit()
    requests = [comm.Irecv([ghost, 1, diagonal], source, i) for i, ghost in enumerate(ghosts)]
    requests += [comm.Isend([field, 1, diagonal], to, i) for i, field in enumerate(fields)]
    MPI.Request.Waitall(requests)
    diagonal.Free()
    for i, ghost in enumerate(ghosts):
        expected = np.diag(np.diag(numbered(source + 10 * i, 9, 9)))
        np.testing.assert_array_equal(on_host(ghost), expected)


def test_a_whole_array_goes_as_it_is(comm: Any) -> None:
    to, source = partners(comm)
    x, y = on_device(numbered(comm.rank, 1000)), on_device(np.zeros(1000))
    request = comm.Irecv(y, source)
    comm.Send(x, to)
    request.Wait()
    np.testing.assert_array_equal(on_host(y), numbered(source, 1000))


def test_device_and_host_memory_meet(comm: Any) -> None:
    """Sent from the device by datatype, received as dense doubles on the host."""
    to, source = partners(comm)
    x, y = on_device(numbered(comm.rank, 40, 6)), np.zeros(40)
    column = subarray((40, 6), (40, 1), (0, 2))
    request = comm.Irecv(y, source)
    comm.Send([x, 1, column], to)
    request.Wait()
    column.Free()
    np.testing.assert_array_equal(y, numbered(source, 40, 6)[:, 2])
