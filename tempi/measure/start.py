"""``python start.py MODULE ARGUMENTS``: runs a measuring program, which Ctrl-C ends by the signal.

The launcher passes the signal on to each rank. As an exception it would print a traceback for each of them, and
MPI_Finalize may then wait for ranks that are within a call. This file is run directly, not as part of the package, so
that its first lines run before any other import.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` imports more: Ctrl-C may come in between
import sys


def _run() -> None:
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    import runpy

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
