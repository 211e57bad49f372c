"""Draws measurements and predictions: each function takes data and an axis; the caller saves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi import _units
from tempi.model import grid, survey

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tempi.model.grid import Column
    from tempi.model.methods import Way
    from tempi.model.survey import Field, Slice

__all__ = [
    "FULL", "bytes_axis", "colours", "draw_curves", "draw_heat", "draw_key", "draw_ways", "draw_winners", "row_name",
    "seconds_axis",
]  # fmt: skip

#: Each method has the same colour in every picture. The colours also differ in lightness and suit readers who cannot
#: distinguish red and green (P. Tol's "bright" scheme); other methods take the next unused colour.
_OWN = {"library": "#4477aa", "tempi": "#ee6677"}
_MORE = ("#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
_SHADES = {"pack": 1.0, "message": 0.6, "unpack": 0.85}
_HATCHES = ("", "///", "...", "\\\\\\", "xxx")
_CLIP = 0.5  # limit of drawn residuals
_UPRIGHT = 12  # columns of a table whose labels stay horizontal
#: A method that wins by this factor gets its full colour in the maps.
FULL = 8.0


def colours(names: Iterable[str]) -> dict[str, str]:
    """One colour for each name."""
    wanted = list(dict.fromkeys(names))
    left = iter([*_MORE] * (1 + len(wanted) // len(_MORE)))
    return {name: _OWN.get(name) or next(left) for name in wanted}


def row_name(column: Column) -> str:
    """A shape's name, below a title that names its kind."""
    if column == grid.PLAIN:
        return "in one piece"
    return f"{_units.size(column.run)}" + (f" every {column.stride:,} B" if column.stride else "")


def bytes_axis(axis: Any, ticks: Sequence[int]) -> None:
    """A logarithmic axis of bytes (``axis.xaxis`` or ``axis.yaxis``) with those of these ticks that fit."""
    axis.set_major_locator(_fixed(_apart(ticks)))
    axis.set_minor_locator(_fixed([]))
    axis.set_major_formatter(lambda value, _place: _units.size(round(value)))


def seconds_axis(axis: Any) -> None:
    """The same for seconds, at powers of ten."""
    axis.set_major_formatter(lambda value, _place: _units.seconds(value))


def _apart(ticks: Sequence[int]) -> list[int]:
    """Ticks at least a sixth of the range from one another."""
    room = math.log(max(ticks) / min(ticks)) / 6 if ticks else 0.0
    kept: list[int] = []
    for tick in ticks:
        if not kept or math.log(tick / kept[-1]) >= room:
            kept.append(tick)
    return kept


def _fixed(ticks: Sequence[int]) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(ticks)


# -- measured tables ----------------------------------------------------------------------------------------


def draw_heat(axis: Axes, own: Slice, columns: Sequence[Column], norm: Any, colormap: Any) -> Any:
    """Rows are shapes, columns packed sizes; coloured by bytes per second, with the median as text.

    A triangle marks unstable points. Returns the image."""
    from matplotlib.colors import to_rgb

    at = own.at
    sizes = sorted({size for column, size in at if column in columns})
    values = np.full((len(columns), len(sizes)), np.nan)
    turned = 90 if len(sizes) > _UPRIGHT else 0
    for row, column in enumerate(columns):
        for place, size in enumerate(sizes):
            point = at.get((column, size))
            if point is None:
                continue
            values[row, place] = size / point.median
            dark = float(np.dot(to_rgb(colormap(norm(values[row, place]))), (0.3, 0.59, 0.11))) < 0.5
            colour = "white" if dark else "black"
            text = _units.seconds(point.median)
            axis.text(place, row, text, ha="center", va="center", fontsize=8, color=colour, rotation=turned)
            if point.trouble:
                corner = [(place + 0.5, row - 0.5), (place + 0.34, row - 0.5), (place + 0.5, row - 0.1)]
                axis.fill(*zip(*corner, strict=True), facecolor="#ee7733", edgecolor="white", linewidth=0.5)
    image = axis.imshow(np.ma.masked_invalid(values), norm=norm, cmap=colormap, aspect="auto")
    _name_kinds(axis, columns, len(sizes))
    axis.set_facecolor("#f0f0f0")
    axis.set_xticks(range(len(sizes)), [_units.size(size) for size in sizes], rotation=turned)
    axis.set_yticks(range(len(columns)), [row_name(column) for column in columns])
    axis.tick_params(length=0, labelsize=9)
    axis.spines[:].set_visible(False)
    return image


