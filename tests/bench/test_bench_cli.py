"""``tempi bench`` from the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import launching
from tempi.bench import bars
from tempi.bench.suites import collectives as suite_collectives
from tempi.bench.suites import overhead as suite_overhead
from tempi.bench.suites import pack as suite_pack
from tempi.bench.suites import pingpong as suite_pingpong
from tempi.cli.bench import bench
from tempi.cli.main import main
from tempi.measure import launch, records
from tempi.measure.records import Record


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No launcher's environment; compiled programs go to an empty folder."""
    for name in list(os.environ):
        if name.startswith(("PMI_", "PMIX_", "OMPI_COMM", "SLURM_", "OMPI_MCA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("command", ["pack", "pingpong", "collectives", "overhead", "driver-calls", "halo"])
def test_every_suite_has_the_common_options(command: str) -> None:
    text = CliRunner().invoke(bench, [command, "--help"]).output
    assert all(option in text for option in ("--json", "--quick", "--mpirun"))


@pytest.mark.parametrize("command", ["pack", "pingpong", "collectives", "overhead", "driver-calls", "halo"])
def test_a_missing_launcher_is_one_line(alone: Path, command: str) -> None:
    done = CliRunner().invoke(bench, [command, "--mpirun", "/nowhere/mpirun"])
    assert done.exit_code == 1
    assert done.output.strip() == "Error: --mpirun /nowhere/mpirun: no such program"


def test_halo_under_a_launcher_says_what_to_run(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    done = CliRunner().invoke(bench, ["halo"])
    assert done.exit_code == 2
    assert "tempi run $(tempi bench halo --build)" in done.output


@pytest.mark.parametrize("command", ["pack", "collectives", "overhead", "model", "gpu"])
def test_of_the_ranks_of_a_launcher_the_first_goes_on_alone(
    alone: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PMIX_RANK", "1")
    done = CliRunner().invoke(bench, [command])
    assert (done.exit_code, done.output) == (0, "")
    monkeypatch.setenv("PMIX_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_MCA_smsc", "cma")  # the user's own
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    done = CliRunner().invoke(bench, [command, "--mpirun", "/nowhere/mpirun"])
    assert done.exit_code == 1
    assert f"tempi bench {command}: rank 0 alone measures" in done.stderr
    left = {name for name in os.environ if name.startswith(("PMI", "OMPI_COMM", "OMPI_MCA"))}
    assert left == {"OMPI_MCA_smsc"}


@pytest.mark.parametrize(("variable", "why"), [("SLURM_STEP_ID", "started by srun"), ("PMI_SIZE", "bound to 1 of the")])
def test_a_suite_that_cannot_start_its_ranks_says_what_to_run(
    alone: Path, monkeypatch: pytest.MonkeyPatch, variable: str, why: str
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(sys, "argv", ["tempi", "bench", "model", "--quick", "--json", "a b"])
    done = CliRunner().invoke(bench, ["model", "--quick", "--json", "a b"])
    assert done.exit_code == 2
    assert why in done.stderr
    assert "run it without the launcher: tempi bench model --quick --json 'a b'" in done.stderr


CHOSEN = {
    "pack": "face x of 66",
    "pingpong": "run 8 stride 16, (1|3) KiB",
    "collectives": "^(gather|scatter) tiles, 64",
}


@pytest.mark.parametrize("command", CHOSEN)
@pytest.mark.once
def test_a_suite_measures_the_cases_that_are_named(alone: Path, command: str) -> None:
    path = alone / "records.json"
    words = [command, "--seconds", "0.01", "--memory", "1", "--json", str(path)]
    done = CliRunner().invoke(bench, [*words, "--cases", CHOSEN[command], "--mpirun", launching.launcher().path])
    assert done.exit_code == 0, done.output
    names = {record.case for record in records.read(path)}
    assert len(names) in (1, 2)
    assert all(re.search(CHOSEN[command], name) for name in names)
    for pattern, said in (("no such case", "--cases no such case: no case has such a name"), ("(", "--cases (:")):
        refused = CliRunner().invoke(bench, [*words, "--cases", pattern])
        assert refused.exit_code > 0
        assert said in refused.output


@pytest.mark.parametrize("command", ["pack", "pingpong"])
@pytest.mark.once
def test_a_suite_measures_the_library_against_itself(alone: Path, command: str) -> None:
    path = alone / "records.json"
    words = [command, "--seconds", "0.01", "--memory", "1", "--json", str(path), "--cases", CHOSEN[command]]
    done = CliRunner().invoke(bench, [*words, "--itself", "--mpirun", launching.launcher().path])
    assert done.exit_code == 0, done.output
    seconds = {record.subject: record.seconds for record in records.read(path)}
    assert len(seconds[bars.AGAIN]) == len(seconds["library"]) > 0
    assert "the library over itself, of " in done.output


@pytest.mark.once
def test_a_suite_under_a_launcher_measures(tmp_path: Path) -> None:
    """One launch of one rank, and one with more ranks than it needs."""
    launcher = launching.launcher()
    for ranks in (1, 2):
        records_file = tmp_path / f"{ranks}.json"
        suite = [sys.executable, "-P", "-m", "tempi", "bench", "overhead", "--quick", "--seconds", "0.01"]
        line = launch.command(launcher, ranks, [*suite, "--json", str(records_file)])
        own = launching.environment(tmp_path)
        done = subprocess.run(line, env=own, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len({record.subject for record in records.read(records_file)}) > 1
        assert ("rank 0 alone measures" in done.stderr) == (ranks == 2)


def test_the_buffers_of_overhead_hold_its_vector(tmp_path: Path) -> None:
    code = (
        "from mpi4py import MPI; from tempi.bench.workers import overhead; world = overhead.make_world(MPI); "
        "print(world.derived.extent, *map(len, world.buffers[:2]))"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=launching.environment(tmp_path), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    extent, *room = map(int, done.stdout.split())
    assert min(room) >= extent > 0


# -- packages that are not installed ------------------------------------------------------------------------------


def without(folder: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in an environment without that module."""
    own = hiding(folder, module)
    return subprocess.run(
        [sys.executable, "-P", "-m", "tempi", *words], env=own, capture_output=True, text=True, timeout=120, check=False
    )


def hiding(folder: Path, *modules: str) -> dict[str, str]:
    """The environment of a Python without these modules."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Gone:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {modules!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Gone())\n"
    )
    return launching.environment(folder, PYTHONPATH=str(folder))


MPI4PY = ["bench pack", "bench pingpong", "bench collectives", "bench overhead", "bench model",
          "bench model --memory device", "calibrate", "calibrate --quick --export e.json"]  # fmt: skip
MATPLOTLIB = ["bench pack --png a.png", "bench pingpong --png a.png", "bench halo --png a.png", "bench halo --demo",
              "explain INT --png a.png", "report"]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "command"), [*(("mpi4py", one) for one in MPI4PY), *(("matplotlib", one) for one in MATPLOTLIB)]
)
@pytest.mark.once
def test_a_missing_package_is_one_line_with_what_installs_it(tmp_path: Path, module: str, command: str) -> None:
    done = without(tmp_path, module, *command.split())
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert f"needs {module}, which is not installed: " in done.stderr
    assert f"install '{module}>=" in done.stderr
    assert done.stdout == ""  # the error comes before any output


def leaves(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """Every subcommand, as its words."""
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, *words, name)


ARGUMENTS = {
    ("explain",): ("INT",), ("run",): ("true",), ("bench", "gpu"): ("--part", "messages"),
    ("bench", "halo"): ("--mpicc", "/nonexistent/mpicc"),
}  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize("words", [(), *leaves(main)], ids=" ".join)
def test_no_command_of_a_bare_install_ends_in_a_traceback(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Without mpi4py, matplotlib, an MPI or a GPU: it works, or one line says what to install."""
    own = hiding(tmp_path, "mpi4py", "matplotlib") | {"PATH": "/nonexistent"}
    start = (sys.executable, "-P", "-m", "tempi", *words)
    for more in (("--help",), ARGUMENTS.get(words, ())):
        done = subprocess.run(
            [*start, *more], env=own, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert "Traceback" not in done.stdout + done.stderr
        if done.returncode not in (0, 2):
            assert len(done.stderr.splitlines()) == 1, done.stderr


def test_the_drop_in_says_what_installs_mpi4py(tmp_path: Path) -> None:
    line = (sys.executable, "-P", "-c", "from tempi import MPI")
    done = subprocess.run(line, env=hiding(tmp_path, "mpi4py"), capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: tempi.MPI needs mpi4py: pip install 'mpi4py>=4'"


@pytest.mark.once
@pytest.mark.parametrize("module", ["click", "rich", "numpy", "platformdirs"])
def test_a_missing_dependency_is_one_line_as_well(tmp_path: Path, module: str) -> None:
    commands = {"platformdirs": ("bench", "halo", "--build"), "rich": ("explain", "INT")}
    done = without(tmp_path, module, *commands.get(module, ("calibrate", "--show")))
    if module == "numpy":
        done = without(tmp_path, module, "explain", "INT")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert f"needs {module}, which is not installed" in done.stderr
    assert f"install {module}" in done.stderr


def test_commands_that_need_no_package_work_without_it(tmp_path: Path) -> None:
    for command in (("calibrate", "--show"), ("explain", "INT"), ("preload",), ("bench", "halo", "--help")):
        done = without(tmp_path, "mpi4py", *command)
        assert done.returncode == 0, done.stderr


@pytest.mark.once
def test_halo_build_prints_the_program(alone: Path) -> None:
    done = CliRunner().invoke(bench, ["halo", "--build"])
    assert done.exit_code == 0, done.output
    assert Path(done.output.strip()).is_file()


def _fake(monkeypatch: pytest.MonkeyPatch, module: object, name: str, op: str) -> None:
    def records_of(*_: object) -> list[Record]:
        subjects = ("library", "tempi", "hand", "bound")
        meta = {"run": 8, "engaged": True, "target": 0.0, "mpi": "none"}
        return [Record(name, "c, 4 KiB", op, subject, 8, (1e-6,) * 9, meta) for subject in subjects]

    monkeypatch.setattr(module, "_records", records_of)


@pytest.mark.parametrize(
    ("module", "name", "op", "picture"),
    [
        (suite_pack, "pack", "pack", True),
        (suite_pingpong, "pingpong", "one way", True),
        (suite_collectives, "collectives", "Alltoallw", False),
        (suite_overhead, "overhead", "call", False),
    ],
    ids=["pack", "pingpong", "collectives", "overhead"],
)
def test_records_and_picture_are_written(
    alone: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str, op: str, picture: bool
) -> None:
    _fake(monkeypatch, module, name, op)
    json, png = alone / "out" / "r.json", alone / "out" / "r.png"
    arguments = [name, "--json", str(json), *(["--png", str(png)] if picture else [])]
    done = CliRunner().invoke(bench, arguments)
    assert done.exit_code == 0, done.output
    assert "c, 4 KiB" in done.output
    assert {record.subject for record in records.read(json)} == {
        "library",
        "tempi",
        "hand",
        "bound",
    }
    assert not picture or png.read_bytes().startswith(b"\x89PNG")


def test_json_on_stdout_is_nothing_but_records(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake(monkeypatch, suite_pack, "pack", "pack")
    done = CliRunner().invoke(bench, ["pack", "--json", "-"])
    assert done.exit_code == 0
    found = list(records.parse_lines(done.stdout.splitlines(), "stdout"))
    assert len(found) == 4
    assert "speed-up" in done.stderr
