"""Data for the pictures of a calibration: points in slices, shapes in kinds, the winner over size and run."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tempi.expression import parse
from tempi.model import grid, methods, predict, store, tables

__all__ = ["Field", "Kind", "Slice", "curve", "fields_of", "kind", "model_of", "slices", "winners"]

_OF_COLUMN = ("column", "size", "seconds", "visits")  # fields that place a point within its slice
STEPS = 4  # of the maps, per octave


@dataclass(frozen=True, slots=True)
class Slice:
    """All points of one quantity, peer class and the other distinguishing fields."""

    names: Mapping[str, str]  # the point's other fields, by their names
    points: tuple[store.Point, ...]

    @property
    def title(self) -> str:
        rest = ", ".join(f"{name} {value}" for name, value in self.names.items() if name != "quantity")
        return self.names["quantity"] + (f", {rest}" if rest else "")

    @property
    def columns(self) -> list[grid.Column]:
        return sorted({point.column for point in self.points}, key=kind)

    @property
    def at(self) -> dict[tuple[grid.Column, int], store.Point]:
        return {(point.column, point.size): point for point in self.points}


def slices(calibration: store.Calibration) -> list[Slice]:
    """In the order of the quantities and peers; omits fields that are None."""
    names = [field.name for field in fields(store.Point) if field.name not in _OF_COLUMN]
    found: dict[tuple[Any, ...], list[store.Point]] = {}
    for point in calibration.points:
        found.setdefault(tuple(getattr(point, name) for name in names), []).append(point)
    made = [
        Slice({name: str(value) for name, value in zip(names, key, strict=True) if value is not None}, tuple(points))
        for key, points in found.items()
    ]
    order = [*grid.QUANTITIES, *grid.BESIDE]
    peers = ["", *grid.PEERS]
    return sorted(made, key=lambda one: (order.index(one.names["quantity"]), peers.index(one.names.get("peer", ""))))


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """A class of shapes that libraries and caches treat alike."""

    place: int
    title: str


_KINDS = (
    "bytes in one piece", "regular, close together", "regular, lines apart", "regular, pages apart",
    "regular, sharing sets of the cache", "one run an element", "one run an element, pages apart", "transposed",
    "irregular", "short rows", "one run an element, behind its start", "irregular, runs of unlike lengths",
)  # fmt: skip


def _place(column: grid.Column) -> int:
    if column == grid.PLAIN:
        return 0
    if column.family == "elements":
        return 6 if column.stride >= grid.PAGE and column.stride > 2 * column.run else 5
    if column.family == "regular":
        return (
            3 if column.stride >= grid.PAGE and column.stride > 2 * column.run else 1 + (column.stride > 2 * column.run)
        )
    others = {"aliased": 4, "transposed": 7, "irregular": 8, "nested": 9, "fields": 10, "varied": 11}
    return others.get(column.family, len(_KINDS))


def kind(column: grid.Column) -> tuple[Kind, grid.Column]:
    """The kind of a column, and the column, so that columns sort by kind."""
    place = _place(column)
    return Kind(place, _KINDS[place] if place < len(_KINDS) else column.family), column


def curve(own: Slice) -> dict[grid.Column, list[tuple[int, float]]]:
    """The tables' values along the sizes: (bytes, seconds) at the nodes, log-linear between them."""
    made: dict[grid.Column, list[tuple[int, float]]] = {}
    for column in own.columns:
        # Treated as regular, even if it corrects another family.
        alone = replace(column, family="regular") if column.family in grid.CORRECTIONS else column
        points = {replace(point, column=alone).key: point.typical for point in own.points if point.column == column}
        (table,) = tables.build(points)
        sizes = sorted({point.size for point in own.points if point.column == column})
        made[column] = [(size, math.exp(value)) for size, value in zip(sizes, table.seconds[0][0], strict=True)]
    return made


# -- which way wins where -----------------------------------------------------------------------------------


def model_of(calibration: store.Calibration) -> predict.Model:
    """The engine's model of the calibration, wherever the calibration comes from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.table"
        path.write_bytes(store.table_of(calibration))
        return predict.Model(path)  # mapped: the file itself may be removed


def _example(column: grid.Column) -> str:
    """A small datatype of that shape; the size of a message is passed separately."""
    run, stride = column.run, column.stride
    match column.family:
        case "regular" | "aliased":
            return f"hvector(4, {run}, {stride}, BYTE)"
        case "nested":
            return f"hvector(4, 1, {5 * stride}, hvector(4, {run}, {stride}, BYTE))"
        case "fields":
            return f"resized(0, {stride}, hindexed_block({run}, [8], BYTE))"
        case "varied":
            places = [run * place for place in (0, 2, 7, 9, 20, 23)]
            return f"hindexed({[run] * 5 + [run + 1]}, {places}, BYTE)"
        case "elements":
            return f"resized(0, {stride}, contiguous({run}, BYTE))"
        case "transposed":
            return f"hvector(5, 1, {run}, vector(5, 1, 5, contiguous({run}, BYTE)))"
        case _:
            return f"hindexed_block({run}, {[run * place for place in (0, 2, 7, 9, 20, 23)]}, BYTE)"


def _strides(column: grid.Column, run: int) -> int:
    """The stride of that kind for another run."""
    return max(column.stride, 2 * run) if column.stride else 0


@dataclass(frozen=True, slots=True)
class Field:
    """Predictions for one kind of shapes over packed size and run, to one peer class."""

    title: str
    peer: str
    sizes: tuple[int, ...]
    runs: tuple[int, ...]
    nodes: frozenset[tuple[int, int]]  # (size, run) that were measured
    predictions: Mapping[tuple[int, int], predict.Prediction]  # by (size, run)

    @property
    def names(self) -> list[str]:
        """The methods that have predictions."""
        return list(
            dict.fromkeys(way.name for prediction in self.predictions.values() for way in methods.ways(prediction))
        )

    def winner(self, size: int, run: int) -> tuple[str, float] | None:
        """The method chosen there, and the next best one's time over its time; None: not predicted."""
        prediction = self.predictions.get((size, run))
        if prediction is None:
            return None
        times = {name: way.seconds for name, way in methods.by_name(prediction).items()}
        name = methods.chosen(prediction)
        own = times.pop(name)
        return name, min(times.values(), default=own) / own


