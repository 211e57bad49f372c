"""``tempi run`` and ``tempi preload``: the shell script, with launchers that only say what they got."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SHOW = '#!/bin/sh\ncase $1 in --version) echo "%s"; exit;; esac\necho "own: $LD_PRELOAD"\nprintf "%%s\\n" "$@"\n'
OPENMPI, HYDRA = "mpirun (Open MPI) 5.0.11", "HYDRA build details:"

# (name of the launcher, what its --version says, words that forward LD_PRELOAD=LIB)
LAUNCHERS = [
    ("mpirun", OPENMPI, ["-x", "LD_PRELOAD=LIB"]),
    ("mpiexec", OPENMPI, ["-x", "LD_PRELOAD=LIB"]),
    ("orterun", "", ["-x", "LD_PRELOAD=LIB"]),
    ("prterun", "", ["-x", "LD_PRELOAD=LIB"]),
    ("mpirun", HYDRA, ["-genv", "LD_PRELOAD", "LIB"]),
    ("mpiexec", "Intel(R) MPI Library for Linux* OS", ["-genv", "LD_PRELOAD", "LIB"]),
    ("mpiexec.hydra", "", ["-genv", "LD_PRELOAD", "LIB"]),
    ("srun", "", ["--export=ALL,LD_PRELOAD=LIB"]),
    ("aprun", "", ["-e", "LD_PRELOAD=LIB"]),
    ("jsrun", "", ["-E", "LD_PRELOAD=LIB"]),
]


def run(*words: object, cwd: Path | None = None, **variables: object) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "TEMPI_DISABLE")}
    environment |= {name: str(value) for name, value in variables.items()}
    command = [str(word) for word in words]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def real(library: Path) -> dict[str, Any]:
    return {"TEMPI_LIBRARY": library}


@pytest.mark.parametrize(("name", "version", "words"), LAUNCHERS)
def test_a_launcher_forwards_the_preload_and_is_not_itself_preloaded(
    script: Path, library: Path, executable: Callable[[str, str], Path], name: str, version: str, words: list[str]
) -> None:
    launcher = executable(f"bin/{name}", SHOW % version)
    done = run(script, "run", launcher, "-n", "4", "./app", "a b", TEMPI_LIBRARY=library)
    expected = [word.replace("LIB", str(library)) for word in words]
    assert done.stdout.splitlines() == ["own: ", *expected, "-n", "4", "./app", "a b"], done.stderr


def test_each_program_of_an_open_mpi_job_gets_the_preload(
    script: Path, library: Path, executable: Callable[[str, str], Path]
) -> None:
    launcher = executable("mpirun", SHOW % OPENMPI)
    done = run(script, "run", launcher, "-n", "1", "a", ":", "-n", "2", "b", TEMPI_LIBRARY=library)
    flag = ["-x", f"LD_PRELOAD={library}"]
    assert done.stdout.splitlines()[1:] == [*flag, "-n", "1", "a", ":", *flag, "-n", "2", "b"]


@pytest.mark.parametrize("name", ["ibrun", "mpirun_rsh", "flux", "mpirun"])
def test_an_unknown_launcher_is_refused_with_the_way_out(
    script: Path, executable: Callable[[str, str], Path], real: dict[str, Any], name: str
) -> None:
    done = run(script, "run", executable(name, SHOW % "something else 1.0"), "./app", **real)
    assert done.returncode == 1
    assert f"{name} ... tempi run ./app" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["-x", "LD_PRELOAD"], ["-x", "LD_PRELOAD=/other.so"], ["--export=NONE"]])
def test_a_preload_or_export_of_the_users_own_is_refused(
    script: Path, executable: Callable[[str, str], Path], real: dict[str, Any], words: list[str]
) -> None:
    name = "srun" if "--export=NONE" in words else "orterun"
    done = run(script, "run", executable(name, SHOW % ""), *words, "./app", **real)
    assert done.returncode == 1
    assert "already" in done.stderr


def test_a_program_is_preloaded_in_front_of_what_was_there(script: Path, library: Path, real: dict[str, Any]) -> None:
    shown = ["sh", "-c", "echo $LD_PRELOAD"]
    assert run(script, "run", *shown, **real).stdout == f"{library}\n"
    # A second time adds nothing; others stay behind.
    assert run(script, "run", script, "run", *shown, **real).stdout == f"{library}\n"
    both = run(script, "run", "--print", "app", LD_PRELOAD="libm.so.6", **real)
    assert both.stdout == f"LD_PRELOAD={library}:libm.so.6\napp\n"


def test_the_program_keeps_its_exit_status_and_its_arguments(script: Path, real: dict[str, Any]) -> None:
    done = run(script, "run", "sh", "-c", 'echo "$1|$2"; exit 7', "sh", "a b", "*", **real)
    assert done.returncode == 7
    assert done.stdout == "a b|*\n"


def test_disable_runs_the_command_as_it_is(script: Path, real: dict[str, Any]) -> None:
    shown = ["sh", "-c", "echo -$LD_PRELOAD-"]
    assert run(script, "run", *shown, TEMPI_DISABLE=1, **real).stdout == "--\n"
    assert run(script, "run", *shown, TEMPI_DISABLE=0, **real).stdout != "--\n"


def test_run_and_preload_start_no_python(
    script: Path, library: Path, executable: Callable[[str, str], Path], real: dict[str, Any]
) -> None:
    executable("bin/python3", "#!/bin/sh\necho PYTHON; exit 99\n")
    path = f"{executable('bin/python', '').parent}:{os.environ['PATH']}"
    copy = executable("bin/tempi", script.read_text(encoding="utf-8"))
    assert run(copy, "run", "true", PATH=path, **real).returncode == 0
    assert run(copy, "preload", PATH=path, **real).stdout == f"{library}\n"
    assert run(copy, "doctor", PATH=path, **real).returncode == 99  # and the trap works


def test_the_library_of_the_same_prefix_is_found(
    script: Path, library: Path, executable: Callable[[str, str], Path], tmp_path: Path
) -> None:
    copy = executable("bin/tempi", script.read_text(encoding="utf-8"))
    missing = run(copy, "preload", TEMPI_LIBRARY="")
    assert missing.returncode == 1
    assert f"libtempi.so is not under {tmp_path}" in missing.stderr
    place = tmp_path / "lib/python3.11/site-packages/tempi/lib"
    place.mkdir(parents=True)
    shutil.copy(library, place)
    assert run(copy, "preload", TEMPI_LIBRARY="").stdout == f"{place}/libtempi.so\n"
    link = tmp_path / "elsewhere"
    link.symlink_to(copy)
    assert run(link, "preload", TEMPI_LIBRARY="").stdout == f"{place}/libtempi.so\n"


def test_a_path_that_ld_preload_cannot_hold_is_refused(script: Path, library: Path, tmp_path: Path) -> None:
    place = tmp_path / "with space"
    place.mkdir()
    shutil.copy(library, place)
    done = run(script, "run", "true", TEMPI_LIBRARY=place / "libtempi.so")
    assert done.returncode == 1
    assert "LD_PRELOAD cannot hold" in done.stderr


def test_a_missing_library_is_named(script: Path, tmp_path: Path) -> None:
    done = run(script, "run", "true", TEMPI_LIBRARY=tmp_path / "none.so")
    assert done.returncode == 1
    assert f"{tmp_path}/none.so: no such file" in done.stderr


def test_no_command_is_a_usage_error(script: Path) -> None:
    assert run(script, "run").returncode == 2
    assert run(script, "run", "--unknown", "app").returncode == 2
    assert "Usage: tempi run" in run(script, "run", "--help").stdout


def test_json_shows_the_plan_and_then_runs_it(
    script: Path, library: Path, real: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    done = run(script, "run", "--json", file, "echo", "hello", **real)
    assert done.stdout == "hello\n", done.stderr
    assert json.loads(file.read_text(encoding="utf-8")) == {"command": ["echo", "hello"], "preload": str(library)}


def test_python_and_the_script_give_the_same_plan(script: Path, library: Path, real: dict[str, Any]) -> None:
    module = [sys.executable, "-P", "-m", "tempi"]
    assert run(*module, "preload", **real).stdout == run(script, "preload", **real).stdout
    shown = ["run", "--print", "app", "-n", "1"]
    assert run(*module, *shown, **real).stdout == run(script, *shown, **real).stdout


def _launcher() -> str | None:
    beside = str(Path(sys.prefix) / "bin" / "mpirun")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpirun")


@pytest.mark.skipif(_launcher() is None, reason="no mpirun beside Python or on the PATH")
@pytest.mark.parametrize("before", [True, False])
def test_ranks_of_a_real_launcher_are_preloaded(
    script: Path, library: Path, real: dict[str, Any], before: bool
) -> None:
    launch = [str(_launcher()), "-n", "2"]
    version = run(launch[0], "--version").stdout
    if "Open MPI" in version:
        launch.insert(1, "--oversubscribe")
    words = [str(script), "run", *launch] if before else [*launch, str(script), "run"]
    done = run(*words, "sh", "-c", "echo rank:$LD_PRELOAD", **real)
    assert done.stdout.splitlines().count(f"rank:{library}") == 2, done.stderr


def test_a_python_that_cannot_be_executed_is_named_and_no_other_one_taken(
    script: Path, library: Path, executable: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """As another user's environment, whose python3 is a link into a home that is closed."""
    copy = executable("env/bin/tempi", script.read_text(encoding="utf-8"))
    place = tmp_path / "env/lib/python3.11/site-packages/tempi/lib"
    place.mkdir(parents=True)
    shutil.copy(library, place)
    for name in ("python3", "python3.11"):
        executable(f"other/{name}", "#!/bin/sh\necho ANOTHER PYTHON\n")
    path = f"{tmp_path / 'other'}:{os.environ['PATH']}"
    assert run(copy, "doctor", PATH=path, TEMPI_LIBRARY="").stdout == "ANOTHER PYTHON\n"  # none beside it
    closed = tmp_path / "closed" / "python3.11"
    for target in ("python3.11", closed):
        (tmp_path / "env/bin/python3").unlink(missing_ok=True)
        (tmp_path / "env/bin/python3").symlink_to(target)
        done = run(copy, "doctor", PATH=path, TEMPI_LIBRARY="")
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert "python3.11, the Python of this installation, cannot be executed by " in done.stderr
