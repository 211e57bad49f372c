"""Collectives through shared memory, in jobs of all kinds: some ranks without tempi, no memory, killed ranks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from preload.toolchains import HERE, Toolchain, every_library, every_quick_library, every_toolchain, preloaded

KINDS = 8
EACH = 30  # calls of each rank
AGREED = {"": 0, "nonblocking": 3, "persistent": 0}  # blocking calls before them, on each communicator
forms = pytest.mark.parametrize("form", AGREED)
few_forms = pytest.mark.parametrize("form", ["", "persistent", pytest.param("nonblocking", marks=pytest.mark.more)])
#: Between hosts every job takes seconds.
_repeated = [pytest.param(form, marks=pytest.mark.more) for form in ("", "persistent")]
one_form = pytest.mark.parametrize("form", ["nonblocking", *_repeated])
Settings = dict[str, str]
OFF: Settings = {}


def on(**more: str) -> Settings:
    return {"LD_PRELOAD": preloaded()} | more


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exchanges")


def built(mpi: Toolchain, programs: Path, name: str = "exchanges") -> Path:
    """A name that ends with _c is of the program with the functions of large counts."""
    target, source = programs / f"{name}-{mpi.name}", HERE / f"{name.removesuffix('_c')}.c"
    flags = ["-DLARGE_COUNTS"] if name.endswith("_c") else []
    return target if target.exists() else mpi.compile(target, source, f"-I{HERE}", *flags)


def run(
    mpi: Toolchain,
    programs: Path,
    what: str,
    ranks: Sequence[Settings],
    before: Sequence[str] = (),
    form: str = "",
    name: str = "exchanges",
) -> subprocess.CompletedProcess[str]:
    """A rank with each of these settings. `form` of the functions: blocking ones, if none is named."""
    program, line = built(mpi, programs, name), [*before, *mpi.mpirun]
    for i, settings in enumerate(ranks):
        pairs = [f"{key}={value}" for key, value in (settings | ({"EXCHANGES_FORM": form} if form else {})).items()]
        line += [*([":"] if i else []), "-n", "1", "env", *pairs, str(program), *what.split()]
    return launched(mpi, line)


def launched(mpi: Toolchain, line: list[str]) -> subprocess.CompletedProcess[str]:
    done = mpi.launch(line)
    if "no persistent collectives" in done.stdout:
        pytest.skip(f"{mpi.name}: no persistent collectives")
    return done


def verdicts(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BAD" not in done.stdout
    return [line for line in done.stdout.splitlines() if line.startswith("ok ")]


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith(("ok ", "BAD "))]


@cache
def by_the_library(mpi: Toolchain, programs: Path, form: str) -> list[str]:
    """MPICH 4.0 exchanges wrong bytes in place, by nonblocking and persistent calls."""
    done = run(mpi, programs, "left", [OFF] * 3, form=form)
    if len(told(done)) < KINDS:
        pytest.skip(f"{mpi.name}: does not survive {form} calls")
    return told(done)


def carried(done: subprocess.CompletedProcess[str], which: str = "collectives") -> list[int]:
    """By each rank; -1: it runs without tempi. Ranks' lines may come together."""
    found = re.findall(rf"rank (\d+): [a-z0-9 -]*?\b{which} (-?\d+)", done.stderr)
    return [int(count) for _, count in sorted(found, key=lambda pair: int(pair[0]))]


# -- ranks that differ ------------------------------------------------------------------------------------------


@every_toolchain
@forms
@pytest.mark.parametrize("ranks", [2, 3])
def test_exchanges_of_every_kind_go_through_shared_memory(
    mpi: Toolchain, programs: Path, ranks: int, form: str
) -> None:
    done = run(mpi, programs, "each", [on()] * ranks, form=form)
    assert len(verdicts(done)) == KINDS
    assert carried(done) == [EACH + AGREED[form]] * ranks


