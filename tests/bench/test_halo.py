"""The halo program on a few ranks: correct, and its verification finds errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tempi import _engine
from tempi.bench import halo_program
from tempi.measure import launch
from tempi.measure.records import Record, parse_lines


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    out: str
    err: str
    reported: str  # why it aborted

    @property
    def records(self) -> list[Record]:
        return list(parse_lines(self.out.splitlines(), "halo"))

    def checks(self) -> dict[str, int]:
        """Wrong cells by subject."""
        return {r.subject: int(r.meta["wrong"]) for r in self.records if r.op == "check"}


@dataclass(frozen=True, slots=True)
class Program:
    path: str
    launcher: launch.Launcher

    def __call__(
        self,
        ranks: int,
        *options: str,
        variables: Mapping[str, str] | None = None,
        json: bool = True,
    ) -> Outcome:
        arguments: Sequence[str] = [*(["--json", "-"] if json else []), *options]
        line = launch.command(self.launcher, ranks, [self.path, *arguments], variables)
        with tempfile.NamedTemporaryFile("r") as reported:
            environment = launch.environment(self.launcher.path) | {launch.ERRORS: reported.name}
            done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment)
            return Outcome(done.returncode, done.stdout, done.stderr, reported.read())


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    patch = pytest.MonkeyPatch()
    patch.setenv("TEMPI_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    try:
        launcher = launch.find_launcher()
        return Program(str(halo_program.build()), launcher)
    except launch.LaunchError as error:
        pytest.skip(str(error))
    finally:
        patch.undo()


SMALL = ("--points", "5,6,7", "--check")


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(
    "options",
    [(), ("--no-periodic",), ("--combine",), ("--radius", "5", "--fields", "1"), ("--exchange", "persistent")],
    ids=["periodic", "open", "combined", "radius as thick as the block", "persistent"],
)
def test_every_cell_is_right(program: Program, ranks: int, options: tuple[str, ...]) -> None:
    done = program(ranks, *SMALL, *options)
    assert done.status == 0, done.err
    assert done.checks() == {"library": 0, "hand": 0}
    cells = done.records[0].meta["cells"]
    radius, fields = (5, 1) if "--radius" in options else (2, 3)
    assert cells == ranks * fields * (5 + 2 * radius) * (6 + 2 * radius) * (7 + 2 * radius)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("options", [(), ("--no-periodic",), ("--combine",)], ids=["periodic", "open", "combined"])
@pytest.mark.once
def test_every_cell_is_right_after_a_collective(program: Program, ranks: int, options: tuple[str, ...]) -> None:
    """Edges of the graph between the same two ranks match in order: a wrong order exchanges wrong regions."""
    done = program(ranks, *SMALL, *options, "--exchange", "neighbor")
    assert done.status == 0, done.err
    assert done.checks() == {"library": 0, "hand": 0}
    assert done.records[0].case.endswith(", neighbor")


@pytest.mark.parametrize("grid", ["1,1,4", "4,1,1", "2,1,2"])
@pytest.mark.once
def test_any_grid_is_right(program: Program, grid: str) -> None:
    done = program(4, *SMALL, "--grid", grid, "--no-periodic")
    assert done.checks() == {"library": 0, "hand": 0}, done.err
    assert f"grid {grid.replace(',', 'x')}, open" in done.records[0].case


def test_a_neighbour_in_every_direction_is_sent_to(program: Program) -> None:
    periodic = program(1, *SMALL, "--fields", "2").records[0]
    assert periodic.meta["messages"] == 26 * 2
    combined = program(1, *SMALL, "--fields", "2", "--combine").records[0]
    assert combined.meta["messages"] == 26
    assert combined.bytes == periodic.bytes == 2 * 8 * (9 * 10 * 11 - 5 * 6 * 7)
    assert program(1, *SMALL, "--no-periodic").records[0].meta["messages"] == 0


# A halo cell in a corner, one of a face, and one of the interior of field 2 (9 x 10 x 11 cells each).
@pytest.mark.parametrize("cell", [0, 5 * 110 + 5 * 11, 2 * 990 + 4 * 110 + 4 * 11 + 5])
@pytest.mark.once
def test_one_spoiled_cell_is_found(program: Program, cell: int) -> None:
    done = program(2, *SMALL, "--corrupt", str(cell))
    assert done.status == 1
    assert done.checks() == {"library": 1, "hand": 1}
    field, rest = divmod(cell, 990)
    z, (y, x) = rest // 110, divmod(rest % 110, 11)
    assert f"library: rank 0, field {field}, cell ({z},{y},{x}) is" in done.err
    assert all(record.meta["refused"] == "wrong halo cells" for record in done.records)


def test_a_wrong_subject_is_not_timed(program: Program) -> None:
    done = program(2, "--points", "5", "--seconds", "0.01", "--corrupt", "0")
    assert done.status == 1
    assert {record.op for record in done.records} == {"check"}


@pytest.mark.once
def test_phases_and_exchange_are_timed(program: Program) -> None:
    done = program(2, "--points", "6", "--seconds", "0.05", "--label", "plain")
    assert done.status == 0, done.err
    timed = {(r.subject, r.op): r.seconds for r in done.records if r.op != "check"}
    subjects, ops = {"plain", "hand"}, {"post", "send", "wait", "exchange"}
    assert set(timed) == {(subject, op) for subject in subjects for op in ops}
    assert len({len(seconds) for seconds in timed.values()}) == 1
    for subject in subjects:
        longest = [max(timed[subject, op][i] for op in ops - {"exchange"}) for i in range(12)]
        assert all(whole >= part for whole, part in zip(timed[subject, "exchange"], longest, strict=False))


def test_without_json_it_prints_a_table(program: Program) -> None:
    done = program(1, "--points", "4", "--check", json=False)
    assert done.status == 0
    assert "no subject tempi: tempi is not preloaded" in done.out
    assert "every cell right" in done.out


@pytest.mark.once
def test_with_json_in_a_file_it_prints_the_table_as_well(program: Program, tmp_path: Path) -> None:
    done = program(1, "--points", "4", "--check", "--json", str(tmp_path / "halo.json"), json=False)
    assert (done.status, "every cell right" in done.out, "no subject tempi" in done.out) == (0, True, True)
    found = list(parse_lines((tmp_path / "halo.json").read_text().splitlines(), "halo"))
    assert {record.op for record in found} == {"check"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--points", "8,x"), "--points: 8,x is not a value for it"),
        (("--radius", "0"), "--radius: 0 is not a value for it"),
        (("--memory", "moon"), "--memory: moon is not a value for it"),
        (("--exchange", "sail"), "--exchange: sail is not a value for it"),
        (("--points", "3", "--radius", "4"), "radius 4 is larger than the 3 points of axis 0"),
        (("--grid", "2,2,2"), "a grid of 2x2x2 needs 8 ranks, there are 2"),
        (("stray",), "stray is not an option"),
        (("--what",), "usage: halo"),
    ],
)
@pytest.mark.once
def test_wrong_options_are_reported_once(program: Program, options: tuple[str, ...], complaint: str) -> None:
    done = program(2, *options)
    assert done.status == 2
    assert done.err.count(complaint) == 1


@pytest.mark.once
def test_the_program_is_compiled_once(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path))
    first = halo_program.build()
    stamp = first.stat().st_mtime_ns
    assert halo_program.build() == first
    assert first.stat().st_mtime_ns == stamp
    assert first.is_relative_to(tmp_path)
    assert os.access(first, os.X_OK)


@pytest.mark.once
def test_a_broken_compiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path))
    mpicc = tmp_path / "mpicc"
    mpicc.write_text("#!/bin/sh\necho 'no such header' >&2\nexit 1\n", encoding="utf-8")
    mpicc.chmod(0o755)
    with pytest.raises(launch.LaunchError, match=r"failed:\nno such header"):
        halo_program.build(str(mpicc))


def _preload(**more: str) -> dict[str, str]:
    return {"LD_PRELOAD": _engine.library_path(), **more}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_tempi_fills_every_cell(program: Program, ranks: int) -> None:
    done = program(ranks, *SMALL, variables=_preload(TEMPI_FORCE="1"))
    assert done.checks() == {"library": 0, "tempi": 0, "hand": 0}, done.err
    counters = next(r.meta["counters"] for r in done.records if r.subject == "tempi")
    assert min(counters["sends"], counters["recvs"]) > 0


@pytest.mark.parametrize(("kind", "counter"), [("persistent", "sends"), ("neighbor", "collectives")])
def test_tempi_fills_every_cell_by_other_calls(program: Program, kind: str, counter: str) -> None:
    done = program(2, *SMALL, "--exchange", kind, variables=_preload(TEMPI_FORCE="1"))
    assert done.checks() == {"library": 0, "tempi": 0, "hand": 0}, done.err
    counters = next(r.meta["counters"] for r in done.records if r.subject == "tempi")
    assert counters[counter] > 0


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_partitioned_messages_fill_every_cell(program: Program, ranks: int) -> None:
    done = program(ranks, *SMALL, "--exchange", "partitioned", variables=_preload())
    if "partitioned is not a value" in done.err:
        pytest.skip("this MPI has no partitioned messages")
    assert done.checks() == {"library": 0, "tempi": 0, "hand": 0}, done.err


def test_tempi_disabled_is_no_subject(program: Program) -> None:
    done = program(1, *SMALL, variables=_preload(TEMPI_DISABLE="1"))
    assert done.checks() == {"library": 0, "hand": 0}, done.err
    assert not done.records[0].meta["interposed"]


EMULATED = {"TEMPI_CUDA_DRIVER": "emulated"}


@pytest.fixture(scope="module")
def emulator() -> None:
    """The emulated device with the kernels that run on it, or a skip."""
    here = Path(_engine.library_path()).parent
    if not (here / "libtempi-cuda.so").is_file() or not list(here.glob("tempi-ptx-*.so")):
        pytest.skip("this build has no emulated CUDA device, or no kernels")


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(
    "options",
    [(), ("--no-periodic",), ("--combine",), ("--radius", "5", "--fields", "1"), ("--exchange", "persistent")],
    ids=["periodic", "open", "combined", "radius as thick as the block", "persistent"],
)
@pytest.mark.once
def test_every_cell_in_device_memory_is_right(program: Program, ranks: int, options: tuple[str, ...]) -> None:
    """No library takes the emulator's addresses, so it is no subject."""
    done = program(ranks, *SMALL, "--memory", "device", *options, variables=_preload(**EMULATED))
    assert done.status == 0, done.err
    assert done.checks() == {"tempi": 0, "hand": 0}
    record = done.records[0]
    assert record.meta["emulated"]
    assert "EMULATED" in record.meta["device"]
    if ranks > 1 or "--no-periodic" not in options:
        assert record.meta["counters"]["launches"] > 0


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("cell", [0, 2 * 990 + 4 * 110 + 4 * 11 + 5])
@pytest.mark.once
def test_one_spoiled_cell_in_device_memory_is_found(program: Program, cell: int) -> None:
    arguments = (*SMALL, "--memory", "device", "--corrupt", str(cell))
    done = program(2, *arguments, variables=_preload(**EMULATED))
    assert done.status == 1
    assert done.checks() == {"tempi": 1, "hand": 1}


