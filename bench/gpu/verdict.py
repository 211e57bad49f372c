"""Evaluates the records of ``tempi bench gpu``: the memory's rates, each kernel's fraction of its bound, and
whether the targets are met. Pure functions: records in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tempi.bench import stats, suite
from tempi.bench.cases import MIB
from tempi.bench.stats import Interval
from tempi.measure.records import Record

#: The targets: fractions of the larger bound from LARGE packed bytes on, by bytes of a contiguous run.
LARGE, SHARES = 64 * MIB, ((16, 0.9), (4, 0.8))
#: "Never slower" means: not surely slower by more than this factor.
SLOWER = 1.02
#: Seconds that 64 KiB may take in addition to an empty launch and a wait.
LATENCY = 1e-6


class NoRatesError(ValueError):
    """The records do not contain the card's copy rate."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second of the card's memory, read and written together; its granule in bytes; and the extra cost of a
    byte in a partly written sector, 0 to 1."""

    copy: float
    granule: int
    fill: float


def of_part(found: Iterable[Record], part: str) -> list[Record]:
    return [record for record in found if record.meta.get("part") == part]


def _median(found: Iterable[Record], case: str, op: str) -> float | None:
    seconds = [value for record in found if record.case == case and record.op == op for value in record.seconds]
    return stats.median(seconds).value if seconds else None


def granule_of(times: Sequence[float]) -> int:
    """The granule, from the times to fetch 32 of every 128 bytes at offsets 0, 16 and 48 from a multiple of 128.

    At 16 they span two sectors of 32 bytes but one of 64; at 48 two of either size. The step with the larger
    increase gives the granule."""
    at_0, at_16, at_48 = times
    return 32 if at_16 / at_0 > at_48 / at_16 else 64


def fill_of(copy: float, granule: int, size: int, halves: float, wholes: float) -> float:
    """The extra cost of a byte in a partly written sector, from the times to write 16 and 32 of every 128 bytes, with
    `size` packed bytes each. With sectors of 32 bytes the second writes whole ones, and shows how close the kernel
    comes to the rate."""
    written = 32 * (size // 16) if granule == 32 else 64 * (size // 16)
    efficiency = min(1.0, 2 * size / (wholes * copy)) if granule == 32 else 1.0
    return min(1.0, max(0.0, (halves * copy * efficiency - size - written) / written))


def rates(found: Iterable[Record]) -> Rates:
    """Raises NoRatesError."""
    part = of_part(found, "rates")
    copies = [record for record in part if record.op == "copy" and record.seconds]
    if not copies:
        raise NoRatesError("no record of a copy in these results")
    copy = max(record.bytes / stats.median(record.seconds).value for record in copies)
    fetched = [_median(part, f"32 of 128 bytes, from {shift} on", "pack") for shift in (0, 16, 48)]
    halves, wholes = (_median(part, f"{size} of 128 bytes", "unpack") for size in (16, 32))
    times = [value for value in fetched if value]
    granule = granule_of(times) if len(times) == 3 else 32
    size = next((record.bytes for record in part if record.op == "unpack"), 0)
    fill = fill_of(copy, granule, size, halves, wholes) if halves and wholes else 0.0
    return Rates(copy, granule, fill)


# -- kernels -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One shape, packed or unpacked. Seconds are medians of device time."""

    case: str
    op: str
    size: int
    run: int
    seconds: Mapping[str, float]
    share: Interval  # of the sector bound
    probed: Interval | None  # of the time that the gather probe takes for the same runs
    wanted: float | None
    against: Mapping[str, Interval]  # the other subject's time over tempi's

    @property
    def below(self) -> bool:
        """Surely below the target fraction."""
        return self.wanted is not None and self.bound.high < self.wanted

    @property
    def bound(self) -> Interval:
        """The fraction of the larger of the two bounds."""
        return self.share if self.probed is None or self.probed.value < self.share.value else self.probed

    @property
    def slower_than(self) -> tuple[str, ...]:
        """The subjects that are surely faster than tempi."""
        return tuple(name for name, ratio in self.against.items() if 1 / ratio.high > SLOWER)


def wanted_share(size: int, run: int) -> float | None:
    """The target for a shape, or None."""
    if size < LARGE:
        return None
    return next((share for least, share in SHARES if run >= least), None)


def bound_seconds(record: Record, measured: Rates) -> float:
    """The sector bound of a pack or unpack at the card's rates."""
    moved, filled = record.meta["moved"][str(measured.granule)]
    return float((moved + measured.fill * filled) / measured.copy)


#: The probe that bounds each operation: only its strided side.
PROBES = {"pack": "gather", "unpack": "scatter"}
Probed = Mapping[tuple[str, int, int], float]


def probed(found: Iterable[Record]) -> Probed:
    """Seconds of one run by (probe, stride, bytes of a run): at wide strides no kernel reads or writes faster, whatever
    the sectors, since each run opens another page of the memory."""
    part = [record for record in of_part(found, "rates") if record.subject == "probe" and record.seconds]
    return {
        (record.op, record.meta["stride"], record.meta["run"]): stats.median(record.seconds).value / record.meta["runs"]
        for record in part
    }


def _probed_stride(record: Record, probes: Probed) -> int:
    """Blocks at random places open a page of the memory each, as those of the widest stride do."""
    if record.meta.get("family") == "indexed":
        return max((stride for _, stride, _ in probes), default=0)
    return record.meta.get("stride") or 0


