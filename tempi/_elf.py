"""Reads enough of an ELF file to determine whether a preload can reach it.

Field layouts: System V ABI, chapters 4 and 5 (ELF header, program headers, sections, symbols).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Elf", "NotElfError", "read"]

_PT_DYNAMIC, _PT_INTERP = 2, 3
_SHT_SYMTAB, _SHT_STRTAB, _SHT_DYNAMIC, _SHT_DYNSYM = 2, 3, 6, 11
_DT_NEEDED = 1
_MACHINES = {3: "i386", 20: "ppc", 21: "ppc64", 22: "s390", 40: "arm", 62: "x86-64", 183: "arm64", 243: "riscv"}


class NotElfError(ValueError):
    """The file is not a readable ELF file."""


@dataclass(frozen=True, slots=True)
class Elf:
    """One ELF file. `defines` and `imports` are symbol names, including those of the static table."""

    machine: str
    bits: int
    dynamic: bool  # has a dynamic section: the loader processes it
    interpreter: bool  # names a loader: a program linked at start
    needed: tuple[str, ...]
    defines: frozenset[str]
    imports: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Format:
    """Struct formats and field positions for one class (32 or 64 bits) and byte order."""

    order: str
    bits: int

    def header(self, data: bytes) -> tuple[int, ...]:
        """(type, machine, version, entry, phoff, shoff, flags, ehsize, phentsize, phnum, ...)"""
        return struct.unpack_from(self.order + ("HHIQQQIHHHHHH" if self.bits == 64 else "HHIIIIIHHHHHH"), data, 16)

    def section(self, data: bytes, at: int) -> tuple[int, int, int, int]:
        """(type, offset, size, link) of the section header at `at`."""
        form = "IIQQQQII" if self.bits == 64 else "IIIIIIII"
        fields = struct.unpack_from(self.order + form, data, at)
        return fields[1], fields[4], fields[5], fields[6]

    def symbols(self, table: bytes) -> Iterator[tuple[int, int]]:
        """(name offset, section index) of each symbol; index 0 means undefined."""
        if self.bits == 64:
            for name, _, _, index, _, _ in struct.iter_unpack(self.order + "IBBHQQ", table):
                yield name, index
        else:
            for name, _, _, _, _, index in struct.iter_unpack(self.order + "IIIBBH", table):
                yield name, index

    def tags(self, table: bytes) -> Iterator[tuple[int, ...]]:
        """(tag, value) of each entry of the dynamic section."""
        return struct.iter_unpack(self.order + ("qQ" if self.bits == 64 else "iI"), table)


def _text(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode("utf-8", "replace")


def _parse(data: bytes) -> Elf:
    form = _Format("<" if data[5] == 1 else ">", 64 if data[4] == 2 else 32)
    _, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, _ = form.header(data)
    kinds = {struct.unpack_from(form.order + "I", data, phoff + i * phentsize)[0] for i in range(phnum)}
    sections = [form.section(data, shoff + i * shentsize) for i in range(shnum)]
    needed: list[str] = []
    defines: set[str] = set()
    imports: set[str] = set()
    for kind, offset, size, link in sections:
        if kind not in (_SHT_SYMTAB, _SHT_DYNSYM, _SHT_DYNAMIC) or link >= len(sections):
            continue
        table = data[offset : offset + size]
        _, start, length, _ = sections[link]
        strings = data[start : start + length]
        if kind == _SHT_DYNAMIC:
            needed += [_text(strings, value) for tag, value in form.tags(table) if tag == _DT_NEEDED]
        else:
            for name, index in form.symbols(table):
                (defines if index else imports).add(_text(strings, name))
    return Elf(
        machine=_MACHINES.get(machine, f"machine {machine}"),
        bits=form.bits,
        dynamic=_PT_DYNAMIC in kinds,
        interpreter=_PT_INTERP in kinds,
        needed=tuple(needed),
        defines=frozenset(defines),
        imports=frozenset(imports),
    )


def read(path: Path) -> Elf:
    """Read the ELF file at `path`. Raises NotElfError, or OSError if it cannot be read."""
    data = path.read_bytes()
    if data[:4] != b"\x7fELF" or len(data) < 52 or data[4] not in (1, 2):
        raise NotElfError(f"{path}: not an ELF file")
    try:
        return _parse(data)
    except (struct.error, ValueError, IndexError) as error:
        raise NotElfError(f"{path}: a broken ELF file ({error})") from error
