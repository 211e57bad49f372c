"""The cost of a choice is measured on calls that tempi leaves to the library by a cached choice."""

from __future__ import annotations

import subprocess
from pathlib import Path

from launching import environment, launcher, version
from tempi.bench.options import OverheadOptions
from tempi.bench.suites import overhead as suite_overhead
from tempi.bench.workers import choice as worker_choice
from tempi.expression import parse
from tempi.measure import launch, records
from tempi.model import predict


def test_made_up_tables_leave_every_shape_to_the_library(tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(worker_choice.made_up("some MPI 1.0"))
    model = predict.Model(tmp_path / "table")
    for text in ("vector(2,1,2,DOUBLE)", "vector(64,1,512,DOUBLE)", "indexed([1,1,1],[0,3,7],DOUBLE)"):
        kept = parse(text)
        for operation in predict.OPERATIONS:
            for peer in ("self", "node", "other"):
                assert model.acts(kept.canonical(), 5000, operation, peer) is False


def test_choices_are_measured(tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(worker_choice.made_up(version()))
    command = launch.worker_command("tempi.bench.workers.choice", OverheadOptions(True, 0.01).arguments())
    line = launch.command(launcher(), 1, command, {"TEMPI_MODEL": str(tmp_path / "table"), "TEMPI_AUTOTUNE": "0"})
    done = subprocess.run(line, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = suite_overhead.rows(list(records.parse_lines(done.stdout.splitlines(), "stdout")))
    assert [(row.case, row.target) for row in rows] == [
        ("Pack of a vector, choice kept", 50e-9),
        ("Irecv, Send, Wait of a vector, choices kept", 100e-9),
        ("a choice made from the tables", 1e-6),
    ]
    assert rows[2].added.value > 0