def probed_seconds(record: Record, probes: Probed) -> float | None:
    """The probe's time for the runs of a pack or unpack; None if its stride was not probed."""
    run, wanted = int(record.meta["run"]), _probed_stride(record, probes)
    least = min((each for _, stride, each in probes if stride == wanted), default=run)
    each = probes.get((PROBES[record.op], wanted, max(run, least)))
    return None if each is None else each * record.bytes / run


def row(group: Mapping[str, list[Record]], measured: Rates, probes: Probed) -> Row | None:
    own = suite.samples(group.get("tempi"))
    if not own:
        return None
    record = group["tempi"][0]
    taken = {subject: suite.samples(found) for subject, found in group.items()}
    run = int(record.meta["run"])
    bound, probe = bound_seconds(record, measured), probed_seconds(record, probes)
    return Row(
        case=record.case,
        op=record.op,
        size=record.bytes,
        run=run,
        seconds={subject: stats.median(values).value for subject, values in taken.items() if values},
        share=stats.ratio([bound] * len(own), own),
        probed=stats.ratio([probe] * len(own), own) if probe is not None else None,
        wanted=wanted_share(record.bytes, run),
        against={name: stats.ratio(taken[name], own) for name in ("memcpy", "cupy") if taken.get(name)},
    )


def rows(found: Sequence[Record], measured: Rates) -> list[Row]:
    probes = probed(found)
    part = [record for record in of_part(found, "kernels") if record.op in PROBES]
    made = (row(group, measured, probes) for group in suite.by_case(part).values())
    return [one for one in made if one is not None]


# -- launches ------------------------------------------------------------------------------------------


def latency(found: Iterable[Record], op: str) -> Interval | None:
    """Seconds that 64 KiB, packed or unpacked and waited for, take in addition to an empty launch and a wait."""
    part = of_part(found, "launches")
    own = [value for record in part if record.op == f"{op} and wait" for value in record.seconds]
    empty = [value for record in part if record.op == "empty and wait" for value in record.seconds]
    return stats.difference(own, empty) if own and len(own) == len(empty) else None


def fused_launches(found: Iterable[Record], op: str) -> int | None:
    """Launches of the fused halo pack or unpack."""
    part = of_part(found, "launches")
    return next((int(r.meta["launches"]) for r in part if r.op == op and r.subject == "fused"), None)


# -- the targets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A target, the measured value, and whether it is met; None: not measured in this run."""

    text: str
    measured: str
    met: bool | None
    missing: tuple[str, ...] = ()


def _named(one: Row) -> str:
    return f"{one.op} of {one.case}"


def _share_bar(found: Sequence[Row], share: float, runs: str) -> Bar:
    of = [one for one in found if one.wanted == share]
    text = f"{100 * share:.0f}% of the bound, 64 MiB and more, runs of {runs}"
    if not of:
        return Bar(text, "not measured", None)
    least = min(of, key=lambda one: one.bound.value)
    below = [one for one in of if one.below]
    summary = f"{len(of) - len(below)} of {len(of)}; least {100 * least.bound.value:.0f}%"
    names = tuple(f"{_named(one)}: {100 * one.bound.value:.0f}%" for one in below)
    return Bar(text, summary, not below, names)


def _never_slower_bar(found: Sequence[Row], other: str, title: str) -> Bar:
    of = [one for one in found if other in one.against]
    text = f"never slower than {title}"
    if not of:
        return Bar(text, "not measured", None)
    slower = [one for one in of if other in one.slower_than]
    mean = stats.geometric_mean(one.against[other].value for one in of)
    names = tuple(f"{_named(one)}: {one.against[other].value:.2f}x" for one in slower)
    return Bar(text, f"{len(of) - len(slower)} of {len(of)}; mean {mean:.2f}x", not slower, names)


def _latency_bar(found: Sequence[Record], op: str) -> Bar:
    text = f"64 KiB {op} within {1e6 * LATENCY:.0f} us of an empty launch and a wait"
    more = latency(found, op)
    if more is None:
        return Bar(text, "not measured", None)
    return Bar(text, f"{1e6 * more.value:+.1f} us", more.low <= LATENCY)


def _fused_bar(found: Sequence[Record], op: str) -> Bar:
    text = f"fused halo {op} in one launch"
    launches = fused_launches(found, op)
    return Bar(text, "not measured" if launches is None else str(launches), None if launches is None else launches == 1)


def wrong_bar(found: Sequence[Record]) -> Bar:
    """All packed, sent or exchanged bytes were right."""
    checked = [record for record in found if record.meta.get("checked") or record.op == "check"]
    refused = suite.refusals(found)
    text = "every answer right"
    return Bar(text, f"{len(checked)} checked, {len(refused)} wrong", bool(checked) and not refused, tuple(refused))


def bars(found: Sequence[Record]) -> list[Bar]:
    """All targets. Raises NoRatesError."""
    made = rows(found, rates(found))
    return [
        wrong_bar(found),
        _share_bar(made, 0.9, "16 bytes and more"),
        _share_bar(made, 0.8, "4 to 15 bytes"),
        _never_slower_bar(made, "memcpy", "cudaMemcpy2DAsync and 3DAsync"),
        _never_slower_bar(made, "cupy", "CuPy"),
        *(_latency_bar(found, op) for op in ("pack", "unpack")),
        *(_fused_bar(found, op) for op in ("pack", "unpack")),
    ]
