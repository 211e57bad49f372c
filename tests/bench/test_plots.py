from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tempi.bench import plots
from tempi.bench.stats import Interval

pytestmark = pytest.mark.once

EXCHANGE = {"library": Interval(1.9e-3, 2e-3, 2.1e-3), "tempi": Interval(0.9e-3, 1e-3, 1.1e-3)}
PHASES = {
    "library": {"post": 1e-5, "send": 1e-3, "wait": 1e-3},
    "tempi": {"post": 1e-5, "send": 4e-4, "wait": 6e-4},
}


SPEEDUPS = {"tempi": Interval(1.8, 1.97, 2.1)}


def _texts(axis: Axes) -> str:
    return " ".join(text.get_text() for text in axis.texts)


def test_halo_has_a_bar_for_each_phase_and_the_speed_up() -> None:
    axis = Figure().subplots()
    plots.draw_halo(axis, EXCHANGE, PHASES, SPEEDUPS)
    assert len(axis.patches) == 6
    assert [label.get_text() for label in axis.get_yticklabels()] == ["library", "tempi"]
    assert _texts(axis).count("1.97x") == 1


def test_halo_phases_fill_the_exchange() -> None:
    axis = Figure().subplots()
    plots.draw_halo(axis, EXCHANGE, PHASES, SPEEDUPS)
    widths = [patch.get_width() for patch in axis.patches]  # type: ignore[attr-defined]
    assert abs(sum(widths[:3]) - 2.0) < 1e-9
    assert abs(sum(widths[3:]) - 1.0) < 1e-9


def test_a_slowdown_is_drawn_as_one() -> None:
    axis = Figure().subplots()
    slow = {"library": EXCHANGE["tempi"], "tempi": EXCHANGE["library"]}
    plots.draw_halo(axis, slow, PHASES, {"tempi": Interval(0.4, 0.5, 0.6)})
    assert "0.50x" in _texts(axis)


def test_speed_ups_are_points_by_run() -> None:
    axis = Figure().subplots()
    points = {"4 KiB": [(8, Interval(1.0, 2.0, 3.0)), (64, Interval(0.5, 0.6, 0.7))], "1 MiB": []}
    plots.draw_speedups(axis, points, "pack")
    assert axis.has_data()
    assert axis.get_title() == "pack"
    legend = axis.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["4 KiB", "1 MiB"]


def test_save_makes_the_directory_and_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "results" / "halo.png"
    plots.save(path, "title", [lambda axis: plots.draw_halo(axis, EXCHANGE, PHASES, SPEEDUPS)])
    assert path.read_bytes().startswith(b"\x89PNG")
