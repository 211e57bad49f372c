"""``tempi bench gpu``: the GPU's rates, and tempi's performance on it.

1. rates     the copy rate, the granule of the memory, the cost of writing part of a sector, wide strides
2. launches  a launch and a wait, other driver calls; the halo's packs in one launch
3. kernels   one-shot by number of blocks; packs and unpacks against the bounds, the driver's copies and CuPy
4. halo      `tempi bench halo --memory device`: radius 1, 2 and 3, many messages, one collective, one message for each
             neighbour; with and without MPS
5. overlap   an exchange beside an interior kernel; with and without MPS
6. messages  two ranks, of which one or both use the card, each method, a CUDA-aware library, by hand; with and without
             MPS

Each part's records go to a separate file in a folder named after the card, each as soon as it is there. On the
emulated device everything is checked, nothing is timed, and the folder is called "emulated".
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tempi.bench import stats, suite
from tempi.bench.cases import MIB
from tempi.bench.gpu import verdict as gpu_verdict
from tempi.bench.gpu.verdict import Bar, Rates, Row
from tempi.bench.options import GPU_PARTS, METHODS, GpuOptions, MessageOptions, OverlapOptions
from tempi.bench.suites import halo as suite_halo
from tempi.measure import cuda_driver, launch, records
from tempi.measure.records import Record, RecordError

PARTS = (*GPU_PARTS, "halo", "overlap", "messages")
RESULTS = Path("results/gpu")
SHOWN = 8  # most shapes to list of those that miss a target
QUICK_METHODS = ("auto", "oneshot", "staged")
MPS_CONTROL = "nvidia-cuda-mps-control"
REHEARSED = "REHEARSAL (CUDA on the CPU): these are not times of a GPU"
EMULATED = "EMULATED DEVICE (CUDA on the CPU): correctness only, no times"


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: budget of one line; `memory`: bytes of device memory, 0: half of the free memory; `end`:
    time.monotonic() after which nothing new is begun; `cases`: a regular expression, of the shapes of "kernels" only
    those whose names it is found in."""

    parts: tuple[str, ...]
    seconds: float
    memory: int = 0
    out: str | None = None
    mpicc: str | None = None
    end: float = float("inf")
    cases: str = ""

    @property
    def left(self) -> float:
        return self.end - time.monotonic()


# -- running -------------------------------------------------------------------------------------------


def _worker(arguments: Sequence[str]) -> Iterator[Record]:
    """The records of workers/gpu.py, which needs no MPI and no launcher."""
    with subprocess.Popen(
        launch.worker_command("tempi.bench.workers.gpu", arguments), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield from records.parse_lines(process.stdout, "tempi.bench.workers.gpu")
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise launch.LaunchError(f"the GPU could not be measured (exit status {process.returncode}): see above")


Runner = Callable[[Console, suite.Common, Options], Iterator[Record]]


def _alone(part: str) -> Runner:
    def run(console: Console, common: suite.Common, options: Options) -> Iterator[Record]:
        limit = max(options.left, 1.0) if options.end < float("inf") else 0.0
        given = GpuOptions(common.quick, options.seconds, options.memory, limit, (part,), options.cases)
        with suite.step(console, f"{part} of the GPU"):
            yield from _worker(given.arguments())

    return run


def _about(part: str) -> dict[str, Any]:
    return {"part": part, "emulated": cuda_driver.is_emulated()}


def _left_out(part: str, case: str, why: str) -> Record:
    """Of something that was not measured. The device and the machine are those of the other records."""
    return Record("gpu", case, part, "all", 0, (), {**_about(part), "left_out": why})


def _failed(part: str, case: str, error: Exception) -> Record:
    return Record("gpu", case, part, "all", 0, (), {**_about(part), "failed": str(error)})


def _one(
    console: Console, part: str, case: str, options: Options, measured: Callable[[], Iterator[Record]]
) -> Iterator[Record]:
    """The records of one of several measurements of a part, or why there are none: the others go on."""
    if options.left <= 0:
        yield _left_out(part, case, "the time was over")
        return
    try:
        yield from measured()
    except launch.LaunchError as error:
        console.print(f"failed: {part}, {case}: {error}", highlight=False)
        yield _failed(part, case, error)


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages by one method: between two ranks on the card, with CUDA's MPS or without, or with the card alone."""

    method: str
    kind: str = ""  # behind the subject's name: ALONE, MPS, or neither


#: Only one of the two ranks uses the card, as where each rank has its own; with MPS, both at once.
ALONE, MPS = " alone", " with MPS"


def turns(quick: bool) -> list[Turn]:
    """In the order of their worth: the time may be over before the last."""
    others = [Turn(method) for method in (QUICK_METHODS if quick else METHODS)]
    kinds = [Turn(method, kind) for kind in (ALONE, MPS) for method in QUICK_METHODS]
    return [kinds[0], kinds[3], *others, *kinds[1:3], *kinds[4:]]


def _messages(console: Console, common: suite.Common, options: Options) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)

    def measured(turn: Turn) -> Iterator[Record]:
        given = MessageOptions(common.quick, options.seconds, turn.method, turn.kind == ALONE)
        worker = "tempi.bench.workers.gpu_messages"
        with suite.step(console, f"messages between two ranks: {turn.method}{turn.kind}"):
            for record in launch.run_worker(launcher, worker, given.arguments(), 2, given.variables()):
                named = replace(record, subject=f"{record.subject}{turn.kind}")
                yield named.with_meta(mps=turn.kind == MPS)

    for turn in turns(common.quick and not cuda_driver.is_emulated()):
        name = f"{turn.method}{turn.kind}"
        one = partial(_one, console, "messages", name, options, partial(measured, turn))
        yield from _under_mps("messages", name, options, one) if turn.kind == MPS else one()


