"""Tables under which the library always wins, beside types which it sends wrongly: tempi carries those."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from astray import ASTRAY
from launching import environment, launcher, version
from tempi.measure import launch
from tempi.model import grid, store

RANKS = Path(__file__).resolve().parent / "quirk_ranks.py"
PLAIN = ("a vector", "blocks of ints")  # without a quirk
COLUMNS = (grid.Column("regular", 8, 64), grid.Column("irregular", 8, 0))
#: Changes of the counters of both ranks, each of which sends two messages by one choice.
LEFT = {"quirks": 0, "sends": 0, "recvs": 0, "fallback_rule": 8, "model_choices": 4}
CARRIED = {"quirks": 8, "sends": 4, "recvs": 4, "fallback_rule": 0, "model_choices": 0}


def tables() -> bytes:
    """The library takes a hundredth of tempi's time, for every shape and size."""
    points = []
    for quantity in grid.QUANTITIES:
        columns = (grid.PLAIN,) if quantity == "contiguous" else COLUMNS
        for column in columns:
            for size in (64, 1 << 22):
                taken = (1e-9 * size * (1 if quantity.startswith("library") else 100),) * 9
                points.append(store.Point(quantity, column, size, "node" if quantity in grid.MESSAGES else None, taken))
    return store.table_of(store.Calibration(store.machine(version()), tuple(points)))


def exchanged(folder: Path, **variables: str) -> dict[str, tuple[str, dict[str, int]]]:
    """Of each type whether it arrived, and counters; of "tables" those in use."""
    line = launch.command(launcher(), 2, [sys.executable, "-P", str(RANKS)], variables)
    done = subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for of_type in done.stdout.splitlines():
        name, said = of_type.split(": ")
        first, *counters = said.split()
        found[name] = (first, {key: int(number) for key, number in (pair.split("=") for pair in counters)})
    return found


def test_types_with_a_quirk_are_carried_whatever_the_tables_predict(tmp_path: Path) -> None:
    """Of Open MPI 5; other libraries send them right, and by these tables."""
    path = tmp_path / "library.table"
    path.write_bytes(tables())
    found = exchanged(tmp_path, TEMPI_MODEL=str(path))
    assert found.pop("tables") == (str(path), {})
    of_quirk = CARRIED if "Open MPI v5" in version() else LEFT
    assert found == dict.fromkeys(PLAIN, ("right", LEFT)) | dict.fromkeys(ASTRAY, ("right", of_quirk))
