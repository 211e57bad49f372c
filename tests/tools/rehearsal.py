"""Rehearses `make gpu` as on a machine with a GPU that is bare and offline, without a GPU: `make gpu-rehearsal`.

    python tests/tools/rehearsal.py VENV WHEELS [--part PART]... [--every] [--keep FOLDER]

1. `travel`: a folder with what would travel to such a machine: the tree without what git ignores, the kernels, the
   folder WHEELS of `make wheels`; 64 MiB at most.
2. `machine`: a Python 3.12 in a virtual environment of its own with CuPy, numba-cuda, mpi4py, NumPy, pytest and
   hypothesis, on top of which `make gpu` makes another one.
3. `driver`: the emulated driver of VENV as libcuda.so.1, whose devices do not say that they are emulated.
4. Each part of `make gpu` in namespaces without a network, without this checkout and with /dev/nvidiactl; no MPI is on
   the PATH. Then `make gpu-page`, into another file than docs/gpu.md.

Every step must pass or be skipped with a reason; --every takes all steps of the part tests, not only one of each kind.
Times are not times of a GPU: targets are not compared. The last line
is `N passed, N failed, N skipped`. Where namespaces are not permitted it says so and rehearses nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_parts import PARTS

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "rehearsal"  # the machine's environment, made once
MOST = 64 << 20  # bytes that may travel
VERSION = "3.12"
PACKAGES = ("pip", "cupy-cuda13x", "numba-cuda", "mpi4py", "numpy", "pytest", "hypothesis", "setuptools")
#: Not on such a machine: what comes with an MPI, and git.
HIDDEN = re.compile(r"(mpi|ompi|prte|prun|orte|opal|oshmem|hydra|srun|sbatch|git)")
#: Seconds of one part.
LIMIT = 900.0
#: All processes end with the first one.
NAMESPACES = ("unshare", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")

#: Run as root in namespaces of its own. $1: the folder; $2: where it lies; $3: the checkout; then the command.
INSIDE = """
set -eu
dev=$1/dev
mkdir -p "$dev"
mount -t tmpfs -o mode=755 tmpfs "$dev"
for name in null zero full random urandom tty; do touch "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"; done
for name in pts shm; do mkdir "$dev/$name"; mount --bind "/dev/$name" "$dev/$name"; done
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"; ln -s /proc/self/fd/0 "$dev/stdin"
ln -s /proc/self/fd/1 "$dev/stdout"; ln -s /proc/self/fd/2 "$dev/stderr"
touch "$dev/nvidiactl" "$dev/nvidia0"
mount --bind "$2" "$1/machine"
mount --move "$dev" /dev
mount -t tmpfs tmpfs "$3"
cd "$1/tree"
shift 3
exec "$@"
"""


class CannotError(Exception):
    """The rehearsal is not possible here; the message says why."""


@dataclass(slots=True)
class Tally:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def check(self, good: bool, what: str) -> None:
        print(f"  {'yes' if good else 'NO '}  {what}", flush=True)
        if good:
            self.passed += 1
        else:
            self.failed.append(what)


# -- what travels -----------------------------------------------------------------------------------------


def travelling() -> list[Path]:
    """The files of the tree that git does not ignore, and the kernels."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=True,
    )  # fmt: skip
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [file for file in (*files, *(ROOT / "build" / "kernels").iterdir()) if file.is_file()]


def travel(target: Path, wheels: Path) -> int:
    """Copies them with the wheels; the bytes in all."""
    files = {file: target / file.relative_to(ROOT) for file in travelling()}
    files |= {file: target / "wheels" / file.name for file in wheels.iterdir()}
    for source, copy in files.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)  # with the date of today, as a copy over the network has
    return sum(copy.stat().st_size for copy in files.values())


# -- the machine ------------------------------------------------------------------------------------------


def interpreter() -> str:
    """A Python of VERSION, of the PATH or pyenv, else this one."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{VERSION}.*/bin/python{VERSION}"))
    for found in (*map(str, pyenv), shutil.which(f"python{VERSION}")):
        if found and subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return found
    return sys.executable


def machine() -> Path:
    """The virtual environment of the machine, with CuPy and numba-cuda if they can be had."""
    folder, made = KEPT / "machine", KEPT / "machine" / "made"
    python = interpreter()
    wanted = f"{python} {' '.join(PACKAGES)}"
    if made.is_file() and made.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*install, *PACKAGES]).returncode == 0:
        made.write_text(wanted)
    else:
        print("CuPy or numba-cuda cannot be installed here: rehearsed without them")
        subprocess.run([*install, *(name for name in PACKAGES if "cu" not in name)], check=True)
    return folder


def driver(venv: Path, folder: Path) -> None:
    """The emulated driver of that environment in the place of a card's, with the kernels of the benchmark."""
    python = str(venv / "bin" / "python")
    folder.mkdir(exist_ok=True)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tempi import _engine, emulator\n"
        "from tempi.bench.gpu import probes\n"
        "for ptx in probes.MODULES:\n"
        "    emulator.compile_ptx(ptx.rstrip(b'\\0').decode(), Path(sys.argv[1]))\n"
        "print(_engine.library_path())\n"
    )
    made = subprocess.run([python, "-P", "-c", code, str(folder)], stdout=subprocess.PIPE, text=True, check=True)
    library = Path(made.stdout.split()[-1]).parent
    shutil.copy(library / "libtempi-cuda.so", folder / "libcuda.so.1")
    for module in library.glob("tempi-ptx-*.so"):
        shutil.copy(module, folder)