def _under_mps(part: str, name: str, options: Options, measured: Callable[[], Iterator[Record]]) -> Iterator[Record]:
    """The records, or why there is no MPS."""
    if options.left <= 0:
        yield _left_out(part, name, "the time was over")
        return
    with mps() as why:
        if why:
            yield _left_out(part, name, why)
        else:
            yield from measured()


@contextmanager
def mps() -> Iterator[str | None]:
    """CUDA's MPS for the processes started in the block, so that kernels of two ranks run at once; or why not. No
    setting of the card is changed."""
    control = shutil.which(MPS_CONTROL)
    if control is None:
        yield f"there is no {MPS_CONTROL}"
        return
    with tempfile.TemporaryDirectory(prefix="tempi-mps-") as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        try:
            done = subprocess.run(
                [control, "-d"], env={**os.environ, **own}, capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield f"MPS does not start: {error}"
            return
        if done.returncode != 0:
            yield f"MPS does not start: {(done.stdout + done.stderr).strip() or done.returncode}"
            return
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield None
        finally:
            subprocess.run([control], input="quit\n", text=True, capture_output=True, timeout=60, check=False)
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


#: Behind the options of a halo program.
UNDER_MPS = "MPS"


def halos(quick: bool, emulated: bool, small: bool) -> list[tuple[str, ...]]:
    """Options of the halo program in the order of their worth: radius 3, 1 and 2, the paper's first; one message for
    each field, one collective, with MPS if UNDER_MPS is the last, one message for each neighbour. On the emulated
    device those of the paper without MPS."""
    points = "16" if emulated else "8" if small else "96" if quick else "256"
    shape = ("--memory", "device", "--points", points, "--fields", "2" if small and not emulated else "8")
    collective = ("--exchange", "neighbor")
    ways = [(), collective, (UNDER_MPS,), (*collective, UNDER_MPS), ("--combine",)]
    found = [(*shape, "--radius", radius, *more) for radius in ("3", "1", "2") for more in ways]
    return found[:2] if emulated else found


def _halo(console: Console, common: suite.Common, options: Options) -> Iterator[Record]:
    emulated = cuda_driver.is_emulated()
    small = cuda_driver.is_small()
    budget = 0.2 if small else 2.0 if common.quick else 4.0

    def measured(program: tuple[str, ...], kind: str) -> Iterator[Record]:
        chosen = suite_halo.Options(2, 0, budget, program, options.mpicc)
        for record in suite_halo.measure(console, common, chosen):
            named = replace(record, case=f"{record.case}{kind}")
            yield named.with_meta(program=list(program), mps=kind == MPS)

    for words in halos(common.quick, emulated, small):
        program = tuple(word for word in words if word != UNDER_MPS)
        kind = MPS if UNDER_MPS in words else ""
        name = f"{' '.join(program[4:])}{kind}"
        one = partial(_one, console, "halo", name, options, partial(measured, program, kind))
        yield from _under_mps("halo", name, options, one) if kind else one()


def _overlap(console: Console, common: suite.Common, options: Options) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)

    def measured(blocking: bool, kind: str) -> Iterator[Record]:
        given = OverlapOptions(4 * options.seconds, blocking)
        with suite.step(console, f"an exchange beside a kernel in a {'' if blocking else 'non-'}blocking stream{kind}"):
            for record in launch.run_worker(
                launcher, "tempi.bench.workers.gpu_overlap", given.arguments(), 2, given.variables()
            ):
                yield replace(record, case=f"{record.case}{kind}").with_meta(mps=kind == MPS)

    for blocking, kind in ((False, ""), (True, ""), (False, MPS), (True, MPS)):
        name = f"{'blocking' if blocking else 'non-blocking'}{kind}"
        one = partial(_one, console, "overlap", name, options, partial(measured, blocking, kind))
        yield from _under_mps("overlap", name, options, one) if kind else one()


