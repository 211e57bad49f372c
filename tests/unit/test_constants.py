"""docs/model.md's table of constants that hang on a machine is complete: of the rule and of the kernels."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
FILES = [CSRC / "choose" / "rule.c", *sorted((CSRC / "pack").glob("*.inc"))]

#: Constants of these files that are no property of a machine, with their reason.
NO_MACHINE = {
    "KIB": "a unit",
    "MIB": "a unit",
    "CELL": "MPICH's: messages above it go in pieces",
    "EAGER_LAST": "Open MPI's: a message above it goes in pieces",
    "LINE": "bytes of a cache line on each processor that tempi has kernels for",
    "PAGE": "bytes of a page",
    "AHEAD_STRIDE": "four runs within a line",
    "PERMUTE_PARTS": "registers of a chunk, by the instruction set",
    "PERMUTE_BYTES": "bytes of these registers",
    "STREAM_LEAST": "below any last-level cache, whose size is read",
}

ENUM = re.compile(r"\benum(?: \w+)? \{(.*?)\}", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
VALUE = re.compile(r"\b([A-Z][A-Z0-9_]*) = ")
NAMED = re.compile(r"`([A-Z][A-Z0-9_]+)`")
FILE = re.compile(r"`([\w/]+\.(?:c|h|inc))`")


def named_values(path: Path) -> set[str]:
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    return {name for inside in ENUM.findall(text) for name in VALUE.findall(inside)}


def rows() -> list[list[str]]:
    """The table's cells: constant, file, machine, what it decides, what corrects it."""
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    table = page.partition("| constant | in | set on |")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_every_constant_of_rule_and_kernels_is_in_the_table_or_has_a_reason() -> None:
    found = set().union(*(named_values(path) for path in FILES))
    in_table = {name for row in rows() for name in NAMED.findall(row[0])}
    assert len(found) > 40
    assert sorted(found - in_table - NO_MACHINE.keys()) == [], "add it to the table of docs/model.md, or to NO_MACHINE"
    assert sorted(NO_MACHINE.keys() - found) == []
    assert sorted(NO_MACHINE.keys() & in_table) == []


def test_a_constant_of_the_table_is_in_the_file_of_its_row() -> None:
    assert len(rows()) > 30
    for row in rows():
        assert len(row) == 5, row[0]
        files = [CSRC / name for name in FILE.findall(row[1])]
        texts = [path.read_text(encoding="utf-8") for path in files]
        for name in NAMED.findall(row[0]):
            assert any(re.search(rf"\b{name} = ", text) for text in texts), (name, row[1])
