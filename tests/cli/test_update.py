"""``TEMPI_MODEL_UPDATE``: measured call times correct wrong tables, on two ranks. The times are made up
(update_ranks.py), so every run is the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from launching import environment, launcher, version
from tempi.measure import launch
from tempi.model import grid, store

pytestmark = pytest.mark.once

RANKS = Path(__file__).resolve().parent / "update_ranks.py"
LATE = 512  # calls at the end
#: Later every 512th call uses the method that was not chosen.
RARE = 3


def table(path: Path, own: float) -> Path:
    """Tables in which tempi takes `own` times as long as the library, in each operation."""
    made = dict.fromkeys(("library_pack", "library_unpack"), 1.0) | {"library_message": 4.0}
    made |= dict.fromkeys(("own_pack", "own_unpack", "contiguous"), own) | {"stage_pack": own, "stage_unpack": 2 * own}
    points = []
    for quantity, factor in made.items():
        peer = "node" if quantity in grid.MESSAGES else None
        column = grid.PLAIN if quantity == "contiguous" else grid.Column("regular", 8, 64)
        for size in (64, 1 << 20):
            points.append(store.Point(quantity, column, size, peer, (1e-9 * size * factor,) * 9))
    path.write_bytes(store.table_of(store.Calibration(store.machine(version()), tuple(points))))
    return path


def ranks(folder: Path, own: float, pretended: str, **variables: str) -> tuple[list[list[int]], str]:
    """Per rank: packs, unpacks, sends and receives by tempi among the first and the last calls; samples, changed
    choices, calls that tried the other method. And the final output."""
    made = {"TEMPI_MODEL": str(table(folder / "made.table", own)), "PRETENDED": pretended, "TEMPI_STATS": "1"}
    line = launch.command(launcher(), 2, [sys.executable, "-P", str(RANKS)], made | variables)
    done = subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [[int(word) for word in line.split()[2:]] for line in done.stdout.splitlines() if line.startswith("rank ")]
    assert len(counts) == 2
    return counts, done.stderr


FASTER = "own_pack=0.3,own_unpack=0.3,stage_pack=0.3,stage_unpack=0.3,library_pack=1,library_unpack=1"
SLOWER = "own_pack=3,own_unpack=3,stage_pack=3,stage_unpack=3,library_pack=1,library_unpack=1"


def test_a_method_that_is_faster_than_predicted_is_found(tmp_path: Path) -> None:
    found, said = ranks(tmp_path, 1.2, FASTER, TEMPI_MODEL_UPDATE="1")
    for each in found:
        assert each[:4] == [0, 0, 0, 0]
        assert all(LATE - RARE <= n <= LATE for n in each[4:8])
        assert each[9] == 4  # choices that changed: one an operation, and none of them back
        assert each[10] < 100
    for what in ("MPI_Pack by tempi", "MPI_Unpack by tempi", "packs of messages", "unpacks of messages"):
        assert re.search(rf"tempi: {what} took 0\.3\d times the predicted time", said), said
    assert re.search(r"tempi: MPI_Pack by the library took 1\.00 times the predicted time", said), said


def test_a_method_that_is_slower_than_predicted_is_left(tmp_path: Path) -> None:
    found, said = ranks(tmp_path, 0.8, SLOWER, TEMPI_MODEL_UPDATE="1")
    for each in found:
        assert all(4 <= n <= 5 for n in each[:4])  # a group of five is enough; one receive may be early
        assert all(n <= RARE for n in each[4:8])
        assert each[9] == 4
    assert re.search(r"tempi: MPI_Pack by tempi took [23]\.\d\d times the predicted time", said), said


def test_without_the_setting_nothing_is_corrected(tmp_path: Path) -> None:
    found, said = ranks(tmp_path, 1.2, FASTER, TEMPI_AUTOTUNE="0")
    assert found == [[0] * 11] * 2
    assert "times the predicted time" not in said


def test_a_correct_table_does_not_change(tmp_path: Path) -> None:
    found, _ = ranks(tmp_path, 1.2, re.sub("0.3", "1", FASTER), TEMPI_MODEL_UPDATE="1")
    for each in found:
        assert each[:4] == [0, 0, 0, 0]
        assert all(n <= RARE for n in each[4:8])
        assert each[9] == 0