RUNNERS: dict[str, Runner] = {
    **{part: _alone(part) for part in GPU_PARTS},
    "halo": _halo,
    "overlap": _overlap,
    "messages": _messages,
}
NEEDS_MPI = ("halo", "overlap", "messages")


def why_not(part: str, common: suite.Common, options: Options) -> str | None:
    """Why a part with several ranks is skipped, or None. The halo is a program in C."""
    if part not in NEEDS_MPI:
        return None
    try:
        launch.find_launcher(common.mpirun)
        if part == "halo":
            launch.find_tool(("mpicc",), options.mpicc, "--mpicc")
            return None
    except launch.LaunchError as error:
        return str(error)
    try:
        import mpi4py  # noqa: F401
    except ImportError as error:
        return f"{error}: pip install 'mpi4py>=4'"
    return None


def measure(console: Console, common: suite.Common, options: Options) -> dict[str, list[Record]]:
    """The records of each part. Each is written as soon as it is there: what was measured is not lost."""
    card = card_name()
    folder = Path(options.out) if options.out else RESULTS / card
    found: dict[str, list[Record]] = {}
    for part in options.parts:
        without = why_not(part, common, options)
        if without:
            console.print(f"left out: {part}: {without}", highlight=False)
            continue
        with records.Journal(folder / f"{part}.json") as journal:
            try:
                found[part] = [journal.add(record) for record in RUNNERS[part](console, common, options)]
            except launch.LaunchError as error:
                journal.add(_failed(part, part, error))
                raise
    console.print(f"written: {folder}", highlight=False)
    return found


def card_name() -> str:
    """The folder of this card. Raises `NoDeviceError`."""
    card = cuda_driver.Card()
    return "emulated" if card.emulated else cuda_driver.slug(card.name)


def read(folder: Path) -> list[Record]:
    """All parts in a folder. Raises `RecordError`."""
    files = [folder / f"{part}.json" for part in PARTS]
    found = [record for file in files if file.is_file() for record in records.read(file)]
    if not found:
        raise RecordError(f"{folder}: no records of `tempi bench gpu`")
    return found


# -- showing -------------------------------------------------------------------------------------------


def is_rehearsed(found: Sequence[Record]) -> bool:
    """Whether any record comes from a rehearsal of `make gpu`."""
    return any(cuda_driver.REHEARSAL in str(record.meta.get("device", "")) for record in found)


def is_emulated(found: Sequence[Record]) -> bool:
    """Whether any record comes from a test device, whatever its other fields say."""
    return any(_from_emulator(record.meta) for record in found)


def _from_emulator(meta: Mapping[str, Any]) -> bool:
    device = meta.get("device")
    name = device.get("name", "") if isinstance(device, dict) else device or ""
    return bool(meta.get("emulated")) or "EMULATED" in name


