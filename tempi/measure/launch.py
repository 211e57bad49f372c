"""Starts MPI programs and reads the records that they print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tempi.measure.records import Record, RecordError, parse

#: Names a file for the reason why a rank aborts the others: MPI_Abort may lose stderr that the launcher still buffers.
#: Not named TEMPI_*: those variables are the user's and are checked.
ERRORS = "_TEMPI_BENCH_ERRORS"


class LaunchError(RuntimeError):
    """An MPI program could not be started or failed."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """An mpirun and its implementation: "openmpi", "mpich" or "other"."""

    path: str
    kind: str


# Set for each rank by hydra and srun --mpi=pmi2, by PMIx launchers, and by Open MPI's launcher.
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
# Other variables that launchers set for their ranks and users do not.
_OF_A_RANK = re.compile(
    r"PMI_|PMIX_(?!MCA_)|HYDI_|MPI_LOCAL(NRANKS|RANKID)$|PRTE_(?!MCA_)|OMPI_(?!MCA_|ALLOW_)|OPAL_USER_PARAMS_GIVEN$|"
    r"OMPI_MCA_(PREFIXES|cpu_type|initial_wdir|num_procs|orte_.*|ess|ess_.*|pmix|shmem_RUNTIME_.*)$"
)


def under_launcher() -> bool:
    """Whether this process is a rank."""
    return any(name in os.environ for name in _RANK_VARIABLES)


def rank_of_launcher() -> int:
    """The rank that the launcher assigned to this process; 0 without a launcher."""
    return next((int(os.environ[name]) for name in _RANK_VARIABLES if os.environ.get(name, "").isdigit()), 0)


def ranks_of_launcher() -> int | None:
    """The number of ranks that the launcher started; None if unknown."""
    return next((int(os.environ[name]) for name in _SIZE_VARIABLES if os.environ.get(name, "").isdigit()), None)


def leave_launcher(ranks: int) -> None:
    """Removes the launcher's environment, so that this rank can start a program of `ranks` ranks as from a shell.

    Raises `LaunchError` if this is impossible: in a Slurm step, whose resources a nested launcher cannot get again,
    or if this rank is bound to fewer cores than the program needs.
    """
    if "SLURM_STEP_ID" in os.environ:
        raise LaunchError("started by srun")
    if cores() < ranks:
        raise LaunchError(f"bound to {cores()} of the cores by its launcher, and {ranks} ranks are needed")
    for name in [name for name in os.environ if _OF_A_RANK.match(name)]:
        del os.environ[name]


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def available_memory() -> int:
    """Bytes that can be allocated without swapping."""
    with Path("/proc/meminfo").open(encoding="ascii") as file:
        for line in file:
            name, value = line.split(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    return 1 << 30


def find_tool(names: Sequence[str], given: str | None, option: str) -> str:
    """Path of the first tool found: the given one, then this Python's environment, then PATH."""
    if given is not None:
        found = shutil.which(given)
        if found is None:
            raise LaunchError(f"{option} {given}: no such program")
        return found
    here = str(Path(sys.prefix) / "bin")
    for where in (here, None):
        for name in names:
            found = shutil.which(name, path=where)
            if found is not None:
                return found
    raise LaunchError(
        f"no {names[0]} beside this Python ({here}) nor on the PATH: "
        f"install an MPI (pip install mpich) or give {option} PATH"
    )


def _kind(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, env=environment(path))
    text = done.stdout + done.stderr
    if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text or "prte" in text:
        return "openmpi"
    return "mpich" if "HYDRA" in text or "mpich" in text.lower() else "other"


def find_launcher(given: str | None = None) -> Launcher:
    """The mpirun to use; `given` is the value of ``--mpirun``."""
    path = find_tool(("mpirun", "mpiexec"), given, "--mpirun")
    return Launcher(path, _kind(path))


def environment(path: str) -> dict[str, str]:
    """Open MPI from a wheel must be told its prefix, and refuses root unless allowed by two variables. The mpirun of
    Intel MPI starts the mpiexec.hydra of the PATH, which may be another MPI's."""
    environment = dict(os.environ)
    prefix = Path(path).parent.parent
    if prefix == Path(sys.prefix):
        if (prefix / "share" / "openmpi").is_dir():
            environment.setdefault("OPAL_PREFIX", str(prefix))
        if (prefix / "bin" / "impi_info").is_file():
            environment["PATH"] = os.pathsep.join((str(prefix / "bin"), environment.get("PATH", os.defpath)))
    if os.geteuid() == 0:
        environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
        environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return environment


def command(
    launcher: Launcher,
    ranks: int,
    program: Sequence[str],
    variables: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that starts `program`; variables are set in its ranks, not in the launcher."""
    line = [launcher.path, "-n", str(ranks)]
    if launcher.kind == "openmpi" and ranks > cores():
        line.append("--oversubscribe")
    if variables:
        line += ["env", *(f"{name}={value}" for name, value in variables.items())]
    return [*line, *program]


def report_error(text: str) -> None:
    """Reports why this rank ends the program: to the process that started it, or on stderr if it is out of reach."""
    path = os.environ.get(ERRORS)
    if path is not None and Path(path).is_file():  # missing on another machine
        with Path(path).open("a") as errors:
            errors.write(text + "\n")
    else:
        sys.stderr.write(f"tempi bench: {text}\n")


def stream(launcher: Launcher, line: Sequence[str]) -> Iterator[Record]:
    """Runs the command and yields its records as they arrive; other output goes to stderr.

    Raises `LaunchError` if it fails, with the reason that its ranks reported, otherwise with its exit status.
    """
    with tempfile.NamedTemporaryFile("r", prefix="tempi-bench-") as error_file:
        status = yield from _records(line, environment(launcher.path) | {ERRORS: error_file.name})
        if status != 0:
            raise LaunchError(error_file.read().strip() or f"exit status {status} from: {' '.join(line)}")


def _records(line: Sequence[str], variables: Mapping[str, str]) -> Generator[Record, None, int]:
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        try:
            for text in process.stdout:
                record = _record_of(text)
                if record is not None:
                    yield record
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def _record_of(text: str) -> Record | None:
    if text.startswith("{"):
        try:
            return parse(text)
        except RecordError:
            pass
    if text.strip():
        sys.stderr.write(text)
    return None


def worker_command(module: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", str(Path(__file__).with_name("start.py")), module, *arguments]


def run_worker(
    launcher: Launcher,
    module: str,
    arguments: Sequence[str],
    ranks: int = 1,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Yields the records of a worker module as they arrive."""
    line = command(launcher, ranks, worker_command(module, arguments), variables)
    return stream(launcher, line)
