"""Evaluation of made-up `tempi bench gpu` records, and the absence of figures of the emulated device."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tempi.bench.gpu import verdict as gpu_verdict
from tempi.bench.gpu.verdict import Rates
from tempi.bench.suites import gpu as suite_gpu
from tempi.bench.suites import gpu_page
from tempi.measure import records
from tempi.measure.records import Record

pytestmark = pytest.mark.once

RATE = 4e12
CARD = {
    "name": "NVIDIA H200",
    "emulated": False,
    "capability": "9.0",
    "multiprocessors": 132,
    "memory": 141 << 30,
    "cuda": "12.8",
}
MACHINE = {"cpu": "some CPU", "commit": "abc"}
MIB = 1 << 20


def make(part: str, case: str, op: str, subject: str, size: int, seconds: float | None, **meta: Any) -> Record:
    taken = () if seconds is None else tuple(seconds * (1 + 1e-3 * (i % 3)) for i in range(9))
    common = {"part": part, "device": CARD, "machine": MACHINE, "emulated": False}
    return Record("gpu", case, op, subject, size, taken, {**common, **meta})


def memory_rates(granule: int, fill: float) -> list[Record]:
    """Records of a card of RATE with that granule and that cost of partial writes."""
    size = 64 * MIB
    pieces = size // 32
    fetched = {32: (32, 64, 64), 64: (64, 64, 128)}[granule]
    found = [make("rates", "copy of 1 GiB", "copy", "driver", 2 << 30, (2 << 30) / RATE)]
    for shift, each in zip((0, 16, 48), fetched, strict=True):
        name = f"32 of 128 bytes, from {shift} on"
        found.append(make("rates", name, "pack", "tempi", size, (size + pieces * each) / RATE))
    for run in (16, 32):
        touched = size // run * granule
        filled = touched if run < granule else 0
        seconds = (size + touched + fill * filled) / RATE
        found.append(make("rates", f"{run} of 128 bytes", "unpack", "tempi", size, seconds))
    return found


def kernel(
    op: str, run: int, share: float, memcpy: float = 2.0, cupy: float = 1.5, stride: int | None = None
) -> list[Record]:
    """tempi at that fraction of the sector bound; the others take that many times tempi's time."""
    size = 64 * MIB
    moved, filled = 3 * size, size if op == "unpack" else 0
    meta = {"run": run, "stride": stride, "moved": {"32": [moved, filled], "64": [2 * moved, filled]}, "checked": True}
    seconds = (moved + 0.5 * filled) / RATE / share
    name = f"vector run {run} stride {stride or 2 * run}, {size // MIB} MiB"
    subjects = {"tempi": seconds, "memcpy": memcpy * seconds, "cupy": cupy * seconds}
    return [make("kernels", name, op, subject, size, value, **meta) for subject, value in subjects.items()]


def probes(stride: int, run: int, each: float) -> list[Record]:
    """A gather and a scatter that take `each` seconds a run."""
    runs = 1 << 20
    meta = {"runs": runs, "run": run, "stride": stride}
    return [
        make("rates", f"run {run} stride {stride}", op, "probe", runs * run, each * runs, **meta)
        for op in ("gather", "scatter")
    ]


def launches(more: float, fused: int = 1) -> list[Record]:
    found = [make("launches", "an empty kernel", "empty and wait", "driver", 0, 8e-6)]
    for op in ("pack", "unpack"):
        found.append(make("launches", "64 KiB", f"{op} and wait", "tempi", 65536, 8e-6 + more))
        found.append(make("launches", "halo", op, "fused", 1000, 2e-5, launches=fused, checked=True))
    return found


def everything() -> list[Record]:
    found = [*memory_rates(32, 0.5), *launches(5e-7)]
    return found + kernel("pack", 64, 0.95) + kernel("unpack", 64, 0.93) + kernel("pack", 8, 0.85)


def bar(found: Sequence[Record], word: str) -> gpu_verdict.Bar:
    (one,) = [bar for bar in gpu_verdict.bars(found) if word in bar.text]
    return one


@pytest.mark.parametrize("granule", [32, 64])
@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0])
def test_the_rates_of_a_card_are_found_again(granule: int, fill: float) -> None:
    found = gpu_verdict.rates(memory_rates(granule, fill))
    assert found.copy == pytest.approx(RATE, rel=0.01)
    assert found.granule == granule
    assert found.fill == pytest.approx(fill, abs=0.05)


def test_a_slow_kernel_does_not_look_like_costly_writes() -> None:
    """Both probes take twice their time, so it is the kernel and not the memory."""
    found = memory_rates(32, 0.0)
    slow = [
        make("rates", record.case, "unpack", "tempi", record.bytes, 2 * record.seconds[0])
        for record in found
        if record.op == "unpack"
    ]
    found = [record for record in found if record.op != "unpack"] + slow
    assert gpu_verdict.rates(found).fill == pytest.approx(0, abs=0.05)


def test_without_a_copy_there_are_no_rates() -> None:
    with pytest.raises(gpu_verdict.NoRatesError):
        gpu_verdict.rates(launches(0))


