"""Compilers and environments of Fortran programs.

The wheels of MPICH and Open MPI come without Fortran. Their libraries have the ABI of the versions before, so a program
of the system's compiler wrapper runs on them, through the system's Fortran binding.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from preload.toolchains import HERE, ROOT, TIMEOUT, Toolchain, clean_environment

WAYS = {1: "mpif.h", 2: "use mpi", 3: "use mpi_f08"}
#: What bindings of Debian are linked to: one library by another name, and two that hold nothing that a binding uses.
OTHER_NAMES = {"mpich": ("libmpich.so.12", "libmpi.so.12")}
UNUSED = {"openmpi": ("libopen-pal.so.40", "libopen-rte.so.40")}


@dataclass(frozen=True, slots=True)
class Fortran:
    """A wrapper of a Fortran compiler, and what its programs need in their environment."""

    mpi: Toolchain
    wrapper: str
    borrowed: bool  # the binding is the system's, the library the wheel's
    settings: dict[str, str]

    @property
    def passes_types(self) -> bool:
        """Arrays of them: Open MPI 4's binding reads their number where a later library has something else."""
        if not self.borrowed or self.mpi.abi != "openmpi":
            return True
        command = [self.wrapper, "--showme:version"]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=True)
        return "Open MPI 4." not in done.stdout

    def try_compile(self, target: Path, *arguments: str | Path) -> str:
        """What the compiler has to say against it."""
        environment = clean_environment() | ROOT if self.borrowed else self.mpi.full_environment()
        options = ("-w", "-O1", "-ffree-line-length-none", "-fallow-argument-mismatch", f"-I{HERE}")
        command = [self.wrapper, *options, "-o", target, *arguments, "-ldl"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, cwd=target.parent, check=False
        )
        return "" if done.returncode == 0 else done.stderr.strip() or "failed"

    def compile(self, target: Path, way: int, *arguments: str | Path) -> None:
        """Skips the test where there is no Fortran of this kind."""
        empty = target.with_name(f"{target.name}-empty.F90")
        use = {1: "implicit none\ninclude 'mpif.h'", 2: "use mpi", 3: "use mpi_f08"}[way]
        empty.write_text(
            f"program empty\n{use}\ninteger :: ierr\ncall MPI_Init(ierr)\ncall MPI_Finalize(ierr)\nend program\n"
        )
        if why := self.try_compile(target, empty):
            pytest.skip(f"{self.mpi.name} compiles no Fortran by {WAYS[way]}: {why.splitlines()[-1]}")
        if self.borrowed and (done := self.run(target)).returncode != 0:
            pytest.skip(
                f"{self.mpi.name} does not run with the binding of {self.wrapper}: {done.stderr.strip()[-200:]}"
            )
        why = self.try_compile(target, f"-DWAY={way}", *arguments)
        assert not why, why

    def run(self, *command: str | Path, ranks: int = 1, **settings: str) -> subprocess.CompletedProcess[str]:
        return self.mpi.run(*command, ranks=ranks, **self.settings, **settings)


def fortran_of(mpi: Toolchain, folder: Path) -> Fortran:
    """Of a toolchain; libraries by other names are put into a new folder in `folder`."""
    for name in ("mpifort", "mpif90"):
        if found := shutil.which(mpi.mpicc.replace("mpicc", name)):
            # Programs of Intel MPI's wrapper do not name the folder.
            own = {"LD_LIBRARY_PATH": str(Path(found).parents[1] / "lib")} if mpi.name.endswith("-wheel") else {}
            return Fortran(mpi, found, False, own)
    found = shutil.which(f"mpifort.{mpi.abi}")
    if not mpi.name.endswith("-wheel") or not found:
        pytest.skip(f"{mpi.name} has no mpifort")
    libraries = Path(mpi.mpicc).parents[1] / "lib"
    names = folder / f"names-{mpi.name}"
    if not names.exists():
        names.mkdir()
        if mpi.abi in OTHER_NAMES:
            link, library = OTHER_NAMES[mpi.abi]
            (names / link).symlink_to(libraries / library)
        for library in UNUSED.get(mpi.abi, ()):
            subprocess.run(
                ["gcc", "-shared", f"-Wl,-soname,{library}", "-o", names / library, "-x", "c", "/dev/null"],
                check=True,
                timeout=TIMEOUT,
            )
    # Before the system's, as what the wheel's libraries need must be the wheel's too.
    path = (names, libraries, libraries / mpi.abi)
    return Fortran(mpi, found, True, {"LD_LIBRARY_PATH": ":".join(map(str, path))})