@every_toolchain
def test_the_program_is_right_without_tempi(mpi: Toolchain, programs: Path) -> None:
    assert "BAD" not in "".join(by_the_library(mpi, programs, ""))


#: The last one's call on MPI_COMM_SELF is its own affair.
DIFFERENT = {
    "first without tempi": ([OFF, on(), on()], [-1, 2, 2]),
    "others without tempi": ([on(), OFF, OFF], [2, -1, -1]),
    "first off": ([on(TEMPI_DISABLE="1"), on(), on()], [0, 2, 2]),
    "last off": ([on(), on(), on(TEMPI_DISABLE="1")], [2, 2, 0]),
    "first to the library": ([on(TEMPI_COLLECTIVES="library"), on(), on()], [0, 2, 2]),
    "last to the library": ([on(), on(), on(TEMPI_COLLECTIVES="library")], [2, 2, 0]),
}


@every_toolchain
@pytest.mark.parametrize("name", DIFFERENT)
@few_forms
def test_ranks_with_different_settings_leave_all_calls_to_the_library(
    mpi: Toolchain, programs: Path, name: str, form: str
) -> None:
    ranks, expected = DIFFERENT[name]
    done = run(mpi, programs, "left", ranks, form=form)
    assert told(done) == by_the_library(mpi, programs, form)
    assert carried(done) == expected
    assert "shared memory" not in done.stderr


@every_toolchain
def test_one_rank_with_a_session_takes_part(mpi: Toolchain, programs: Path) -> None:
    plain = run(mpi, programs, "session", [OFF] * 3)
    if "no sessions" in plain.stdout or plain.returncode != 0:
        pytest.skip(f"{mpi.name}: no sessions beside the world")
    done = run(mpi, programs, "session", [on()] * 3)
    assert verdicts(done) == verdicts(plain)
    assert min(carried(done)) > 0


# -- every function ----------------------------------------------------------------------------------------------

FORMS = ("blocking", "nonblocking", "persistent")
TYPES, TYPES_LEFT = 9, 3  # pairs of them in every_collective.c
CALLS = 17  # with a pair, each done twice


def turns(form: str, types: int) -> int:
    """Verdicts. Of other forms than blocking: one turn more, and requests of freed communicators."""
    return types if form == "blocking" else 2 * types + 1


def every_call(
    mpi: Toolchain, programs: Path, form: str, ranks: Sequence[Settings], left: str = "", name: str = "every_collective"
) -> subprocess.CompletedProcess[str]:
    done = run(mpi, programs, f"{form} {left}", ranks, name=name)
    assert "LEFT" not in done.stdout
    return done


@cache
def every_call_by_the_library(mpi: Toolchain, programs: Path, form: str) -> list[str]:
    done = every_call(mpi, programs, form, [OFF] * 3, "left")
    if len(told(done)) < turns(form, TYPES_LEFT):
        pytest.skip(f"{mpi.name}: does not survive {form} calls")
    return told(done)


def each_form(other: str, values: Iterable[object], chosen: Sequence[tuple[str, object]]) -> pytest.MarkDecorator:
    """Each form with each of the values; all but the chosen pairs only repeat."""
    pairs = [(form, value) for form in FORMS for value in values]
    marked = [pytest.param(*pair, marks=() if pair in chosen else pytest.mark.more) for pair in pairs]
    return pytest.mark.parametrize(("form", other), marked)


SIZES = (("blocking", 2), ("blocking", 4), ("nonblocking", 4), ("persistent", 2))
SIZES_LARGE = (("blocking", 2), ("nonblocking", 2), ("persistent", 2))
MIXTURES = (
    ("blocking", "first without tempi"),
    ("blocking", "last to the library"),
    ("persistent", "others without tempi"),
)


@every_library
@each_form("ranks", (2, 4), SIZES)
def test_every_function_goes_through_shared_memory(mpi: Toolchain, programs: Path, form: str, ranks: int) -> None:
    all_are_carried(every_call(mpi, programs, form, [on()] * ranks), form, ranks)


