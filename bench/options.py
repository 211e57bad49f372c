"""Options of the workers: suites write them as arguments, workers parse them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from tempi.model import predict


@dataclass(frozen=True, slots=True)
class PackOptions:
    """`seconds`: budget of one case and operation; `memory`: bytes per rank that a case may use; `cases`: a regular
    expression: those in whose names it is found; `itself`: also measure the library against itself."""

    quick: bool
    seconds: float
    memory: int
    cases: str = ""
    itself: bool = False

    def arguments(self) -> list[str]:
        flags = [*["--quick"] * self.quick, *["--itself"] * self.itself]
        return [*flags, "--seconds", str(self.seconds), "--memory", str(self.memory), f"--cases={self.cases}"]


FORMS = ("blocking", "nonblocking", "persistent")


@dataclass(frozen=True, slots=True)
class CollectiveOptions:
    """`seconds`: budget of one case; `memory`: bytes per rank that a case may use; `check`: only check, do not time.
    `form`: of the functions; a nonblocking call is followed by its Wait, a persistent one is a Start and a Wait.
    `mapped`: the buffers are memory that the ranks map (tempi.empty). `ways`: tempi alone, by each way of its flows.
    `cases`: a regular expression: those in whose names it is found."""

    quick: bool
    seconds: float
    memory: int
    check: bool = False
    form: str = FORMS[0]
    mapped: bool = False
    ways: bool = False
    cases: str = ""

    def arguments(self) -> list[str]:
        given = {"--quick": self.quick, "--check": self.check, "--mapped": self.mapped, "--ways": self.ways}
        flags = [flag for flag, on in given.items() if on]
        values = ["--seconds", str(self.seconds), "--memory", str(self.memory), "--form", self.form]
        return [*flags, *values, f"--cases={self.cases}"]


@dataclass(frozen=True, slots=True)
class OverheadOptions:
    """`seconds`: budget of one line; `tracked`: keep a derived receive pending."""

    quick: bool
    seconds: float
    tracked: bool = False

    def arguments(self) -> list[str]:
        flags = ["--quick"] * self.quick + ["--tracked"] * self.tracked
        return [*flags, "--seconds", str(self.seconds)]


GPU_PARTS = ("rates", "launches", "kernels")


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """`seconds`: budget of one line; `memory`: bytes of device memory to use, 0: half of the free memory; `limit`:
    seconds after which nothing new is begun, 0: none; `cases`: a regular expression, of the shapes of "kernels" only
    those whose names it is found in."""

    quick: bool
    seconds: float
    memory: int = 0
    limit: float = 0.0
    parts: tuple[str, ...] = GPU_PARTS
    cases: str = ""

    def arguments(self) -> list[str]:
        given = {"seconds": self.seconds, "memory": self.memory, "limit": self.limit}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        return [*["--quick"] * self.quick, *words, f"--cases={self.cases}", "--parts", *self.parts]


@dataclass(frozen=True, slots=True)
class OverlapOptions:
    """`seconds`: budget of one line; `blocking`: the interior kernel runs in a blocking stream."""

    seconds: float
    blocking: bool = False

    def arguments(self) -> list[str]:
        return ["--seconds", str(self.seconds), *["--blocking"] * self.blocking]

    def variables(self) -> dict[str, str]:
        return {"TEMPI_FORCE": "1"}


def parse_overlap(arguments: Sequence[str] | None = None) -> OverlapOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--blocking", action="store_true")
    return OverlapOptions(**vars(parser.parse_args(arguments)))


METHODS = ("auto", *(name for name in predict.METHODS if name not in ("host", "library")))


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """`seconds`: budget of one case; `method`: tempi's method, set in the environment; `alone`: only rank 0 uses the
    card."""

    quick: bool
    seconds: float
    method: str
    alone: bool = False

    def arguments(self) -> list[str]:
        flags = [*["--quick"] * self.quick, *["--alone"] * self.alone]
        return [*flags, "--seconds", str(self.seconds), "--method", self.method]

    def variables(self) -> dict[str, str]:
        return {"TEMPI_METHOD": self.method, "TEMPI_FORCE": "1"}


def parse_messages(arguments: Sequence[str] | None = None) -> MessageOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--alone", action="store_true")
    return MessageOptions(**vars(parser.parse_args(arguments)))


def parse_gpu(arguments: Sequence[str] | None = None) -> GpuOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--limit", type=float, default=0.0)
    parser.add_argument("--cases", default="")
    parser.add_argument("--parts", nargs="+", choices=GPU_PARTS, default=GPU_PARTS)
    given = vars(parser.parse_args(arguments))
    return GpuOptions(**{**given, "parts": tuple(given["parts"])})


def parse_pack(arguments: Sequence[str] | None = None) -> PackOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--cases", default="")
    parser.add_argument("--itself", action="store_true")
    return PackOptions(**vars(parser.parse_args(arguments)))


def parse_collectives(arguments: Sequence[str] | None = None) -> CollectiveOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--form", choices=FORMS, default=FORMS[0])
    parser.add_argument("--mapped", action="store_true")
    parser.add_argument("--ways", action="store_true")
    parser.add_argument("--cases", default="")
    return CollectiveOptions(**vars(parser.parse_args(arguments)))


def parse_overhead(arguments: Sequence[str] | None = None) -> OverheadOptions:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tracked", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    return OverheadOptions(**vars(parser.parse_args(arguments)))
