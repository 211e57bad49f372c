"""The part of the page about a run's statistics: files of TEMPI_STATS_FILE, or the output of TEMPI_STATS=1."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempi import _engine
from tempi._aliases import renamed
from tempi._errors import TempiError
from tempi.report import figures, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Statistics", "StatisticsError", "objects", "read", "section"]

FORMAT = 1
_PRINTED = re.compile(r"^tempi: +(\d+)  (\w+): ", re.MULTILINE)
_RANKS = re.compile(r"^tempi: over (\d+) ranks:", re.MULTILINE)
_CHOSEN = re.compile(r"^tempi: chosen by (.+)$", re.MULTILINE)
_FALLBACKS = re.compile(r"^tempi: left to the library: (\d+) calls of (\w+) with (\d+) B", re.MULTILINE)
_CARRIED = ("sends", "recvs", "packs", "unpacks", "collectives", "collectives_split", "bounced")
_OURS, _THEIRS = "#ee6677", "#4477aa"


class StatisticsError(TempiError):
    """A file without statistics; the message names it and the reason, in one line."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of one run. `sum` and `most`: of each nonzero counter, over the ranks; `fallbacks`: calls with a
    derived datatype of functions that tempi does not implement; `more`: everything else."""

    name: str
    ranks: int
    sum: Mapping[str, int]
    most: Mapping[str, int]
    fallbacks: Mapping[str, Mapping[str, int]]  # by function: calls and bytes
    more: Mapping[str, Any]


def _counters(data: Any) -> dict[str, int]:
    if not isinstance(data, dict) or not all(isinstance(value, int) for value in data.values()):
        raise ValueError("it is damaged")
    return data


def _totals(data: Any) -> dict[str, int]:
    return renamed(_counters(data))


def _of_json(name: str, data: Any) -> Statistics:
    if not isinstance(data, dict) or "tempi_statistics" not in data:
        raise ValueError("it contains no tempi statistics")
    if data["tempi_statistics"] != FORMAT:
        raise ValueError("it is of another version")
    known = ("tempi_statistics", "ranks", "sum", "most", "fallback_functions")
    more = {key: value for key, value in data.items() if key not in known}
    fallbacks = {key: _counters(value) for key, value in dict(data.get("fallback_functions", {})).items()}
    if any(value.keys() != {"calls", "bytes"} for value in fallbacks.values()):
        raise ValueError("it is damaged")
    return Statistics(name, int(data["ranks"]), _totals(data["sum"]), _totals(data["most"]), fallbacks, more)


def _of_text(name: str, text: str) -> Statistics:
    """Finds the output of TEMPI_STATS=1 anywhere in a program's output."""
    ranks = _RANKS.findall(text)
    if not ranks:
        raise ValueError("it contains no tempi statistics")
    chosen = _CHOSEN.findall(text)
    last = text[text.rindex(f"tempi: over {ranks[-1]} ranks:") :]
    total = renamed({counter: int(value) for value, counter in _PRINTED.findall(last)})
    fallbacks = {function: {"calls": int(n), "bytes": int(b)} for n, function, b in _FALLBACKS.findall(last)}
    return Statistics(name, int(ranks[-1]), total, {}, fallbacks, {"tables": chosen[-1]} if chosen else {})


def read(path: str) -> Statistics:
    """Raises `StatisticsError`."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        if text.lstrip().startswith("{") and '"tempi_statistics"' in text:
            return _of_json(path, json.loads(text))
        return _of_text(path, text)
    except OSError as error:
        raise StatisticsError(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError:
        raise StatisticsError(f"{path}: it is damaged") from None
    except (ValueError, KeyError, TypeError) as error:
        raise StatisticsError(f"{path}: {error if type(error) is ValueError else 'it is damaged'}") from None


def _help() -> dict[str, str]:
    return {name: text for name, text, _ in _engine.items("stats")}


def _draw(axis: Axes, found: Statistics) -> None:
    """Calls that tempi handled, and those that it left to the library by reason."""
    names = [name for name in found.sum if name in _CARRIED or name.startswith("fallback_")]
    texts = _help()
    for row, name in enumerate(names):
        value = found.sum[name]
        ours = name in _CARRIED
        axis.barh(
            row, value, color=_OURS if ours else _THEIRS, hatch="" if ours else "///", edgecolor="white", height=0.7
        )
        axis.text(value, row, f" {value:,}", va="center", fontsize=9)
    axis.set_yticks(range(len(names)), [texts.get(name, name) for name in names], fontsize=8.5)
    axis.set(xscale="log", xlim=(0.7, 4 * max(found.sum[name] for name in names)), ylim=(len(names) - 0.4, -0.6))
    axis.set_xlabel("calls, all ranks together (logarithmic)")
    axis.xaxis.set_major_formatter(lambda value, _place: f"{value:,.0f}")
    axis.spines[["top", "right"]].set_visible(False)


def _more(name: str, value: Any) -> Iterator[str]:
    """All other fields of the file, as they are."""
    if isinstance(value, dict):
        rows = [
            (str(key), json.dumps(each) if isinstance(each, (dict, list)) else str(each)) for key, each in value.items()
        ]
        yield page.table((name, "value"), rows)
    elif isinstance(value, list):
        yield page.paragraph(name) + page.bullets(json.dumps(each) for each in value)
    else:
        yield page.paragraph(f"{name}: {value}")


def section(found: Statistics, gallery: figures.Gallery) -> str:
    """A picture, all counters with their meaning, and the other fields."""
    texts = _help()
    model = found.more.get("tables")
    head = f"{found.name}: {found.ranks} ranks"
    head += f", {found.more['mpi'].splitlines()[0]}" if isinstance(found.more.get("mpi"), str) else ""
    body = f"<h3>{page.escape(head)}</h3>\n" + page.paragraph(f"Chosen by {model or 'the built-in rule'}.")
    if any(name in _CARRIED or name.startswith("fallback_") for name in found.sum):
        count = sum(name in _CARRIED or name.startswith("fallback_") for name in found.sum)
        figure = figures.blank(0.9 + 0.34 * count, 10.0)
        _draw(figure.subplots(), found)
        caption = "Plain bars: calls that tempi carried; hatched bars: calls left to the library, by reason."
        body += page.picture(gallery.png("statistics", figure), "Calls that tempi carried and left", caption)
    most = bool(found.most)
    rows = [
        (name, texts.get(name, ""), f"{value:,}", *([f"{found.most.get(name, 0):,}"] if most else []))
        for name, value in found.sum.items()
    ]
    columns = ("counter", "meaning", "all ranks", *(["most of one rank"] if most else []))
    body += page.table(columns, rows, words=2) if rows else page.paragraph("All counters are zero.")
    if found.fallbacks:
        left = sorted(found.fallbacks.items(), key=lambda item: -item[1]["calls"])
        body += page.paragraph("Calls with a derived datatype that tempi left, wholly or in part, by function:")
        table = [(function, f"{each['calls']:,}", f"{each['bytes']:,}") for function, each in left]
        body += page.table(("function", "calls, all ranks", "bytes"), table)
    for name, value in found.more.items():
        if name not in ("mpi", "tables"):
            body += "".join(_more(name, value))
    return body


def objects(found: Statistics) -> Iterator[Mapping[str, object]]:
    """The same as JSON objects."""
    own = {"section": "statistics", "file": found.name, "ranks": found.ranks}
    yield own | {"sum": dict(found.sum), "most": dict(found.most), "fallbacks": dict(found.fallbacks), **found.more}
