"""Dependencies between folders, by the imports of tempi/ and bench/ and the #include lines of csrc/.

`PYTHON` and `C` are the dependency tables to which CONTRIBUTING.md refers. The modules in tempi/ itself are one
folder, "tempi", of which tempi/_engine.py may import only tempi/_errors.py. csrc/shim and csrc/emulator are one folder
each: their own folders order files by subject.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A folder: the folders that it may depend on.
PYTHON = {
    "_engine": (),
    "tempi": ("_engine",),
    "emulator": ("tempi", "_engine"),
    "kernels": (),
    "model": ("tempi", "_engine"),
    "measure": ("model", "tempi", "_engine"),
    "calibration": ("measure", "model", "tempi", "_engine"),
    "bench": ("measure", "model", "tempi", "_engine"),
    "bench/gpu": ("bench", "measure", "model", "tempi", "_engine"),
    "bench/workers": ("bench/gpu", "bench", "calibration", "measure", "model", "tempi", "_engine"),
    "bench/suites": ("bench/workers", "bench/gpu", "bench", "measure", "model", "tempi", "_engine"),
    "report": ("bench/suites", "bench", "measure", "model", "tempi", "_engine"),
    "cli": ("report", "bench/suites", "bench", "calibration", "measure", "model", "tempi", "_engine"),
}
#: Besides csrc/tempi.h, which all may include.
C = {
    "base": (),
    "datatype": ("base",),
    "topology": ("base",),
    "interposer": ("base",),
    "pack": ("datatype", "base"),
    "choose": ("pack", "base"),
    "exchange": ("pack", "datatype", "base"),
    "cuda": ("pack", "datatype", "base"),
    "memory": ("cuda", "pack", "datatype", "base"),
    "api": ("cuda", "memory", "base"),
    "transfer": ("choose", "cuda", "pack", "datatype", "base"),
    "shim": (
        "transfer", "exchange", "choose", "api", "memory", "cuda", "topology", "interposer", "pack", "datatype", "base",
    ),
    "emulator": (),
}  # fmt: skip
#: Edges that violate the table and are still to be fixed, as "from -> to".
EXCEPTIONS: set[str] = set()

#: Modules that the package imports only on demand (`tempi.MPI`), or that run (`python -m tempi`).
FRONT = {("tempi/__main__.py", "tempi.cli.main"), ("tempi/__init__.py", "tempi.model.peers")}

Edges = dict[tuple[str, str], set[str]]


def _module_folder(module: str) -> str | None:
    """None: not a module of tempi."""
    parts = module.split(".")
    if parts[0] != "tempi":
        return None
    if parts[1:2] == ["bench"]:
        return f"bench/{parts[2]}" if (ROOT / "bench" / "/".join(parts[2:3])).is_dir() and parts[2:] else "bench"
    if parts[1:2] in (["_engine"], ["_errors"], ["_tempi_cffi"]):
        return "_engine"
    return parts[1] if len(parts) > 1 and (ROOT / "tempi" / parts[1]).is_dir() else "tempi"


def _imported(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Modules, with the imported name appended if it may be a module. `package` is that of the importing module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def python_edges() -> Edges:
    found: Edges = defaultdict(set)
    for path in itertools.chain((ROOT / "tempi").rglob("*.py"), (ROOT / "bench").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        parts = [*(["tempi"] if name.startswith("bench") else []), *name.removesuffix(".py").split("/")]
        own = _module_folder(".".join(parts))
        assert own is not None
        for module in _imported(ast.parse(path.read_text()), parts[:-1]):
            folder = _module_folder(module)
            front = any(name == file and module.startswith(what) for file, what in FRONT)
            if folder not in (None, own) and not front:
                found[own, folder].add(f"{name} imports {module}")
    return found


def c_edges() -> Edges:
    found: Edges = defaultdict(set)
    folder = ROOT / "csrc"
    for path in (path for path in folder.rglob("*") if path.suffix in (".c", ".h", ".inc")):
        own = path.relative_to(folder).parts[0]
        for include in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
            other = include.split("/")[0]
            if "/" in include and (folder / include).is_file() and other != own:
                found[own, other].add(f"{path.relative_to(ROOT)} includes {include}")
    return found


TABLES = pytest.mark.parametrize(
    ("table", "edges"), [pytest.param(PYTHON, python_edges(), id="Python"), pytest.param(C, c_edges(), id="C")]
)


def cycle(edges: Edges) -> list[str]:
    """Folders that depend on each other in a cycle; [] if none do."""
    left = {a for a, _ in edges} | {b for _, b in edges}
    while True:
        last = {name for name in left if not any(a == name and b in left for a, b in edges)}
        if not last:
            return sorted(left)
        left -= last


@TABLES
def test_no_folder_depends_on_more_than_the_table_allows(table: dict[str, tuple[str, ...]], edges: Edges) -> None:
    wrong = {f"{a} -> {b}": sorted(places) for (a, b), places in edges.items() if b not in table.get(a, ())}
    assert wrong.keys() <= EXCEPTIONS, {edge: places for edge, places in wrong.items() if edge not in EXCEPTIONS}


@TABLES
def test_no_folders_depend_on_each_other_in_a_cycle(table: dict[str, tuple[str, ...]], edges: Edges) -> None:
    allowed = {edge: places for edge, places in edges.items() if f"{edge[0]} -> {edge[1]}" not in EXCEPTIONS}
    assert cycle(allowed) == []
    assert cycle({(a, b): set() for a in table for b in table[a]}) == [], "the table itself"


@TABLES
def test_the_table_names_every_folder_and_no_other(table: dict[str, tuple[str, ...]], edges: Edges) -> None:
    named = {name for edge in edges for name in edge}
    assert named <= table.keys()
    assert all(known in table for each in table.values() for known in each)


def test_a_cycle_is_found() -> None:
    """Of three, beside a folder that is in none."""
    assert cycle({("a", "b"): set(), ("b", "c"): set(), ("c", "a"): set(), ("a", "d"): set()}) == ["a", "b", "c"]


def test_exceptions_that_were_fixed_are_removed() -> None:
    there = {f"{a} -> {b}" for a, b in (*python_edges(), *c_edges())}
    assert there >= EXCEPTIONS, f"EXCEPTIONS names edges that no longer exist: {sorted(EXCEPTIONS - there)}"
