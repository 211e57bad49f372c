"""Compiles translated PTX into the shared object that the emulated driver loads."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ._emit import fnv1a, translate

FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-w", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")

HEADERS = ("ptx.h", "ptx_compute.h")


class CompileError(Exception):
    """The C compiler failed; the message is its output."""


def library_name(ptx: str) -> str:
    """The file name under which the driver looks for the translation of this text."""
    return f"tempi-ptx-{fnv1a(ptx.encode()):016x}.so"


def include_directory() -> Path:
    """The folder of emulator/ptx/ptx.h: in the installed package, or in the working tree."""
    package = Path(__file__).resolve().parent.parent
    for directory in (package / "include", package.parent / "csrc"):
        if (directory / "emulator" / "ptx" / "ptx.h").is_file():
            return directory
    raise CompileError(f"emulator/ptx/ptx.h is neither in {package / 'include'} nor in {package.parent / 'csrc'}")


def compiler() -> list[str]:
    """CC, or the system's C compiler."""
    for candidate in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    raise CompileError("no C compiler found: install gcc, or name one with CC=...")


def compile_ptx(ptx: str, directory: Path, *, cc: Sequence[str] | None = None) -> Path:
    """Translates and compiles one PTX module into `directory`; returns the library, which may exist already.

    Raises PtxError for PTX that cannot be translated, CompileError if the compiler fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / library_name(ptx)
    source = library.with_suffix(".c")
    include = include_directory()
    headers = b"".join((include / "emulator" / "ptx" / name).read_bytes() for name in HEADERS)
    # The headers' hash: changed headers cause a new compilation.
    text = f"{translate(ptx)}/* headers {fnv1a(headers):016x} */\n"
    if library.exists() and source.exists() and source.read_text() == text:
        return library
    source.write_text(text)
    # Write a new file: a process that has mapped the old one keeps it.
    part = library.with_suffix(f".{os.getpid()}.part")
    command = [*(cc or compiler()), *FLAGS, f"-I{include}", str(source), "-o", str(part), "-lm"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise CompileError(f"{shlex.join(command)}:\n{run.stderr}")
    part.replace(library)
    return library
