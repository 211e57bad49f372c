"""``tempi bench gpu``: the GPU's rates, and tempi's performance on it.

1. rates     the copy rate, the granule of the memory, the cost of writing part of a sector
2. kernels   packs and unpacks of many shapes against the sector bound, the driver's copies and CuPy
3. launches  a launch and a wait; the halo's packs in one launch
4. messages  two ranks that share the card, each method, a CUDA-aware library, by hand
5. halo      `tempi bench halo --memory device`

Each part's records go to a separate file in a folder named after the card. On the emulated device
everything is checked, nothing is timed, and the folder is called "emulated".
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tempi.bench import stats, suite
from tempi.bench.cases import MIB
from tempi.bench.gpu import verdict as gpu_verdict
from tempi.bench.gpu.verdict import Bar, Rates, Row
from tempi.bench.options import GPU_PARTS, METHODS, GpuOptions, MessageOptions
from tempi.bench.suites import halo as suite_halo
from tempi.measure import cuda_driver, launch, records
from tempi.measure.records import Record, RecordError

PARTS = (*GPU_PARTS, "messages", "halo")
RESULTS = Path("results/gpu")
SHOWN = 8  # most shapes to list of those that miss a target
QUICK_METHODS = ("auto", "oneshot", "staged")
EMULATED = "EMULATED DEVICE (CUDA on the CPU): correctness only, no times"


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: budget of one line; `memory`: bytes of device memory, 0: half of the free memory."""

    parts: tuple[str, ...]
    seconds: float
    memory: int = 0
    out: str | None = None
    mpicc: str | None = None


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
        raise launch.LaunchError("the GPU could not be measured: see above")


def _alone(part: str) -> Callable[[Console, suite.Common, Options], list[Record]]:
    def run(console: Console, common: suite.Common, options: Options) -> list[Record]:
        given = GpuOptions(common.quick, options.seconds, options.memory, (part,))
        with suite.step(console, f"{part} of the GPU"):
            return list(_worker(given.arguments()))

    return run


def _messages(console: Console, common: suite.Common, options: Options) -> list[Record]:
    launcher = launch.find_launcher(common.mpirun)
    found: list[Record] = []
    for method in QUICK_METHODS if common.quick and not cuda_driver.is_emulated() else METHODS:
        given = MessageOptions(common.quick, options.seconds, method)
        with suite.step(console, f"messages between two ranks: {method}"):
            found += launch.run_worker(
                launcher, "tempi.bench.workers.gpu_messages", given.arguments(), 2, given.variables()
            )
    return found


def _halo(console: Console, common: suite.Common, options: Options) -> list[Record]:
    points = "16" if cuda_driver.is_emulated() else "96" if common.quick else "256"
    program = ("--memory", "device", "--points", points, "--fields", "8", "--radius", "3")
    budget = 3.0 if common.quick else 20.0
    return suite_halo.measure(console, common, suite_halo.Options(2, 0, budget, program, options.mpicc))


RUNNERS = {**{part: _alone(part) for part in GPU_PARTS}, "messages": _messages, "halo": _halo}
NEEDS_MPI = ("messages", "halo")


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
    """The records of each part, written as soon as the part is done."""
    card = card_name()
    folder = Path(options.out) if options.out else RESULTS / card
    found: dict[str, list[Record]] = {}
    for part in options.parts:
        without = why_not(part, common, options)
        if without:
            console.print(f"left out: {part}: {without}", highlight=False)
            continue
        found[part] = RUNNERS[part](console, common, options)
        records.write(folder / f"{part}.json", found[part])
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
    made = Table(title="Packs and unpacks by device time; of bound: the sector bound over tempi's time")
    for name in ("case", "op"):
        made.add_column(name)
    for name in ("tempi us", "GB/s packed", "of bound", "x memcpy", "x CuPy"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in shown:
        ratios = (f"{one.against[other].value:.2f}" if other in one.against else "-" for other in ("memcpy", "cupy"))
        seconds = one.seconds["tempi"]
        share = f"{100 * one.share.value:.0f}%"
        made.add_row(one.case, one.op, suite.format_time(seconds), f"{1e-9 * one.size / seconds:.0f}", share, *ratios)
    return made


def messages_table(found: Sequence[Record]) -> Table:
    """One-way times of the methods in microseconds, and the hand-packed message beside the first."""
    part = gpu_verdict.of_part(found, "messages")
    made = Table(title="One way between two ranks on one card, us")
    made.add_column("case")
    possible = (*METHODS, "hand beside auto", "library beside auto")
    names = [name for name in possible if any(r.subject == name and r.seconds for r in part)]
    for name in names:
        made.add_column(name.removesuffix(" beside auto"), justify="right", no_wrap=True)
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
    if found.get("halo"):
        suite_halo.show(console, found["halo"])
    if found.get("messages"):
        console.print(messages_table(everything))
    if found.get("launches"):
        console.print(launches_table(everything))
    if not found.get("rates"):
        console.print("no targets without the part rates")
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
