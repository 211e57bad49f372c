"""The MPI symbols of each supported library, in symbols.txt: a row per name, a column per library.

python csrc/table/symbols.py --add mpich-5.0.2=/usr/lib/libmpi.so    adds or replaces that column
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

FILE = Path(__file__).with_suffix(".txt")
FORMS = ("MPI_{}", "PMPI_{}", "MPI_{}_c", "PMPI_{}_c")  # a cell has bit i for form i
HEADING = """\
# The MPI symbols that each supported library exports; written by csrc/table/symbols.py.
# A cell is the sum, as a hexadecimal digit, of 1: MPI_X, 2: PMPI_X, 4: MPI_X_c, 8: PMPI_X_c; without any it is a dot.
"""

Symbols = dict[str, frozenset[str]]  # by library and version


def load() -> Symbols:
    """All full names of each library."""
    heading, *rows = (line.split() for line in FILE.read_text().splitlines() if not line.startswith("#"))
    names: dict[str, set[str]] = {library: set() for library in heading[1:]}
    for name, *cells in rows:
        for library, cell in zip(names, cells, strict=True):
            forms = int(cell.replace(".", "0"), 16)
            names[library] |= {form.format(name) for i, form in enumerate(FORMS) if forms >> i & 1}
    return {library: frozenset(found) for library, found in names.items()}


def table(symbols: Symbols) -> str:
    """The text of symbols.txt."""
    stems = {symbol.removeprefix("P").removeprefix("MPI_").removesuffix("_c") for s in symbols.values() for symbol in s}
    rows = [["name", *sorted(symbols)]]
    for stem in sorted(stems):
        sums = (sum(1 << i for i, f in enumerate(FORMS) if f.format(stem) in symbols[name]) for name in rows[0][1:])
        rows.append([stem, *(f"{number:x}" if number else "." for number in sums)])
    widths = [max(len(row[0]) for row in rows), *(len(library) for library in rows[0][1:])]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return HEADING + "".join(f"{line}\n" for line in lines)


def read(library: Path) -> frozenset[str]:
    """The MPI_ and PMPI_ names that a library defines, by `nm`."""
    run = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return frozenset(re.findall(r" [A-Z] (P?MPI_\w+)", run.stdout))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Record which MPI symbols a library exports.")
    parser.add_argument("--add", metavar="NAME=LIBRARY", action="append", default=[], help="a column to add or replace")
    parser.add_argument("--remove", metavar="NAME", action="append", default=[], help="a column to leave out")
    options = parser.parse_args(arguments)
    symbols = load()
    for name, _, path in (column.partition("=") for column in options.add):
        symbols[name] = read(Path(path))
    FILE.write_text(table({name: found for name, found in symbols.items() if name not in options.remove}))


if __name__ == "__main__":
    main()
