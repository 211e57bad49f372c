"""The ways that one message can go, as a prediction has them: the one place that knows its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tempi.model.predict import Prediction

__all__ = ["LIBRARY", "Way", "by_name", "chosen", "ways"]

LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Way:
    """A method and what it is predicted to take: seconds of its parts, in the order in which they happen."""

    name: str
    parts: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.parts)


def ways(told: Prediction) -> tuple[Way, ...]:
    """Every method that there is a prediction for, the library's first."""
    parts = (("pack", told.pack), ("message", told.message), ("unpack", told.unpack))
    own = tuple((name, seconds) for name, seconds in parts if seconds > 0)
    return Way(LIBRARY, ((LIBRARY, told.library),)), Way("tempi", own)


def chosen(told: Prediction) -> str:
    """The name of the way that is taken."""
    return "tempi" if told.acts else LIBRARY


def by_name(told: Prediction) -> dict[str, Way]:
    """The same as `ways`, to look one up."""
    return {way.name: way for way in ways(told)}
