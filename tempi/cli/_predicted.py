"""The part of `tempi explain` that shows the predicted time of each method."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tempi import _engine
from tempi.model import methods, predict, store
from tempi.model.peers import BY_WORD, PEERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

    from tempi._datatypes import Datatype

__all__ = ["Forecast", "draw", "lines", "predictions", "records"]

_OPERATIONS = {"send": "a message", "pack": "MPI_Pack", "unpack": "MPI_Unpack"}
_BAR = 40  # characters of the slowest method's bar
_RULE = {"MPICH": "MPICH Version: 5", "Open MPI": "Open MPI v5"}


def _models() -> Iterator[tuple[str, predict.Model]]:
    """Each MPI library that is calibrated on this machine."""
    for _, found in store.local():
        if isinstance(found, store.Calibration) and found.mismatch() is None:
            try:
                yield found.machine.mpi, predict.Model(found.machine.table)
            except store.StoreError:
                continue  # `tempi doctor` reports it


@dataclass(frozen=True, slots=True)
class Forecast:
    """One message or call with one MPI library. `prediction` is None if there are no tables for it."""

    mpi: str
    operation: str
    peer: str
    bytes: int
    prediction: predict.Prediction | None
    acts: bool | None

    @property
    def title(self) -> str:
        """The operation, and the chosen method."""
        what = _OPERATIONS[self.operation]
        where = f" {BY_WORD[self.peer].where}" if self.operation == "send" else ""
        if self.prediction is None:
            return f"{what}{where}: not calibrated for this shape or peer; the built-in rule chooses"
        choice = "tempi carries it" if self.acts else "it is left to the library"
        return f"{what} of {self.bytes:,} B{where}: {choice}"

    @property
    def chosen(self) -> str:
        """The method's name."""
        assert self.prediction is not None
        return methods.chosen(replace(self.prediction, acts=bool(self.acts)))

    def record(self) -> dict[str, Any]:
        """One JSON object."""
        made: dict[str, Any] = {"mpi": self.mpi, "operation": self.operation, "peer": self.peer, "bytes": self.bytes}
        return made | {"prediction": asdict(self.prediction) if self.prediction else None, "acts": self.acts}


def predictions(datatype: Datatype, count: int, peer: str) -> Iterator[Forecast]:
    """For each calibrated MPI library and each operation."""
    layout = datatype.canonical()
    size = int(layout.size) * count
    for mpi, model in _models() if size else ():
        for operation in _OPERATIONS:
            forecast = model.predict(layout, size, operation, BY_WORD[peer].name)
            acts = model.acts(layout, size, operation, BY_WORD[peer].name)
            yield Forecast(mpi, operation, peer, size, forecast, acts)


def records(datatype: Datatype, count: int, peer: str) -> Iterator[dict[str, Any]]:
    """The same as JSON objects."""
    return (forecast.record() for forecast in predictions(datatype, count, peer))


def _time(seconds: float) -> str:
    micro = 1e6 * seconds
    return f"{micro:,.0f} us" if micro >= 999.5 else f"{micro:.3g} us"


def _bars(ways: Sequence[methods.Way]) -> Iterator[str]:
    slowest = max(way.seconds for way in ways)
    for way in ways:
        bar = "#" * max(1, round(_BAR * way.seconds / slowest))
        yield f"  {way.name:<8}{bar:<{_BAR}} {_time(way.seconds)}"


def _block(forecast: Forecast) -> Iterator[str]:
    yield forecast.title
    if forecast.prediction is None:
        return
    ways = methods.ways(forecast.prediction)
    yield from _bars(ways)
    for way in ways:
        if len(way.parts) > 1:
            yield f"  {'':<8}{way.name}: {' + '.join(f'{name} {_time(seconds)}' for name, seconds in way.parts)}"


def draw(axes: Sequence[Axes], found: Sequence[Forecast]) -> None:
    """One axis for each message or call that has a prediction."""
    from tempi.model import plot

    for axis, forecast in zip(axes, found, strict=True):
        assert forecast.prediction is not None
        plot.draw_ways(
            axis, methods.ways(forecast.prediction), forecast.chosen, f"{forecast.mpi.split(',')[0]}: {forecast.title}"
        )
    for axis in axes[-1:]:
        axis.set_xlabel("predicted time", fontsize=9)


def _by_rule(datatype: Datatype, count: int, peer: str) -> Iterator[str]:
    layout = datatype.canonical()
    where = PEERS.index(BY_WORD[peer])
    for name, version in _RULE.items():
        acts = _engine.lib.tempi_rule_choice(version.encode(), layout, layout.size * count, 2, where)
        yield f"  {name}: {'tempi carries it' if acts else 'it is left to the library'}"


def lines(datatype: Datatype, count: int, peer: str) -> Iterator[str]:
    """As text, with a bar for each method."""
    found = list(predictions(datatype, count, peer))
    if not found:
        yield "This machine is not calibrated (`tempi calibrate`). By the built-in rule, a message:"
        yield from _by_rule(datatype, count, peer)
        return
    for number, forecast in enumerate(found):
        if number == 0 or found[number - 1].mpi != forecast.mpi:
            yield f"Predicted with {forecast.mpi}:"
        yield from _block(forecast)
