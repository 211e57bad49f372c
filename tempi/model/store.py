"""Calibrations on disk: every raw sample, and the machine of the measurement.

A text file: the first line is an object with the format, the machine and the SHA-256 of all that follows;
then one point per line. The engine's table file (`tables`), made from it, is stored beside it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tempi import _engine
from tempi._errors import TempiError
from tempi.model import grid, samples, tables

__all__ = [
    "Calibration",
    "Gpu",
    "Machine",
    "Point",
    "StoreError",
    "gpu",
    "local",
    "machine",
    "merge",
    "read",
    "read_all",
    "save",
    "write",
]

FORMAT = 3
_NAMES = (*grid.BESIDE, *grid.ALL_QUANTITIES)


class StoreError(TempiError):
    """An unusable calibration: the message names the file and the reason, in one line."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """The card whose memory was measured. `driver`: "" if the system does not say; `cuda` as 12090."""

    name: str
    driver: str
    cuda: int
    emulated: bool

    def __str__(self) -> str:
        version = f"CUDA {self.cuda // 1000}.{self.cuda % 1000 // 10}"
        return f"{self.name}, {f'driver {self.driver}, ' if self.driver else ''}{version}"


@dataclass(frozen=True, slots=True)
class Machine:
    """The configuration that a calibration is valid for: host memory, or one card's."""

    cpu: str
    cores: int
    mpi: str
    tempi: str
    gpu: Gpu | None = None

    def engine(self) -> Any:
        """The same as an engine structure."""
        made = _engine.ffi.new("tempi_machine *")
        for name in ("cpu", "mpi", "tempi"):
            setattr(made, name, getattr(self, name).encode())
        made.cores = self.cores
        if self.gpu is not None:
            made.gpu, made.driver = self.gpu.name.encode(), self.gpu.driver.encode()
            made.cuda, made.emulated = self.gpu.cuda, self.gpu.emulated
        return made

    @property
    def table(self) -> Path:
        """Path at which the engine looks for its table."""
        room = _engine.ffi.new("char[4096]")
        status = _engine.lib.tempi_machine_file(self.engine(), room, 4096)
        _engine.check(status, doing="place of the calibration (set TEMPI_CACHE_DIR)")
        return Path(_engine.text(room) or "")

    @property
    def file(self) -> Path:
        """Path of the samples."""
        return self.table.with_suffix(".json")


def machine(mpi_version: str) -> Machine:
    """This machine with the MPI library of that version string."""
    found = _engine.ffi.new("tempi_machine *")
    _engine.check(_engine.lib.tempi_machine_describe(mpi_version.encode(), found), doing="describing the machine")
    cpu, mpi, version = (_engine.text(getattr(found, name)) or "" for name in ("cpu", "mpi", "tempi"))
    return Machine(cpu, int(found.cores), mpi, version)


def gpu(ordinal: int = 0) -> Gpu | None:
    """A card of this process; None if the CUDA driver is not loaded."""
    found = _engine.ffi.new("tempi_machine *")
    if _engine.lib.tempi_machine_add_gpu(found, ordinal) != _engine.lib.TEMPI_OK:
        return None
    return Gpu(_engine.text(found.gpu) or "", _engine.text(found.driver) or "", int(found.cuda), bool(found.emulated))


@dataclass(frozen=True, slots=True)
class Point:
    """One quantity at one place, in raw seconds of one operation; one way, for messages."""

    quantity: str
    column: grid.Column
    size: int
    peer: str | None
    seconds: tuple[float, ...]
    memory: str | None = None  # "device" or "managed"; None: host
    visits: tuple[int, ...] = ()  # number of samples per round, if there was more than one

    def joined(self, later: Point) -> Point:
        """This point with the samples of later rounds."""
        own, more = (point.visits or (len(point.seconds),) for point in (self, later))
        return replace(self, seconds=self.seconds + later.seconds, visits=own + more)

    @property
    def key(self) -> tuple[Any, ...]:
        place = (self.quantity, self.column, self.size, self.peer)
        return place if self.memory is None else (*place, self.memory)

    @property
    def median(self) -> float:
        return samples.median(self.seconds)

    @property
    def typical(self) -> float:
        """The time used in the tables."""
        return samples.typical(self.seconds)

    @property
    def trouble(self) -> str | None:
        """Why the point is marked as unstable; None if it is not."""
        return samples.trouble(self.apart)

    @property
    def spread(self) -> float:
        """Precision of the median: half the width of its 95% interval, relative to it."""
        return samples.spread(self.apart)

    @property
    def apart(self) -> list[float]:
        """Seconds that count as independent of one another."""
        ends = list(accumulate(self.visits or (len(self.seconds),)))
        return samples.apart([self.seconds[start:end] for start, end in pairwise([0, *ends])])


