"""``tempi bench``: measure packing, messages, collectives, overhead, a halo exchange, and a GPU."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["bench"]

F = TypeVar("F", bound=Callable[..., Any])


def _common(function: F) -> F:
    """Options of every suite."""
    for option in (
        click.option(
            "--mpirun",
            metavar="PATH",
            help="The MPI launcher [default: that of this Python, then PATH].",
        ),
        click.option("--quick", is_flag=True, help="A smaller run, below 40 seconds."),
        click.option(
            "--json",
            metavar="FILE",
            help="Write the records to this file, one JSON object a line; - is stdout.",
        ),
    ):
        function = option(function)
    return function


_png = click.option("--png", metavar="FILE", type=click.Path(dir_okay=False), help="Draw a picture to this file.")
_seconds = click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Budget of one case.")
_memory = click.option("--memory", type=click.FloatRange(min=0.01), help="GiB of memory that a case may span.")


def _regular_expression(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise click.UsageError(f"--cases {value}: {error}") from None
    return value


def _cases(help: str) -> Callable[[F], F]:
    return click.option("--cases", default="", metavar="REGEX", callback=_regular_expression, help=help)


_some_cases = _cases("Only cases in whose names it is found.")
_itself = click.option(
    "--itself", is_flag=True,
    help="Also measure the library in tempi's place: how many cases are behind the bars by chance.",
)  # fmt: skip
_repeats = click.option(
    "--repeats", type=click.IntRange(min=1), default=1, show_default=True,
    help="Number of runs, in separate processes; a target is missed only if all runs agree.",
)  # fmt: skip


@click.group()
def bench() -> None:
    """Measure tempi beside the MPI library, hand-written loops and the bounds of the machine."""


def _run(suite_run: Callable[[], object]) -> None:
    """Turns the errors of suites into messages."""
    from tempi.measure.launch import LaunchError
    from tempi.measure.records import RecordError
    from tempi.measure.worker import WorkerError

    try:
        suite_run()
    except (LaunchError, RecordError, WorkerError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _alone(command: str, ranks: int) -> None:
    """Under a launcher, only rank 0 continues, and starts the suite's `ranks` ranks itself."""
    from tempi.measure import launch

    if not launch.under_launcher():
        return
    if launch.rank_of_launcher() != 0:
        sys.exit(0)
    others = (launch.ranks_of_launcher() or 1) - 1
    try:
        launch.leave_launcher(ranks)
    except launch.LaunchError as error:
        own = shlex.join(["tempi", "bench", command, *sys.argv[sys.argv.index(command) + 1 :]])
        text = f"{error}: this suite starts its ranks itself, so run it without the launcher: {own}"
        raise click.UsageError(text) from error
    if others:
        click.echo(f"tempi bench {command}: rank 0 alone measures and starts what it needs", err=True)


def _need(command: str, png: str | None, *, mpi4py: bool = True, drawn_by: str = "--png") -> None:
    """Reports missing packages before measuring. `drawn_by`: the option that asks for a picture."""
    from tempi.cli._optional import need
    from tempi.cli._pictures import need_matplotlib

    if mpi4py:
        need("mpi4py", f"tempi bench {command}")
    if png is not None:
        need_matplotlib(f"tempi bench {command} {drawn_by}")


def _bytes(gib: float | None, share: int) -> int:
    """The given limit, or a fraction of the free memory."""
    from tempi.measure.launch import available_memory

    return available_memory() // share if gib is None else int(gib * (1 << 30))


