"""The front end that runs this build, usually pip: reads its options, and prints a line to its user.

A build is a child of pip. pip shows its output only on failure, and does not pass on the indexes that the user
named. Both are found in Linux's /proc, under the parent's process number.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path

__all__ = ["index_options", "pip_environment", "tell", "working_folder"]

# Options for package sources: with a value, and without. pip's names; uv has the same.
VALUED = (
    *("-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links", "--trusted-host", "--proxy"),
    *("--cert", "--client-cert", "--cache-dir", "--keyring-provider", "--timeout", "--default-timeout", "--retries"),
)
PLAIN = ("--no-index", "--no-cache-dir", "--isolated")
# The same from the environment, and no others: PIP_CONSTRAINT and PIP_TARGET, for example, concern the user's packages.
VARIABLES = (
    *("CONFIG_FILE", "INDEX_URL", "EXTRA_INDEX_URL", "NO_INDEX", "FIND_LINKS", "TRUSTED_HOST", "PROXY", "CERT"),
    *("CLIENT_CERT", "CACHE_DIR", "NO_CACHE_DIR", "KEYRING_PROVIDER", "TIMEOUT", "DEFAULT_TIMEOUT", "RETRIES"),
)
PIDFD_GETFD = 438  # the same number on every architecture; Python has no function for it


def _command_line() -> list[str]:
    """The words of the parent's command line; empty if it cannot be read."""
    try:
        return Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _installer() -> list[str]:
    """The parent's command line if it is pip or uv: other programs' -i or -f have other meanings."""
    words = _command_line()
    names = [os.path.basename(word) for word in words[:3]]  # noqa: PTH119  (words, not paths)
    return words if any(name.startswith("pip") or name == "uv" for name in names) else []


def index_options(words: list[str] | None = None) -> list[str]:
    """pip's index options from its command line, for a pip that we start."""
    rest = iter(_installer() if words is None else words)
    found: list[str] = []
    for word in rest:
        name, equals, _ = word.partition("=")
        if word in PLAIN or (equals and name in VALUED):
            found.append(word)
        elif word in VALUED:
            found += [word, next(rest, "")]
        elif word[:2] in ("-i", "-f"):  # -fFOLDER
            found.append(word)
        elif word == "--offline":  # uv
            found.append("--no-index")
    return found


def working_folder() -> str | None:
    """The parent's working directory, to which relative paths in its options refer."""
    try:
        return os.readlink(f"/proc/{os.getppid()}/cwd")  # noqa: PTH115
    except OSError:
        return None


def pip_environment() -> dict[str, str]:
    """The environment for a pip that we start: without the build's packages and the user's package choices."""
    kept = {f"PIP_{name}" for name in VARIABLES}
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "VIRTUAL_ENV")
    own = {k: v for k, v in os.environ.items() if k not in dropped and (not k.startswith("PIP_") or k in kept)}
    return own | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _verbose() -> bool:
    words = _installer()
    short = [word for word in words if word[:1] == "-" and word[:2] != "--"]
    return "--verbose" in words or any(set(word[1:]) == {"v"} for word in short) or bool(os.environ.get("PIP_VERBOSE"))


def _shared(pid: int, number: int) -> int:
    """A descriptor of another process, duplicated here with its shared file position, so that output is appended."""
    process = os.pidfd_open(pid)
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
        got: int = call(ctypes.c_long(PIDFD_GETFD), process, number, 0)
        if got < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return got
    finally:
        os.close(process)


def _uncaptured() -> int | None:
    """A descriptor of the parent's standard error, if ours is captured (differs from it)."""
    parent = os.getppid()
    path = f"/proc/{parent}/fd/2"
    try:
        theirs = os.stat(path)  # noqa: PTH116
        if os.path.samestat(theirs, os.fstat(2)):
            return None
        if stat.S_ISFIFO(theirs.st_mode) or stat.S_ISCHR(theirs.st_mode):
            return os.open(path, os.O_WRONLY | os.O_NOCTTY)
        # Reopening a file would write from its start; a socket cannot be reopened.
        return _shared(parent, 2)
    except (OSError, AttributeError):
        return None


def tell(line: str) -> None:
    """Prints a line to the build's output, and to the user if pip hides that output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    descriptor = None if _verbose() else _uncaptured()
    if descriptor is None:
        return
    with os.fdopen(descriptor, "w") as stream:
        start = "\n" if stream.isatty() else ""  # pip's line with the progress bar
        stream.write(f"{start}{line}\n")
