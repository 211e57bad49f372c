"""``tempi report`` from outside: a page of a small calibration, of made-up records and of a run's statistics."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from tempi.cli.main import main
from tempi.model import grid, samples, store

pytestmark = pytest.mark.once

SIZES = (64, 4096, 1 << 20)
COLUMNS = (
    grid.Column("regular", 8, 16),
    grid.Column("regular", 64, 128),
    grid.Column("regular", 8, 4160),
    grid.Column("elements", 8, 40),
    grid.Column("irregular", 16, 0),
)
#: Nanoseconds a byte: tempi's way takes 2 by parts, the library's 4.
FACTORS = {"library_message": 4.0, "contiguous": 0.5, "stage_pack": 0.5, "stage_unpack": 1.0}
VOID = {"meta", "img"}


def made_up(mpi: str = "some MPI 1.0") -> store.Calibration:
    """Every message by tempi's way in half of the time; one point is not stable."""
    points = []
    for peer in ("self", "node"):
        for quantity, factor in FACTORS.items():
            message = quantity in grid.MESSAGES
            if not message and peer == "node":
                continue
            for column in (grid.PLAIN,) if quantity == "contiguous" else COLUMNS:
                for size in SIZES:
                    seconds = tuple(1e-9 * size * factor * (1 + 0.001 * k) for k in (3, -2, 0, 1, -3, 2, 0, -1, 0))
                    points.append(store.Point(quantity, column, size, peer if message else None, seconds))
    shaky = replace(points[1], seconds=(1e-6, 5e-6, 1e-6, 5e-6, 3e-6, 1e-6, 5e-6))
    assert shaky.trouble
    about = {"when": "2020-02-02T02:02:02+00:00", "host": "<abacus>", "complete": True}
    return store.Calibration(store.machine(mpi), (points[0], shaky, *points[2:]), about)


def record(op: str, case: str, subject: str, seconds: float, **meta: object) -> str:
    machine = {"cpu": "abacus", "cores": 1}
    predicted = {"library": 2e-6, "tempi": 1e-6}
    whole = {"mpi": "some MPI 1.0", "machine": machine, "predicted": predicted, "model": True, "rule": False, **meta}
    data = {"bench": "model", "case": case, "op": op, "subject": subject, "bytes": 64, "seconds": [seconds] * 8}
    return json.dumps(data | {"meta": whole}) + "\n"


@dataclass
class Read(HTMLParser):
    """The contents of a page: open tags in order, attributes, ids, rows of tables by the heading above them."""

    attributes: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    rows: dict[str, list[list[str]]] = field(default_factory=dict)
    text: str = ""
    _open: list[str] = field(default_factory=list)
    _heading: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("h2", "h3"):
            self._heading = ""
        elif tag == "tr":
            self.rows.setdefault(self._heading, []).append([])
        elif tag in ("th", "td"):
            self.rows[self._heading][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if self._open and self._open[-1] in ("h2", "h3"):
            self._heading += data
        elif self._open and self._open[-1] in ("th", "td"):
            self.rows[self._heading][-1][-1] += data

    def all(self, tag: str, name: str) -> list[str]:
        return [value for found, own in self.attributes if found == tag and (value := own.get(name)) is not None]

    @property
    def closed(self) -> bool:
        return not self._open


@dataclass(frozen=True)
class Made:
    folder: Path
    html: str
    page: Read
    calibration: store.Calibration

    @property
    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "report.jsonl").read_text().splitlines()]


