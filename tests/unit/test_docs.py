"""The pages that are made from tables are the tables' present state."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["environment", "functions"])
def test_a_made_page_is_up_to_date(name: str) -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "docs"))[name]()
    assert made == (ROOT / "docs" / f"{name}.md").read_text(), "run scripts/docs"
