"""Pages generated from tables match the tables, and files named in pages exist."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

#: A path of the tree, as pages write it: from the root, perhaps with a wildcard, or a Markdown link's target.
TOP = "csrc|tempi|bench|tests|scripts|docs"
IN_BACKTICKS = re.compile(rf"`((?:{TOP})/[\w./*-]*)(?: [^`]*)?`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


INCLUDE = re.compile(r'^#include "(?:([^"\n]*)/)?[^/"\n]+"', re.MULTILINE)
FOLDER = re.compile(r"^\| `([\w/]+)` \| .* \| (.*) \|$", re.MULTILINE)
ENGINE = {
    *("base", "topology", "interposer", "datatype", "pack", "memory", "choose", "cuda", "exchange", "transfer", "api"),
}


def rooms() -> dict[str, set[str]]:
    """The folders of docs/design.md and what each may include."""
    found = FOLDER.findall((ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
    return {folder: set() if allowed == "-" else set(allowed.split(", ")) for folder, allowed in found}


def includes(folder: Path) -> Iterator[str]:
    """The first part of each include of another folder of csrc."""
    for file in [*folder.glob("*.[ch]"), *folder.glob("*.inc")]:
        yield from (path.split("/")[0] for path in INCLUDE.findall(file.read_text(encoding="utf-8")) if path)


def figures() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "figures"), run_name="figures")


IN_TEXT = re.compile(r"(?<![\w/.-])((?:csrc|tests|bench|tempi|scripts|docs)/[\w/]+\.(?:c|h|inc|py|md))\b")
TEXTS = [
    file
    for top in ("csrc", "tempi", "bench", "tests", "scripts")
    for file in sorted((ROOT / top).rglob("*"))
    if file.suffix in (".c", ".h", ".inc", ".py", "") and file.is_file() and file.parent.name != "install"
]


def test_every_file_that_a_comment_names_exists() -> None:
    assert len(TEXTS) > 400
    named = ((file, name) for file in TEXTS for name in IN_TEXT.findall(file.read_text(encoding="utf-8")))
    assert [(str(file.relative_to(ROOT)), name) for file, name in named if not (ROOT / name).is_file()] == []


def test_no_two_c_files_have_one_name() -> None:
    paths: dict[str, list[str]] = {}
    for top in TOP.split("|"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix in {".c", ".h", ".inc", ".cu"}:
                paths.setdefault(file.name, []).append(str(file.relative_to(ROOT)))
    assert len(paths) > 350
    assert [same for same in paths.values() if len(same) > 1] == []


@pytest.mark.parametrize("name", ["environment", "counters", "functions"])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "docs"))[name]()
    assert made == (ROOT / "docs" / f"{name}.md").read_text(), "run scripts/docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = set(IN_BACKTICKS.findall(page.read_text(encoding="utf-8")))
    assert not [path for path in sorted(named) if not list(ROOT.glob(path.rstrip("/")))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], target


def test_every_folder_is_in_the_design_and_includes_what_it_may() -> None:
    named = rooms()
    for folder, allowed in named.items():
        parts = folder.split("/")
        if folder.startswith("csrc/"):
            allowed = (allowed - {"engine"} | ENGINE if "engine" in allowed else allowed) | {parts[1]}
            assert set(includes(ROOT / folder)) <= allowed, folder
    tops = [ROOT / top for top in ("csrc", "tempi", "bench")]
    sources = {file.parent for top in tops for file in top.rglob("*") if file.suffix in {".c", ".py"}}
    assert {str(folder.relative_to(ROOT)) for folder in sources} <= set(named)


DATA = sorted((ROOT / "docs" / "data").glob("*/*.json"))


@pytest.mark.parametrize("path", DATA, ids=lambda path: f"{path.parent.name}, {path.stem}")
def test_a_data_file_has_its_command_and_machine(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert all(data[key] for key in ("bench", "mpi", "command", "date"))
    assert all(data["machine"][key] for key in ("cpu", "cores", "commit"))
    assert {len(row) for row in data["rows"]} == {len(data["columns"])}


#: Rows of the two tables of docs/benchmarks.md's summary (machine, library): folder of data files, and their ending.
INSTALLED = {
    ("Zen 3", "MPICH with CMA"): ("zen3", "mpich"),
    ("Zen 3", "without the shipped table of Zen 3"): ("zen3-held-out", "mpich"),
    ("Zen 3", "MPICH without CMA"): ("zen3-without-cma", "mpich"),
    ("Zen 3", "Open MPI"): ("zen3", "openmpi"),
    ("Zen 3", "Intel MPI"): ("zen3", "intel"),
    ("Zen 4", "MPICH with CMA"): ("zen4", "mpich"),
    ("Zen 4", "without the shipped table of Zen 4"): ("zen4-held-out", "mpich"),
    ("Zen 4", "MPICH without CMA"): ("zen4-without-cma", "mpich"),
    ("Zen 4", "Open MPI"): ("zen4", "openmpi"),
    ("Granite Rapids", "MPICH with CMA"): ("granite-rapids", "mpich"),
    ("Granite Rapids", "MPICH without CMA"): ("granite-rapids-without-cma", "mpich"),
    ("Granite Rapids", "Open MPI"): ("granite-rapids", "openmpi"),
    ("Zen 5", "MPICH"): ("zen5", "mpich"),
    ("Zen 5", "Open MPI"): ("zen5", "openmpi"),
}
CALIBRATED = {
    ("Zen 3", library): ("zen3-calibrated", ending)
    for library, ending in (("MPICH", "mpich"), ("Intel MPI", "intel"), ("Open MPI", "openmpi"))
} | {
    ("Zen 4", library): ("zen4-calibrated", ending) for library, ending in (("MPICH", "mpich"), ("Open MPI", "openmpi"))
}
#: Ends of the folders of the columns of another table, and the machines of its rows.
OTHER_FORMS = ("-nonblocking", "-persistent")
FORMS_ON = {"zen3": "Zen 3", "zen4": "Zen 4", "granite-rapids": "Granite Rapids"}
#: The columns whose slowest shape is in parentheses.
SUITES = ("pack", "pingpong", "collectives")
MACHINES = ("Zen 3", "Zen 4", "Granite Rapids", "Sapphire Rapids", "Zen 5")
IN_PARENTHESES = re.compile(r"\((\d\.\d\d[^)]*)\)")
WORST = re.compile(r"worst over the library: (\d+\.\d\d)x")


def speedups(text: str) -> dict[tuple[str, str], list[str]]:
    """Cells of a table of speed-ups by machine and library; a row without a machine is of the one above."""
    found: dict[tuple[str, str], list[str]] = {}
    machine = ""
    for line in text.splitlines():
        head, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if len(cells) != len(SUITES) + 1 or not line.startswith("| ") or not head:
            continue
        named = next((one for one in MACHINES if head.startswith(f"{one}, ")), "")
        machine = named or machine
        library = head.removeprefix(f"{named}, ").partition(", tuned")[0].removesuffix(" 2021.18")
        found[machine, library] = cells
    return found


def slowest(cell: str) -> list[tuple[float, float]]:
    """The slowest shapes that a cell names, each as a range: those of "2.7x (0.96, 0.93), 2.8x (0.8 to 0.95)"."""
    parts = (part for inside in IN_PARENTHESES.findall(cell) for part in inside.split(", "))
    numbers = ([float(number) for number in re.findall(r"\d\.\d\d", part)] for part in parts)
    return [(min(each), max(each)) for each in numbers]


def worst(path: Path) -> float:
    """As the suite printed it; else of the rows."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if printed := WORST.search("\n".join(data["summary"])):
        return float(printed[1])
    at = [column["name"] for column in data["columns"]].index("speed-up")
    return min(float(row[at]) for row in data["rows"])


