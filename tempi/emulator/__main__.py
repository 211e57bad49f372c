"""Prepares PTX for the emulated driver.

    python -m tempi.emulator translate FILE.ptx... --out DIR

Set TEMPI_EMULATOR_MODULES=DIR for programs that load this PTX on the emulated device.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import CompileError, PtxError, compile_ptx, translate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tempi.emulator", description="CUDA on the CPU.")
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("translate", help="translate PTX to C and compile it")
    one.add_argument("files", type=Path, nargs="+", metavar="FILE.ptx")
    one.add_argument("--out", type=Path, required=True, help="the directory for the compiled modules")
    one.add_argument("--source", action="store_true", help="only write the C source")
    options = parser.parse_args(arguments)
    for file in options.files:
        try:
            ptx = file.read_text()
            if options.source:
                options.out.mkdir(parents=True, exist_ok=True)
                made = options.out / f"{file.stem}.c"
                made.write_text(translate(ptx))
            else:
                made = compile_ptx(ptx, options.out)
        except (OSError, PtxError, CompileError) as error:
            sys.stderr.write(f"{file}: {error}\n")
            return 1
        sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
