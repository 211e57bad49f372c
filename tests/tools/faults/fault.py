"""A fault that planted.py plants: one substitution in one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    area: str  # of planted.AREAS
    name: str  # what is wrong with it, in one line
    file: str
    old: str  # once in the file
    new: str
    tests: tuple[str, ...] = ()  # tried before the area's
    mpi: str = ""  # the only one under which it shows

    def planted(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {self.name}: the text is there {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)