def checked_table(found: dict[str, list[Record]]) -> Table:
    """Results that were right on the emulated device, without times."""
    made = Table("part", "checked on the EMULATED device", "wrong")
    for part, taken in found.items():
        bar = gpu_verdict.wrong_bar(taken)
        checked = sum(bool(record.meta.get("checked")) or record.op in ("check", "copy") for record in taken)
        made.add_row(part, str(checked), str(len(bar.missing)))
    return made


def kernels_table(found: Sequence[Row], least: int = 64 * MIB) -> Table:
    """The shapes of at least `least` packed bytes (or the largest available), and the faces."""
    most = max((one.size for one in found), default=0)
    shown = [one for one in found if one.size >= min(least, most) or one.case.startswith("face")]
    made = Table(title="Packs and unpacks by device time; the sector bound, and the probe's time, over tempi's time")
    for name in ("case", "op"):
        made.add_column(name)
    for name in ("tempi us", "GB/s packed", "of sectors", "of probe", "x memcpy", "x CuPy"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in shown:
        ratios = (f"{one.against[other].value:.2f}" if other in one.against else "-" for other in ("memcpy", "cupy"))
        seconds = one.seconds["tempi"]
        shares = (f"{100 * share.value:.0f}%" if share else "-" for share in (one.share, one.probed))
        rate = f"{1e-9 * one.size / seconds:.0f}"
        made.add_row(one.case, one.op, suite.format_time(seconds), rate, *shares, *ratios)
    return made


def messages_table(found: Sequence[Record]) -> Table:
    """One-way times of the methods in microseconds, and the hand-packed message beside the first."""
    part = gpu_verdict.of_part(found, "messages")
    made = Table(title="One way between two ranks on one card, us")
    made.add_column("case")
    plain = (*METHODS, "hand beside auto", "library beside auto")
    possible = [f"{name}{kind}" for kind in (ALONE, MPS, "") for name in plain]
    names = [name for name in possible if any(r.subject == name and r.seconds for r in part)]
    for name in names:
        made.add_column(name.replace(" beside auto", ""), justify="right", no_wrap=True)
    for (case, _), group in suite.by_case(part).items():
        taken = [suite.samples(group.get(name)) for name in names]
        if any(taken):
            cells = [suite.format_time(stats.median(values).value) if values else "-" for values in taken]
            made.add_row(case, *cells)
    return made


def launches_table(found: Sequence[Record]) -> Table:
    made = Table(title="Launches and waits by the host's clock, us")
    for name in ("case", "op", "subject"):
        made.add_column(name)
    made.add_column("us [95%]", justify="right", no_wrap=True)
    for record in gpu_verdict.of_part(found, "launches"):
        if record.seconds:
            seconds = stats.median(record.seconds)
            micro = stats.Interval(*(1e6 * value for value in (seconds.low, seconds.value, seconds.high)))
            made.add_row(record.case, record.op, record.subject, suite.format_interval(micro, 1))
    return made


def blocks_table(found: Sequence[Record]) -> Table:
    """One-shot copies by number of blocks, in GB/s of packed bytes."""
    part = [r for r in gpu_verdict.of_part(found, "kernels") if r.op.startswith("one-shot") and r.seconds]
    made = Table(title="Strided device memory to and from mapped host memory, by number of blocks, GB/s packed")
    for name in ("case", "op"):
        made.add_column(name)
    names = list(dict.fromkeys(record.subject for record in part))
    for name in names:
        made.add_column(name, justify="right", no_wrap=True)
    for (case, op), group in suite.by_case(part).items():
        rates = {name: 1e-9 * rs[0].bytes / stats.median(suite.samples(rs)).value for name, rs in group.items()}
        made.add_row(case, op.removeprefix("one-shot "), *(f"{rates[n]:.1f}" if n in rates else "-" for n in names))
    return made


def overlap_table(found: Sequence[Record]) -> Table:
    """An exchange beside an interior kernel, in microseconds; hidden: of the shorter one's time."""
    made = Table(title="An exchange and an interior kernel, us; hidden: the part of the shorter one that overlaps")
    made.add_column("case")
    names = ("exchange", "interior", "interior first", "interior within")
    for name in (*names, "hidden, first", "hidden, within"):
        made.add_column(name, justify="right", no_wrap=True)
    for (case, _), group in suite.by_case(gpu_verdict.of_part(found, "overlap")).items():
        taken = {name: suite.samples(group.get(name)) for name in names}
        if all(taken.values()):
            seconds = {name: stats.median(values).value for name, values in taken.items()}
            alone = seconds["exchange"], seconds["interior"]
            hidden = [(sum(alone) - seconds[name]) / min(alone) for name in names[2:]]
            cells = [suite.format_time(seconds[name]) for name in names]
            made.add_row(case, *cells, *(f"{100 * min(1.0, max(0.0, one)):.0f}%" for one in hidden))
    return made


def halos_of(found: Iterable[Record]) -> list[list[Record]]:
    """The records of each halo exchange."""
    cases: dict[str, list[Record]] = {}
    for record in found:
        if record.bench == "halo":
            cases.setdefault(record.case, []).append(record)
    return list(cases.values())


def bars_table(found: Sequence[Bar], title: str) -> Table:
    made = Table(title=title, title_justify="left")
    for name in ("target", "measured", "met"):
        made.add_column(name)
    for bar in found:
        made.add_row(bar.text, bar.measured, {True: "yes", False: "NO", None: "-"}[bar.met])
    return made


def rates_line(measured: Rates) -> str:
    return (
        f"copies at {1e-9 * measured.copy:.0f} GB/s (read and written together); memory is fetched in pieces of "
        f"{measured.granule} bytes; a byte of a sector written in part costs {measured.fill:.2f} of a byte more"
    )


def title_of(found: Sequence[Record]) -> str:
    none: dict[str, Any] = {}
    device = next((r.meta["device"] for r in found if isinstance(r.meta.get("device"), dict)), none)
    return f"{device.get('name', 'GPU')}, driver for CUDA {device.get('cuda', '?')}"


def show(console: Console, found: dict[str, list[Record]]) -> bool:
    """Prints the tables, the targets last. Returns whether no target was missed and every answer was right."""
    everything = [record for taken in found.values() for record in taken]
    for record in everything:
        if record.meta.get("left_out"):
            line = f"{record.case}, {record.op}, {record.subject}: {record.meta['left_out']}"
            console.print(f"left out: {line}", highlight=False)
        if record.meta.get("not_fitting"):
            line = f"{record.meta['not_fitting']} shapes that do not fit into the memory"
            console.print(f"left out: {line}", highlight=False)
    for text in suite.refusals(everything):
        console.print(f"WRONG: {text}", highlight=False)
    if is_emulated(everything):
        console.print(EMULATED)
        console.print(checked_table(found))
        return not suite.refusals(everything)
    return _show_measured(console, found, everything)


def _show_measured(console: Console, found: dict[str, list[Record]], everything: list[Record]) -> bool:
    if is_rehearsed(everything):
        console.print(REHEARSED)
    for one in halos_of(found.get("halo", [])):
        suite_halo.show(console, one)
    for part, drawn in (
        ("overlap", overlap_table),
        ("messages", messages_table),
        ("launches", launches_table),
        ("kernels", blocks_table),
    ):
        if found.get(part):
            console.print(drawn(everything))
    if not found.get("rates"):
        console.print("no targets without the part rates")
        return not suite.refusals(everything)
    if is_rehearsed(everything):
        console.print("a rehearsal: no targets")
        return not suite.refusals(everything)
    measured = gpu_verdict.rates(everything)
    if found.get("kernels"):
        console.print(kernels_table(gpu_verdict.rows(everything, measured)))
    bars = gpu_verdict.bars(everything)
    for bar in bars:
        for text in bar.missing[:SHOWN]:
            console.print(f"missed: {bar.text}: {text}", highlight=False)
        if len(bar.missing) > SHOWN:
            console.print(f"  and {len(bar.missing) - SHOWN} more", highlight=False)
    console.print(rates_line(measured), highlight=False)
    console.print(bars_table(bars, title_of(everything)))
    return not any(bar.met is False for bar in bars)


def run(common: suite.Common, options: Options) -> bool:
    """Measures, writes and prints. Returns whether every answer was right and no target was missed."""
    console = common.console()
    found = measure(console, common, options)
    if common.json:
        records.write(common.json, [record for taken in found.values() for record in taken])
    return show(console, found)
