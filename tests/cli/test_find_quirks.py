"""tests/tools/find_quirks.py, which found the classes of csrc/shim/type/quirks.c."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import launching
from tempi.measure import launch

TOOL = Path(__file__).resolve().parents[1] / "tools" / "find_quirks.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("found")
    arguments = ["--seed", "3", "--types", "150", "--json", str(folder / "found.json")]
    command = launch.command(launching.launcher(), 1, [sys.executable, "-P", str(TOOL), *arguments])
    subprocess.run(command, env=launching.environment(folder), check=True, capture_output=True, text=True)
    entries: list[dict[str, Any]] = json.loads((folder / "found.json").read_text())
    return entries


def test_all_findings_are_of_the_known_classes(found: list[dict[str, Any]]) -> None:
    for entry in found:
        assert {"elements astray", "one byte backwards"} & set(entry["marks"]), entry


def test_the_faults_of_open_mpi_5_are_found(found: list[dict[str, Any]]) -> None:
    ways = {entry["way"] for entry in found}
    if "Open MPI v5.0.11" in launching.version():
        assert ways == {"pack", "unpack", "send", "receive", "both"}
    else:
        assert not ways
