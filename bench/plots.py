"""Drawing: each function takes data and an axis, and draws; `save` writes the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tempi.bench.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# One colour per subject in every picture, distinguishable also with red-green colour blindness.
COLOURS = {
    "plain": "#bbbbbb",
    "library": "#4477aa",
    "tempi": "#ee6677",
    "forced": "#aa3377",
    "engine": "#ccbb44",
    "hand": "#228833",
    "bound": "#66ccee",
    "memcpy": "#999999",
}
_PHASE_SHADES = {"post": 1.0, "send": 0.75, "wait": 0.45}


#: Draws into an axis.
Draw = Callable[["Axes"], None]


def draw_halo(
    axis: Axes,
    exchange: Mapping[str, Interval],
    phases: Mapping[str, Mapping[str, float]],
    speedups: Mapping[str, Interval],
) -> None:
    """One bar per subject: its phases stacked (medians, scaled to the exchange), the interval, and the speed-up if
    there is one (from pairs of samples, so it differs slightly from the ratio of the bars).

    Values are seconds. Each phase is its own maximum over ranks, so their sum may exceed the exchange's time;
    they are drawn in proportion.
    """
    for place, (subject, total) in enumerate(exchange.items()):
        parts = phases.get(subject, {})
        scale = total.value / (sum(parts.values()) or 1.0)
        left = 0.0
        for phase, seconds in parts.items():
            width = 1e3 * seconds * scale
            shade = _PHASE_SHADES.get(phase, 1.0)
            axis.barh(place, width, left=left, color=COLOURS.get(subject), alpha=shade, edgecolor="white")
            if width > 0.12 * 1e3 * max(t.value for t in exchange.values()):
                axis.text(left + width / 2, place, phase, ha="center", va="center", fontsize=8)
            left += width
        error = [[1e3 * (total.value - total.low)], [1e3 * (total.high - total.value)]]
        axis.errorbar(1e3 * total.value, place, xerr=error, color="black", capsize=3)
        text = f"  {1e3 * total.value:.3g} ms"
        if subject in speedups:
            text += f", {speedups[subject].value:.2f}x"
        axis.text(1e3 * total.high, place, text, va="center", fontsize=9)
    axis.set_yticks(range(len(exchange)), list(exchange))
    axis.invert_yaxis()
    axis.set_xlim(0, 1.35e3 * max((t.high for t in exchange.values()), default=1e-3))
    axis.set_xlabel("one halo exchange: post, send, wait on the slowest rank (ms)")
    axis.spines[["top", "right"]].set_visible(False)


def draw_speedups(axis: Axes, points: Mapping[str, Sequence[tuple[int, Interval]]], title: str) -> None:
    """Speed-up over the library by run length (bytes), one colour per series."""
    for place, (series, values) in enumerate(points.items()):
        runs = [run * 1.04**place for run, _ in values]
        middle = [interval.value for _, interval in values]
        below = [interval.value - interval.low for _, interval in values]
        above = [interval.high - interval.value for _, interval in values]
        axis.errorbar(runs, middle, yerr=[below, above], fmt="o", markersize=4, capsize=2, label=series)
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("bytes of a contiguous run")
    axis.set_ylabel("speed-up over the library")
    axis.set_title(title)
    if points:
        axis.legend(fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def save(
    path: str | os.PathLike[str],
    title: str,
    draws: Sequence[Draw],
    height: float = 3.0,
) -> None:
    """Writes one picture with the drawings side by side, without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(8.0, 6.0 * len(draws)), height), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, draw in zip(figure.subplots(1, len(draws), squeeze=False)[0], draws, strict=True):
        draw(axis)
    figure.suptitle(title, fontsize=9)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
