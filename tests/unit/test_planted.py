"""The faults of tests/tools/planted.py apply to the tree as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

sys.path.insert(0, str(ROOT / "tests" / "tools"))

import planted  # noqa: E402  (only after the path is known)


@pytest.mark.parametrize("fault", planted.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies_exactly_once(fault: planted.Fault) -> None:
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert fault.planted(text) != text


def test_there_are_faults_of_every_area_each_with_a_name_of_its_own() -> None:
    assert {fault.area for fault in planted.FAULTS} == set(planted.AREAS)
    assert len({fault.name for fault in planted.FAULTS}) == len(planted.FAULTS) >= 40


def test_every_test_that_is_to_find_a_fault_is_there() -> None:
    tests = {test for area in planted.AREAS.values() for test in area}
    tests |= {test for fault in planted.FAULTS for test in fault.tests}
    assert [test for test in tests if not (ROOT / test.partition("@")[0]).is_file()] == []
