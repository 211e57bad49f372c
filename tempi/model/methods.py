"""The methods in a prediction for one message; the only place that knows its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tempi.model.predict import Prediction

__all__ = ["LIBRARY", "Way", "by_name", "chosen", "ways"]

LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Way:
    """A method and its predicted time: seconds of its parts, in order of execution."""

    name: str
    parts: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.parts)


def ways(prediction: Prediction) -> tuple[Way, ...]:
    """Every method with a prediction, the library's first."""
    parts = (("pack", prediction.pack), ("message", prediction.message), ("unpack", prediction.unpack))
    own = tuple((name, seconds) for name, seconds in parts if seconds > 0)
    return Way(LIBRARY, ((LIBRARY, prediction.library),)), Way("tempi", own)


def chosen(prediction: Prediction) -> str:
    """The name of the chosen method."""
    return "tempi" if prediction.acts else LIBRARY


def by_name(prediction: Prediction) -> dict[str, Way]:
    """`ways` as a mapping by name."""
    return {way.name: way for way in ways(prediction)}