@dataclass(frozen=True, slots=True)
class Calibration:
    """All points of one machine and MPI library. `about`: information for later readers."""

    machine: Machine
    points: tuple[Point, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def peers(self) -> list[str]:
        """The peer classes that were measured, in order."""
        found = {point.peer for point in self.points}
        return [peer for peer in grid.PEERS if peer in found]

    @property
    def unstable(self) -> list[Point]:
        return [point for point in self.points if point.trouble]

    @property
    def spread(self) -> float:
        """Relative precision of the median of the typical point."""
        return samples.median([point.spread for point in self.points]) if self.points else 0.0

    def mismatch(self) -> str | None:
        """Why it does not fit this machine and version, whatever the MPI library; None if it does."""
        own, here = self.machine, machine(self.machine.mpi)
        if own.tempi != here.tempi:
            return f"it was measured by tempi {own.tempi}, this is {here.tempi}"
        if (own.cpu, own.cores) != (here.cpu, here.cores):
            return f"it was measured on another machine ({own.cpu}, {own.cores} cores)"
        return None

    @property
    def emulated(self) -> bool:
        """Whether it was measured on the emulated device (CUDA on the CPU), which says nothing about a GPU."""
        return self.machine.gpu is not None and self.machine.gpu.emulated


def _nearest(calibration: Calibration) -> int:
    return min((grid.NEAREST.index(peer) for peer in calibration.peers), default=len(grid.NEAREST))


def merge(old: Calibration | None, new: Calibration) -> Calibration:
    """The new one, plus the old one's points of peer classes that the new one lacks. Pack times within messages come
    from the calibration that saw the nearer class."""
    if old is None or old.machine != new.machine:
        return new
    stay = grid.WITHIN if _nearest(old) < _nearest(new) else ()
    kept = [
        point for point in old.points
        if point.quantity in stay or (point.peer is not None and point.peer not in new.peers)
    ]  # fmt: skip
    fresh = [point for point in new.points if point.quantity not in stay]
    return Calibration(new.machine, (*fresh, *kept), new.about)


# -- the file -----------------------------------------------------------------------------------------------


def _line(point: Point) -> str:
    column = point.column
    return json.dumps(
        {
            "quantity": point.quantity,
            "family": column.family,
            "run": column.run,
            "stride": column.stride,
            "size": point.size,
            "peer": point.peer,
            "memory": point.memory,
            "unstable": point.trouble,
            "visits": list(point.visits),
            "seconds": list(point.seconds),
        }
    )


def _whole(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{value!r} is no size")
    return value


def _point(line: str) -> Point:
    data = json.loads(line)
    if data["quantity"] not in _NAMES or data["family"] not in grid.ALL_FAMILIES:
        raise ValueError("a quantity or family that is not known")
    if data["peer"] is not None and data["peer"] not in grid.PEERS:
        raise ValueError("a peer that is not known")
    if data["memory"] is not None and data["memory"] not in grid.MEMORIES[1:]:
        raise ValueError("a memory that is not known")
    seconds = tuple(float(value) for value in data["seconds"])
    if not seconds or not all(0 < value < math.inf for value in seconds):
        raise ValueError("seconds that are none")
    visits = tuple(_whole(value, 1) for value in data["visits"])
    if visits and sum(visits) != len(seconds):
        raise ValueError("visits that do not make its samples")
    column = grid.Column(data["family"], _whole(data["run"], 1), _whole(data["stride"]))
    return Point(data["quantity"], column, _whole(data["size"], 1), data["peer"], seconds, data["memory"], visits)


def _gpu(data: Any) -> Gpu | None:
    if data is None:
        return None
    if not isinstance(data["emulated"], bool) or not data["name"]:
        raise ValueError("a GPU that is none")
    return Gpu(str(data["name"]), str(data["driver"]), _whole(data["cuda"]), data["emulated"])


def _text(calibration: Calibration) -> str:
    body = "".join(_line(point) + "\n" for point in calibration.points)
    own = calibration.machine
    header = {
        "tempi_calibration": FORMAT,
        "machine": {"cpu": own.cpu, "cores": own.cores, "mpi": own.mpi, "tempi": own.tempi},
        "gpu": asdict(own.gpu) if own.gpu else None,
        "about": dict(calibration.about),
        "points": len(calibration.points),
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
    }
    return json.dumps(header) + "\n" + body


def _parse(text: str) -> Calibration:
    first, _, body = text.partition("\n")
    header = json.loads(first)
    if not isinstance(header, dict) or "tempi_calibration" not in header:
        raise ValueError("it is not a tempi calibration")
    if header["tempi_calibration"] != FORMAT:
        raise ValueError("it is of another version")
    if header["sha256"] != hashlib.sha256(body.encode()).hexdigest():
        raise ValueError("it is damaged")
    own = header["machine"]
    found = Machine(str(own["cpu"]), _whole(own["cores"], 1), str(own["mpi"]), str(own["tempi"]), _gpu(header["gpu"]))
    return Calibration(found, tuple(map(_point, body.splitlines())), header.get("about", {}))


def _parse_all(text: str) -> list[Calibration]:
    """All calibrations of a shipped file, which are concatenated."""
    starts = [match.start() for match in re.finditer(r"^\{\"tempi_calibration\"", text, re.MULTILINE)]
    if len(starts) < 2:
        return [_parse(text)]
    return [_parse(text[start:end]) for start, end in pairwise([0, *starts[1:], len(text)])]


def read(path: str | os.PathLike[str]) -> Calibration:
    """The first of `read_all`: files in the cache folder have only one."""
    return read_all(path)[0]


def read_all(path: str | os.PathLike[str]) -> list[Calibration]:
    """Raises `StoreError` if the file is missing, damaged or not a calibration."""
    try:
        return _parse_all(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError:
        raise StoreError(f"{path}: it is not a tempi calibration") from None
    except UnicodeDecodeError:
        raise StoreError(f"{path}: it is not a tempi calibration") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = str(error) if isinstance(error, ValueError) else "it is damaged"
        raise StoreError(f"{path}: {what}") from None


def write_whole(path: Path, data: bytes) -> None:
    """Writes atomically: a reader never sees half a file, nor does a crash leave one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write(path: str | os.PathLike[str], *calibrations: Calibration) -> None:
    """Writes the samples only; several calibrations when they are shipped together."""
    write_whole(Path(path), "".join(map(_text, calibrations)).encode())


def call_seconds(points: Iterable[Point]) -> float:
    """Seconds that tempi's decision adds to a pack: its MPI_Pack minus its packing, where both are shortest."""
    found = {(point.quantity, point.column, point.size): point.typical for point in points}
    extra = [
        found["own_pack", column, size] - seconds
        for (quantity, column, size), seconds in found.items()
        if quantity == "engine_pack" and ("own_pack", column, size) in found
    ]
    return max(0.0, samples.median(extra)) if extra else 0.0


def typical(points: Iterable[Point]) -> dict[tuple[Any, ...], float]:
    """Seconds by (quantity, column, size, peer), as stored in the tables.

    Ping-pong of bytes that nobody writes is faster than of bytes that were just packed: they are still where the
    other rank left them. So the message time of a shape is its whole message minus pack, unpack and the two decisions,
    which the engine adds again; between the measured sizes it follows the message of packed bytes. If it is small
    compared with pack and unpack, the difference is mostly noise, and the median over the other shapes of that size is
    used instead.
    """
    points = list(points)
    decisions = 2 * call_seconds(points)
    found = {}
    for point in points:
        size = grid.nominal(point.column, point.size)
        found[(*point.key[:2], size, point.key[3])] = point.typical * size / point.size
    made = {key: value for key, value in found.items() if key[0] in grid.QUANTITIES and key[0] != "contiguous"}
    for peer in {key[3] for key in found if key[0] == "contiguous"}:
        plain = {key[2]: value for key, value in found.items() if key[0] == "contiguous" and key[3] == peer}
        beyond = _beyond(found, peer, decisions)
        ratios = {column: _ratios(own, plain) for column, own in beyond.items()}
        usual = _usual(ratios)
        for column in {key[1] for key in found if key[0] == "library_message" and key[3] == peer}:
            ratio = usual | ratios.get(column, {})
            for size, seconds in plain.items():
                made["contiguous", column, size, peer] = seconds * _ratio_at(ratio, size)
    return made


def _beyond(
    found: Mapping[tuple[Any, ...], float], peer: str | None, decisions: float
) -> dict[grid.Column, dict[int, float]]:
    """By column and size: time of whole messages minus pack, unpack and decisions, if it is a substantial part."""
    made: dict[grid.Column, dict[int, float]] = {}
    for (quantity, column, size, whose), seconds in found.items():
        parts = [found.get((part, column, size, None)) for part in ("stage_pack", "stage_unpack")]
        if quantity == "host_message" and whose == peer and None not in parts:
            rest = seconds - decisions - sum(part for part in parts if part is not None)
            if rest > seconds / 4:
                made.setdefault(column, {})[size] = rest
    return made


def _ratios(own: Mapping[int, float], plain: Mapping[int, float]) -> dict[float, float]:
    """Ratios to the message of packed bytes; logarithms of both size and ratio."""
    known = {math.log(size): math.log(seconds) for size, seconds in plain.items()}
    places = {math.log(size): math.log(seconds) for size, seconds in own.items()}
    return {place: value - tables.fill(known, [place])[0] for place, value in places.items()}


def _usual(ratios: Mapping[grid.Column, Mapping[float, float]]) -> dict[float, float]:
    """The median over the columns for each size."""
    places = {place for own in ratios.values() for place in own}
    return {place: samples.median([own[place] for own in ratios.values() if place in own]) for place in places}


def _ratio_at(known: Mapping[float, float], size: int) -> float:
    """The interpolated ratio, constant beyond the ends; 1 if nothing is known."""
    if not known:
        return 1.0
    place = min(max(math.log(size), min(known)), max(known))
    return math.exp(tables.fill(known, [place])[0])


def table_of(calibration: Calibration, kept: Collection[str] = grid.ALL_QUANTITIES) -> bytes:
    """The engine's file, with tables of the quantities in `kept`."""
    own = calibration.machine
    host = [point for point in calibration.points if point.memory is None]
    made = tables.build(typical(host))
    for memory in grid.MEMORIES[1:]:
        known = {p.key[:4]: p.typical for p in calibration.points if p.memory == memory}
        made += tables.build(known, memory)
    card = (own.gpu.name, own.gpu.driver, own.gpu.cuda, own.gpu.emulated) if own.gpu else ("", "", 0, False)
    made = [table for table in made if table.quantity in kept]
    return tables.encode(made, call_seconds(host), own.cores, (own.tempi, own.cpu, own.mpi), card)


def save(calibration: Calibration) -> Path:
    """Writes samples and table to their standard paths; returns the path of the samples."""
    own = calibration.machine
    write(own.file, calibration)
    write_whole(own.table, table_of(calibration))
    return own.file


def local(*, devices: bool = False) -> Iterable[tuple[Path, Calibration | StoreError]]:
    """Every calibration of host memory, or of devices, in the cache folder; errors for unusable ones."""
    folder = machine("").file.parent
    for path in sorted(folder.glob("model-*.json")):
        if (path.stem.count("-") > 1) != devices:
            continue
        try:
            yield path, read(path)
        except StoreError as error:
            yield path, error