@every_library
@each_form("ranks", (2, 4), SIZES_LARGE)
def test_every_function_of_large_counts_goes_through_shared_memory(
    mpi: Toolchain, programs: Path, form: str, ranks: int
) -> None:
    """On Open MPI, which has none of them, too."""
    all_are_carried(every_call(mpi, programs, form, [on()] * ranks, name="every_collective_c"), form, ranks)


def all_are_carried(done: subprocess.CompletedProcess[str], form: str, ranks: int) -> None:
    assert len(verdicts(done)) == turns(form, TYPES)
    counts = carried(done)
    assert len(counts) == ranks
    assert min(counts) >= 2 * CALLS * TYPES


@every_library
@each_form("name", DIFFERENT, MIXTURES)
def test_no_function_is_carried_where_settings_differ(mpi: Toolchain, programs: Path, form: str, name: str) -> None:
    if mpi.name == "mpich-system" and form == "persistent":
        pytest.skip("MPICH 4.0: persistent calls do not end if a process has other persistent requests")
    ranks, of_few = DIFFERENT[name]
    done = every_call(mpi, programs, form, ranks, "left")
    assert told(done) == every_call_by_the_library(mpi, programs, form)
    assert carried(done) == [min(count, 0) for count in of_few]  # it has no calls of a process alone


# -- where there is little ----------------------------------------------------------------------------------------


@every_library
@pytest.mark.parametrize("what", ["full", "blind"])
def test_without_shared_memory_all_calls_go_to_the_library_and_that_is_reported_once(
    mpi: Toolchain, programs: Path, what: str
) -> None:
    """full: there is no room for the rings; blind: one rank cannot map them."""
    done = run(mpi, programs, what, [on()] * 3)
    assert len(verdicts(done)) == KINDS
    assert carried(done) == [3] * 3  # those of one process alone
    refused = carried(done, "refused")
    # The world, and three communicators with a topology, these also when they are made.
    assert min(refused) == max(refused) == 7
    assert done.stderr.count("no shared memory for a communicator of 3 ranks") == 1


def with_shared_memory(option: str) -> list[str]:
    """Begins a command whose /dev/shm is mounted with that option."""
    line = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {option} tmpfs /dev/shm && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*line, "true"], check=False).returncode != 0:
        pytest.skip("no mount namespace here")
    return line


@every_library
@forms
def test_long_messages_where_shared_memory_is_small(mpi: Toolchain, programs: Path, form: str) -> None:
    """Containers have 64 MiB in /dev/shm if nothing else is asked for."""
    small = with_shared_memory("size=64m")
    done = run(mpi, programs, "long", [on()] * 2, small, form)
    ten = form == "nonblocking"
    assert verdicts(done) == ["ok one of 40 MiB", *["ok ten of 8 MiB"] * ten]
    assert carried(done) == [1 + 10 * ten + AGREED[form]] * 2


@every_library
@few_forms
def test_a_folder_of_shared_memory_that_cannot_be_written_changes_no_result(
    mpi: Toolchain, programs: Path, form: str
) -> None:
    """Of the libraries those that need none: MPICH ends. The ranks do not even find each other."""
    read_only = with_shared_memory("ro")
    plain = run(mpi, programs, "left", [OFF] * 3, read_only, form)
    if plain.returncode != 0 or len(told(plain)) < KINDS:
        pytest.skip(f"{mpi.name}: does not run there")
    done = run(mpi, programs, "left", [on()] * 3, read_only, form)
    assert told(done) == told(plain)
    assert carried(done) == [2] * 3  # those of one process alone
    assert done.stderr.count("cannot use /dev/shm: the ranks of a node do not find each other") == 1


@every_library
@forms
def test_many_ranks_on_few_cores_exchange(mpi: Toolchain, programs: Path, form: str) -> None:
    few = ["taskset", "-c", few_cores()] if shutil.which("taskset") else ()
    done = run(mpi, programs, "each 2", [on()] * 8, few, form)
    assert len(verdicts(done)) == KINDS
    assert carried(done) == [EACH // 2 + 1 + AGREED[form]] * 8


def few_cores() -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))


