"""``python -m tempi``: the command line. The script ``tempi`` runs this file directly, not as part of the package, so
that its first lines run before any other import, and with SIGINT blocked, so that Ctrl-C waits for them."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` imports more: Ctrl-C may come in between
import sys


def _run() -> None:
    # Until a command can clean up after itself, Ctrl-C kills the process by signal instead of printing a traceback.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGINT,))
    try:
        from tempi.cli.main import main
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tempi"):
            raise
        sys.exit(f"tempi needs {error.name}, which is not installed: {sys.executable} -m pip install {error.name}")
    main(prog_name="tempi")


if __name__ == "__main__":
    _run()
