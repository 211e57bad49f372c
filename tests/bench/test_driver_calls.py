"""``tempi bench driver-calls``: the counts of the emulated driver, and what it says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tempi import _engine
from tempi.bench.suites import driver_calls
from tempi.measure.records import Record


def record(op: str, calls: int) -> Record:
    return Record("driver_calls", "a case", op, "tempi", 0, (), {"calls": calls, "each": {"LaunchKernel": calls}})


def test_more_calls_than_the_target_are_told() -> None:
    found = [record("send", 6), record("send", 7), record("exchange", 16), record("exchange", 17)]
    assert driver_calls.above(found) == [found[1], found[3]]


@pytest.mark.skipif(
    not Path(_engine.library_path()).with_name("libtempi-cuda.so").is_file(), reason="this build has no emulated CUDA"
)
def test_every_case_is_within_its_target(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    out = tmp_path / "calls.json"
    command = [sys.executable, "-P", "-m", "tempi", "bench", "driver-calls", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == driver_calls.CASES
    assert f"0 of {len(lines)} above their target" in done.stdout
    assert {line["meta"]["calls"] for line in lines if line["op"] in ("send", "receive")} == {4}
