"""``python -m tempi``: the command line. The script ``tempi`` runs this file itself, without the package around it, so
that its first lines come before anything else is imported."""

from __future__ import annotations

import signal
import sys


def _run() -> None:
    # Until a command can clean up after itself, Ctrl-C ends the process by the signal, not by a traceback of imports.
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