@pytest.mark.usefixtures("emulator")
@pytest.mark.once
def test_an_emulated_device_is_never_timed(program: Program) -> None:
    arguments = ("--points", "6", "--seconds", "0.05", "--memory", "device")
    done = program(2, *arguments, variables=_preload(**EMULATED))
    assert done.status == 0, done.err
    assert {record.op for record in done.records} == {"check"}
    assert not any(record.seconds for record in done.records)
    output = program(1, *arguments, variables=_preload(**EMULATED), json=False).out
    assert "EMULATED DEVICE" in output
    assert "no subject library: this MPI is not CUDA-aware" in output


@pytest.mark.usefixtures("emulator")
@pytest.mark.once
def test_a_library_that_is_not_cuda_aware_is_no_subject_on_a_gpu(program: Program, tmp_path: Path) -> None:
    """With a driver that does not say that it is emulated. tempi's own answer is that it is CUDA-aware."""
    here, fake = Path(_engine.library_path()).parent, tmp_path / "libcuda.so.1"
    shutil.copy(here / "libtempi-cuda.so", fake)
    for module in here.glob("tempi-ptx-*.so"):
        shutil.copy(module, tmp_path)
    own = {"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": f"{_engine.library_path()}:{fake}", "_TEMPI_REHEARSAL": "1"}
    done = program(2, *SMALL, "--memory", "device", variables=own)
    assert done.status == 0, done.err
    assert done.checks() == {"tempi": 0, "hand": 0}
    assert "REHEARSAL" in done.records[0].meta["device"]
    assert not done.records[0].meta["emulated"]


def test_device_memory_without_a_device_is_reported(program: Program) -> None:
    done = program(1, *SMALL, "--memory", "device", variables=EMULATED)
    assert done.status != 0
    assert "no device memory: TEMPI_CUDA_DRIVER=emulated: the emulated device is found beside tempi" in done.reported