@every_library
@forms
def test_two_jobs_at_once_do_not_meet(mpi: Toolchain, programs: Path, form: str) -> None:
    built(mpi, programs)
    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(lambda _: run(mpi, programs, "each", [on()] * 2, form=form), range(2)))
    for done in jobs:
        assert len(verdicts(done)) == KINDS
        assert carried(done) == [EACH + AGREED[form]] * 2


# -- communicators and threads ------------------------------------------------------------------------------------


@every_library
@forms
def test_communicators_that_are_freed_leave_no_memory_behind(mpi: Toolchain, programs: Path, form: str) -> None:
    done = run(mpi, programs, "duplicates", [on()] * 4, form=form)
    assert verdicts(done) == ["ok duplicates", "ok mappings", "ok files"]
    assert carried(done) == [90 + 60 * AGREED[form]] * 4


@every_library
@forms
def test_threads_exchange_at_once(mpi: Toolchain, programs: Path, form: str) -> None:
    done = run(mpi, programs, "threads", [on()] * 2, form=form)
    assert verdicts(done) == ["ok threads"]
    assert carried(done) == [97 + 4 * AGREED[form]] * 2


@every_library
def test_threads_start_persistent_requests_of_one_communicator(mpi: Toolchain, programs: Path) -> None:
    done = run(mpi, programs, "together", [on()] * 2)
    assert verdicts(done) == ["ok together"]
    assert carried(done) == [2000] * 2


# -- several hosts --------------------------------------------------------------------------------------------------


def run_on(
    hosts: str, mpi: Toolchain, programs: Path, what: str, ranks: Sequence[Settings], form: str
) -> subprocess.CompletedProcess[str]:
    """On two hosts in turn; a script sets what each rank has, as launchers place several programs as they like."""
    if mpi.name == "mpich-system":
        pytest.skip("MPI_Finalize of MPICH 4.0 does not return between these hosts, without tempi as well")
    cases = [f"{i}) export {' '.join(f'{k}={v}' for k, v in settings.items())} ;;" for i, settings in enumerate(ranks)]
    script = programs / "by-rank.sh"
    lines = ["case ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} in", *cases, "esac", 'exec "$@"']
    script.write_text("\n".join(lines))
    program = ["sh", str(script), str(built(mpi, programs)), *what.split()]
    of_form = ["env", f"EXCHANGES_FORM={form}"] if form else []
    return launched(mpi, [hosts, *mpi.mpirun, "-n", str(len(ranks)), *of_form, *program])


FORCED = {"TEMPI_FORCE": "1"}
#: On each host one process, or a host on which not all ranks run tempi, is alone; ranks 0 and 2 are on the first one.
ON_HOSTS = {
    "all": [on(**FORCED)] * 4,
    "one host without tempi": [OFF, on(**FORCED), OFF, on(**FORCED)],
    "one rank without tempi": [on(**FORCED), OFF, on(**FORCED), on(**FORCED)],
    "one rank to the library": [on(**FORCED), on(**FORCED), on(TEMPI_COLLECTIVES="library"), on(**FORCED)],
}


_other_hosts = [pytest.param(name, marks=pytest.mark.more) for name in ON_HOSTS if name != "one rank without tempi"]


@every_library
@one_form
@pytest.mark.parametrize("name", ["one rank without tempi", *_other_hosts])
def test_ranks_of_two_hosts_match_each_other(hosts: str, mpi: Toolchain, programs: Path, name: str, form: str) -> None:
    ranks = ON_HOSTS[name]
    plain = run_on(hosts, mpi, programs, "left", [OFF] * 4, form)
    if len(told(plain)) < KINDS:
        pytest.skip(f"{mpi.name}: does not survive {form} calls between hosts")
    done = run_on(hosts, mpi, programs, "left", ranks, form)
    assert told(done) == told(plain)
    split = carried(done, "split")
    assert [n > 0 for n in split] == [settings.get("TEMPI_FORCE") == "1" for settings in ranks]


