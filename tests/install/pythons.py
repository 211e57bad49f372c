"""The Pythons of this machine, environments of theirs, and tempi installed into these by pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
LIMIT = 600  # seconds

every_python = pytest.mark.parametrize("version", VERSIONS)
every_age = pytest.mark.parametrize("age", ["newest", "oldest"])


def constraints(age: str) -> Path:
    return HERE / f"constraints-{age}.txt"


@cache
def interpreter(version: str) -> str | None:
    """A Python of that version: of the PATH, of pyenv, or this one."""
    own = [sys.executable] if sys.version_info[:2] == tuple(map(int, version.split("."))) else []
    on_path = shutil.which(f"python{version}")
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"))
    for found in (*own, *([on_path] if on_path else []), *map(str, pyenv)):
        run = subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True, timeout=60, check=False)
        if run.returncode == 0:  # pyenv has a python3.13 on the PATH also where it would not start
            return found
    return None


def wheels_exist(version: str, age: str) -> bool:
    """Whether the constraints say which NumPy that Python gets: their other packages follow."""
    if age == "newest":
        return True
    return f'python_version == "{version}"' in constraints(age).read_text()


def lends_its_pip() -> bool:
    """Whether the pip of the tests works for other Pythons: before 23.2 not for 3.12 and later ones."""
    return tuple(map(int, metadata.version("pip").split(".")[:2])) >= (23, 2)


class Environment:
    """A virtual environment of a Python; pip runs in it without a compiler unless one is given.

    It has the pip that comes with the Python, or `borrowed` that of the tests, which is available at once, if it can.
    """

    def __init__(self, folder: Path, version: str, borrowed: bool = False) -> None:
        python = interpreter(version)
        if python is None:
            pytest.skip(f"no Python {version} on this machine")
        self.folder = folder
        borrowed &= lends_its_pip()
        own = ["--without-pip"] if borrowed else []
        subprocess.run([python, "-m", "venv", *own, str(folder)], check=True, timeout=LIMIT)
        self._pip = [sys.executable, "-m", "pip", "--python", self.python] if borrowed else [self.python, "-m", "pip"]
        (folder / "nothing").mkdir()

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def tempi(self) -> str:
        return str(self.folder / "bin" / "tempi")

    def has_mpi(self) -> bool:
        """Whether its Python's prefix has an MPI, as /usr may: that is found whatever PATH is."""
        prefix = Path(self.run(self.python, "-c", "import sys; print(sys.base_prefix)").stdout.strip())
        return any((prefix / place).is_file() for place in ("include/mpi.h", "bin/mpicc"))

    def run(self, *command: str | Path, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Both outputs as one text, with a PATH of its own."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPI_", "LD_PRELOAD", "PYTHON", "CC"))}
        own = {"PATH": str(path or self.folder / "nothing"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        own["MPLCONFIGDIR"] = str(ROOT / "build" / "matplotlib")  # its list of fonts takes seconds to make
        return subprocess.run(
            [*map(str, command)], env=kept | own | variables, timeout=LIMIT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def pip(self, *words: str | Path, path: Path | None = None, **variables: str) -> str:
        """What pip printed, without more than it prints by itself."""
        done = self.run(*self._pip, *words, path=path, **variables)
        assert done.returncode == 0, done.stdout
        return done.stdout


IMPORTS = """
import importlib, pkgutil, tempi
for module in pkgutil.walk_packages(tempi.__path__, "tempi."):
    if "worker" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] not in ("matplotlib", "mpi4py", "numba", "llvmlite"):  # extras
            raise
"""


def check(environment: Environment, *, pictures: bool) -> None:
    """Everything that needs no MPI works with the packages of the environment: modules, tables, `pictures`."""
    loaded = environment.run(environment.python, "-P", "-c", IMPORTS)
    assert loaded.returncode == 0, loaded.stdout
    picture = environment.folder / "layout.png"
    type_ = "vector(64, 2, 8, DOUBLE)"
    code = f"from tempi.cli.main import main; main(['explain', {type_!r}])"
    explained = environment.run(environment.python, "-P", "-c", code)
    assert explained.returncode == 0, explained.stdout
    assert "64" in explained.stdout
    if not pictures:
        return
    drawn = "import matplotlib; matplotlib.use('Agg'); from matplotlib.figure import Figure; import numpy; "
    drawn += f"f = Figure(); f.subplots().plot(numpy.arange(3)); f.savefig({str(picture)!r})"
    done = environment.run(environment.python, "-c", drawn)
    assert done.returncode == 0, done.stdout