def _steps(low: int, high: int) -> list[int]:
    """Values from `low` to `high`, `STEPS` an octave; multiples of 4, so that types can have them."""
    n = max(1, round(STEPS * math.log2(high / low)))
    made = (low * (high / low) ** (step / n) for step in range(n + 1))
    return sorted({max(4, 4 * round(value / 4)) for value in made})


def _columns_of(kinds: Iterable[grid.Column]) -> dict[tuple[Kind, int], list[grid.Column]]:
    """Columns by kind; those of lines and pages also by stride."""
    made: dict[tuple[Kind, int], list[grid.Column]] = {}
    for column in kinds:
        own, _ = kind(column)
        stride = column.stride if own.place in (2, 3, 4) else 0
        made.setdefault((own, stride), []).append(column)
    return made


def fields_of(calibration: store.Calibration, *, quantity: str = "library_message") -> Iterator[Field]:
    """One field for each peer class and kind of shapes with measured messages."""
    model = model_of(calibration)
    for peer in calibration.peers:
        points = [point for point in calibration.points if point.quantity == quantity and point.peer == peer]
        for (own, stride), columns in sorted(_columns_of({point.column for point in points}).items()):
            if stride and len(columns) < 2 and own.place == 2:
                continue  # too few runs were measured with this stride
            measured = [point for point in points if point.column in columns]
            made = _field(model, own.title, peer, measured)
            if made.predictions:  # an interrupted calibration may lack parts
                yield made


def _field(model: predict.Model, title: str, peer: str, measured: list[store.Point]) -> Field:
    runs = sorted({point.column.run for point in measured})
    first = min(measured, key=lambda point: point.column).column
    sizes = sorted({point.size for point in measured})
    strides = {point.column.run: point.column.stride for point in measured}
    stepped = sorted({*_steps(runs[0], runs[-1]), *runs}) if len(runs) > 1 else runs
    along = sorted({*_steps(sizes[0], sizes[-1]), *sizes})
    predictions = {}
    for run in stepped:
        stride = strides.get(run) or _stride_for(first, run, strides)
        layout = parse(_example(grid.Column(first.family, run, stride))).canonical()
        for size in along:
            if size >= run and (found := model.predict(layout, size, "send", peer)) is not None:
                predictions[size, run] = found
    nodes = frozenset((point.size, point.column.run) for point in measured)
    text = f"{title} ({_stride_text(strides)})" if first.stride else title
    return Field(text, peer, tuple(along), tuple(stepped), nodes, predictions)


def _stride_for(first: grid.Column, run: int, strides: Mapping[int, int]) -> int:
    """The stride between two measured runs: in proportion if strides grow with the runs."""
    if not first.stride:
        return 0
    below = max((known for known in strides if known <= run), default=min(strides))
    above = min((known for known in strides if known >= run), default=max(strides))
    if strides[below] == strides[above]:
        return strides[below]
    if strides[below] * above == strides[above] * below:
        return run * strides[below] // below
    return max(strides[below], 2 * run)


def _stride_text(strides: Mapping[int, int]) -> str:
    times = {stride / run for run, stride in strides.items()}
    if len(set(strides.values())) == 1:
        return f"every {next(iter(strides.values())):,} B"
    return f"every {times.pop():g} runs" if len(times) == 1 else f"every {min(strides.values()):,} B and more"


def winners(*maps: Field) -> dict[str, tuple[float, float]]:
    """The methods that win anywhere, most frequent first: their share of the maps, each map with equal weight, and
    their median factor."""
    found: dict[str, list[tuple[float, float]]] = {}
    for own in maps:
        for place in own.predictions:
            won = own.winner(*place)
            if won is not None:
                found.setdefault(won[0], []).append((won[1], 1 / len(own.predictions)))
    made = {name: (sum(weight for _, weight in won) / len(maps), _middle(won)) for name, won in found.items()}
    return dict(sorted(made.items(), key=lambda each: -each[1][0]))


def _middle(weighted: list[tuple[float, float]]) -> float:
    """The median of (value, weight) pairs."""
    half = sum(weight for _, weight in weighted) / 2
    for value, weight in sorted(weighted):
        half -= weight
        if half <= 0:
            return value
    return max(weighted)[0]