@every_quick_library
@one_form
def test_communicators_of_two_hosts_that_are_freed_leave_nothing_behind(
    hosts: str, mpi: Toolchain, programs: Path, form: str
) -> None:
    done = run_on(hosts, mpi, programs, "duplicates", [on()] * 4, form)
    assert verdicts(done) == ["ok duplicates", "ok mappings", "ok files"]
    assert min(carried(done, "split")) > 0


@every_quick_library
@one_form
def test_threads_exchange_at_once_between_two_hosts(hosts: str, mpi: Toolchain, programs: Path, form: str) -> None:
    """Intel MPI (2021.18, over TCP) ends most such jobs with an error of its own, or not at all."""
    try:
        plain = told(run_on(hosts, mpi, programs, "threads", [OFF] * 4, form))
    except subprocess.TimeoutExpired:
        plain = []
    if plain != ["ok threads"]:
        pytest.skip(f"{mpi.name}: does not do {form} calls of threads between hosts without tempi either")
    done = run_on(hosts, mpi, programs, "threads", [on()] * 4, form)
    assert verdicts(done) == ["ok threads"]
    assert min(carried(done, "split")) > 0


@every_library
@one_form
@pytest.mark.parametrize("name", ["all", pytest.param("one rank without tempi", marks=pytest.mark.more)])
def test_neighbours_that_are_one_process_get_the_opposite_block_on_two_hosts(
    hosts: str, mpi: Toolchain, programs: Path, form: str, name: str
) -> None:
    """From the first call on, also of predefined datatypes, and where the rule leaves messages to the library."""
    ranks = [on()] * 4 if name == "all" else [on()] * 3 + [OFF]
    done = run_on(hosts, mpi, programs, "opposite", ranks, form)
    if name == "all":
        assert verdicts(done) == ["ok with one count", "ok with a count for each", "ok of a duplicate"]
    else:
        assert len(told(done)) == 3
        assert not re.search(r"rank [012]: not of", done.stdout)


# -- ends ---------------------------------------------------------------------------------------------------------


@every_library
@forms
def test_a_job_with_a_killed_rank_ends(mpi: Toolchain, programs: Path, form: str) -> None:
    done = run(mpi, programs, "killed", [on()] * 3, form=form)
    assert done.returncode != 0
    assert not left_running(built(mpi, programs))


@every_library
@pytest.mark.parametrize("form", FORMS)
def test_a_job_whose_rank_is_killed_within_a_call_ends(mpi: Toolchain, programs: Path, form: str) -> None:
    """In any function: at moments that differ from run to run."""
    for microseconds in (1000, 2700, 7300, 19900):
        done = run(mpi, programs, f"{form} killed {microseconds}", [on()] * 3, name="every_collective")
        assert done.returncode != 0
        assert "LEFT" not in done.stdout
    assert not left_running(built(mpi, programs, "every_collective"))


def left_running(program: Path) -> list[int]:
    """Which processes are left after 30 seconds; they are killed."""
    deadline = time.monotonic() + 30
    while (left := running(program)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        os.kill(process, signal.SIGKILL)
    return left


def running(program: Path) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "exe").resolve() == program.resolve() and (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@every_library
@forms
def test_wrong_arguments_raise_errors_of_the_library_s_classes(mpi: Toolchain, programs: Path, form: str) -> None:
    """At the communicator of the call: the world's error handler would end the job."""
    plain, done = (run(mpi, programs, "errors", [settings] * 2, form=form) for settings in (OFF, on()))
    assert len(verdicts(done)) == 9
    assert min(carried(done)) > 0
    if plain.returncode == 0 and not form:  # a library may tolerate truncation, or not
        assert verdicts(done) == verdicts(plain)
