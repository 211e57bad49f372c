"""Tables that are corrected while a program runs, by artificial times: under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from table import emit_format
from tempi.model import grid, store

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
BASE = ("config", "method", "thread_cache", "log", "stats", "status", "text", "thread")
CHOOSE = (
    *("correction", "device_choice", "machine", "model", "online_tuning", "predict", "predict_device", "processor"),
    *("shape", "shipped", "table_file"),
)


def table(path: Path) -> Path:
    """tempi's MPI_Pack takes twice as long as the library's."""
    points = []
    for quantity, factor in {"library_pack": 1, "own_pack": 2, "library_unpack": 1, "own_unpack": 2}.items():
        for size in (64, 1 << 20):
            column = grid.Column("regular", 8, 64)
            points.append(store.Point(quantity, column, size, None, (1e-9 * size * factor,) * 9))
    path.write_bytes(store.table_of(store.Calibration(store.machine("some MPI 1.0"), tuple(points))))
    return path


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_times_correct_the_tables(tmp_path: Path, sanitizer: str) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = tmp_path / "online_tuning_driver"
    (tmp_path / "table_format.h").write_text(emit_format.header())
    warnings = ("-Wall", "-Wextra", "-Werror")
    flags = ("-std=c11", "-D_GNU_SOURCE", *warnings, f"-I{CSRC}", f"-I{tmp_path}", "-O1", "-g1", "-pthread")
    sources = [HERE / "online_tuning_driver.c"]
    sources += [CSRC / folder / f"{name}.c" for folder, names in (("base", BASE), ("choose", CHOOSE)) for name in names]
    sanitize = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    subprocess.run(["gcc", *flags, *sanitize, *sources, "-o", program, "-lm"], check=True, timeout=300)
    made = table(tmp_path / "table")
    done = subprocess.run([program, made], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
