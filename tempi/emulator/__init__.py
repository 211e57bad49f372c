"""CUDA on the CPU, a test device. Translates PTX to C for the emulated driver, libtempi-cuda.so.

    source = translate(ptx)                      # one PTX module as C
    library = compile_ptx(ptx, directory)        # compiled, where the driver finds it

The build uses this package before tempi is built, so it uses the standard library only, and its modules
import each other relatively: csrc/build.py loads it by its path, without the package above it.
"""

from __future__ import annotations

from ._compile import CompileError, compile_ptx, library_name
from ._emit import fnv1a, translate
from ._errors import PtxError

__all__ = ["CompileError", "PtxError", "compile_ptx", "fnv1a", "library_name", "translate"]
