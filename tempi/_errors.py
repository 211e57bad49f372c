"""The exceptions that tempi raises.

::

    TempiError
    +-- EngineNotFoundError   libtempi.so is missing or cannot be loaded (also an ImportError)
    +-- EngineError           the engine returned a status; `status` holds its number
    |   +-- ArgumentError     an argument is outside its domain (also a ValueError)
    |   +-- UnsupportedError  this build or this MPI library cannot serve the request
    |   +-- NoMPIError        no MPI is loaded and initialized in this process
    +-- ArrayError            an array cannot be a message; names the axis and the rule (also a ValueError)

`MemoryError` and `OverflowError` are raised unchanged if the engine reports them.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "ArrayError",
    "EngineError",
    "EngineNotFoundError",
    "NoMPIError",
    "TempiError",
    "UnsupportedError",
]


class TempiError(Exception):
    """Base class of tempi's exceptions."""


class EngineNotFoundError(TempiError, ImportError):
    """libtempi.so is missing or cannot be loaded."""


class EngineError(TempiError):
    """The engine returned a status other than success."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class ArgumentError(EngineError, ValueError):
    """An argument is outside its domain."""


class UnsupportedError(EngineError):
    """A valid request that this build or this MPI library cannot serve."""


class NoMPIError(EngineError):
    """No MPI library is loaded and initialized in this process."""


class ArrayError(TempiError, ValueError):
    """An array cannot be sent or received; the message names the axis and the rule."""