def test_the_share_is_of_the_bound_at_the_measured_granule() -> None:
    measured = Rates(RATE, 32, 0.5)
    pack, unpack = gpu_verdict.rows(kernel("pack", 64, 0.95) + kernel("unpack", 64, 0.9), measured)
    assert pack.share.value == pytest.approx(0.95, rel=0.01)
    assert unpack.share.value == pytest.approx(0.9, rel=0.01)
    (wide,) = gpu_verdict.rows(kernel("pack", 64, 0.95), Rates(RATE, 64, 0.0))
    assert wide.share.value == pytest.approx(1.9, rel=0.01)


def test_at_wide_strides_the_probe_is_the_larger_bound() -> None:
    """A pack at half of the sector bound, and at 95% of the time that reading its runs takes."""
    found = kernel("pack", 64, 0.5, stride=512)
    size, seconds = found[0].bytes, found[0].seconds[0]
    probed = everything() + probes(512, 64, 0.95 * seconds / (size // 64)) + found
    (one,) = [row for row in gpu_verdict.rows(probed, gpu_verdict.rates(probed)) if row.share.value < 0.6]
    assert one.probed is not None
    assert one.share.value == pytest.approx(0.5, rel=0.01)
    assert one.bound.value == pytest.approx(0.95, rel=0.01)
    assert not one.below
    assert bar(probed, "90% of").met
    assert not bar(everything() + found, "90% of").met
    wider = gpu_verdict.rows(everything() + probes(4096, 64, 1.0) + found, Rates(RATE, 32, 0.0))
    assert {row.probed for row in wider} == {None}, "another stride"


def test_blocks_at_random_places_are_bounded_by_the_probe_of_the_widest_stride() -> None:
    found = [record.with_meta(family="indexed") for record in kernel("pack", 16, 0.5)]
    each = found[0].seconds[0] / (found[0].bytes // 16)
    found += probes(512, 16, 0.3 * each) + probes(4096, 16, 0.8 * each)
    (one,) = gpu_verdict.rows(found, Rates(RATE, 32, 0.0))
    assert one.probed is not None
    assert one.probed.value == pytest.approx(0.8, rel=0.01)


def test_runs_shorter_than_a_word_are_bounded_by_the_shortest_probe() -> None:
    found = kernel("unpack", 4, 0.5, stride=512) + probes(512, 16, 2e-12) + probes(512, 32, 5e-12)
    assert gpu_verdict.probed_seconds(found[0], gpu_verdict.probed(found)) == pytest.approx(
        2e-12 * found[0].bytes / 4, rel=0.01
    )


@pytest.mark.parametrize(
    ("size", "run", "wanted"),
    [(64, 16, 0.9), (64, 4096, 0.9), (256, 4, 0.8), (64, 8, 0.8), (64, 2, None), (16, 64, None)],
)
def test_the_wanted_share_depends_on_size_and_run(size: int, run: int, wanted: float | None) -> None:
    assert gpu_verdict.wanted_share(size * MIB, run) == wanted


def test_all_targets_are_met() -> None:
    assert all(one.met for one in gpu_verdict.bars(everything()))


def test_a_share_that_is_missed_is_named() -> None:
    found = everything() + kernel("pack", 256, 0.7)
    missed = bar(found, "90% of")
    assert missed.met is False
    assert missed.measured.startswith("2 of 3; least 70%")
    assert missed.missing == ("pack of vector run 256 stride 512, 64 MiB: 70%",)
    assert bar(found, "80% of").met


@pytest.mark.parametrize(("memcpy", "met"), [(1.5, True), (0.99, True), (0.8, False)])
def test_slower_than_the_driver_is_missed(memcpy: float, met: bool) -> None:
    found = everything() + kernel("pack", 1024, 0.95, memcpy=memcpy)
    assert bar(found, "cudaMemcpy").met is met
    assert bar(found, "CuPy").met


@pytest.mark.parametrize(("more", "met"), [(5e-7, True), (2e-6, False)])
def test_latency_is_held_against_an_empty_launch(more: float, met: bool) -> None:
    found = memory_rates(32, 0) + launches(more)
    assert bar(found, "64 KiB pack").met is met
    assert bar(found, "64 KiB pack").measured == f"{1e6 * more:+.1f} us"


def test_more_than_one_launch_is_missed() -> None:
    assert bar(memory_rates(32, 0) + launches(0, fused=2), "halo unpack").met is False


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    bars = gpu_verdict.bars(memory_rates(32, 0))
    assert {one.met for one in bars if "right" not in one.text} == {None}


def test_a_wrong_answer_is_missed() -> None:
    wrong = make("kernels", "c", "pack", "tempi", 8, None, refused="3 wrong packed bytes")
    assert bar([*everything(), wrong], "right").met is False


def printed(found: Sequence[Record]) -> tuple[str, bool]:
    parts: dict[str, list[Record]] = {}
    for record in found:
        parts.setdefault(record.meta["part"], []).append(record)
    console = Console(file=io.StringIO(), width=160)
    good = suite_gpu.show(console, parts)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue(), good


def test_the_targets_are_printed_last() -> None:
    text, good = printed(everything())
    assert good
    assert text.rstrip().splitlines()[-2].startswith("│ fused halo unpack in one launch")
    assert "copies at 3996" in text
    assert not printed(everything() + kernel("pack", 256, 0.7))[1]


def test_no_time_is_shown_of_an_emulated_device() -> None:
    """Not even if records contain times and only the device's name says that it is emulated."""
    card = {**CARD, "name": "tempi EMULATED device 0 (CUDA on the CPU)"}
    found = [record.with_meta(device=card) for record in everything()]
    text, good = printed(found)
    assert "EMULATED DEVICE (CUDA on the CPU): correctness only, no times" in text
    assert good
    assert not any(word in text for word in (" us", "GB/s", "%", "bound"))


def written(folder: Path, found: Sequence[Record]) -> Path:
    for part in ("rates", "kernels", "launches"):
        records.write(folder / f"{part}.json", [record for record in found if record.meta["part"] == part])
    return folder


def test_the_page_has_the_figures_of_each_card(tmp_path: Path) -> None:
    page = gpu_page.text([written(tmp_path, everything() + kernel("pack", 256, 0.7))])
    assert page.startswith("# GPU performance")
    assert "### NVIDIA H200, driver for CUDA 12.8" in page
    assert "It copies at 3996" in page
    assert "- 90% of the bound" in page
    assert "to be measured" not in page.lower()


def test_the_page_refuses_an_emulated_device(tmp_path: Path) -> None:
    found = [record.with_meta(emulated=True) for record in everything()]
    with pytest.raises(gpu_page.PageError, match="emulated device"):
        gpu_page.text([written(tmp_path, found)])


def test_the_page_refuses_a_rehearsal_unless_it_is_asked_for(tmp_path: Path) -> None:
    card = {**CARD, "name": "tempi REHEARSAL device 0 (CUDA on the CPU)"}
    folder = written(tmp_path, [record.with_meta(device=card) for record in everything()])
    with pytest.raises(gpu_page.PageError, match="rehearsal"):
        gpu_page.text([folder])
    assert "### REHEARSAL (CUDA on the CPU): these are not times of a GPU" in gpu_page.text([folder], rehearsed=True)


def test_what_is_explained_and_what_is_measured_are_apart(tmp_path: Path) -> None:
    for page in (gpu_page.text([]), gpu_page.text([written(tmp_path, everything())])):
        _, explained, rest = page.partition("\n## Reading the figures\n")
        explanation, measured, _ = rest.partition("\n## Measured\n")
        assert explained
        assert measured
        assert not re.search(r"\d+(\.\d+)? ?(%|GB/s|us\b|microsecond|times|x\b)", explanation)


def test_notes_beside_the_records_are_on_the_page(tmp_path: Path) -> None:
    folder = written(tmp_path, everything())
    (folder / "notes.md").write_text("Measured on a Tuesday.\n")
    assert gpu_page.text([folder]).endswith("\nMeasured on a Tuesday.\n")


def test_a_page_without_records_says_so() -> None:
    assert gpu_page.text([]).endswith("## Measured\n\nNot measured yet: there is no record of a GPU.\n")


def test_a_part_alone_makes_a_page(tmp_path: Path) -> None:
    """Without the rates there are no bounds; tests, overlap and one-shot copies are shown as they are."""
    about = {"emulated": False, "device": CARD, "machine": MACHINE}
    tested = {"part": "tests", "passed": 7, "failed": 0, "skipped": 1, "reasons": ["SKIPPED [1] no sanitizer"], **about}
    found = [
        make("overlap", "faces", "overlap", name, 64, seconds)
        for name, seconds in (
            ("exchange", 1e-4),
            ("interior", 2e-4),
            ("interior first", 2.5e-4),
            ("interior within", 3e-4),
        )
    ]
    found += [make("kernels", "c", "one-shot pack", "8 blocks", 1 << 20, 1e-3)]
    for part in ("overlap", "kernels"):
        records.write(tmp_path / f"{part}.json", [record for record in found if record.meta["part"] == part])
    over = Record("gpu", "MPS", "messages", "all", 0, (), {"part": "messages", "left_out": "there is no control"})
    records.write(tmp_path / "messages.json", [over])
    records.write(tmp_path / "tests.json", [Record("gpu", "step", "tests", "tempi", 0, (), tested)])
    page = gpu_page.text([tmp_path])
    assert "The part rates was not measured" in page
    assert "Tests on the card: 7 passed, 0 failed, 1 skipped, in 1 steps." in page
    assert "- SKIPPED [1] no sanitizer" in page
    assert "Not measured: messages, MPS: there is no control." in page
    assert "| faces | 100 | 200 | 250 | 300 | 50% | 0% |" in page
    assert "| c | pack | 1.0 |" in page


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(records.RecordError, match="no records"):
        gpu_page.text([tmp_path])


def test_the_page_in_docs_is_the_present_one() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "gpu.md").read_text()
    assert page.startswith(gpu_page.METHOD), "run scripts/gpu"
    if "Not measured yet" in page:
        assert page == gpu_page.text([])
