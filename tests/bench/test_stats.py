from __future__ import annotations

import math

import numpy as np
import pytest

from tempi.bench import stats

pytestmark = pytest.mark.once


def test_the_median_lies_in_its_interval() -> None:
    found = stats.median([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found.value == 3.0
    assert found.low <= 3.0 <= found.high
    assert found.low >= 1.0
    assert found.high <= 100.0


def test_equal_samples_have_no_spread() -> None:
    found = stats.median([2.0] * 9)
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)
    assert found.spread == 0.0


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    found = [stats.median(random.normal(10.0, 1.0, 31).tolist()) for _ in range(200)]
    covered = sum(interval.low <= 10.0 <= interval.high for interval in found)
    assert 180 <= covered <= 200


def test_a_ratio_is_made_pair_by_pair() -> None:
    """Noise that affects both subjects of a pair cancels; it would not in a ratio of medians."""
    library = [1.0, 5.0, 2.0, 9.0, 1.5]
    found = stats.ratio([3.0 * value for value in library], library)
    assert (found.low, found.value, found.high) == pytest.approx((3.0, 3.0, 3.0))


def test_a_ratio_of_unequal_numbers_is_one_of_medians() -> None:
    found = stats.ratio([4.0] * 3, [2.0] * 8)
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)


def test_an_offset_comes_off_the_upper_side() -> None:
    assert stats.ratio([3.0] * 5, [2.0] * 5, offset=1.0).value == 1.0


def test_a_difference_needs_samples_taken_in_turns() -> None:
    assert stats.difference([5.0, 6.0, 7.0], [1.0, 2.0, 3.0]).value == 4.0
    with pytest.raises(ValueError, match="in turns"):
        stats.difference([1.0], [1.0, 2.0])


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no samples"):
        stats.median([])
    with pytest.raises(ValueError, match="no samples"):
        stats.ratio([], [1.0])


def test_geometric_mean() -> None:
    assert stats.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert math.isnan(stats.geometric_mean([]))


def test_instability_is_reported() -> None:
    assert stats.stability_warning([1.0] * 9) is None
    assert stats.stability_warning([1.0] * 3) == "only 3 samples"
    warning = stats.stability_warning([1.0, 1.0, 2.0, 2.0, 1.0, 2.0, 1.5])
    assert "wide" in (warning or "")
