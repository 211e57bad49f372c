"""docs/gpu.md, made from the records of ``tempi bench gpu``; without records it explains how to take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from tempi.bench.gpu import verdict as gpu_verdict
from tempi.bench.suites import gpu as suite_gpu
from tempi.bench.suites import halo as suite_halo
from tempi.bench.suites import model_device as suite_model_device
from tempi.measure import records
from tempi.measure.records import Record

METHOD = """# GPU performance

Made by scripts/gpu from the records of `tempi bench gpu`; do not edit.

## How it is measured

`make gpu` on a machine with an NVIDIA GPU builds tempi, runs the tests on the card's memory, then runs
`tempi bench gpu` (`--quick`: below 40 seconds) and prints the targets last. It needs no network, and nothing
of the CUDA toolkit; the Makefile lists its requirements. The records, with every raw sample,
go to `results/gpu/CARD/`; `.venv/bin/python -P scripts/gpu results/gpu/CARD` writes this page.

- **Every answer is checked before it is timed**, gaps and guards included; a wrong one is not timed.
- **Subjects take turns**; results are medians with 95% bootstrap intervals. Kernels are timed by CUDA events
  around many of them in one stream (device time); launches, waits and messages by the host's clock.
- **Rates.** The copy rate is that of a copy of 1 GiB within the card's memory, bytes read and written
  together. The *granule* is found by fetching 32 of every 128 bytes, starting 0, 16 and 48 bytes behind a
  multiple of 128: in sectors of 32 bytes the second costs a sector more than the first, in pieces of 64 the
  third does. The cost of writing part of a sector is found by writing 16 and 32 of every 128 bytes.
- **The sector bound** of a pack or unpack is the bytes of the distinct sectors that its layout touches, on both
  sides, counted exactly from the layout (bench/sectors.py), and for an unpack the cost of the sectors that it
  writes in part, over the copy rate of the same run. Small shapes may pass it, as they stay in the cache.
- **Kernels**: runs of 1 to 4096 bytes at strides of twice the run, 512 and 4096, of 64 KiB to 1 GiB, aligned
  and 8 bytes off; faces of 258^3 and 514^3 doubles; blocks of two doubles at random. Beside them
  cudaMemcpy2DAsync or 3DAsync (by the driver API) and CuPy's `ascontiguousarray` or assignment, its allocation
  and Python's time included, as for its users.
- **Launches**: 64 KiB packed and waited for, against an empty kernel launched and waited for; the halo's 26
  regions of 8 fields as one piece of work, one by one, by 208 copies of the driver, and 208 empty launches.
- **Messages**: two ranks that share the card, each method of tempi (`TEMPI_METHOD`), the library if it is
  CUDA-aware, and by hand (a pitched copy to pinned memory, a contiguous message, a copy back).
- **Halo**: `tempi bench halo --memory device`.
- **Model**: `tempi calibrate`, whose samples go to `calibration.json` beside the records (`tempi calibrate
  --import` takes it), and then `tempi bench model --memory device`: every method on shapes that were not
  calibrated, and the method that the tables choose, over the best of them ([model.md](model.md)).

The targets: 90% of the sector bound at 64 MiB and more for runs of 16 bytes and up, 80% for 4 to 15; never
slower than cudaMemcpy2DAsync, 3DAsync or CuPy; 64 KiB packed within 2 microseconds of an empty launch and a
wait; the fused halo in one launch each way; the methods that the calibrated model chooses at most 1.05 times as slow as
those of a perfect chooser, in the geometric mean.

With `TEMPI_CUDA_DRIVER=emulated` ([emulator.md](emulator.md)) the same suite checks every answer and times
nothing: the speed of CUDA on the CPU says nothing about a GPU. The calibration and the model run on a few small
shapes; every output marks their times as the emulator's, and this page never shows them.
"""

TO_BE_MEASURED = """
## Results

To be measured: no record of a GPU is here yet.
"""


class PageError(ValueError):
    """Records that must not be presented as a GPU's."""


def markdown(table: Table) -> Iterator[str]:
    yield "| " + " | ".join(str(column.header) for column in table.columns) + " |"
    yield "|" + "---|" * len(table.columns)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        yield "| " + " | ".join(str(cell) for cell in row) + " |"


def _folded(title: str, table: Table) -> Iterator[str]:
    yield f"\n<details><summary>{title}</summary>\n"
    yield from markdown(table)
    yield "\n</details>"


def _halo(found: Sequence[Record]) -> Iterator[str]:
    timed = [record for record in found if record.bench == "halo" and record.op != "check"]
    if timed:
        over = suite_halo.baseline(suite_halo.exchange_group(timed))
        yield f"\n{timed[0].case}, {timed[0].meta['ranks']} ranks:\n"
        yield from markdown(suite_halo.table(suite_halo.rows(timed), "", over))


def _machine(found: Sequence[Record]) -> str:
    record = next(record for record in found if isinstance(record.meta.get("device"), dict))
    machine, device = record.meta["machine"], record.meta["device"]
    mpis = {str(r.meta["mpi"]).split(",")[0] for r in found if r.meta.get("mpi")}
    return (
        f"{device['multiprocessors']} multiprocessors, compute capability {device['capability']}, "
        f"{device['memory'] >> 30} GiB; {machine['cpu']}; {', '.join(sorted(mpis)) or 'no MPI'}; "
        f"commit {machine['commit']}."
    )


def card(found: Sequence[Record]) -> Iterator[str]:
    """The section of one card. Raises PageError for a test device."""
    if suite_gpu.is_emulated(found):
        raise PageError("these records are of the emulated device: CUDA on the CPU has no meaningful speed")
    measured = gpu_verdict.rates(found)
    bars = gpu_verdict.bars(found)
    yield f"\n### {suite_gpu.title_of(found)}\n"
    yield f"{_machine(found)}\n\nIt {suite_gpu.rates_line(measured)}.\n"
    yield from markdown(suite_gpu.bars_table(bars, ""))
    missing = [f"- {bar.text}: {text}" for bar in bars for text in bar.missing]
    if missing:
        yield "\n<details><summary>missed</summary>\n"
        yield from missing
        yield "\n</details>"
    yield from _halo(found)
    yield from _folded("messages, us", suite_gpu.messages_table(found))
    yield from _folded("launches", suite_gpu.launches_table(found))
    rows = gpu_verdict.rows(found, measured)
    yield from _folded("every shape", suite_gpu.kernels_table(rows, least=0))


def model(found: Sequence[Record]) -> Iterator[str]:
    """The quality of the calibrated model's choices. Raises PageError for a test device."""
    if suite_gpu.is_emulated(found):
        raise PageError("these records are of the emulated device: CUDA on the CPU has no meaningful speed")
    rows = suite_model_device.rows(found)
    if not rows:
        return
    yield "\nThe calibrated model among the methods for device memory, on shapes that it was not calibrated with:\n"
    yield from markdown(suite_model_device.scores(rows))
    yield ""
    yield from (f"- {line}" for line in suite_model_device.errors(rows))
    yield from _folded("every shape, predicted and measured", suite_model_device.table(rows))


def _section(folder: Path) -> Iterator[str]:
    yield from card(suite_gpu.read(folder))
    file = folder / suite_model_device.FILE
    if file.is_file():
        yield from model(records.read(file))


def text(folders: Sequence[Path]) -> str:
    """The page. Raises PageError, RecordError or NoRatesError."""
    if not folders:
        return METHOD + TO_BE_MEASURED
    lines = [line for folder in folders for line in _section(folder)]
    return METHOD + "\n## Results\n" + "\n".join(lines) + "\n"
