# What type checkers see: the drop-in has mpi4py's interface.
from mpi4py.MPI import *
from mpi4py.MPI import (
    _addressof as _addressof,
    _handleof as _handleof,
    _sizeof as _sizeof,
    _typedict as _typedict,
    _typedict_c as _typedict_c,
    _typedict_f as _typedict_f,
)