@bench.command()
@_common
@_png
@_seconds
@_memory
@_repeats
@_some_cases
@_itself
def pack(
    json: str | None, png: str | None, quick: bool, mpirun: str | None, seconds: float | None,
    memory: float | None, repeats: int, cases: str, itself: bool,
) -> None:  # fmt: skip
    """MPI_Pack and MPI_Unpack of many shapes, in one process.

    Subjects: library, tempi, engine (tempi's packing without MPI around it), hand (a programmer's
    loops), bound (touching the same cache lines), memcpy.
    """
    from tempi.bench import suite
    from tempi.bench.options import PackOptions
    from tempi.bench.suites import pack as suite_pack

    _need("pack", png)
    _alone("pack", 1)
    common = suite.Common(json, png, quick, mpirun)
    options = PackOptions(quick, seconds or (0.25 if quick else 0.8), _bytes(memory, 4), cases, itself)
    _run(lambda: suite_pack.run(common, options, repeats))


@bench.command()
@_common
@_png
@_seconds
@_memory
@_repeats
@_some_cases
@_itself
@click.option("--forced/--no-forced", default=False, help="Also measure with tempi always acting (TEMPI_FORCE).")
def pingpong(
    json: str | None, png: str | None, quick: bool, mpirun: str | None, seconds: float | None,
    memory: float | None, repeats: int, cases: str, itself: bool, forced: bool,
) -> None:  # fmt: skip
    """Messages of the same shapes between two ranks.

    Subjects: library, tempi, hand (pack loop, contiguous message, unpack loop). Starts its two ranks
    itself, or takes part as one of them under mpirun -n 2.
    """
    from tempi.bench import suite
    from tempi.bench.options import PackOptions
    from tempi.bench.suites import pingpong as suite_pingpong
    from tempi.measure import launch

    _need("pingpong", png)
    if launch.ranks_of_launcher() not in (None, 2):
        _alone("pingpong", 2)
    common = suite.Common(json, png, quick, mpirun)
    options = PackOptions(quick, seconds or (0.25 if quick else 0.6), _bytes(memory, 8), cases, itself)
    _run(lambda: suite_pingpong.run(common, options, repeats, forced))


@bench.command()
@_common
@_seconds
@_memory
@_repeats
@_some_cases
@click.option(
    "--ranks", type=click.IntRange(min=1), default=2, show_default=True,
    help="Number of ranks; with more than there are cores everything is checked and nothing timed.",
)  # fmt: skip
@click.option(
    "--form", type=click.Choice(["blocking", "nonblocking", "persistent"]), default="blocking", show_default=True,
    help="Form of the functions; a nonblocking call is timed with its Wait, a persistent one as Start and Wait.",
)  # fmt: skip
@click.option("--mapped", is_flag=True, help="Buffers of tempi.empty, which the ranks of a node map.")
@click.option("--ways", is_flag=True, help="How good tempi's choice is among the ways to copy within a node.")
def collectives(
    json: str | None, quick: bool, mpirun: str | None, seconds: float | None, memory: float | None, repeats: int,
    cases: str, ranks: int, form: str, mapped: bool, ways: bool,
) -> None:  # fmt: skip
    """MPI_Alltoallw, MPI_Neighbor_alltoallw, MPI_Gatherv and MPI_Scatterv of derived datatypes: FFTs, halos,
    irregular and strided blocks, tiles of a matrix.

    Subjects: library, tempi, hand (pack loops, one contiguous collective, unpack loops), hand isend (pack loops, an
    Isend and an Irecv of bytes for each process, unpack loops), isend (an Irecv and an Isend for each block and a
    Waitall, by tempi), and for blocks of a process to itself the time to touch their cache lines (bound).
    """
    from tempi.bench import suite
    from tempi.bench.options import CollectiveOptions
    from tempi.bench.suites import collectives as suite_collectives

    _need("collectives", None)
    _alone("collectives", ranks)
    common = suite.Common(json, None, quick, mpirun)
    budget = seconds or (0.25 if quick else 0.6)
    size = _bytes(memory, 2 * ranks)
    options = CollectiveOptions(quick, budget, size, form=form, mapped=mapped, ways=ways, cases=cases)
    _run(lambda: suite_collectives.run(common, options, ranks, repeats))


