"""Options of the workers: written as arguments by the suites, read back by the workers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackOptions:
    """`seconds`: budget of one case and operation; `memory`: bytes that a case may take a rank."""

    quick: bool
    seconds: float
    memory: int

    def arguments(self) -> list[str]:
        flags = ["--quick"] * self.quick
        return [*flags, "--seconds", str(self.seconds), "--memory", str(self.memory)]


@dataclass(frozen=True, slots=True)
class OverheadOptions:
    """`seconds`: budget of one line; `tracked`: with a derived receive pending all the time."""

    quick: bool
    seconds: float
    tracked: bool = False

    def arguments(self) -> list[str]:
        flags = ["--quick"] * self.quick + ["--tracked"] * self.tracked
        return [*flags, "--seconds", str(self.seconds)]


def parse_pack(arguments: Sequence[str] | None = None) -> PackOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--memory", type=int, required=True)
    return PackOptions(**vars(parser.parse_args(arguments)))


def parse_overhead(arguments: Sequence[str] | None = None) -> OverheadOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tracked", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    return OverheadOptions(**vars(parser.parse_args(arguments)))
