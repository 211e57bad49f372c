"""``scripts/halo.slurm`` and ``tempi bench`` under a Slurm that the test starts."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm
from launching import launcher
from tempi import _engine
from tempi.measure import records

pytestmark = pytest.mark.once

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "halo.slurm"
SMALL = {
    "HALO_VENV": sys.prefix,
    "HALO_PROBLEM": "--points 12 --fields 1",
    "HALO_SECONDS": "1",
    "TEMPI_FORCE": "1",  # so small a halo may be the library's
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Slurm]:
    why = slurm.missing()
    if why is not None:
        pytest.skip(why)
    # A socket's path is short, and munged wants no folder above it that others may write to, but for sticky ones.
    with tempfile.TemporaryDirectory(prefix="tempi-slurm-") as folder, slurm.started(Path(folder)) as running:
        yield running


@pytest.fixture
def kind(cluster: slurm.Slurm) -> str:
    """How srun starts this environment's MPI."""
    found = "pmix" if launcher().kind == "openmpi" else "pmi2"
    if found not in cluster.kinds():
        pytest.skip(f"this Slurm has no --mpi={found}")
    return found


@pytest.mark.more
def test_the_job_script_measures_verifies_and_shows_it(cluster: slurm.Slurm, kind: str, tmp_path: Path) -> None:
    if not (Path(sys.prefix) / "bin" / "activate").is_file():
        pytest.skip("this Python is in no virtual environment")
    words = ("--nodes=1", "--ntasks-per-node=2", "--output=job.out", SCRIPT)
    done = cluster.run("sbatch", "--wait", *words, cwd=tmp_path, **SMALL)
    output = (tmp_path / "job.out").read_text()
    assert done.returncode == 0, done.stderr + output
    assert "is not known" not in output  # no variable that tempi has not
    assert output.count("every cell right") == 3
    assert re.search(r"^tempi +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", output, re.MULTILINE)
    assert re.search(r"^plain +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", output, re.MULTILINE)
    with_tempi, plain = sorted((tmp_path / "results").iterdir(), key=lambda path: len(path.name))
    found = records.read(str(with_tempi))
    assert {record.subject for record in found} == {"library", "tempi", "hand"}
    assert any(record.meta.get("counters", {}).get("sends") for record in found if record.subject == "tempi")
    assert {record.subject for record in records.read(str(plain))} == {"plain", "hand"}


def test_the_script_names_no_variable_of_tempi_that_tempi_does_not_know() -> None:
    known = {name for name, _, _ in _engine.items("config")}
    assert set(re.findall(r"TEMPI_\w+", SCRIPT.read_text())) <= known


def test_a_suite_in_a_step_of_srun_says_to_run_it_without(cluster: slurm.Slurm, kind: str, tmp_path: Path) -> None:
    tempi = (sys.executable, "-P", "-m", "tempi", "bench", "pack", "--quick")
    prefix = {"OPAL_PREFIX": sys.prefix} if kind == "pmix" else {}
    done = cluster.run("srun", f"--mpi={kind}", "-n", 1, *tempi, cwd=tmp_path, **prefix)
    assert done.returncode != 0
    assert "run it without the launcher: tempi bench pack --quick" in done.stderr
    assert "Traceback" not in done.stderr
