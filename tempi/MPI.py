"""The ``MPI`` of mpi4py with the engine under it: ``from tempi import MPI``.

Everything is mpi4py's own; communicators and matched messages are subclasses that also take
non-contiguous arrays (NumPy's, CuPy's, Numba's, PyTorch's) in point-to-point calls and broadcasts. The
module's names are those of mpi4py's and no others, and ``__file__`` names its extension module, as
programs expect.
"""

# The engine is in the process before mpi4py's extension, whose symbols then bind to it.
from tempi import _engine  # isort: skip

try:
    from tempi import _comms
except ModuleNotFoundError as error:
    if error.name != "mpi4py":
        raise
    raise ModuleNotFoundError("tempi.MPI needs mpi4py: pip install 'mpi4py>=4'", name="mpi4py") from None

globals().update(_comms.namespace())
del _engine, _comms
