"""Complete pictures: arranges panels, draws them with `tempi.model.plot`, and converts to PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempi import _units
from tempi.model import plot, survey

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tempi.model.grid import Column
    from tempi.model.survey import Field, Kind, Slice

__all__ = ["Gallery", "blank", "curves", "heat", "winners"]

WIDE = 12.0  # inches
_DOTS = 110  # per inch
_ACROSS = 4  # panels per row


def blank(height: float, width: float = WIDE) -> Figure:
    """A figure without a display, with a layout that avoids overlaps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


class Gallery:
    """Pictures as PNG; also saved as files if a folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.names: list[str] = []

    def png(self, name: str, figure: Figure) -> bytes:
        """Raises OSError if the file cannot be written."""
        made = io.BytesIO()
        figure.savefig(made, format="png", dpi=_DOTS)
        number = self.names.count(name)
        self.names.append(name)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{name}{f'-{number + 1}' if number else ''}.png").write_bytes(made.getvalue())
        return made.getvalue()


def _by_sizes(own: Slice) -> list[list[Column]]:
    """Groups columns measured at the same sizes, or a subset of them, into one table."""
    groups: list[tuple[set[int], list[Column]]] = []
    for column in own.columns:
        sizes = {size for known, size in own.at if known == column}
        for known, columns in groups:
            if len(known & sizes) > len(sizes) / 2:
                known |= sizes
                columns.append(column)
                break
        else:
            groups.append((sizes, [column]))
    return [columns for _, columns in groups]


def heat(own: Slice) -> Figure:
    """One slice of the calibration as a heat map of bytes per second."""
    import matplotlib as mpl
    from matplotlib.colors import LogNorm

    groups = _by_sizes(own)
    figure = blank(1.2 + 0.31 * len(own.columns) + 0.35 * len(groups))
    axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=[len(group) for group in groups])[:, 0]
    rates = [point.size / point.median for point in own.points]
    norm, colormap = LogNorm(min(rates), max(rates) * 1.0001), mpl.colormaps["cividis"]
    for axis, group in zip(axes, groups, strict=True):
        image = plot.draw_heat(axis, own, group, norm, colormap)
    bar = figure.colorbar(image, ax=list(axes), pad=0.14, aspect=max(6, 1.6 * len(own.columns)), fraction=0.04)
    bar.ax.yaxis.set_major_formatter(lambda value, _place: _units.rate(value))
    bar.ax.tick_params(labelsize=8)
    bar.ax.yaxis.set_minor_formatter("")
    bar.set_label("bytes a second", fontsize=8)
    axes[-1].set_xlabel("packed size")
    figure.suptitle(own.title, fontsize=11)
    return figure


def _panels(own: Slice) -> dict[Kind, list[Column]]:
    made: dict[Kind, list[Column]] = {}
    for column in own.columns:
        made.setdefault(survey.kind(column)[0], []).append(column)
    return made


def curves(own: Slice) -> Figure:
    """Samples and curves of one slice, a panel for each kind of shapes."""
    panels = _panels(own)
    across = min(_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    figure = blank(0.7 + 3.9 * down, WIDE if across > 1 else 7.0)
    axes = figure.subplots(2 * down, across, squeeze=False, height_ratios=(3, 1.5) * down, sharey="row")
    for place, (kind, columns) in enumerate(panels.items()):
        row, number = divmod(place, across)
        above, below = axes[2 * row][number], axes[2 * row + 1][number]
        plot.draw_curves(above, below, own, columns)
        above.set_title(kind.title, fontsize=9)
        above.legend(fontsize=6.5, loc="upper left", framealpha=0.85)
        if number == 0:
            above.set_ylabel("time of one", fontsize=9)
            below.set_ylabel("off by", fontsize=9)
    _hide(axes, panels, across)
    figure.supxlabel("packed size", fontsize=10)
    figure.suptitle(own.title, fontsize=11)
    return figure


def _hide(axes: Any, panels: Mapping[Kind, Any], across: int) -> None:
    for place in range(len(panels), across * (len(axes) // 2)):
        row, number = divmod(place, across)
        for axis in (axes[2 * row][number], axes[2 * row + 1][number]):
            axis.axis("off")


def winners(found: Sequence[Field], palette: Mapping[str, str]) -> Figure:
    """The maps of one peer class: those over several runs first, then the others as strips."""
    maps = [field for field in found if len(field.runs) > 1]
    strips = [field for field in found if len(field.runs) == 1]
    rows = [maps[at : at + _ACROSS] for at in range(0, len(maps), _ACROSS)]
    rows += [strips[at : at + _ACROSS] for at in range(0, len(strips), _ACROSS)]
    heights = [2.7 if len(row[0].runs) > 1 else 0.95 for row in rows] + [0.3 * len(palette)]
    figure = blank(sum(heights) + 0.9)
    parts = figure.add_gridspec(len(heights), _ACROSS, height_ratios=heights)
    for number, row in enumerate(rows):
        for place, field in enumerate(row):
            plot.draw_winners(figure.add_subplot(parts[number, place]), field, palette)
    plot.draw_key(figure.add_subplot(parts[len(rows), :]), palette)
    figure.supxlabel("packed size of the message", fontsize=9)
    figure.supylabel("run: contiguous bytes", fontsize=9)
    return figure
