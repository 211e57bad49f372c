"""Confidence in a calibration's choices: would other samples of the machine choose differently, and at what cost?

The bootstrap (Efron, 1979) over each point's rounds, since samples of one round see the same machine state:

1. A point's rounds are resampled with replacement, and their middle half is averaged, in logarithms. The deviations
   are widened by sqrt(n / (n - 1)), the bias of small n, and outliers are moved nearer. A point measured once gets the
   pooled deviations of all the others: it is assumed to be as noisy.
2. Subjects of one point were interleaved, so the same rounds are drawn for all of them: a round that was slow for all
   decides nothing.
3. Each draw chooses, as the engine does from its tables, at the measured places. A choice is in doubt if more than
   `DOUBT` of the draws choose another method than all samples together; its cost is the extra time of its method in a
   draw over the best method there.

Not included is anything that no round saw: a slower machine tomorrow, or the interpolation between the points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tempi.model import grid, samples, store, survey

__all__ = ["DOUBT", "Choice", "Doubt", "Verdict", "choices", "verdict"]

DRAWS = 200
DOUBT = 0.05  # fraction of the draws
MARGIN = 0.03  # TEMPI_MODEL_MARGIN: between equals the library's method is chosen
SMALL = 0.01  # a cost too small to justify another calibration
OUT = 3.0
_NORMAL = 1.4826  # the standard deviation of normal values over the median of their distances from the middle
LIBRARY = "library"
_SEED = 1

Floats = npt.NDArray[np.float64]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One operation on one shape at one size. `ways`: seconds are the sum of the points of those quantities."""

    operation: str
    column: grid.Column
    size: int
    peer: str | None
    way: str
    flips: float  # fraction of the draws that choose another method
    loss: float  # mean over the draws of the chosen method's extra cost, relative to the best one's time
    if_wrong: float  # the same over the draws that choose another method

    @property
    def doubtful(self) -> bool:
        return self.flips > DOUBT

    @property
    def group(self) -> tuple[str, str, survey.Kind]:
        return self.operation, self.peer or "", survey.kind(self.column)[0]


@dataclass(frozen=True, slots=True)
class Doubt:
    """The doubtful choices of one kind of operation. `loss`: the median of their cost, if wrong."""

    operation: str
    peer: str
    kind: str
    smallest: int
    largest: int
    doubtful: int
    choices: int
    loss: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Over all choices. `loss`: expected mean; `if_wrong`: for the doubtful ones the median, and the limit that 19 of
    20 stay below."""

    choices: int
    sure: int
    loss: float
    if_wrong: tuple[float, float]
    doubts: tuple[Doubt, ...]  # the most costly first

    @property
    def good(self) -> bool:
        """Whether another calibration cannot improve the choices noticeably."""
        return self.loss <= SMALL


# -- draws ----------------------------------------------------------------------------------------------------


def _middle(values: Floats) -> Floats:
    """The mean of the middle half along the last axis, as in `samples.typical`."""
    n = values.shape[-1]
    aside = n // 4
    return np.asarray(np.sort(values, axis=-1)[..., aside : n - aside].mean(axis=-1))


def _deviations(visits: Sequence[Floats]) -> Floats:
    """Deviations from each point's middle, widened for the small number of rounds."""
    rows = np.stack(visits)
    n = rows.shape[1]
    return np.asarray((rows - np.median(rows, axis=1, keepdims=True)) * math.sqrt(n / (n - 1)))


def _clipped(deviations: Floats, usual: float) -> Floats:
    """Clips deviations beyond `OUT` standard deviations, estimated by the median deviation of the point or of most
    points: they come from other work on the machine, which the tables ignore."""
    own = np.median(np.abs(deviations), axis=1, keepdims=True)
    bound = OUT * _NORMAL * np.maximum(own, usual)
    return np.asarray(np.clip(deviations, -bound, bound))


class _Draws:
    """Seconds of each point, one per draw."""

    def __init__(self, points: Sequence[store.Point]) -> None:
        self._random = np.random.default_rng(_SEED)
        self._made: dict[Key, Floats] = {}
        by_visits: dict[int, list[tuple[store.Point, Floats]]] = {}
        for point in points:
            visits = np.log(np.asarray(point.apart, np.float64))
            by_visits.setdefault(visits.size, []).append((point, visits))
        by_number = {n: _deviations([visits for _, visits in found]) for n, found in by_visits.items() if n > 1}
        far = [np.median(np.abs(own), axis=1) for own in by_number.values()]
        usual = float(np.median(np.concatenate(far))) if far else 0.0
        pool = np.zeros(1)
        for n, own in by_number.items():
            clipped = _clipped(own, usual)
            pool = np.concatenate([pool, clipped.ravel()])
            self._add([point for point, _ in by_visits[n]], clipped, n)
        self._add_pooled([point for point, _ in by_visits.get(1, ())], pool)

    def _add(self, points: Sequence[store.Point], deviations: Floats, n: int) -> None:
        chosen = self._random.integers(0, n, (DRAWS, n))
        moved = _middle(deviations[:, chosen]) - _middle(deviations)[:, None]
        for point, own in zip(points, moved, strict=True):
            self._made[point.key] = point.typical * np.exp(own)

    def _add_pooled(self, points: Sequence[store.Point], pool: Floats) -> None:
        for point in points:
            self._made[point.key] = point.typical * np.exp(self._random.choice(pool, DRAWS))

    def __getitem__(self, key: Key) -> Floats:
        return self._made[key]