def tools(folder: Path) -> None:
    """The programs of the PATH, by links, without those of an MPI."""
    folder.mkdir(exist_ok=True)
    for place in os.environ["PATH"].split(":"):
        if place.startswith(str(ROOT)) or "pyenv" in place or not Path(place).is_dir():
            continue
        for program in Path(place).iterdir():
            link = folder / program.name
            if not HIDDEN.match(program.name) and not link.is_symlink():
                link.symlink_to(program)


# -- running ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    folder: Path
    machine: Path

    @property
    def variables(self) -> Mapping[str, str]:
        return {
            "PATH": str(self.folder / "bin"),
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.folder / "tmp"),
            "LD_LIBRARY_PATH": str(self.folder / "driver"),
            "PIP_CONFIG_FILE": "/dev/null",
            "PYTHON": str(self.folder / "machine" / "bin" / "python"),
            "PYTHONUNBUFFERED": "1",
            "_TEMPI_REHEARSAL": "1",
        }

    def command(self, *words: str) -> list[str]:
        inside = [str(self.folder), str(self.machine), str(ROOT), *words]
        return [*NAMESPACES, "sh", "-c", INSIDE, "rehearsal", *inside]

    def run(self, *words: str, limit: float = LIMIT) -> tuple[int, str]:
        """The exit status and the output, which is shown as it comes."""
        with subprocess.Popen(
            self.command(*words), env=self.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            lines = []
            watchdog = threading.Timer(limit, process.kill)
            watchdog.start()
            try:
                for line in process.stdout:
                    print(f"    {line}", end="", flush=True)
                    lines.append(line)
            except BaseException:
                process.kill()
                raise
            finally:
                watchdog.cancel()
        return process.returncode, "".join(lines)


def permitted() -> None:
    """Raises CannotError unless namespaces can be made and mounted in."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise CannotError("only root with unshare (util-linux) can make a machine without a network")
    try_it = [*NAMESPACES, "sh", "-c", 'mount -t tmpfs tmpfs "$0"']
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*try_it, folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotError(f"namespaces are not permitted here: {done.stderr.strip()}")


def parts(place: Place, chosen: Sequence[str], every: bool, tally: Tally) -> Iterator[str]:
    """Runs each part; yields the outputs."""
    for part in chosen:
        print(f"make gpu PART={part}", flush=True)
        since = time.monotonic()
        out = str(place.folder / "out")
        quick = [] if every and part == "tests" else ["QUICK=1"]
        status, output = place.run(
            "make", "gpu", f"PART={part}", f"OUT={out}", "WHEELS=wheels", "COMMIT=rehearsed", *quick
        )
        tally.check(status == 0, f"make gpu PART={part}: exit status {status} ({time.monotonic() - since:.0f} s)")
        for name in PARTS[part]:
            tally.check((place.folder / "out" / name).is_file(), f"PART={part} wrote {name}")
        tally.skipped += re.findall(r"^(?:left out|  SKIPPED \[\d+\]).*$", output, re.MULTILINE)
        yield output


def rehearse(venv: Path, wheels: Path, chosen: Sequence[str], every: bool, folder: Path) -> Tally:
    tally = Tally()
    for name in ("machine", "home", "tmp", "out"):
        (folder / name).mkdir(exist_ok=True)
    size = travel(folder / "tree", wheels)
    tally.check(size <= MOST, f"what travels has {size / 2**20:.1f} MiB of {MOST >> 20}")
    driver(venv, folder / "driver")
    tools(folder / "bin")
    place = Place(folder, machine())
    for number, output in enumerate(parts(place, chosen, every, tally)):
        if number == 0 and any((place.machine / "lib").glob("python*/site-packages/cupy")):
            tally.check("CuPy is not among the packages" not in output, "the outer environment's CuPy is reached")
    if "rates" in chosen:
        page = folder / "out" / "gpu.md"
        status, _ = place.run("make", "gpu-page", f"FROM={folder / 'out'}", f"PAGE={page}")
        text = page.read_text() if page.is_file() else ""
        tally.check(status == 0 and "REHEARSAL" in text, "make gpu-page writes a page that says REHEARSAL")
        tally.check("commit rehearsed" in text, "the page names the commit")
        refused, _ = place.run("make", "gpu-page", f"FROM={folder / 'out'}")
        tally.check(refused != 0, "docs/gpu.md is not made from a rehearsal")
    return tally


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--every", action="store_true", help="all steps of the tests")
    parser.add_argument("--keep", type=Path, help="this folder instead of a temporary one")
    options = parser.parse_args(arguments)
    since = time.monotonic()
    try:
        permitted()
    except CannotError as error:
        print(f"not rehearsed: {error}\n0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory(prefix="tempi-rehearsal-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        tally = rehearse(options.venv.resolve(), options.wheels, options.part or list(PARTS), options.every, folder)
    for what in tally.failed:
        print(f"failed: {what}")
    print(f"rehearsed in {time.monotonic() - since:.0f} s:")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
