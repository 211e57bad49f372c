"""The declarations of one mpi.h, read by the C preprocessor: functions, types, macros, predefined data."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

OMPI_GLOBAL = re.compile(r"OMPI_PREDEFINED_GLOBAL\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)")


@dataclass(frozen=True, slots=True)
class Header:
    """One ABI's header, as the compiler sees it."""

    functions: frozenset[str]
    words: frozenset[str]
    macros: frozenset[str]
    predefined: tuple[str, ...]  # Open MPI: the data behind its predefined handles

    def has_types(self, types: frozenset[str]) -> bool:
        return types <= (self.words | self.macros)


def _preprocess(command: list[str], *flags: str) -> str:
    run = subprocess.run(
        [*command, "-E", *flags, "-x", "c", "-"],
        input="#include <mpi.h>\n",
        text=True,
        capture_output=True,
        check=False,
    )
    if run.returncode != 0:
        first = run.stderr.strip().splitlines()[:1]
        raise SystemExit(f"generate.py: cannot read mpi.h with `{' '.join(command)}`: {first}")
    return run.stdout


def read(command: list[str]) -> Header:
    """Reads mpi.h; `command` is the compiler with the flags that find this ABI's mpi.h."""
    text = _preprocess(command)
    macros = _preprocess(command, "-dM")
    # The pattern does not match a function type in a typedef, (MPI_User_function)(...).
    functions = re.findall(r"(?:int|double|MPI_\w+)[\s*]+(P?MPI_\w+)\s*\(", text)
    return Header(
        functions=frozenset(functions),
        words=frozenset(re.findall(r"\bMPI_\w+", text)),
        macros=frozenset(re.findall(r"#define (MPI_\w+)", macros)),
        predefined=tuple(sorted({name for _, name in OMPI_GLOBAL.findall(macros)} - {"global"})),
    )