@bench.command()
@_common
@_seconds
@click.option("--span", type=click.FloatRange(min=0.01), help="GiB of memory that a case may span.")
@click.option(
    "--memory", type=click.Choice(["host", "device"]), default="host", show_default=True, help="Memory of the buffers."
)
def model(
    json: str | None, quick: bool, mpirun: str | None, seconds: float | None, span: float | None, memory: str
) -> None:
    """How well the tables of `tempi calibrate` predict and choose, on shapes that were not measured.

    Each method is run (the library and tempi; of device memory every way that tempi has): its time is set
    beside the prediction, and what the model chooses, and the built-in rule, beside the best.
    """
    from tempi.bench import suite
    from tempi.bench.options import PackOptions
    from tempi.bench.suites import model as suite_model
    from tempi.bench.suites import model_device as suite_model_device

    _need("model", None)
    _alone("model", 2)
    common = suite.Common(json, None, quick, mpirun)
    options = PackOptions(quick, seconds or (0.1 if quick else 0.25), _bytes(span, 8))
    measured = suite_model if memory == "host" else suite_model_device
    _run(lambda: measured.run(common, options))


@bench.command()
@_common
@_seconds
def overhead(json: str | None, quick: bool, mpirun: str | None, seconds: float | None) -> None:
    """Nanoseconds that tempi adds to calls, microseconds to a type's first use and a process's start."""
    from tempi.bench import suite
    from tempi.bench.options import OverheadOptions
    from tempi.bench.suites import overhead as suite_overhead

    _need("overhead", None)
    _alone("overhead", 1)
    common = suite.Common(json, None, quick, mpirun)
    options = OverheadOptions(quick, seconds or (0.2 if quick else 1.0))
    _run(lambda: suite_overhead.run(common, options))


@bench.command()
@_common
def driver_calls(json: str | None, quick: bool, mpirun: str | None) -> None:
    """Calls of the CUDA driver for a message and for a halo exchange, counted by the emulated driver."""
    from tempi.bench import suite
    from tempi.bench.suites import driver_calls as suite_driver_calls

    _need("driver-calls", None)
    _alone("driver-calls", 2)
    common = suite.Common(json, None, quick, mpirun)
    _run(lambda: suite_driver_calls.run(common))


