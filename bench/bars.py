"""The bars that no case of a suite is to be behind, and how far a case is from them.

Samples of library, tempi and hand are taken in turns, so each is compared with its neighbours: where times change by a
factor of two from call to call, medians of each subject alone differ though the subjects do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tempi.bench import stats
from tempi.bench.stats import Interval

Taken = Mapping[str, Sequence[float]]

#: Seconds. In the shortest cases the call itself, which a hand-written loop lacks, takes longer than these fractions.
CALL = 50e-9


@dataclass(frozen=True, slots=True)
class Bar:
    """tempi takes at most `times` as long as each of the subjects `over` that was measured."""

    text: str
    times: float
    over: tuple[str, ...]

    def behind(self, taken: Taken, subject: str = "tempi") -> Interval:
        """Seconds by which the subject misses the bar, negative if it does not."""
        allowed = ([self.times * value for value in taken[name]] for name in self.over if taken.get(name))
        return max((stats.difference(taken[subject], most) for most in allowed), key=lambda one: one.value)


#: What a program without derived datatypes does: its loops around one call, or around a message to each process.
HANDS = ("hand", "hand isend")
#: The library in tempi's place: as often as it is behind the library, tempi would be if it did nothing at all.
AGAIN = "library again"
_CALIBRATED = "bar after tempi calibrate"
BARS = (
    Bar("below 0.9 of the library (bar by default)", 1 / 0.9, ("library",)),
    Bar(f"below 0.95 of the library ({_CALIBRATED})", 1 / 0.95, ("library",)),
    Bar(f"above 1.15 x the better of library and hand ({_CALIBRATED})", 1.15, ("library", *HANDS)),
)
_OVER_LIBRARY = BARS[:2]


def _itself(taken: Taken) -> tuple[Interval, ...]:
    """Seconds that the library is behind itself, if it was measured so."""
    return tuple(bar.behind(taken, AGAIN) for bar in _OVER_LIBRARY) if taken.get(AGAIN) else ()


def doubt_of(subjects: Iterable[str], *, quick: bool) -> Callable[[Sequence[Sequence[float]]], bool]:
    """Whether samples of these subjects, in their order, may be behind a bar, by the interval: then more of them tell,
    or confirm it. False without library and tempi, and in a quick run, which takes no more."""
    names = tuple(subjects)
    if quick:
        return lambda _: False

    def in_doubt(samples: Sequence[Sequence[float]]) -> bool:
        taken = dict(zip(names, samples, strict=True))
        if not {"library", "tempi"} <= taken.keys():
            return False
        return any(behind.high > 0 for behind in (*(bar.behind(taken) for bar in BARS), *_itself(taken)))

    return in_doubt


@dataclass(frozen=True, slots=True)
class Standing:
    """One case: whether tempi acts in it or leaves it to the library, seconds behind each of BARS, and speed-ups over
    the library and over the better of library and hand. `itself`: seconds that the library is behind those of BARS
    that are over it alone, and its speed-up over itself, if it was measured against itself."""

    case: str
    acts: bool
    behind: tuple[Interval, ...]
    over_library: float
    over_better: float
    itself: tuple[Interval, ...] = ()
    over_itself: float = 1.0

    @classmethod
    def of(cls, case: str, taken: Taken, *, acts: bool) -> Standing:
        speedups = {
            name: stats.ratio(taken[name], taken["tempi"]).value for name in ("library", *HANDS) if taken.get(name)
        }
        behind = tuple(bar.behind(taken) for bar in BARS)
        itself = _itself(taken)
        over_itself = stats.ratio(taken["library"], taken[AGAIN]).value if itself else 1.0
        return cls(case, acts, behind, speedups["library"], min(speedups.values()), itself, over_itself)


def _line(found: Sequence[Standing], i: int) -> str:
    """How many are behind the i-th bar, and the names of those by more than a call.

    One is in doubt whose 95% interval contains the bar: by these samples it may as well not be behind, as the library
    may against itself. One that tempi leaves to the library is the library against itself.
    """
    behind = [one for one in found if one.behind[i].value > 0]
    line = f"{len(behind)} of {len(found)} {BARS[i].text}"
    if not behind:
        return line
    far = [one for one in behind if one.behind[i].value > CALL]
    marks = {"in doubt": [one for one in far if one.behind[i].low <= 0],
             "left to the library": [one for one in far if not one.acts]}  # fmt: skip
    counts = [f"{len(marked)} of them {mark}" for mark, marked in marks.items() if marked]
    line = ", ".join((line, f"{len(far)} by more than {1e9 * CALL:.0f} ns", *counts))
    for one in far:
        own = [mark for mark, marked in marks.items() if one in marked]
        line += f"\n  {one.case}" + (f" ({', '.join(own)})" if own else "")
    return line


def _lines_of_itself(found: Sequence[Standing]) -> list[str]:
    """How many cases would be behind if tempi left all of them to the library without any cost."""
    measured = [one for one in found if one.itself]
    if not measured:
        return []
    counts = []
    for i, bar in enumerate(_OVER_LIBRARY):
        behind = [one.itself[i].value for one in measured if one.itself[i].value > 0]
        far = sum(value > CALL for value in behind)
        more = f" ({far} by more than {1e9 * CALL:.0f} ns)" if behind else ""
        counts.append(f"{len(behind)} {bar.text.partition(' of ')[0]}{more}")
    worst = min(measured, key=lambda one: one.over_itself)
    ends = f"worst {worst.over_itself:.2f}x ({worst.case})"
    return [f"the library over itself, of {len(measured)}: {', '.join(counts)}, {ends}"]


def summary(found: Sequence[Standing]) -> list[str]:
    """The bars and the worst cases."""
    if not found:
        return []
    library = min(found, key=lambda one: one.over_library)
    better = min(found, key=lambda one: one.over_better)
    return [
        *(_line(found, i) for i in range(len(BARS))),
        f"worst over the library: {library.over_library:.2f}x ({library.case})",
        f"worst over the better of library and hand: {better.over_better:.2f}x ({better.case})",
        *_lines_of_itself(found),
    ]