def tempi(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def files(folder: Path) -> tuple[Path, Path]:
    """Records of two cases and a run's statistics with one unknown field."""
    bench, run = folder / "bench.jsonl", folder / "run.json"
    right = record("one way", "good", "library", 2e-6) + record("one way", "good", "tempi", 1e-6)
    wrong = record("one way", "bad", "library", 1e-6) + record("one way", "bad", "tempi", 4e-6)
    bench.write_text(right + wrong)
    data = {
        "ranks": 3,
        "mpi": "some MPI",
        "tables": None,
        "sum": {"sends": 41, "fallback_rule": 12345},
        "most": {"sends": 20},
        "fallback_functions": {"MPI_Neighbor_alltoallw": {"calls": 11000, "bytes": 7654321}},
    }
    run.write_text(json.dumps({"tempi_statistics": 1, **data, "bias": {"library": 1.25}}))
    return bench, run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEMPI_CACHE_DIR", str(folder / "cache"))
        calibration = made_up()
        store.save(calibration)
        bench, run = files(folder)
        words = ("--bench", bench, "--stats", run, "--png", folder / "png", "--json", folder / "report.jsonl")
        done = tempi("report", "--output", folder / "report.html", *words)
        assert done.exit_code == 0, done.output
        html = (folder / "report.html").read_text(encoding="utf-8")
        page = Read()
        page.feed(html)
        page.close()
        yield Made(folder, html, page, calibration)


def test_the_page_is_whole_and_needs_nothing_else(made: Made) -> None:
    assert made.page.closed
    assert {tag for tag, _ in made.page.attributes}.isdisjoint({"script", "link", "iframe", "object", "base"})
    assert all(source.startswith("data:image/png;base64,") for source in made.page.all("img", "src"))
    assert not re.search(r"(https?:)?//\w|url\(|@import", re.sub(r'src="data:[^"]*"', "", made.html))
    ids = [own["id"] for _, own in made.page.attributes if "id" in own]
    assert sorted(made.page.all("a", "href")) == sorted(f"#{name}" for name in ids)
    assert "<abacus>" not in made.html  # a host's name is text, whatever is in it
    assert "<abacus>" in made.page.text


def test_every_section_is_there(made: Made) -> None:
    ids = [own["id"] for tag, own in made.page.attributes if tag == "section"]
    assert ids == ["machine", "choices", "regret", "statistics", "tables", "unstable"]


def test_every_picture_shows_something_and_says_what(made: Made) -> None:
    sources, texts = made.page.all("img", "src"), made.page.all("img", "alt")
    assert len(sources) == len(texts) == 2 + 1 + 1 + 2 * 6  # maps, choices judged, statistics; tables and curves
    assert all(texts)
    assert len(set(sources)) == len(sources)
    for source in sources:
        pixels = np.asarray(imread(io.BytesIO(base64.b64decode(source.partition(",")[2])), format="png"))
        assert min(pixels.shape[:2]) > 100
        assert len(np.unique(pixels[..., :3] @ np.array([1, 2, 4], np.float32))) > 20  # colours
        assert 0.01 < np.mean(pixels[..., :3].min(axis=2) < 0.95) < 0.95
    kept = {base64.b64encode(path.read_bytes()).decode() for path in (made.folder / "png").iterdir()}
    assert kept == {source.partition(",")[2] for source in sources}


UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def number(text: str) -> float:
    value, unit = text.split()
    return float(value) * (UNITS | BYTES)[unit]


def test_the_tables_have_the_medians_of_the_file(made: Made) -> None:
    """Each number of the page is that of the one file of samples, and each of these is in the page."""
    (path,) = (made.folder / "cache").glob("*.json")
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    wanted = [point for point in lines if point["quantity"] == "library_message" and point["peer"] == "node"]
    head, *rows = made.page.rows["the library's message with the datatype on both sides, to a rank of the same node"]
    assert len(rows) == len(COLUMNS)
    cells = {}
    for kind, shape, *times in rows:
        for size, text in zip(head[2:], times, strict=True):
            cells[kind, shape, number(size)] = text
    found = {(round(number(text.rstrip(" *")), 12), size, "*" in text) for (_, _, size), text in cells.items()}
    assert len(cells) == len(wanted) == len(COLUMNS) * len(SIZES)
    for point in wanted:
        middle = float(f"{np.median(point['seconds']):.3g}")
        assert (round(middle, 12), point["size"], point["unstable"] is not None) in found


def test_unstable_points_are_marked(made: Made) -> None:
    (point,) = made.calibration.unstable
    assert f"1 of {len(made.calibration.points)} points" in made.page.text
    ((quantity, *_, why, middle, taken),) = made.page.rows["Points that are not stable"][1:]
    assert (quantity, why) == (point.quantity, point.trouble)
    assert number(middle) == pytest.approx(point.median, rel=1e-2)
    assert number(taken) == pytest.approx(samples.typical(point.seconds), rel=1e-2)
    starred = [cell for rows in made.page.rows.values() for row in rows for cell in row if cell.endswith("*")]
    assert len(starred) == 1


def test_the_maps_agree_with_the_tables(made: Made) -> None:
    """2 nanoseconds a byte by tempi, 4 by the library: wherever it was measured, twice as fast."""
    head, *rows = made.page.rows["A message to a rank of the same node"]
    assert head[-2:] == ["chosen", "times as fast as the next"]
    assert {tuple(row[-2:]) for row in rows} == {("tempi", "2.00")}
    assert {row[0].split(" (")[0] for row in rows} == {
        "regular, close together", "regular, pages apart", "one run an element", "irregular",
    }  # fmt: skip
    shares = [one for one in made.objects if one["section"] == "choices" and one["peer"] == "node"]
    assert {one["method"] for one in shares} == {"tempi"}
    assert [one["share"] for one in shares] == pytest.approx([1.0] * 4)


def test_regret_is_that_of_the_records(made: Made) -> None:
    """Right in one case, 4 times the best in the other; the rule takes the library: 2 and 1."""
    scores = {row[1]: row[2:] for row in made.page.rows["How good the choices are"] if row[0] == "one way"}
    assert scores["calibrated model"] == ["2", "2.000", "3.85", "4.00", "1.414"]
    assert scores["built-in rule"] == ["2", "1.414", "1.95", "2.00", "1.000"]
    assert scores["perfect chooser (the floor)"][1] == "1.000"
    regrets = {one["chooser"]: one for one in made.objects if one["section"] == "regret"}
    assert regrets["model"]["worst"] == pytest.approx(4.0)


def test_statistics_are_all_there(made: Made) -> None:
    (name,) = (heading for heading in made.page.rows if heading.endswith("3 ranks, some MPI"))
    rows = {row[0]: row[1:] for row in made.page.rows[name]}
    assert rows["sends"] == ["sends carried packed by tempi", "41", "20"]
    assert rows["fallback_rule"][1:] == ["12,345", "0"]
    assert rows["library"] == ["1.25"]  # of a part that this page knows nothing of
    assert "the built-in rule" in made.page.text


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def refused(folder: Path, why: str, *words: object) -> None:
    """In one line, and nothing is left behind."""
    done = tempi("report", "--output", folder / "report.html", *words)
    assert done.exit_code == 1, done.output
    assert why in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not list(folder.glob("report.html*"))


def test_nothing_to_report_is_an_error(cache: Path) -> None:
    refused(cache, "run `tempi calibrate`")
    refused(cache, "no calibration of this machine has that in its MPI's name", "--mpi", "abacus")


def test_calls_left_to_the_library_are_reported_by_function(made: Made) -> None:
    assert "that tempi left, wholly or in part, by function" in made.html
    assert all(text in made.html for text in ("MPI_Neighbor_alltoallw", "11,000", "7,654,321"))


def test_a_run_of_collectives_alone_has_a_picture(cache: Path) -> None:
    run = {"tempi_statistics": 1, "ranks": 2, "sum": {"collectives": 7, "collective_bytes": 9}, "most": {}}
    (cache / "run.json").write_text(json.dumps(run))
    words = ("--stats", cache / "run.json", "--png", cache / "png", "--output", cache / "report.html")
    done = tempi("report", *words)
    assert done.exit_code == 0, done.output
    assert [path.name for path in (cache / "png").iterdir()] == ["statistics.png"]


def test_files_of_other_kinds_are_refused(cache: Path) -> None:
    text, damaged = cache / "text", cache / "damaged.json"
    text.write_text("hello\n")
    store.write(damaged, made_up())
    damaged.write_text(damaged.read_text()[:-9])
    (cache / "cut.json").write_text('{"tempi_statistics": 1, "ranks"')
    (cache / "old.json").write_text('{"tempi_statistics": 0}')
    (cache / "list.json").write_text('{"tempi_statistics": 1, "ranks": 1, "sum": [], "most": {}}')
    odd = '{"tempi_statistics": 1, "ranks": 1, "sum": {}, "most": {}, "fallback_functions": {"MPI_Put": {"calls": 1}}}'
    (cache / "odd.json").write_text(odd)
    (cache / "empty").write_text("")
    refused(cache, "it is not a tempi calibration", "--calibration", text)
    refused(cache, "damaged", "--calibration", damaged)
    refused(cache, "No such file", "--calibration", cache / "none")
    refused(cache, "line 1: not JSON", "--bench", text)
    refused(cache, "no records in it", "--bench", cache / "empty")
    refused(cache, "No such file", "--bench", cache / "none")
    refused(cache, "it contains no tempi statistics", "--stats", text)
    refused(cache, "it is damaged", "--stats", cache / "cut.json")
    refused(cache, "it is damaged", "--stats", cache / "list.json")
    refused(cache, "it is damaged", "--stats", cache / "odd.json")
    refused(cache, "another version", "--stats", cache / "old.json")
    refused(cache, "No such file", "--stats", cache / "none")


def test_a_calibration_of_another_machine_is_drawn_by_force_only(cache: Path) -> None:
    own = made_up()
    few = tuple(point for point in own.points if point.column in (grid.PLAIN, COLUMNS[0]) and point.peer != "self")
    store.write(cache / "other.json", replace(own, machine=replace(own.machine, cpu="abacus"), points=few))
    refused(cache, "another machine", "--calibration", cache / "other.json")
    done = tempi("report", "--calibration", cache / "other.json", "--force", "--output", cache / "report.html")
    assert done.exit_code == 0, done.output
    assert "does not choose here: it was measured on another machine" in (cache / "report.html").read_text()


def test_a_path_that_cannot_be_written_is_one_line(cache: Path) -> None:
    _, run = files(cache)
    for output in (run / "report.html", cache):
        done = tempi("report", "--stats", run, "--output", output, "--png", cache / "png")
        assert done.exit_code == 1
        assert len(done.output.strip().splitlines()) == 1, done.output
        assert str(output) in done.output
        assert not (cache / "png").exists()  # it is said before anything is drawn
    refused(cache, str(run), "--stats", run, "--png", run)


def test_a_missing_matplotlib_is_reported(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(cache, "needs matplotlib, which is not installed: ")


def test_explain_draws_what_each_method_is_predicted_to_take(cache: Path) -> None:
    store.save(made_up())
    vector = ("explain", "vector(1024,1,2,DOUBLE)", "--png")
    for name, more in (("with", ("--peer", "same-node")), ("without", ()), ("other", ("--peer", "other-node"))):
        assert tempi(*vector, cache / f"{name}.png", *more).exit_code == 0
    tall, short, other = (imread(cache / f"{name}.png") for name in ("with", "without", "other"))
    assert tall.shape[0] > short.shape[0] + 100  # a row of bars for the message; packing has no tables
    for colour in (to_rgb("#4477aa"), to_rgb("#ee6677")):
        areas = [np.sum(np.abs(each[..., :3] - colour).max(axis=2) < 0.01) for each in (tall, short)]
        assert areas[0] > 1000
        assert areas[1] < 10
    assert np.array_equal(other, short)


def test_records_of_an_emulated_device_have_no_picture(cache: Path) -> None:
    emulated = {"machine": {"cuda": "EMULATED: CUDA on the CPU, a test device"}}
    lines = [record("one way", "any", subject, 1e-6, **emulated) for subject in ("library", "tempi")]
    (cache / "bench").write_text("".join(lines))
    done = tempi("report", "--bench", cache / "bench", "--output", cache / "report.html")
    assert done.exit_code == 0, done.output
    html = (cache / "report.html").read_text()
    assert "2 records are of CUDA on the CPU, a test device" in html
    assert "<img" not in html