@bench.command()
@_common
@_png
@click.option("--mpicc", metavar="PATH", help="The MPI compiler [default: that of this Python, then PATH].")
@click.option("--ranks", type=click.IntRange(min=1), help="Ranks to time [default: min(4, cores)].")
@click.option(
    "--check-ranks", type=click.IntRange(min=0), default=0, help="Number of ranks on which all cells are verified too."
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Budget of the timing.")
@click.option("--grid", metavar="Z,Y,X", help="Process grid [default: MPI_Dims_create].")
@click.option("--points", metavar="Z,Y,X", help="Points a rank; one number for a cube [default: 128].")
@click.option("--radius", type=int, help="Cells of halo on each side [default: 2].")
@click.option("--fields", type=int, help="Fields of doubles [default: 3].")
@click.option("--no-periodic", is_flag=True, help="Open boundaries.")
@click.option("--memory", type=click.Choice(["host", "device"]), help="Memory of the fields [default: host].")
@click.option("--combine", is_flag=True, help="One message a neighbour with all fields, not one for each.")
@click.option(
    "--exchange", type=click.Choice(["isend", "persistent", "partitioned", "neighbor"]),
    help="Messages, persistent or partitioned ones, or one MPI_Neighbor_alltoallw [default: isend].",
)  # fmt: skip
@click.option("--paper", is_flag=True, help="256^3 points, 8 fields, radius 3: 1.15 GB a rank.")
@click.option("--demo", is_flag=True, help="Check on 4 ranks, time, write results/halo[-device].json and .png.")
@click.option("--build", is_flag=True, help="Only compile the program and print its path.")
def halo(
    json: str | None, png: str | None, quick: bool, mpirun: str | None, mpicc: str | None,
    ranks: int | None, check_ranks: int, seconds: float | None, demo: bool, build: bool, **program: Any,
) -> None:  # fmt: skip
    """A 3-D halo exchange with 26 neighbours: subarray types; Irecv, Isend, Waitall, or --exchange.

    Subjects: library, tempi and hand-packed in turns in one program, and "plain": the library without
    tempi in the process. Every cell is verified before and after the timing.

    With --memory device the fields are in CUDA device memory, and hand-packed means one cuMemcpy3DAsync a
    region and field into pinned memory. With TEMPI_CUDA_DRIVER=emulated nothing is timed.
    """
    from tempi.bench import halo_program, suite
    from tempi.bench.suites import halo as suite_halo
    from tempi.measure import launch

    _need("halo", png or ("" if demo else None), mpi4py=False, drawn_by="--png" if png else "--demo")
    if build:
        _run(lambda: click.echo(halo_program.build(mpicc)))
        return
    if launch.under_launcher():
        raise click.UsageError(
            "started under a launcher: run the program itself instead, mpirun ... tempi run $(tempi bench halo --build)"
        )
    if demo:
        name = suite_halo.demo_name(program["memory"])
        json, png, check_ranks = json or f"results/{name}.json", png or f"results/{name}.png", check_ranks or 4
    common = suite.Common(json, png, quick, mpirun)
    arguments = {name.replace("_", "-"): value for name, value in program.items()}
    options = suite_halo.Options(
        ranks=ranks or min(4, launch.cores()),
        check_ranks=check_ranks,
        seconds=seconds or (5.0 if quick else 20.0),
        program=suite_halo.program_arguments(arguments),
        mpicc=mpicc,
    )
    _run(lambda: suite_halo.run(common, options))


@bench.command()
@_common
@_seconds
@click.option("--memory", type=click.FloatRange(min=0.01), help="GiB of device memory [default: half of the free].")
@click.option("--part", "parts", multiple=True, help="rates, launches, kernels, halo, overlap, messages; or all.")
@_cases("Part kernels: only shapes in whose names it is found.")
@click.option("--limit", type=click.FloatRange(min=1), help="Begin nothing new after so many seconds.")
@click.option("--out", metavar="DIR", help="Where the records go [default: results/gpu/CARD].")
@click.option("--mpicc", metavar="PATH", help="The MPI compiler for the halo [default: as for halo].")
def gpu(
    json: str | None, quick: bool, mpirun: str | None, seconds: float | None, memory: float | None,
    parts: tuple[str, ...], cases: str, limit: float | None, out: str | None, mpicc: str | None,
) -> None:  # fmt: skip
    """An NVIDIA GPU: its memory, launches, tempi's kernels against the bounds, a halo, overlap, messages.

    Subjects: tempi, the driver's pitched copies, CuPy where it is installed, the MPI library where it takes
    device addresses, and by hand. Every answer is checked before it is timed; the targets are printed last,
    and a missed one is exit status 1. With TEMPI_CUDA_DRIVER=emulated everything is checked and nothing is
    timed.
    """
    from tempi.bench import suite
    from tempi.bench.suites import gpu as suite_gpu

    _alone("gpu", 2)
    unknown = [part for part in parts if part not in suite_gpu.PARTS]
    if unknown:
        raise click.UsageError(f"--part {unknown[0]}: choose one of {', '.join(suite_gpu.PARTS)}")
    common = suite.Common(json, None, quick, mpirun)
    chosen = parts or suite_gpu.PARTS
    size = int(memory * (1 << 30)) if memory else 0
    end = time.monotonic() + (limit or float("inf"))
    options = suite_gpu.Options(chosen, seconds or (0.05 if quick else 0.3), size, out, mpicc, end, cases)
    _run(lambda: suite_gpu.run(common, options) or sys.exit(1))