def test_the_slowest_shape_of_each_data_file_is_in_its_cell() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    summary = page.partition("## Summary")[2].partition("| machine |")[0]
    left = {path for path in DATA if path.name.startswith(SUITES)}
    for text, files in zip(summary.split("**After"), (INSTALLED, CALIBRATED), strict=True):
        rows = speedups(text)
        for row, (folder, ending) in files.items():
            for suite, cell in zip(SUITES, rows[row], strict=False):
                path = ROOT / "docs" / "data" / folder / f"{suite}-{ending}.json"
                if path not in left:
                    continue
                left.remove(path)
                value = worst(path)
                assert any(low <= value <= high for low, high in slowest(cell)), (row, suite, value, cell)
    forms = page.partition("**Other forms**")[2]
    for path in [path for path in left if path.parent.name.endswith(OTHER_FORMS)]:
        left.remove(path)
        folder, _, form = path.parent.name.rpartition("-")
        library = "MPICH" if path.stem.endswith("-mpich") else "Open MPI"
        head = f"| {FORMS_ON[folder]}, {library}"
        cells = next(line for line in forms.splitlines() if line.startswith(head)).split("|")
        value = worst(path)
        assert (value, value) in slowest(cells[2 + OTHER_FORMS.index(f"-{form}")]), path
    assert left == set()


def test_the_readme_gives_the_slowest_shape_of_all_runs() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    all_runs = speedups(page.partition("**As installed**")[2].partition("**After")[0])
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("Speed-up over the library")[2]
    shown = speedups(table.partition("For MPICH tempi ships")[0])
    assert len(shown) == 12
    for row, cells in shown.items():
        for suite, cell in zip(SUITES, cells, strict=False):
            named, runs = slowest(cell), slowest(all_runs[row][SUITES.index(suite)])
            assert min(named, default=())[:1] == min(runs, default=())[:1], (row, suite, cell)


def test_the_figures_are_up_to_date() -> None:
    made = figures()
    shown = sorted(made["DATA"].glob("*.json"))
    assert len(shown) == 12
    for path in shown:
        drawn = (ROOT / "docs" / "figures" / f"{path.stem}.svg").read_text(encoding="utf-8")
        assert f"{path.name} {made['digest'](path)}" in drawn, "run scripts/figures"


def test_scripts_tables_takes_the_numbers_of_a_table_as_they_are_printed() -> None:
    tables = runpy.run_path(str(ROOT / "scripts" / "tables"), run_name="tables")
    headers = ["case", "library us", "speed-up [95%]", "always acting", "acts", "misses"]
    assert [one["name"] for one in tables["columns"](headers)][1:5] == [
        "library",
        "speed-up",
        "speed-up low",
        "speed-up high",
    ]
    cells = ["vector run 4 stride 8, 4 KiB", "0.474", "3.98 [3.90, 4.13]", "-", "yes", ""]
    made = [cells[0], 0.474, 3.98, 3.9, 4.13, None, None, None, True, ""]
    assert list(tables["values"](headers, cells)) == made
    overhead = ["what", "library", "wrapper", "added", "95%", "target", ""]
    assert list(tables["values"](overhead, ["x", "-", "-", "15.8 ms", "-1.9 ns to 21.5 us", "50.0 ns", "misses"])) == [
        "x",
        None,
        None,
        15_800_000,
        -1.9,
        21_500,
        50,
        "misses",
    ]


def test_a_figure_has_a_point_for_every_case() -> None:
    drawing = figures()
    for path in DATA:
        data = json.loads(path.read_text(encoding="utf-8"))
        made = drawing["bars"](data) if data["bench"] == "overhead" else drawing["points"](data)
        assert len(made) == len(data["rows"])
