"""Ctrl-C within a command of `tempi`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

__all__ = ["Interrupt"]


class Interrupt:
    """Ctrl-C. Before and after a command it kills the process (tempi/__main__.py); a command has it as an exception, to
    clean up, and then the process ends by the signal all the same, as a shell expects."""

    def __init__(self) -> None:
        self.pressed = False

    def catch(self) -> None:
        """Unless Ctrl-C is ignored, or another program, which has its own handler, calls this one."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            sys.unraisablehook = self._not_raised
            signal.signal(signal.SIGINT, self._press)

    def release(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._press:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def end(self) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGINT)
        raise SystemExit(128 + signal.SIGINT)  # not reached

    def _press(self, _number: int, _frame: object) -> None:
        self.pressed = True
        raise KeyboardInterrupt

    def _not_raised(self, failed: sys.UnraisableHookArgs) -> None:
        """Within a destructor or a callback of a weak reference, where Python prints an exception and goes on."""
        if failed.exc_type is KeyboardInterrupt:
            self.end()
        sys.__unraisablehook__(failed)
