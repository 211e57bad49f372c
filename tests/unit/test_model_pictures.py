"""The data of the model's pictures: kinds of shapes, curves, maps, bars of any number of methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from tempi import _units
from tempi.model import grid, methods, plot, predict, store, survey
from tempi.model.methods import Way

FIVE = (
    Way("library", (("library", 9e-6),)),
    Way("device", (("pack", 1e-6), ("message", 2e-6), ("unpack", 1e-6))),
    Way("one-shot", (("pack", 3e-6), ("message", 1e-6), ("unpack", 3e-6))),
    Way("staged", (("pack", 1e-6), ("copy", 1e-6), ("message", 1e-6), ("copy back", 1e-6), ("unpack", 1e-6))),
    Way("pipelined", (("pack and copy", 5e-6), ("message", 1e-6))),
)


def test_numbers_have_three_digits_and_a_unit() -> None:
    assert [_units.seconds(value) for value in (2.857e-6, 9.999e-4, 0.5e-9, 61.0)] == [
        "2.86 µs",
        "1 ms",
        "0.5 ns",
        "61 s",
    ]
    assert [_units.size(value) for value in (64, 1023, 65536, 66248, 16 << 20)] == [
        "64 B", "1023 B", "64 KiB", "64.7 KiB", "16 MiB",
    ]  # fmt: skip
    assert [_units.cores(1), _units.cores(2)] == ["1 core", "2 cores"]
    assert _units.rate(3.14159e9) == "3.14 GB/s"


def test_each_method_has_a_colour_of_its_own() -> None:
    palette = plot.colours(way.name for way in FIVE)
    assert list(palette) == [way.name for way in FIVE]
    assert len(set(palette.values())) == 5
    assert plot.colours(["tempi", "library"])["library"] == palette["library"]


def test_the_bars_of_all_methods_are_their_parts_and_one_is_chosen() -> None:
    axis = Figure().subplots()
    plot.draw_ways(axis, FIVE, "device", "a message")
    widths = [patch.get_width() for patch in axis.patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([seconds for way in FIVE for _, seconds in way.parts])
    ends = {round(patch.get_y()): patch.get_x() + patch.get_width() for patch in axis.patches}  # type: ignore[attr-defined]
    assert list(ends.values()) == pytest.approx([way.seconds for way in FIVE])
    assert [label.get_text() for label in axis.get_yticklabels()] == [way.name for way in FIVE]
    texts = [text.get_text() for text in axis.texts]
    assert [text for text in texts if "chosen" in text] == ["  4 µs  chosen"]
    assert any("copy back 1 µs" in text for text in texts)


def test_methods_are_those_of_the_prediction() -> None:
    prediction = predict.Prediction(library=9.0, host=6.0, pack=1.0, message=2.0, unpack=3.0, acts=True)
    assert {way.name: way.seconds for way in methods.ways(prediction)} == {"library": 9.0, "tempi": 6.0}
    assert methods.chosen(prediction) == "tempi"
    local = predict.Prediction(library=1.0, host=2.0, pack=2.0, message=0.0, unpack=0.0, acts=False)
    assert methods.by_name(local)["tempi"].parts == (("pack", 2.0),)
    assert methods.chosen(local) == "library"


def test_every_column_that_is_calibrated_has_a_kind() -> None:
    columns = {*grid.columns(True), *grid.columns(False), grid.PLAIN}
    kinds: dict[str, list[grid.Column]] = {}
    for column in columns:
        kinds.setdefault(survey.kind(column)[0].title, []).append(column)
    assert len(kinds) == 12
    assert all(column.stride <= 2 * column.run for column in kinds["regular, close together"])
    assert all(column.stride >= grid.PAGE for column in kinds["regular, pages apart"])
    assert {column.family for column in kinds["regular, sharing sets of the cache"]} == {"aliased"}


def calibration(times: Mapping[str, float]) -> store.Calibration:
    """Nanoseconds a byte of each quantity, over two runs and three sizes, to one peer class."""
    points = []
    for quantity, factor in times.items():
        peer = "other" if quantity in grid.MESSAGES else None
        for column in (grid.PLAIN,) if quantity == "contiguous" else (COLUMN, grid.Column("regular", 64, 128)):
            for size in (256, 4096, 65536):
                points.append(store.Point(quantity, column, size, peer, (1e-9 * factor * size,) * 7))
    return store.Calibration(store.machine("some MPI"), tuple(points))


COLUMN = grid.Column("regular", 8, 16)
EVEN = {"library_message": 4.0, "contiguous": 1.0, "stage_pack": 1.0, "stage_unpack": 1.0}


def test_a_slice_has_the_distinguishing_fields_of_a_point() -> None:
    found = survey.slices(calibration(EVEN))
    assert [dict(each.names) for each in found] == [
        {"quantity": "stage_pack"},
        {"quantity": "stage_unpack"},
        {"quantity": "contiguous", "peer": "other"},
        {"quantity": "library_message", "peer": "other"},
    ]
    assert [len(each.points) for each in found] == [6, 6, 3, 6]


def test_curves_go_through_the_points_and_never_decrease() -> None:
    sizes, times = (64, 256, 1024, 4096), (1e-6, 3e-6, 2e-6, 8e-6)
    points = tuple(store.Point("own_pack", COLUMN, n, None, (t,) * 9) for n, t in zip(sizes, times, strict=True))
    nodes = survey.curve(survey.Slice({"quantity": "own_pack"}, points))[COLUMN]
    assert [size for size, _ in nodes] == list(sizes)
    assert [nodes[0][1], nodes[3][1]] == pytest.approx([1e-6, 8e-6])
    assert nodes[1][1] == pytest.approx(6e-12**0.5)  # two that fall are pooled, in logarithms
    assert all(a[1] <= b[1] * (1 + 1e-12) for a, b in pairwise(nodes))


@pytest.mark.parametrize(("factor", "name", "times"), [(4.0, "tempi", 4 / 3), (1.5, "library", 2.0)])
def test_maps_are_the_engines_choice(factor: float, name: str, times: float) -> None:
    (field,) = survey.fields_of(calibration(EVEN | {"library_message": factor}))
    assert field.peer == "other"
    assert (field.sizes[0], field.sizes[-1], field.runs[0], field.runs[-1]) == (256, 65536, 8, 64)
    assert len(field.predictions) == len(field.sizes) * len(field.runs)
    assert {field.winner(*place)[0] for place in field.predictions} == {name}  # type: ignore[index]
    assert field.winner(4096, 8) == pytest.approx((name, times))
    assert survey.winners(field) == {name: pytest.approx((1.0, times))}


def test_each_map_has_equal_weight_however_many_points_it_has() -> None:
    (tempi,) = survey.fields_of(calibration(EVEN))
    (library,) = survey.fields_of(calibration(EVEN | {"library_message": 1.0}))
    few = dict(list(library.predictions.items())[:3])
    shares = survey.winners(tempi, replace(library, predictions=few))
    assert shares == {"tempi": pytest.approx((0.5, 4 / 3)), "library": pytest.approx((0.5, 3.0))}


def test_there_is_no_map_where_a_part_is_missing() -> None:
    assert not list(survey.fields_of(calibration({name: EVEN[name] for name in list(EVEN)[:3]})))


def test_a_map_has_the_winners_colour_paler_where_it_gains_less() -> None:
    (field,) = survey.fields_of(calibration(EVEN))
    palette = plot.colours(field.names)
    axis: Axes = Figure().subplots()
    plot.draw_winners(axis, field, palette)
    (mesh,) = (each for each in axis.collections if type(each).__name__ == "QuadMesh")
    drawn = np.asarray(mesh.get_array()).reshape(-1, 3)
    strength = 0.2 + 0.8 * np.log(4 / 3) / np.log(plot.FULL)
    assert drawn == pytest.approx(np.tile(1 - strength * (1 - np.array(to_rgb(palette["tempi"]))), (len(drawn), 1)))
    assert len(axis.collections[-1].get_offsets()) == len(field.nodes) == 6  # type: ignore[arg-type]


def test_heat_maps_have_every_median_and_mark_what_is_not_stable() -> None:
    import matplotlib as mpl
    from matplotlib.colors import LogNorm

    steady = store.Point("own_pack", COLUMN, 64, None, (1e-6,) * 9)
    shaky = store.Point("own_pack", COLUMN, 256, None, (2e-6,) * 3)
    axis = Figure().subplots()
    own = survey.Slice({"quantity": "own_pack"}, (steady, shaky))
    plot.draw_heat(axis, own, [COLUMN], LogNorm(1e7, 1e9), mpl.colormaps["cividis"])
    assert [text.get_text() for text in axis.texts][:2] == ["1 µs", "2 µs"]
    assert len(axis.patches) == 1
    assert [label.get_text() for label in axis.get_xticklabels()] == ["64 B", "256 B"]
