"""Choices by tables instead of the rule: packs of device memory, contiguous messages, messages of
several memories, bounced calls. On the emulated device, with tables that make one method the fastest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launching import environment, launcher
from tables import made_up, without_emulator
from tempi.measure import launch
from tempi.model import store

pytestmark = pytest.mark.once

WAYS = Path(__file__).resolve().parent / "device_ways.py"
SIZE = 5 << 18


@pytest.fixture(autouse=True)
def _emulator() -> None:
    without_emulator()


def ways(folder: Path, method: str | None, **variables: str) -> dict[str, Any]:
    """The actions of both ranks, which must be equal."""
    own = {"TEMPI_CUDA_DRIVER": "emulated", "TEMPI_EMULATOR_STREAMS": "random", "TEMPI_MODEL": "0",
           "TEMPI_CUDA_IPC": "0", **variables}  # fmt: skip
    if method is not None:
        table = folder / f"{method}.table"
        table.write_bytes(store.table_of(made_up(method)))
        own["TEMPI_MODEL"] = str(table)
    line = launch.command(launcher(), 2, [sys.executable, "-P", str(WAYS)], own)
    done = subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    one, other = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert one == other
    assert isinstance(one, dict)
    return one


def taken(counted: dict[str, Any], case: str) -> dict[str, int]:
    return {name: n for name, n in counted[case].items() if name != "bytes staged"}


@pytest.mark.parametrize("method", ["oneshot", "staged", "pipelined"])
def test_the_fastest_method_is_used(tmp_path: Path, method: str) -> None:
    counted = ways(tmp_path, method)
    for case in ("pinned", "two memories", "two memories packed"):
        assert taken(counted, case) == {method: 2}, case
    assert taken(counted, "plain") == taken(counted, "two memories, plain") == {"staged": 2}
    assert taken(counted, "device") == {"device": 2}
    assert taken(counted, "dense") == {"staged": 2}
    assert counted["broadcast"].get("bytes staged", 0) == (0 if method == "oneshot" else SIZE)


@pytest.mark.parametrize("method", ["library", "oneshot"])
def test_a_cuda_aware_library_is_one_of_the_methods(tmp_path: Path, method: str) -> None:
    counted = ways(tmp_path, method, TEMPI_CUDA_AWARE="1")
    left = method == "library"
    assert taken(counted, "dense") == ({"dense left": 2} if left else {"staged": 2})
    assert taken(counted, "pinned") == ({"left": 2} if left else {method: 2})
    assert taken(counted, "plain") == ({"left": 2} if left else {"staged": 2})
    assert "left" not in counted["two memories"]


def test_without_tables_the_rule_decides(tmp_path: Path) -> None:
    counted = ways(tmp_path, None, TEMPI_CUDA_AWARE="1")
    assert taken(counted, "dense") == {"dense left": 2}
    assert taken(counted, "pinned") == taken(counted, "two memories") == {"staged": 2}


def test_settings_override_the_tables(tmp_path: Path) -> None:
    counted = ways(tmp_path, "library", TEMPI_CUDA_AWARE="1", TEMPI_CONTIGUOUS_STAGED="1", TEMPI_DATATYPE_ONESHOT="1")
    assert taken(counted, "dense") == {"staged": 2}
    assert taken(counted, "pinned") == taken(counted, "two memories") == {"oneshot": 2}


def test_a_setting_selects_the_library(tmp_path: Path) -> None:
    counted = ways(tmp_path, "oneshot", TEMPI_CUDA_AWARE="1", TEMPI_METHOD="library")
    assert taken(counted, "pinned") == taken(counted, "plain") == {"left": 2}
    assert "left" not in counted["two memories"]


def test_a_library_that_is_not_cuda_aware_cannot_be_selected(tmp_path: Path) -> None:
    counted = ways(tmp_path, None, TEMPI_METHOD="library")
    assert taken(counted, "pinned") == taken(counted, "two memories") == {"staged": 2}
