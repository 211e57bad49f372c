"""mpi4py's ``MPI`` on top of the engine: ``from tempi import MPI``.

All names come from mpi4py. Communicators and matched messages are subclasses that also accept
non-contiguous arrays (NumPy, CuPy, Numba, PyTorch) in point-to-point calls and broadcasts. The module
has exactly mpi4py's names, and ``__file__`` is the path of mpi4py's extension module, because programs
expect that.
"""

# Load the engine before mpi4py's extension, so that the extension's symbols bind to it.
from tempi import _engine  # isort: skip

try:
    from tempi import _comms
except ModuleNotFoundError as error:
    if error.name != "mpi4py":
        raise
    raise ModuleNotFoundError("tempi.MPI needs mpi4py: pip install 'mpi4py>=4'", name="mpi4py") from None

globals().update(_comms.namespace())
del _engine, _comms
