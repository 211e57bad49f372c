"""``python -m tempi``: the command line. The script ``tempi`` runs this file directly, not as part of the package, so
that its first lines run before any other import."""

from __future__ import annotations

import signal
import sys


def _run() -> None:
    # Until a command can clean up after itself, Ctrl-C kills the process by signal instead of printing a traceback.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from tempi.cli.main import main
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tempi"):
            raise
        sys.exit(f"tempi needs {error.name}, which is not installed: {sys.executable} -m pip install {error.name}")
    signal.signal(signal.SIGINT, handler)
    main(prog_name="tempi")


if __name__ == "__main__":
    _run()
