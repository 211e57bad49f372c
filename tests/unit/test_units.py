"""Numbers for people."""

from __future__ import annotations

import pytest

from tempi import _units
from tempi.cli import compare


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.864e-6, "2.86"), (0.9991e-3, "999"), (0.99961e-3, "1000"), (1.5e-3, "1500"), (0.0123456, "12346")],
)
def test_microseconds_have_no_exponent(seconds: float, text: str) -> None:
    assert _units.microseconds(seconds) == text


@pytest.mark.parametrize("value", [9.994e-7, 9.996e-7, 9.996e-4, 0.9996, 1.0, 2e-9])
def test_a_unit_has_at_most_999(value: float) -> None:
    assert "e+" not in _units.seconds(value) + compare._seconds(value)