def _name_kinds(axis: Axes, columns: Sequence[Column], wide: int) -> None:
    """Labels the kinds on the right, with a line between two of them."""
    kinds = [survey.kind(column)[0] for column in columns]
    first = 0
    for row in range(1, len(kinds) + 1):
        if row == len(kinds) or kinds[row] != kinds[first]:
            axis.text(wide - 0.4, (first + row - 1) / 2, kinds[first].title, va="center", fontsize=9)
            if row < len(kinds):
                axis.axhline(row - 0.5, color="white", linewidth=4)
            first = row


# -- samples and curves ------------------------------------------------------------------------------------


def draw_curves(axis: Axes, below: Axes, own: Slice, columns: Sequence[Column]) -> None:
    """Raw samples and the tables' curve above; the samples' deviation from it below, in percent.

    A ring is a point's median, a cross the median of an unstable one. Deviations outside the lower picture's
    range are drawn at its edge."""
    import matplotlib as mpl

    shades = mpl.colormaps["viridis"](np.linspace(0, 0.85, max(2, len(columns))))
    lines = survey.curve(own)
    for number, (shade, column) in enumerate(zip(shades, columns, strict=False)):
        nodes = lines[column]
        axis.plot(
            [size for size, _ in nodes],
            [value for _, value in nodes],
            color=shade,
            linewidth=1.3,
            label=row_name(column),
            zorder=3,
        )
        points = [(own.at[column, size], fitted) for size, fitted in nodes]
        apart = 1.18 ** (number - (len(columns) - 1) / 2)  # points of one size are drawn side by side
        _draw_points(axis, [(point.size, point, 1.0) for point, _ in points], shade)
        _draw_points(below, [(point.size * apart, point, fitted) for point, fitted in points], shade)
    axis.set(xscale="log", yscale="log")
    below.set(xscale="log")
    below.axhline(0, color="black", linewidth=0.8, zorder=3)
    below.set_ylim(-100 * _CLIP * 1.08, 100 * _CLIP * 1.08)
    below.yaxis.set_major_formatter(lambda value, _place: f"{value:+.0f}%" if value else "0")
    sizes = sorted({size for column in columns for size, _ in lines[column]})
    for each in (axis, below):
        bytes_axis(each.xaxis, sizes)
        each.grid(color="#dddddd", linewidth=0.5)
        each.set_axisbelow(True)
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
        each.minorticks_off()  # hundreds of them take most of the drawing time
    axis.tick_params(labelbottom=False)
    seconds_axis(axis.yaxis)


def _draw_points(axis: Axes, points: Sequence[tuple[float, Any, float]], shade: Any) -> None:
    """Draws (place, point, curve there): samples and medians, divided by the curve if it is not 1."""

    def at(values: Any, fitted: float) -> Any:
        return values if fitted == 1.0 else 100 * np.clip(np.asarray(values) / fitted - 1, -_CLIP, _CLIP)

    places = [place for place, point, _ in points for _ in point.seconds]
    samples = [value for _, point, fitted in points for value in at(point.seconds, fitted)]
    axis.scatter(places, samples, s=5, color=shade, alpha=0.35, linewidths=0)
    for shaky in (False, True):
        kept = [(place, at(point.median, fitted)) for place, point, fitted in points if bool(point.trouble) == shaky]
        places, values = [place for place, _ in kept], [value for _, value in kept]
        if shaky:
            axis.scatter(places, values, marker="x", s=28, color=[shade], linewidths=1.2, zorder=4)
        else:
            ring: dict[str, Any] = {"edgecolors": [shade], "facecolors": "white"}
            axis.scatter(places, values, marker="o", s=18, linewidths=1, zorder=4, **ring)


# -- which way wins where ------------------------------------------------------------------------------------


def _shade(colour: str, factor: float) -> tuple[float, ...]:
    """A paler colour for a smaller gain: a fifth of the colour at a tie, all of it at `FULL`."""
    from matplotlib.colors import to_rgb

    strength = 0.2 + 0.8 * min(1.0, math.log(max(1.0, factor)) / math.log(FULL))
    return tuple(1 - strength * (1 - part) for part in to_rgb(colour))


def _edges(values: Sequence[int]) -> list[float]:
    """Borders of the cells around the values, halfway in logarithms."""
    if len(values) == 1:
        return [values[0] / 1.5, values[0] * 1.5]
    logs = np.log(values)
    middle = (logs[1:] + logs[:-1]) / 2
    return list(np.exp([logs[0] - (middle[0] - logs[0]), *middle, 2 * logs[-1] - middle[-1]]))


