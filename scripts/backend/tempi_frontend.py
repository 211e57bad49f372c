"""The program that runs this build, pip mostly: its options, and a line to its user.

A build is a child of pip, which shows what it prints only where it fails, and tells it nothing of the indexes
that the user named. Both are found where Linux has them: in /proc, under the parent's number.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path

__all__ = ["index_options", "pip_environment", "tell", "working_folder"]

# Options about where packages come from: those with a value, and those without. pip's; uv has the same names.
VALUED = (
    *("-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links", "--trusted-host", "--proxy"),
    *("--cert", "--client-cert", "--cache-dir", "--keyring-provider", "--timeout", "--default-timeout", "--retries"),
)
PLAIN = ("--no-index", "--no-cache-dir", "--isolated")
# The same from the environment, and no more: PIP_CONSTRAINT and PIP_TARGET, say, are about the user's packages.
VARIABLES = (
    *("CONFIG_FILE", "INDEX_URL", "EXTRA_INDEX_URL", "NO_INDEX", "FIND_LINKS", "TRUSTED_HOST", "PROXY", "CERT"),
    *("CLIENT_CERT", "CACHE_DIR", "NO_CACHE_DIR", "KEYRING_PROVIDER", "TIMEOUT", "DEFAULT_TIMEOUT", "RETRIES"),
)
PIDFD_GETFD = 438  # the same number on every architecture; Python has no function for it


def _command_line() -> list[str]:
    """The words of the parent's command; none where they cannot be read."""
    try:
        return Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _installer() -> list[str]:
    """The command line of the parent if that is pip or uv: other programs' -i or -f mean other things."""
    words = _command_line()
    names = [os.path.basename(word) for word in words[:3]]  # noqa: PTH119  (words, not paths)
    return words if any(name.startswith("pip") or name == "uv" for name in names) else []


def index_options(words: list[str] | None = None) -> list[str]:
    """What pip was told of indexes on its command line, as options for a pip of our own."""
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
    """Where the parent runs: relative paths in its options start there."""
    try:
        return os.readlink(f"/proc/{os.getppid()}/cwd")  # noqa: PTH115
    except OSError:
        return None


def pip_environment() -> dict[str, str]:
    """The environment for a pip of our own: without the build's packages and the user's choice of theirs."""
    kept = {f"PIP_{name}" for name in VARIABLES}
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "VIRTUAL_ENV")
    own = {k: v for k, v in os.environ.items() if k not in dropped and (not k.startswith("PIP_") or k in kept)}
    return own | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _verbose() -> bool:
    words = _installer()
    short = [word for word in words if word[:1] == "-" and word[:2] != "--"]
    return "--verbose" in words or any(set(word[1:]) == {"v"} for word in short) or bool(os.environ.get("PIP_VERBOSE"))


def _shared(pid: int, number: int) -> int:
    """A descriptor of another process as one of ours, with its position: what both write follows on."""
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
    """A descriptor for the parent's standard error, where that is not ours, so that ours is captured."""
    parent = os.getppid()
    path = f"/proc/{parent}/fd/2"
    try:
        theirs = os.stat(path)  # noqa: PTH116
        if os.path.samestat(theirs, os.fstat(2)):
            return None
        if stat.S_ISFIFO(theirs.st_mode) or stat.S_ISCHR(theirs.st_mode):
            return os.open(path, os.O_WRONLY | os.O_NOCTTY)
        # A file that we opened again would be written from its start; a socket cannot be opened at all.
        return _shared(parent, 2)
    except (OSError, AttributeError):
        return None


def tell(line: str) -> None:
    """A line into the build's output, and to the user where pip keeps that to itself."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    descriptor = None if _verbose() else _uncaptured()
    if descriptor is None:
        return
    with os.fdopen(descriptor, "w") as stream:
        start = "\n" if stream.isatty() else ""  # pip's line with the moving bar
        stream.write(f"{start}{line}\n")
