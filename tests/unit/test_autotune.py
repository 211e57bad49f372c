"""Trials of MPI_Pack's two methods on real calls (csrc/choose/autotune.c), with artificial times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI

from tempi import _engine

KIB = 1 << 10
DECLARED = """
typedef struct { uint64_t known, ours, decided, open; uint32_t epoch, queries; } tempi_choices;
typedef struct { void *trial; int way, kernel_trials; double begun; } tempi_sample;
bool tempi_autotune_acts(void *trials, tempi_choices *choices, int64_t bytes, bool guess, tempi_sample *sample);
void tempi_autotune_note(tempi_sample *sample, bool counts);
void tempi_autotune_pretend(const double *seconds);
"""
ffi = FFI()
ffi.cdef(DECLARED)
lib: Any = ffi.dlopen(_engine.library_path())


def test_the_declarations_are_those_of_the_header() -> None:
    """The structures are repeated here; with a wrong member the tests would prove nothing."""
    csrc = Path(__file__).resolve().parents[2] / "csrc" / "choose"
    choices = (csrc / "model.h").read_text().split("typedef struct tempi_choices {")[1].split("}")[0]
    assert [line.split(";")[0].split()[-1] for line in choices.splitlines() if ";" in line] == [
        *("known", "ours", "decided", "open", "epoch", "queries")
    ]


@dataclass
class Type:
    """The trials and choices of one type and operation."""

    seconds: Any
    rule: bool

    def __post_init__(self) -> None:
        self.trials = ffi.new("char[4096]")
        self.choices = ffi.new("tempi_choices *")

    def call(self, nbytes: int = KIB, counts: bool = True, kernels: bool = False) -> bool:
        """One call; whether it was tempi's. `kernels`: some were tried in it."""
        sample = ffi.new("tempi_sample *")
        ours = bool(lib.tempi_autotune_acts(self.trials, self.choices, nbytes, self.rule, sample))
        if sample.trial != ffi.NULL:
            sample.kernel_trials -= kernels and ours
            lib.tempi_autotune_note(sample, counts)
        return ours

    def settled(self) -> bool:
        return self.choices.known != 0


@pytest.fixture
def times() -> Iterator[Any]:
    """Seconds of the library's method and of tempi's."""
    seconds = ffi.new("double[2]")
    lib.tempi_autotune_pretend(seconds)
    yield seconds
    lib.tempi_autotune_pretend(ffi.NULL)


@pytest.mark.parametrize("rule", [False, True])
@pytest.mark.parametrize("scale", [1e-7, 5e-6, 1e-3])
@pytest.mark.parametrize(("library", "own", "winner"), [(1.0, 0.6, True), (0.6, 1.0, False)])
def test_the_faster_way_is_settled(
    times: Any, rule: bool, scale: float, library: float, own: float, winner: bool
) -> None:
    times[0], times[1] = library * scale, own * scale
    kind = Type(times, rule)
    ways = [kind.call() for _ in range(200)]
    assert kind.settled()
    assert set(ways[-10:]) == {winner}
    assert ways[0] == rule


@pytest.mark.parametrize("rule", [False, True])
@pytest.mark.parametrize("own", [0.98e-4, 1e-4])
def test_between_equals_the_library_has_the_call(times: Any, rule: bool, own: float) -> None:
    times[0], times[1] = 1e-4, own
    kind = Type(times, rule)
    assert {kind.call() for _ in range(120)} == {False, True}
    assert kind.settled()
    assert kind.call() is False


@pytest.mark.parametrize("seconds", [1e-7, 5e-6, 1e-4, 3e-3])
def test_a_lucky_call_does_not_decide_between_close_ways(times: Any, seconds: float) -> None:
    times[0] = 0.9 * seconds
    kind = Type(times, True)
    for i in range(300):
        times[1] = (0.8 if i % 7 == 0 else 1.0) * seconds
        kind.call()
    assert kind.settled()
    assert kind.call() is False


@pytest.mark.parametrize(("took", "waits", "most"), [(1e-3, 60, 400), (2e-7, 10_000, 40_000)])
def test_close_ways_are_compared_by_the_kernel_that_stays(times: Any, took: float, waits: int, most: int) -> None:
    """While kernels are tried, the faster ones among them do not count; but they are not tried for ever."""
    times[0], times[1] = took, 0.75 * took
    kind = Type(times, False)
    for _ in range(waits):
        kind.call(kernels=True)
    assert not kind.settled()
    times[1] = 1.1 * took
    for _ in range(160):
        kind.call()
    assert kind.settled()
    assert kind.call() is False
    endless = Type(times, False)
    for _ in range(most):
        endless.call(kernels=True)
    assert endless.settled()


def test_the_library_far_behind_has_one_turn(times: Any) -> None:
    times[0], times[1] = 10e-3, 1e-3
    kind = Type(times, True)
    assert [kind.call() for _ in range(8)].count(False) == 1


@pytest.mark.parametrize("took", [5e-6, 100e-6, 5e-3])
def test_a_slow_first_turn_of_the_library_does_not_decide(times: Any, took: float) -> None:
    """A machine may be half as fast for some turns, as if the other hyperthread had work."""
    kind = Type(times, False)
    times[0], times[1] = 2.1 * 0.9 * took, took
    while kind.call() is False:
        pass
    times[0] = 0.9 * took
    for _ in range(200):
        kind.call()
    assert kind.settled()
    assert kind.call() is False


@pytest.mark.parametrize("faster", [False, True])
@pytest.mark.parametrize("lasts", [23, 37, 61])
def test_ways_are_compared_by_neighbours(times: Any, lasts: int, faster: bool) -> None:
    """Of a machine that is half as fast in some of the calls: each way may meet it in another part of its turns."""
    wrong = 0
    for begun in range(4 * lasts):
        kind = Type(times, not faster)
        for i in range(200):
            speed = 2.2 if (begun + i) // lasts % 4 == 0 else 1
            times[faster], times[not faster] = 7.4e-6 * speed, 8e-6 * speed
            kind.call()
        assert kind.settled()
        wrong += kind.call() != faster
    assert wrong <= 0.02 * 4 * lasts


def test_a_call_that_fails_does_not_count(times: Any) -> None:
    times[0], times[1] = 1e-3, 2e-3
    kind = Type(times, True)
    for _ in range(40):
        kind.call(counts=False)
    assert not kind.settled()


def test_while_a_call_is_timed_the_rule_decides_for_others(times: Any) -> None:
    times[0], times[1] = 1e-3, 2e-3
    kind = Type(times, True)
    sample = ffi.new("tempi_sample *")
    kind.call()
    lib.tempi_autotune_acts(kind.trials, kind.choices, KIB, True, sample)
    assert sample.trial != ffi.NULL
    other = ffi.new("tempi_sample *")
    assert lib.tempi_autotune_acts(kind.trials, kind.choices, KIB, True, other)
    assert other.trial == ffi.NULL
    lib.tempi_autotune_note(sample, True)


def test_sizes_are_tried_separately(times: Any) -> None:
    times[0], times[1] = 1e-3, 5e-3
    kind = Type(times, True)
    for _ in range(40):
        kind.call(KIB)
    assert kind.call(KIB) is False
    assert kind.call(1 << 20) is True