def draw_winners(axis: Axes, own: Field, palette: Mapping[str, str]) -> None:
    """Packed size by run, in the colour of the chosen method, paler for smaller gains; dots: measured."""
    picture = np.ones((len(own.runs), len(own.sizes), 3))
    number = np.full(picture.shape[:2], np.nan)
    names = list(palette)
    for row, run in enumerate(own.runs):
        for place, size in enumerate(own.sizes):
            if (won := own.winner(size, run)) is not None:
                picture[row, place] = _shade(palette[won[0]], won[1])
                number[row, place] = names.index(won[0])
    axis.pcolormesh(_edges(own.sizes), _edges(own.runs), picture, rasterized=True)
    if len(own.runs) > 1:
        _borders(axis, own, number)
    nodes = sorted(own.nodes)
    axis.scatter(
        [size for size, _ in nodes],
        [run for _, run in nodes],
        s=7,
        color="black",
        alpha=0.6,
        linewidths=0,
        clip_on=False,
    )
    axis.set(xscale="log", yscale="log")
    axis.set_title(own.title.replace(" (", "\n("), fontsize=9)
    measured_sizes, runs = (sorted({node[k] for node in own.nodes}) for k in (0, 1))
    bytes_axis(axis.xaxis, measured_sizes)
    bytes_axis(axis.yaxis, runs)
    axis.tick_params(labelsize=8)
    axis.spines[:].set_visible(False)


def _borders(axis: Axes, own: Field, number: Any) -> None:
    """Draws a line between two winners, so that the colours are not needed to see it."""
    for level in range(int(np.nanmax(number))):
        if (number <= level).any() and (number > level).any():
            axis.contour(own.sizes, own.runs, number, levels=[level + 0.5], colors="black", linewidths=0.9)


def draw_key(axis: Axes, palette: Mapping[str, str]) -> None:
    """The legend of `draw_winners`."""
    factors = (1.0, 1.5, 2.0, 4.0, FULL)
    for row, (name, colour) in enumerate(palette.items()):
        for place, factor in enumerate(factors):
            axis.fill_between([place, place + 1], row + 0.1, row + 0.9, color=_shade(colour, factor), linewidth=0)
            text = f"{factor:g}x" + (" and more" if factor == FULL else "")
            axis.text(place + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8)
        axis.text(-0.1, row + 0.5, f"{name} is chosen, faster than the next by", ha="right", va="center", fontsize=9)
    axis.set(xlim=(-4.5, 7.5), ylim=(len(palette), 0))
    axis.axis("off")


# -- one message ------------------------------------------------------------------------------------------


def draw_ways(axis: Axes, ways: Sequence[Way], chosen: str, title: str) -> None:
    """One bar per method: its parts stacked, its time, and a mark at the chosen one."""
    palette = colours(way.name for way in ways)
    slowest = max(way.seconds for way in ways)
    for row, way in enumerate(ways):
        left = 0.0
        for place, (part, seconds) in enumerate(way.parts):
            shade = _SHADES.get(part, 1.0) if len(way.parts) > 1 else 1.0
            axis.barh(
                row, seconds, left=left, color=palette[way.name], alpha=shade, edgecolor="white", height=0.62,
                hatch=_HATCHES[place % len(_HATCHES)], linewidth=0.8,
            )  # fmt: skip
            if len(way.parts) > 1 and seconds > 0.11 * slowest:
                box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5}
                axis.text(left + seconds / 2, row, part, ha="center", va="center", fontsize=8, bbox=box)
            left += seconds
        mark = "  chosen" if way.name == chosen else ""
        weight = "bold" if mark else "normal"
        axis.text(left, row, f"  {_units.seconds(way.seconds)}{mark}", va="center", fontsize=9, weight=weight)
        if len(way.parts) > 1:
            text = " + ".join(f"{part} {_units.seconds(seconds)}" for part, seconds in way.parts)
            axis.text(0, row + 0.33, f" {text}", va="top", fontsize=7.5, color="#444444")
    axis.set_yticks(range(len(ways)), [way.name for way in ways])
    axis.set(ylim=(len(ways) - 0.3, -0.6), xlim=(0, 1.3 * slowest))
    axis.set_title(title, fontsize=9, loc="left")
    axis.xaxis.set_major_formatter(lambda value, _place: _units.seconds(value) if value else "0")
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
