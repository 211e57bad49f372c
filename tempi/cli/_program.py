"""`tempi doctor PROGRAM`: can a preload reach this program, and which MPI library does it use?"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tempi import _elf, _engine
from tempi.cli._machine import Finding, Status, mpi_abi, preloadable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["program"]

_CAPABILITY = "security.capability"


def _locate(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found).absolute() if found else None


def _interpreter(path: Path) -> Path | None:
    """The interpreter of a script, from its first line."""
    with path.open("rb") as file:
        line = file.readline(4096)
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return _locate(words[0]) if words else None


def _privileged(path: Path) -> str | None:
    """Why the loader ignores LD_PRELOAD for this program, or None."""
    mode = path.stat().st_mode
    if mode & stat.S_ISUID:
        return "setuid"
    if mode & stat.S_ISGID and mode & stat.S_IXGRP:
        return "setgid"
    try:
        return "given file capabilities" if _CAPABILITY in os.listxattr(path) else None
    except OSError:
        return None


def _linked(path: Path) -> dict[str, str]:
    """Library name to path, as the loader resolves them with the engine preloaded; nothing is executed."""
    loader_only = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    if preloadable():
        loader_only["LD_PRELOAD"] = _engine.library_path()
    try:
        done = subprocess.run([path], env=loader_only, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        words = line.replace(" => ", " ").split()
        if words and words[-1].startswith("(0x"):
            found[words[0]] = words[-2]
        elif len(words) > 2 and words[-2:] == ["not", "found"]:
            found[words[0]] = ""
    return found


def program(name: str) -> Iterator[Finding]:
    """Findings about the program `name`: a path, or a command on the PATH."""
    path = _locate(name)
    if path is None:
        yield Finding("program", "problem", f"{name}: no such program, or not executable")
        return
    for _ in range(4):  # the interpreter of a script may be a script itself
        try:
            elf = _elf.read(path)
            break
        except _elf.NotElfError as error:
            runs = _interpreter(path)
            if runs is None:
                yield Finding("program", "problem", f"{error}, and no script that names its interpreter")
                return
            yield Finding("program", "note", f"{path} is a script of {runs}")
            path = runs
        except OSError as error:
            yield Finding("program", "problem", f"{path}: cannot be read: {error.strerror}")
            return
    else:
        yield Finding("program", "problem", f"{path}: scripts all the way down")
        return
    yield from _reachable(path, elf)


def _reachable(path: Path, elf: _elf.Elf) -> Iterator[Finding]:
    engine = _elf.read(Path(_engine.library_path()))
    privilege = _privileged(path)
    if not elf.interpreter and not elf.dynamic:
        advice = "link it dynamically: without -static, and with the MPI's shared library"
        yield Finding("program", "problem", f"{path} is linked statically: it cannot be interposed", advice)
        return
    if (elf.machine, elf.bits) != (engine.machine, engine.bits):
        text = f"{path} is for {elf.machine} ({elf.bits} bits), the engine for {engine.machine} ({engine.bits})"
        yield Finding("program", "problem", text, "install tempi for that machine")
        return
    if privilege is not None:
        advice = f"remove that from a copy of the program, and run the copy: chmod a-s, setcap -r {path.name}"
        text = f"{path} is {privilege}: the loader ignores LD_PRELOAD"
        yield Finding("program", "problem", text, advice)
        return
    if "PMPI_Init" in elf.defines or ("MPI_Init" in elf.defines and "MPI_Send" in elf.defines):
        advice = "link the MPI's shared library instead"
        yield Finding("program", "problem", f"{path} contains a statically linked MPI", advice)
        return
    yield from _loads(path, elf)


def _loads(path: Path, elf: _elf.Elf) -> Iterator[Finding]:
    libraries = _linked(path)
    missing = sorted(name for name, where in libraries.items() if not where)
    if missing:
        advice = "set LD_LIBRARY_PATH, or load the modules that the program was built with"
        yield Finding("program", "problem", f"{path} misses {', '.join(missing)}", advice)
    real = {Path(where).resolve() for where in libraries.values() if where.startswith("/")}
    engine = Path(_engine.library_path())
    if engine not in real and preloadable():
        yield Finding("program", "problem", f"{path}: its loader does not load the engine by LD_PRELOAD")
    found = False
    for where in sorted(real - {engine}):
        try:
            abi = mpi_abi(_elf.read(where))
        except (_elf.NotElfError, OSError):
            continue
        if abi is not None:
            found = True
            yield _fits(path, where, abi)
    if not found and "dlopen" in elf.imports:
        text = f"{path} links no MPI but loads libraries as it runs; with RTLD_DEEPBIND they bypass tempi"
        yield Finding("program", "note", text, "TEMPI_STATS=1 tempi run ... shows whether its calls are seen")
    elif not found and preloadable():
        yield Finding("program", "note", f"{path} links no MPI: it runs under tempi as it does without")
    elif not found:
        yield Finding("program", "note", f"{path} links no MPI; `tempi run` does not start it from here")


def _fits(path: Path, library: Path, abi: str) -> Finding:
    data = {"library": str(library), "abi": abi}
    built = (Path(_engine.library_path()).parent / f"libtempi-{abi}.so").is_file()
    status: Status = "ok" if built and preloadable() else "problem"
    if built and not preloadable():
        why = "`tempi run` cannot interpose it: the engine's path has a space or a colon"
        return Finding("program", status, f"{path} links {library} ({abi}); {why}", "install tempi elsewhere", data)
    if built:
        return Finding("program", status, f"{path} links {library} ({abi}); tempi run can interpose it", None, data)
    advice = "install tempi again with that MPI's mpicc on the PATH, or TEMPI_MPI_PREFIX set"
    return Finding("program", status, f"{path} links {library} ({abi}): no engine for it", advice, data)