# -- alternatives -------------------------------------------------------------------------------------------------

Ways = Mapping[str, Sequence[Key]]


def _host_contests(known: Mapping[Key, store.Point]) -> Iterator[tuple[str, store.Point, Ways]]:
    whole = {"library_message": ("a message", "host_message"), "library_pack": ("MPI_Pack", "own_pack"),
             "library_unpack": ("MPI_Unpack", "own_unpack")}  # fmt: skip
    for key, point in known.items():
        operation, own = whole.get(point.quantity, ("", ""))
        other = (own, *key[1:])
        if point.memory is None and other in known:
            yield operation, point, {LIBRARY: [key], "tempi": [other]}


def _device_contests(known: Mapping[Key, store.Point]) -> Iterator[tuple[str, store.Point, Ways]]:
    """Messages, by the sums of their parts; packed bytes have no shape."""
    peers = {point.peer for point in known.values() if point.quantity == "pinned_message"}
    for point in known.values():
        if point.quantity != "device_pack":
            continue
        for peer in sorted(peers, key=str):
            ways = {way: keys for way, keys in _device_ways(point, peer).items() if all(key in known for key in keys)}
            if len(ways) > 1:
                yield (
                    f"a message of {point.memory} memory",
                    store.Point(point.quantity, point.column, point.size, peer, point.seconds, point.memory),
                    ways,
                )


def _device_ways(point: store.Point, peer: str | None) -> dict[str, list[Key]]:
    shape, size, memory = point.column, point.size, point.memory

    def shaped(name: str, whose: str | None = None) -> Key:
        return name, shape, size, whose, memory

    def flat(name: str, whose: str | None = None) -> Key:
        return name, grid.PLAIN, size, whose, memory

    return {
        LIBRARY: [shaped("device_library", peer)],
        "device": [shaped("device_pack"), flat("device_message", peer), shaped("device_unpack")],
        "oneshot": [shaped("mapped_pack"), flat("pinned_message", peer), shaped("mapped_unpack")],
        "staged": [shaped("device_pack"), flat("copy_out"), flat("pinned_message", peer), flat("copy_in"),
                   shaped("device_unpack")],
    }  # fmt: skip


def choices(calibration: store.Calibration) -> list[Choice]:
    """Choices for every operation that was measured with both the library and tempi."""
    known = {point.key: point for point in calibration.points}
    contests = [*_host_contests(known), *_device_contests(known)]
    needed = {key: known[key] for _, _, ways in contests for keys in ways.values() for key in keys}
    draws = _Draws(list(needed.values()))
    call = store.call_seconds(point for point in calibration.points if point.memory is None)
    return [_choice(operation, point, ways, needed, draws, call) for operation, point, ways in contests]


def _choice(
    operation: str, point: store.Point, ways: Ways, known: Mapping[Key, store.Point], draws: _Draws, call: float
) -> Choice:
    names = list(ways)
    # A message needs a decision at both ends; the time of MPI_Pack includes its decision.
    decided = np.array([2 * call if name != LIBRARY and operation == "a message" else 0.0 for name in names])
    drawn = np.stack([sum((draws[key] for key in ways[name]), np.zeros(DRAWS)) for name in names]) + decided[:, None]
    typical = np.array([sum(known[key].typical for key in ways[name]) for name in names]) + decided
    favour = np.array([1 - MARGIN if name == LIBRARY else 1.0 for name in names])
    way = int(np.argmin(typical * favour))
    other = np.argmin(drawn * favour[:, None], axis=0) != way
    loss = drawn[way] / drawn.min(axis=0) - 1
    if_wrong = float(loss[other].mean()) if other.any() else 0.0
    return Choice(
        operation, point.column, point.size, point.peer, names[way], float(other.mean()), float(loss.mean()), if_wrong
    )


# -- verdict ---------------------------------------------------------------------------------------------------------


def _doubts(found: Iterable[Choice]) -> list[Doubt]:
    groups: dict[tuple[str, str, survey.Kind], list[Choice]] = {}
    for one in found:
        groups.setdefault(one.group, []).append(one)
    made = []
    for (operation, peer, kind), own in groups.items():
        doubtful = [one for one in own if one.doubtful]
        if doubtful:
            sizes = [one.size for one in doubtful]
            loss = samples.median([one.if_wrong for one in doubtful])
            made.append(Doubt(operation, peer, kind.title, min(sizes), max(sizes), len(doubtful), len(own), loss))
    return sorted(made, key=lambda one: -one.doubtful * one.loss)


def verdict(calibration: store.Calibration) -> Verdict | None:
    """None if no measured operation has a choice."""
    found = choices(calibration)
    if not found:
        return None
    wrong = [one.if_wrong for one in found if one.doubtful]
    return Verdict(
        len(found),
        sum(not one.doubtful for one in found),
        math.fsum(one.loss for one in found) / len(found),
        (float(np.median(wrong)), float(np.percentile(wrong, 95))) if wrong else (0.0, 0.0),
        tuple(_doubts(found)),
    )
