"""The bars of the suites: bench/bars.py."""

from __future__ import annotations

import pytest

from tempi.bench import bars

WAVE = (1.0, 2.0, 1.0, 0.5, 1.0, 2.0, 0.5)


def taken(tempi: float, library: float, hand: float | None = None) -> dict[str, list[float]]:
    """Microseconds. The machine's speed changes from sample to sample."""
    subjects = {"library": library, "tempi": tempi, **({} if hand is None else {"hand": hand})}
    return {name: [1e-6 * value * speed for speed in WAVE] for name, value in subjects.items()}


def standing(name: str, tempi: float, library: float, hand: float | None = None) -> bars.Standing:
    return bars.Standing.of(name, taken(tempi, library, hand), acts=True)


def test_cases_behind_are_counted_and_those_by_more_than_a_call_named() -> None:
    """`call` is slower by 10 ns, which is below 0.95 but not below 0.9 of the library."""
    found = [standing("even", 1, 1, 1), standing("call", 0.11, 0.1, 0.1), standing("slow", 4, 3, 2)]
    assert bars.summary(found) == [
        "1 of 3 below 0.9 of the library (bar by default), 1 by more than 50 ns\n  slow",
        "2 of 3 below 0.95 of the library (bar after tempi calibrate), 1 by more than 50 ns\n  slow",
        "1 of 3 above 1.15 x the better of library and hand (bar after tempi calibrate), 1 by more than 50 ns\n  slow",
        "worst over the library: 0.75x (slow)",
        "worst over the better of library and hand: 0.50x (slow)",
    ]
    assert bars.summary(found[:1])[:3] == [
        "0 of 1 below 0.9 of the library (bar by default)",
        "0 of 1 below 0.95 of the library (bar after tempi calibrate)",
        "0 of 1 above 1.15 x the better of library and hand (bar after tempi calibrate)",
    ]
    assert bars.summary([]) == []


def test_samples_are_compared_with_their_neighbours() -> None:
    """Medians of a machine with two speeds differ, though the subjects are equally fast in each."""
    found = {"library": [1e-6] * 4 + [2e-6] * 3, "tempi": [1e-6] * 3 + [2e-6] * 4}
    assert bars.Standing.of("even", found, acts=True).over_library == 1
    assert bars.Standing.of("even", found, acts=True).behind[0].value < 0


def test_a_case_is_in_doubt_whose_interval_contains_the_bar() -> None:
    """Of samples that vary by more than it is behind, as those of the library against itself may."""
    sure, varies = (1.2, 1.3, 1.25, 1.3, 1.2, 1.3, 1.25), (1.2, 0.7, 1.25, 1.3, 0.7, 1.3, 0.7)
    found = [bars.Standing.of(str(case), {"library": [1.0] * 7, "tempi": case}, acts=True) for case in (sure, varies)]
    assert bars.summary(found)[0] == (
        "2 of 2 below 0.9 of the library (bar by default), 2 by more than 50 ns, 1 of them in doubt"
        f"\n  {sure}\n  {varies} (in doubt)"
    )


def test_a_case_that_is_left_is_the_library_against_itself() -> None:
    found = [bars.Standing.of(f"acts {acts}", taken(4, 3), acts=acts) for acts in (True, False)]
    assert bars.summary(found)[0] == (
        "2 of 2 below 0.9 of the library (bar by default), 2 by more than 50 ns, 1 of them left to the library"
        "\n  acts True\n  acts False (left to the library)"
    )
    varies = {"library": [1.0] * 7, "tempi": [1.2, 0.7, 1.25, 1.3, 0.7, 1.3, 0.7]}
    assert bars.summary([bars.Standing.of("left", varies, acts=False)])[0].endswith(
        "1 of them in doubt, 1 of them left to the library\n  left (in doubt, left to the library)"
    )


def test_the_library_over_itself_tells_how_many_are_behind_by_chance() -> None:
    """`call` is slower by 7 ns; cases that were not measured so do not count."""
    again = {"call": taken(0.107, 0.1), "slow": taken(1.2, 1)}
    found = [
        bars.Standing.of(name, {**took, "tempi": took["library"], bars.AGAIN: took["tempi"]}, acts=False)
        for name, took in again.items()
    ]
    found.append(standing("not measured", 1, 1))
    assert [line for line in bars.summary(found) if "itself" in line] == [
        "the library over itself, of 2: 1 below 0.9 (1 by more than 50 ns), 2 below 0.95 (1 by more than 50 ns), "
        "worst 0.83x (slow)"
    ]
    assert not any("itself" in line for line in bars.summary(found[2:]))


def test_the_library_behind_itself_is_measured_again_as_tempi_would_be() -> None:
    doubt = bars.doubt_of(("library", "tempi", bars.AGAIN), quick=False)
    assert doubt([[1.0] * 7, [1.0] * 7, [1.2] * 7])
    assert not doubt([[1.0] * 7] * 3)


def test_without_hand_the_better_is_the_library() -> None:
    assert standing("", 2, 1).over_better == standing("", 2, 1, 9).over_better == 0.5
    assert standing("", 2, 9, 1).over_better == 0.5


def test_the_better_hand_counts() -> None:
    found = taken(2, 9, 4) | {"hand isend": taken(2, 9, 1)["hand"]}
    case = bars.Standing.of("", found, acts=True)
    assert case.over_better == 0.5
    assert case.behind[2].value > 0
    assert bars.doubt_of(found, quick=False)(list(found.values()))


@pytest.mark.parametrize(
    ("tempi", "library", "hand", "doubt"),
    [
        (1.0, 1.0, 1.0, False),
        (1.04, 1.0, 1.0, False),
        (1.06, 1.0, 2.0, True),  # below 0.95 of the library
        (1.16, 2.0, 1.0, True),  # above 1.15 times by hand
        (1.0, 1.0, None, False),
        (1.2, 1.0, None, True),
    ],
)
def test_cases_behind_are_in_doubt(tempi: float, library: float, hand: float | None, doubt: bool) -> None:
    found = taken(tempi, library, hand)
    assert bars.doubt_of(found, quick=False)(list(found.values())) == doubt
    assert not bars.doubt_of(found, quick=True)(list(found.values()))


def test_an_interval_that_reaches_behind_a_bar_is_in_doubt() -> None:
    tempi = [1.0, 1.2, 1.0, 1.2, 1.0, 1.0, 1.0]
    doubt = bars.doubt_of(("tempi", "library"), quick=False)
    assert doubt([tempi, [1.0] * 7])
    assert not doubt([tempi * 9, [1.0] * 63])


@pytest.mark.parametrize("names", [(), ("library", "hand"), ("tempi", "hand")])
def test_nothing_is_in_doubt_without_both(names: tuple[str, ...]) -> None:
    assert not bars.doubt_of(names, quick=False)([[1.0] * 7 for _ in names])
