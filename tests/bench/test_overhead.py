"""What tempi adds to collectives: each one that it may carry has a row, whose answer is checked before it is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launching import environment
from table.overlay import COLLECTIVES as CARRIED
from tempi.bench.suites import overhead as suite_overhead
from tempi.bench.workers import overhead
from tempi.measure import records

MEASURE = """
from mpi4py import MPI
from tempi.bench.workers import overhead
from tempi.measure import worker
world = overhead.make_world(MPI)
{changed}
worker.emit(overhead.measure_collectives(world, 0.001), 0)
"""


def measured(folder: Path, changed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", "import tempi" + MEASURE.format(changed=changed)]
    own = environment(folder)
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)


def test_collectives_are_measured(tmp_path: Path) -> None:
    done = measured(tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row.case: row for row in suite_overhead.rows(list(records.parse_lines(done.stdout.splitlines(), "stdout")))}
    assert set(rows) == {f"{name} of an int" for name in (*CARRIED, "Allreduce")} | {
        f"I{name.lower()}, Wait of an int" for name in overhead.NONBLOCKING
    }
    assert all(row.library is not None and row.library > 0 for row in rows.values())
    assert all(row.wrapper is not None for row in rows.values())
    assert rows["Alltoall of an int"].target == overhead.COLLECTIVE
    assert rows["Ialltoall, Wait of an int"].target == overhead.COLLECTIVE + overhead.PASS


def test_a_collective_misses_by_what_it_takes_beyond_a_wrapper() -> None:
    """A call of 100 ns that a wrapper makes 8 longer: tempi may make it 13 longer, not 15."""

    def missed(tempi: float, *others: float) -> bool:
        taken = zip(("library", "wrapper"), others, strict=False)
        seconds = {"tempi": tempi, **dict(taken)}
        found = [
            records.Record("overhead", "x", "call", name, 0, (value,) * 9, {"target": overhead.COLLECTIVE})
            for name, value in seconds.items()
        ]
        [row] = suite_overhead.rows(found)
        return row.missed

    assert not missed(113e-9, 100e-9, 108e-9)
    assert missed(115e-9, 100e-9, 108e-9)
    assert missed(113e-9, 100e-9)


def test_a_collective_that_delivers_something_else_is_not_timed(tmp_path: Path) -> None:
    """Nothing, and an int too many."""
    for arguments in ("source root int target root int", "source two int target two int"):
        words = "words = overhead._words\noverhead._words = lambda world: words(world) | {'two': 2}\n"
        done = measured(tmp_path, f"{words}overhead.COLLECTIVES['Alltoall'] = '{arguments}'")
        assert done.returncode != 0
        assert "Alltoall delivers wrong bytes (library)" in done.stderr
