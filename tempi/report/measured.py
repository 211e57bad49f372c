"""The part of the page about benchmark records: quality of the choices, and speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tempi import _units
from tempi.bench import plots, stats, suite
from tempi.bench.suites import halo as suite_halo
from tempi.bench.suites import model as suite_model
from tempi.model import plot
from tempi.report import figures, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tempi.bench.suites.model import Row
    from tempi.measure.records import Record

__all__ = ["objects", "section"]

#: A line style for each chooser, also for readers who cannot tell colours apart.
_CHOOSERS: Mapping[str, dict[str, Any]] = {
    "model": {"color": "black", "linewidth": 2.2},
    "rule": {"color": "#aa3377", "linestyle": "--", "linewidth": 1.6},
    "perfect": {"color": "#228833", "linestyle": ":", "linewidth": 2.2},
    "library": {"color": "#4477aa", "linestyle": "-."},
    "tempi": {"color": "#ee6677", "linestyle": (0, (1, 3)), "linewidth": 1.6},
}
_FEW = 40  # cases up to which the picture is not folded away


def _by_op(rows: Iterable[Row]) -> dict[str, list[Row]]:
    made: dict[str, list[Row]] = {}
    for row in rows:
        made.setdefault(row.op, []).append(row)
    return made


# -- quality of the choices ----------------------------------------------------------------------------------


def draw_predicted(axis: Axes, own: Sequence[Row], title: str) -> None:
    """Predicted over measured time, a point for each case and method; the band is 20% to both sides."""
    rows = [row for row in own if row.predicted is not None]
    palette = plot.colours(method for row in own for method in row.seconds)
    for (method, colour), marker in zip(palette.items(), "o^sDvP*", strict=False):
        kept = [row for row in rows if row.predicted and method in row.predicted]
        predicted = [row.predicted[method] for row in kept if row.predicted]
        look: dict[str, Any] = {
            "marker": marker,
            "color": colour,
            "s": 22,
            "alpha": 0.8,
            "linewidths": 0,
            "label": method,
        }
        axis.scatter([row.seconds[method] for row in kept], predicted, **look)
    low, high = _limits([value for row in rows for value in (*row.seconds.values(), *(row.predicted or {}).values())])
    line = np.array([low, high])
    axis.fill_between(line, line / 1.2, line * 1.2, color="#dddddd", zorder=0)
    axis.plot(line, line, color="black", linewidth=0.8, zorder=1)
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axis.set_title(title, fontsize=10)
    for each in (axis.xaxis, axis.yaxis):
        plot.seconds_axis(each)
    axis.tick_params(labelsize=8)
    axis.set_xlabel("measured", fontsize=9)
    axis.set_ylabel("predicted", fontsize=9)
    axis.legend(fontsize=8, loc="upper left")
    axis.spines[["top", "right"]].set_visible(False)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    return (min(values) / 1.3, max(values) * 1.3) if values else (1e-6, 1e-3)


def draw_regret(axis: Axes, own: Sequence[Row], title: str) -> None:
    """Chosen over best, sorted: the fraction of the cases below each value, for each chooser."""
    for chooser in suite_model.CHOOSERS:
        ratios = sorted(row.regret(chooser) for row in own)
        share = 100 * np.arange(1, len(ratios) + 1) / len(ratios)
        look = _CHOOSERS.get(chooser, {"color": "#777777"})
        axis.step([0, *share], [ratios[0], *ratios], where="pre", label=suite_model.TEXTS[chooser], **look)
    axis.set(yscale="log", xlim=(0, 100), ylim=(0.95, max(1.5, 1.1 * axis.get_ylim()[1])), title=title)
    axis.title.set_fontsize(10)
    axis.yaxis.set_major_formatter(lambda value, _place: f"{value:g}x")
    axis.yaxis.set_minor_formatter(lambda value, _place: f"{value:g}x" if _few(axis.get_ylim()) else "")
    axis.tick_params(labelsize=8, which="both")
    axis.set_xlabel("share of the cases, %", fontsize=9)
    axis.set_ylabel("chosen over best", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def _few(limits: tuple[float, float]) -> bool:
    """Whether the range is about one power of ten, so that minor ticks need labels."""
    return limits[1] / limits[0] < 12


def _judged(rows: Sequence[Row]) -> Figure:
    by_op = _by_op(rows)
    figure = figures.blank(8.2)
    axes = figure.subplots(2, len(by_op), squeeze=False)
    for (op, own), above, below in zip(by_op.items(), axes[0], axes[1], strict=True):
        draw_predicted(above, own, op)
        draw_regret(below, own, op)
    axes[1][0].legend(fontsize=8, loc="upper left")
    return figure


def _choices(found: Sequence[Record], gallery: figures.Gallery) -> str:
    rows = suite_model.rows(found)
    if not rows:
        return page.paragraph("No case was measured often enough.", "quiet")
    caption = (
        "Above: predicted against measured time; a point on the line is an exact prediction, the grey band is 20% to "
        "both sides. Below: the time of the chosen method over that of the best, from the best case to the worst; the "
        "perfect chooser, which knows half of the samples, shows the floor set by noise."
    )
    body = page.picture(
        gallery.png("choices-judged", _judged(rows)), "Predicted and measured times; chosen over best", caption
    )
    body += page.table(("operation", "chooser", *_SCORE), _score_rows(rows), "Chosen over best", words=2)
    body += page.bullets([*suite_model.errors(rows), *suite_model.uncalibrated(found)])
    worst = sorted(rows, key=lambda row: row.regret("model"), reverse=True)
    methods = list(dict.fromkeys(method for row in rows for method in row.seconds))
    head = (
        "case",
        "operation",
        "chosen",
        "over best",
        *(f"{m}, {k}" for m in methods for k in ("measured", "predicted")),
    )
    return body + page.details(
        "Every case, the worst choice first", page.table(head, _case_rows(worst, methods), words=3)
    )


_SCORE = ("cases", "geometric mean", "95th percentile", "worst", "over the library")


def _score_rows(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for op, own in _by_op(rows).items():
        for chooser in suite_model.CHOOSERS:
            score = suite_model.score(own, chooser)
            numbers = (f"{score.mean:.3f}", f"{score.high:.2f}", f"{score.worst:.2f}", f"{score.slowdown:.3f}")
            yield op, suite_model.TEXTS[chooser], str(score.cases), *numbers


def _case_rows(rows: Iterable[Row], methods: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        times = []
        for method in methods:
            times.append(_units.seconds(row.seconds[method]) if method in row.seconds else "")
            times.append(_units.seconds(row.predicted[method]) if row.predicted and method in row.predicted else "")
        yield row.case, row.op, row.chosen["model"], f"{row.regret('model'):.2f}", *times


# -- all other suites ----------------------------------------------------------------------------------------


def _speedups(groups: Mapping[suite.Key, Mapping[str, list[Record]]]) -> dict[str, dict[str, stats.Interval]]:
    """Speed-ups over the library, by case and subject."""
    made: dict[str, dict[str, stats.Interval]] = {}
    for (case, _), group in groups.items():
        base = suite.samples(group.get("library"))
        for subject, records in group.items():
            seconds = suite.samples(records)
            if base and seconds and subject != "library":
                made.setdefault(case, {})[subject] = stats.ratio(base, seconds)
    return made


def draw_cases(axis: Axes, found: Mapping[str, Mapping[str, stats.Interval]]) -> None:
    """One row per case, one mark per subject: speed-up over the library, with its 95% interval."""
    subjects = list(dict.fromkeys(subject for each in found.values() for subject in each))
    for (number, subject), marker in zip(enumerate(subjects), "o^sDvP*Xd<>", strict=False):
        rows = [(row, each[subject]) for row, each in enumerate(found.values()) if subject in each]
        places = [row + 0.5 * ((number + 0.5) / len(subjects) - 0.5) for row, _ in rows]
        values = [interval.value for _, interval in rows]
        errors = [
            [interval.value - interval.low for _, interval in rows],
            [interval.high - interval.value for _, interval in rows],
        ]
        colour = plots.COLOURS.get(subject, f"C{number}")
        axis.errorbar(values, places, xerr=errors, fmt=marker, color=colour, markersize=4, linewidth=0.8, label=subject)
    for row in range(0, len(found), 2):
        axis.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", zorder=0)
    axis.axvline(1.0, color="black", linewidth=0.9)
    axis.set_yticks(range(len(found)), list(found), fontsize=8)
    axis.set(xscale="log", ylim=(len(found) - 0.5, -0.5))
    axis.xaxis.set_major_formatter(lambda value, _place: f"{value:g}x")
    axis.xaxis.set_minor_formatter(lambda value, _place: f"{value:g}x" if _few(axis.get_xlim()) else "")
    axis.set_xlabel("times as fast as the library (the line: equal)")
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)


def _suite(name: str, op: str, found: Sequence[Record], gallery: figures.Gallery) -> str:
    groups = suite.by_case(found)
    subjects = list(dict.fromkeys(record.subject for record in found))
    rows = []
    for (case, _), group in groups.items():
        taken = [suite.samples(group.get(subject)) for subject in subjects]
        rows.append((case, *(_units.seconds(stats.median(each).value) if each else "" for each in taken)))
    body = f"<h3>{page.escape(f'{name}: {op}')}</h3>\n"
    numbers = page.table(("case", *subjects), rows)
    if name == "overhead":  # added nanoseconds: ratios would say less
        return body + numbers
    speedups = _speedups(groups)
    if speedups:
        figure = figures.blank(1.0 + 0.24 * len(speedups))
        draw_cases(figure.subplots(), speedups)
        png = gallery.png(f"bench-{name}-{op}".replace(" ", "-"), figure)
        shown = page.picture(png, f"{name}, {op}: speed-ups over the library", "Medians, with 95% intervals.")
        body += page.details(f"{len(speedups)} cases as a picture", shown) if len(speedups) > _FEW else shown
    return body + page.details("Medians as a table", numbers)


def _halo(found: Sequence[Record], gallery: figures.Gallery) -> str:
    timed = [record for record in found if record.op != "check"]
    if suite_halo.emulated(found) or not timed:
        return page.paragraph("halo: checked on an emulated device, which has no times.", "quiet")
    rows = suite_halo.rows(timed)
    figure = figures.blank(3.2, 9.0)
    suite_halo.drawing([one for one in rows if one.subject != "plain"])(figure.subplots())
    head = ("subject", "exchange", *(phase for phase in rows[0].phases))
    table = [
        (
            one.subject,
            _units.seconds(one.exchange.value),
            *(_units.seconds(one.phases.get(phase, 0)) for phase in head[2:]),
        )
        for one in rows
    ]
    title = f"halo: {timed[0].case}"
    caption = "Medians over the exchanges, on the slowest rank, with 95% intervals."
    body = f"<h3>{page.escape(title)}</h3>\n"
    body += page.picture(gallery.png("bench-halo", figure), f"Bars of one halo exchange: {title}", caption)
    return body + page.details("Medians as a table", page.table(head, table))


# -- a file ----------------------------------------------------------------------------------------------------


def _stamp(found: Sequence[Record]) -> str:
    """The machine that the records name."""
    meta = found[0].meta
    machine = meta.get("machine") or {}
    texts = [
        str(meta.get("mpi", "")).split(",")[0],
        f"{machine.get('cpu', 'an unknown CPU')}, {_units.cores(machine.get('cores', 0))}",
    ]
    texts += [f"tempi {machine.get('tempi', '?')}", str(machine.get("cuda", ""))]
    return "; ".join(text for text in texts if text)


def _emulated(record: Record) -> bool:
    return "EMULATED" in str((record.meta.get("machine") or {}).get("cuda", ""))


def section(name: str, found: Sequence[Record], gallery: figures.Gallery) -> str:
    """The section of one file of records; those of an emulated device are not drawn."""
    body = page.paragraph(f"{name}: {_stamp(found)}", "quiet")
    kept = [record for record in found if not _emulated(record)]
    if len(kept) < len(found):
        text = f"{len(found) - len(kept)} records are of CUDA on the CPU, a test device without meaningful times."
        body += page.paragraph(text, "note")
    for bench in dict.fromkeys(record.bench for record in kept):
        own = [record for record in kept if record.bench == bench]
        if bench == "model":
            body += _choices(own, gallery)
        elif bench == "halo":
            body += _halo(own, gallery)
        else:
            for op in dict.fromkeys(record.op for record in own):
                body += _suite(bench, op, [record for record in own if record.op == op], gallery)
    refused = suite.refusals(kept)
    return body + (page.details("Not timed, with reasons", page.bullets(refused)) if refused else "")


def objects(name: str, found: Sequence[Record]) -> Iterator[Mapping[str, object]]:
    """The scores of the choices, as JSON objects; the records themselves are JSON already."""
    for op, own in _by_op(suite_model.rows([record for record in found if record.bench == "model"])).items():
        for chooser in suite_model.CHOOSERS:
            score = asdict(suite_model.score(own, chooser))
            yield {"section": "regret", "file": name, "op": op, "chooser": chooser, **score}
