"""Measurements as immutable records, one JSON object a line, with every raw sample kept.

``{"bench","case","op","subject","bytes","seconds":[raw...],"meta":{...}}``: seconds are those of one
operation; an empty list means that the subject was refused (``meta["refused"]`` says why) or that the
record has no times. ``meta["machine"]`` describes the machine.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import tempi
from tempi import _engine
from tempi._aliases import renamed


class RecordError(ValueError):
    """A line that is not a record; the message names the file, the line and the error."""


@dataclass(frozen=True, slots=True)
class Record:
    """One subject doing one operation on one case."""

    bench: str
    case: str
    op: str
    subject: str
    bytes: int
    seconds: tuple[float, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key of the same measurement in other files."""
        return (self.bench, self.case, self.op, self.subject)

    def with_meta(self, **more: Any) -> Record:
        return replace(self, meta={**self.meta, **more})

    def line(self) -> str:
        """The record as one line of JSON, without its newline."""
        return json.dumps(
            {
                "bench": self.bench,
                "case": self.case,
                "op": self.op,
                "subject": self.subject,
                "bytes": self.bytes,
                "seconds": list(self.seconds),
                "meta": dict(self.meta),
            }
        )


def _checked(data: Any) -> Record:
    if not isinstance(data, dict):
        raise RecordError("not a JSON object")
    texts: dict[str, Any] = {name: data.get(name) for name in ("bench", "case", "op", "subject")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise RecordError(f'"{name}" is not a string')
    size, seconds, meta = data.get("bytes"), data.get("seconds"), data.get("meta", {})
    if not isinstance(size, int) or isinstance(size, bool):
        raise RecordError('"bytes" is not an integer')
    if not isinstance(seconds, list) or not all(isinstance(s, (int, float)) for s in seconds):
        raise RecordError('"seconds" is not a list of numbers')
    if not isinstance(meta, dict):
        raise RecordError('"meta" is not an object')
    if isinstance(meta.get("counters"), dict):
        meta = {**meta, "counters": renamed(meta["counters"])}
    return Record(bytes=size, seconds=tuple(map(float, seconds)), meta=meta, **texts)


def parse(line: str) -> Record:
    """Parses one line. Raises `RecordError`."""
    try:
        return _checked(json.loads(line))
    except json.JSONDecodeError as error:
        raise RecordError(f"not JSON: {error.msg}") from error


def parse_lines(lines: Iterable[str], name: str) -> Iterator[Record]:
    """Parses the records of a text; skips blank lines. `name` is for the error message."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield parse(line)
            except RecordError as error:
                raise RecordError(f"{name}, line {number}: {error}") from error


def read(path: str | os.PathLike[str]) -> list[Record]:
    """All records of a file ("-": stdin)."""
    if os.fspath(path) == "-":
        return list(parse_lines(sys.stdin, "stdin"))
    with Path(path).open(encoding="utf-8") as file:
        return list(parse_lines(file, os.fspath(path)))


def write(path: str | os.PathLike[str], records: Iterable[Record]) -> None:
    """Writes the file atomically ("-": stdout)."""
    text = "".join(record.line() + "\n" for record in records)
    if os.fspath(path) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name + ".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise


class Journal:
    """A file to which records are added one by one: what was measured is in it, however the process ends.

    The first record replaces the file of an earlier run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: IO[str] | None = None

    def add(self, record: Record) -> Record:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8")
        self._file.write(record.line() + "\n")
        self._file.flush()
        return record

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _processor() -> str:
    """As a calibration names it: with family and model, as virtual machines hide which one it is."""
    found = _engine.ffi.new("tempi_machine *")
    _engine.check(_engine.lib.tempi_machine_describe(b"", found), doing="describing the machine")
    return _engine.text(found.cpu) or "unknown"


#: Names the commit where there is no git. Not named TEMPI_*: those variables are the user's and are checked.
COMMIT = "_TEMPI_COMMIT"


def _commit() -> str | None:
    """The commit of the tree that contains this file, with ``+`` if the tree has changes."""
    if os.environ.get(COMMIT):
        return os.environ[COMMIT]
    git = ["git", "-C", str(Path(__file__).resolve().parent)]
    try:
        done = subprocess.run(
            [*git, "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


@functools.cache
def _machine() -> tuple[tuple[str, Any], ...]:
    return (
        ("cpu", _processor()),
        ("cores", os.cpu_count()),  # of the machine: launchers bind a rank to some of them
        ("arch", platform.machine()),
        ("kernel", platform.release()),
        ("python", platform.python_version()),
        ("tempi", tempi.__version__),
        ("commit", _commit()),
    )


def machine() -> dict[str, Any]:
    """Properties that measurements depend on and that are lost later; above all, that a device was emulated."""
    if os.environ.get("TEMPI_CUDA_DRIVER") == "emulated":
        return {**dict(_machine()), "cuda": "EMULATED: CUDA on the CPU, a test device"}
    return dict(_machine())
