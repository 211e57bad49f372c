"""The part of the page about a calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tempi import _units
from tempi.model import plot, sure, survey
from tempi.model.peers import PEERS
from tempi.report import figures, page

if TYPE_CHECKING:
    from pathlib import Path

    from tempi.model.store import Calibration, Point
    from tempi.model.survey import Field, Slice

__all__ = ["Part", "about", "choices", "machine_rows", "objects", "tables", "unstable"]

_MEANINGS = {
    "library_pack": "MPI_Pack by the library",
    "library_unpack": "MPI_Unpack by the library",
    "own_pack": "MPI_Pack by tempi",
    "own_unpack": "MPI_Unpack by tempi",
    "stage_pack": "tempi's packing within a message",
    "stage_unpack": "tempi's unpacking within a message",
    "contiguous": "a message of packed bytes",
    "library_message": "the library's message with the datatype on both sides",
    "engine_pack": "tempi's packing without the call around it",
    "host_message": "tempi's message as a whole: pack, message, unpack",
}
_PEERS = {peer.name: peer.where for peer in PEERS}


@dataclass(frozen=True, slots=True)
class Part:
    """A calibration being written to the page."""

    path: Path
    calibration: Calibration
    warning: str | None = None  # why its tables are not used here
    fields: Sequence[Field] = field(default_factory=tuple)

    @property
    def palette(self) -> dict[str, str]:
        """The same colours in all maps."""
        return plot.colours(name for each in self.fields for name in each.names)


def machine_rows(part: Part) -> list[tuple[str, str]]:
    """The machine and the extent of the measurement."""
    found, own = part.calibration, part.calibration.machine
    total = sum(len(point.seconds) for point in found.points)
    shaky = len(found.unstable)
    state = "complete" if found.about.get("complete") else "interrupted: what was done is here"
    return [
        (
            "machine",
            f"{own.cpu}, {_units.cores(own.cores)}"
            + (f", host {found.about['host']}" if "host" in found.about else ""),
        ),
        ("MPI", own.mpi),
        ("tempi", own.tempi),
        ("measured", f"{found.about.get('when', 'at an unknown time')}, {state}"),
        ("peer classes", ", ".join(_PEERS.get(peer, peer) for peer in found.peers) or "none"),
        ("points", f"{len(found.points):,} of {total:,} samples; {shaky:,} not stable"),
        *_sureness(found),
        ("known to", f"{found.spread:.0%} in the median"),
        ("file", str(part.path)),
    ]


def _sureness(found: Calibration) -> Iterator[tuple[str, str]]:
    verdict = sure.verdict(found)
    if verdict is not None:
        yield "choices", f"{verdict.sure:,} of {verdict.choices:,} are sure; expected loss over all: {verdict.loss:.2%}"


def about(part: Part) -> str:
    body = page.paragraph(part.warning, "note") if part.warning else ""
    body += page.table(("", "what the tables were measured on"), machine_rows(part), words=2)
    found = part.calibration
    verdict = sure.verdict(found)
    if verdict is not None and not verdict.good:
        text = f"Choices cost an expected {verdict.loss:.1%} more than the best ones, as far as the samples can tell. "
        body += page.paragraph(text + "Calibrate again when the machine is quiet, or for longer.", "note")
    return body + page.bullets(_in_short(part))


def _in_short(part: Part) -> Iterator[str]:
    """One sentence for each peer class."""
    for peer in part.calibration.peers:
        maps = [each for each in part.fields if each.peer == peer]
        texts = [
            f"{name} is chosen on {100 * share:.0f}% of the maps below ({max(1.0, factor):.2f} times as fast as the "
            "next method in the median)"
            for name, (share, factor) in survey.winners(*maps).items()
        ]
        if texts:
            yield f"A message {_PEERS.get(peer, peer)}: {', '.join(texts)}."


# -- which way wins where ------------------------------------------------------------------------------------


def choices(part: Part, gallery: figures.Gallery) -> str:
    """A picture and a table for each peer class."""
    body = page.paragraph(
        "Predictions of the engine from the tables, and its choice, for a message of each packed size and run. "
        "Dots are measured points; all else is interpolated. A message for which tempi is less than 3% faster is left "
        "to the library."
    )
    for peer in part.calibration.peers:
        maps = [each for each in part.fields if each.peer == peer]
        if not maps:
            body += page.paragraph(f"Messages {_PEERS.get(peer, peer)}: no tables.", "quiet")
            continue
        where = _PEERS.get(peer, peer)
        png = gallery.png(f"choice-{peer}", figures.winners(maps, part.palette))
        caption = "Colour: the chosen method; strength: the factor by which it is faster than the next best one. "
        body += f"<h3>A message {where}</h3>\n"
        body += page.picture(png, f"Maps of the chosen method by packed size and run, {where}", caption)
        rows = [row for each in maps for row in _choice_rows(each)]
        head = ("shapes", "run", "packed size", "chosen", "times as fast as the next")
        body += page.details("The same as a table, at the points that were measured", page.table(head, rows, words=4))
    return body


def _choice_rows(own: Field) -> Iterator[tuple[str, ...]]:
    for size, run in sorted(own.nodes, key=lambda node: (node[1], node[0])):
        if (won := own.winner(size, run)) is not None:
            yield own.title, _units.size(run), _units.size(size), won[0], f"{won[1]:.2f}"


# -- what was measured ---------------------------------------------------------------------------------------


def tables(part: Part, gallery: figures.Gallery, step: Any) -> str:
    """Heat map, numbers and curves of every slice. `step` is called with the title of each before it is drawn."""
    body = page.paragraph(
        "Every quantity that was timed, by shape and packed size. In the cells: the median of one operation (of a "
        "message: one way). An orange corner marks a point that is not stable. The tables take the geometric mean of "
        "the middle half of all samples, which lies between two speeds where the machine has two."
    )
    for own in survey.slices(part.calibration):
        step(own.title)
        body += _slice(own, gallery)
    return body


def _slice(own: Slice, gallery: figures.Gallery) -> str:
    quantity = own.names["quantity"]
    rest = [_PEERS.get(value, f"{name} {value}") for name, value in own.names.items() if name != "quantity"]
    title = ", ".join([_MEANINGS.get(quantity, quantity), *rest])
    name = "-".join(own.names.values()).replace("_", "-")
    shaky = sum(point.trouble is not None for point in own.points)
    heat = gallery.png(f"table-{name}", figures.heat(own))
    curves = gallery.png(f"curves-{name}", figures.curves(own))
    text = "Small dots: raw samples; ring: median; cross: median of a point that is not stable; line: what the tables "
    text += (
        "say. Below: deviation of samples and medians from the line. Along the size tables never decrease, so line and "
    )
    text += "line and median too."
    numbers = page.table(_head(own), _rows(own), words=2)
    return (
        f"<h3>{page.escape(title)}</h3>\n"
        + page.picture(heat, f"Heat map: {title}", f"{quantity}: {len(own.points)} points, {shaky} not stable.")
        + page.details("Medians as a table", numbers)
        + page.details("Samples, curves and residuals", page.picture(curves, f"Samples and curves: {title}", text))
    )


def _sizes(own: Slice) -> list[int]:
    return sorted({point.size for point in own.points})


def _head(own: Slice) -> list[str]:
    return ["shapes", "run", *(_units.size(size) for size in _sizes(own))]


def _rows(own: Slice) -> Iterator[list[str]]:
    at = own.at
    for column in own.columns:
        cells = [_cell(at.get((column, size))) for size in _sizes(own)]
        yield [survey.kind(column)[0].title, plot.row_name(column), *cells]


def _cell(point: Point | None) -> str:
    """The median; a star where it is not stable."""
    if point is None:
        return ""
    return _units.seconds(point.median) + (" *" if point.trouble else "")


def unstable(part: Part) -> str:
    """Every point that is marked, and why."""
    found = part.calibration.unstable
    if not found:
        return page.paragraph("None: the median of every point is known to 5%.")
    rows = [
        (
            point.quantity,
            survey.kind(point.column)[0].title,
            plot.row_name(point.column),
            _units.size(point.size),
            _PEERS.get(point.peer or "", ""),
            str(point.trouble),
            _units.seconds(point.median),
            _units.seconds(point.typical),
        )
        for point in found
    ]
    head = ("quantity", "shapes", "run", "packed size", "peer", "why", "median", "taken")
    text = f"{len(found):,} of {len(part.calibration.points):,} points. The tables take the mean of the middle half."
    return page.paragraph(text) + page.details("Which, and why", page.table(head, rows, words=6))


def objects(part: Part) -> Iterator[Mapping[str, object]]:
    """The same as JSON objects."""
    yield {"section": "calibration", **dict(machine_rows(part)), "warning": part.warning}
    for each in part.fields:
        for name, (share, factor) in survey.winners(each).items():
            yield {
                "section": "choices", "peer": each.peer, "shapes": each.title, "method": name, "share": share,
                "factor": factor,
            }  # fmt: skip
