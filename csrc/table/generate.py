"""Writes all code that exists once per MPI function.

    python csrc/table/generate.py --out DIR                     the files common to all ABIs
    python csrc/table/generate.py --out DIR --abi "gcc -I..."   the files of the ABI whose mpi.h it finds

Files with unchanged text are not written, so that a build does not repeat.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from table import (
    emit_abi,
    emit_bounce,
    emit_fallback,
    emit_format,
    emit_forward,
    emit_interposer,
    emit_trampolines,
    emit_wrappers,
    header,
)


def neutral_files() -> dict[str, str]:
    """The interposer's files, which do not depend on an MPI library."""
    return {
        "slots.h": emit_interposer.slots_header(),
        "functions.h": emit_fallback.functions_header(),
        "table_format.h": emit_format.header(),
        "exports.map": emit_interposer.exports(),
        "functions.md": emit_interposer.functions_page(),
        "trampolines_x86_64.S": emit_trampolines.x86_64(),
        "trampolines_aarch64.S": emit_trampolines.aarch64(),
    }


def abi_files(command: list[str]) -> dict[str, str]:
    """The shim's files for the mpi.h that `command` (a compiler and its flags) finds."""
    seen = header.read(command)
    return {
        "mpi_table.h": emit_abi.mpi_table(seen),
        "predefined_openmpi.h": emit_abi.predefined(seen),
        "impl_prototypes.h": emit_abi.impl_prototypes(seen),
        "bounced.h": emit_bounce.prototypes(seen),
        "bounced.c": emit_bounce.functions(seen),
        "count_fallbacks.h": emit_fallback.prototypes(seen),
        "left.c": emit_fallback.functions(seen),
        "bind.c": emit_abi.bind(seen),
        "forward.c": emit_forward.forwards(seen),
        "wrappers.c": emit_wrappers.wrappers(seen),
    }


def write(directory: Path, files: dict[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = directory / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    parser.add_argument("--abi", metavar="COMMAND", help="compiler and flags that find an mpi.h")
    options = parser.parse_args(arguments)
    files = abi_files(shlex.split(options.abi)) if options.abi else neutral_files()
    write(options.out, files)


if __name__ == "__main__":
    main()
