"""The confidence of a calibration's choices, on artificial samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tempi.model import grid, store, sure

COLUMN = grid.Column("regular", 8, 16)
VISITS = 9


def calibration(points: Sequence[store.Point]) -> store.Calibration:
    return store.Calibration(store.machine("some MPI 1.0"), tuple(points), {"when": "now"})


def message(
    tempi: float, noise: float, *, column: grid.Column = COLUMN, size: int = 4096, visits: int = VISITS,
    shared: bool = False, seed: int = 3,
) -> list[store.Point]:  # fmt: skip
    """A message that takes the library one microsecond and tempi `tempi` microseconds. The noise is separate for each
    method, or shared by all."""
    random = np.random.default_rng(seed)
    found = []
    even = noise * np.linspace(-1.6, 1.6, visits)  # in an order by chance: the typical time is as it was given
    common = random.permutation(even)
    for quantity, seconds in (("library_message", 1e-6), ("host_message", tempi * 1e-6)):
        own = common if shared else random.permutation(even)
        times = tuple(np.repeat(seconds * np.exp(own), 3))
        found.append(store.Point(quantity, column, size, "node", times, visits=(3,) * visits if visits > 1 else ()))
    return found


def only(points: Sequence[store.Point]) -> sure.Choice:
    (found,) = sure.choices(calibration(points))
    return found


@pytest.mark.parametrize(("tempi", "way"), [(0.5, "tempi"), (0.99, "library"), (2.0, "library")])
def test_without_noise_every_choice_is_sure(tempi: float, way: str) -> None:
    found = only(message(tempi, 0.0))
    assert (found.way, found.flips, found.doubtful) == (way, 0.0, False)
    assert found.loss == pytest.approx(max(0.0, 1 / tempi - 1) if way == "library" else 0.0)


def test_a_winner_within_the_noise_is_in_doubt_and_a_clear_one_is_not() -> None:
    close = only(message(0.93, 0.2))
    assert close.doubtful
    assert 0.005 < close.if_wrong < 0.4
    clear = only(message(0.4, 0.2))
    assert not clear.doubtful
    assert clear.loss < 0.01


def test_noise_that_all_ways_share_decides_nothing() -> None:
    assert only(message(0.9, 0.5)).doubtful
    assert not only(message(0.9, 0.5, shared=True)).doubtful


def test_one_outlying_round_causes_no_doubt() -> None:
    points = message(0.5, 0.02)
    other = store.Point(
        "host_message", COLUMN, 4096, "node", (*points[1].seconds[:-3], *(50 * s for s in points[1].seconds[-3:])),
        visits=points[1].visits,
    )  # fmt: skip
    assert not only([points[0], other]).doubtful


def test_a_point_measured_once_is_assumed_to_be_as_noisy_as_the_others() -> None:
    noisy = [p for n in range(9) for p in message(0.5, 0.3, column=grid.Column("regular", 8, 64 + n), seed=n)]
    once = [
        store.Point(name, COLUMN, 4096, "node", (seconds,))
        for name, seconds in (("library_message", 1e-6), ("host_message", 0.9e-6))
    ]
    found = {choice.column: choice for choice in sure.choices(calibration([*noisy, *once]))}
    assert found[COLUMN].doubtful
    assert only(once).flips == 0.0  # no information about noise


def test_packs_are_judged_beside_messages() -> None:
    packs = [
        store.Point(name, COLUMN, 256, None, (seconds,) * 9)
        for name, seconds in (("library_pack", 1e-6), ("own_pack", 0.5e-6), ("library_unpack", 1e-6))
    ]
    found = sure.choices(calibration([*packs, *message(0.5, 0.0)]))
    assert {(choice.operation, choice.way) for choice in found} == {("MPI_Pack", "tempi"), ("a message", "tempi")}


def test_device_memory_is_judged_by_sums_of_parts() -> None:
    flat = {"copy_out": 5e-6, "copy_in": 5e-6, "pinned_message": 1e-6}
    shaped = {"device_pack": 2e-6, "device_unpack": 2e-6, "mapped_pack": 3e-6, "mapped_unpack": 3e-6}
    points = [
        store.Point(name, grid.PLAIN, 4096, "node" if "message" in name else None, (seconds,) * 7, "device")
        for name, seconds in flat.items()
    ]

    def with_kernels(slower: float) -> sure.Choice:
        """Of mapped memory so many times slower."""
        times = {name: seconds * (slower if "mapped" in name else 1.0) for name, seconds in shaped.items()}
        kernels = [store.Point(name, COLUMN, 4096, None, (taken,) * 7, "device") for name, taken in times.items()]
        return only([*points, *kernels])

    found = with_kernels(1.0)
    assert (found.operation, found.peer, found.way) == ("a message of device memory", "node", "oneshot")
    assert with_kernels(10.0).way == "staged"


def test_a_verdict_names_the_kinds_in_doubt() -> None:
    good = [p for n in range(8) for p in message(0.5, 0.1, column=grid.Column("irregular", 8 << n, 0), seed=n)]
    bad = [p for n in range(4) for p in message(0.95, 0.3, size=1024 << n, seed=n)]
    result = sure.verdict(calibration([*good, *bad]))
    assert result is not None
    assert (result.choices, result.sure) == (12, 8)
    (doubt,) = result.doubts
    assert (doubt.operation, doubt.peer, doubt.kind) == ("a message", "node", "regular, close together")
    assert (doubt.smallest, doubt.largest, doubt.doubtful, doubt.choices) == (1024, 8192, 4, 4)
    assert 0 < result.loss < result.if_wrong[0] <= result.if_wrong[1]
    assert not result.good
    quiet = sure.verdict(calibration(good))
    assert quiet is not None
    assert (quiet.sure, quiet.doubts, quiet.good) == (8, (), True)


def test_without_two_ways_there_is_no_verdict() -> None:
    assert sure.verdict(calibration(message(0.5, 0.1)[:1])) is None
    assert sure.verdict(calibration([])) is None


def test_the_same_samples_are_the_same_verdict_each_time() -> None:
    points = message(0.93, 0.2)
    assert sure.verdict(calibration(points)) == sure.verdict(calibration(points))
