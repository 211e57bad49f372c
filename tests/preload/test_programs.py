"""Programs in C, each run plain, preloaded and preloaded but off: the same output three times.

The counters that TEMPI_STATS=1 prints prove that the shim was entered in the second run only.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from preload.toolchains import HERE, Toolchain, counter, every_toolchain, preloaded
from tempi.report import counted

#: Program, ranks it runs on, lines "ok ..." that it prints, and messages that tempi carries a rank.
PROGRAMS = [
    ("p2p", 2, 28, 66),
    ("threads", 2, 1, 960),
    ("forks", 2, 3, 1),
    ("leaving", 2, 2, 4),
]
DELAYS = [pytest.param("0", marks=pytest.mark.more), "5", pytest.param("1000", marks=pytest.mark.more)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def built(mpi: Toolchain, programs: Path, name: str, *more: str | Path) -> Path:
    target = programs / f"{name}-{mpi.name}"
    source = HERE / f"{name}.c"
    return target if target.exists() else mpi.compile(target, source, f"-I{HERE}", *more)


def verdicts(run: subprocess.CompletedProcess[str]) -> list[str]:
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


@every_toolchain
@pytest.mark.parametrize(("name", "ranks", "lines", "messages"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_a_program_runs_alike_plain_preloaded_and_off(
    mpi: Toolchain, programs: Path, name: str, ranks: int, lines: int, messages: int
) -> None:
    program = built(mpi, programs, name)
    stats = {"TEMPI_STATS": "1", "TEMPI_FORCE": "1"}
    plain = mpi.run(program, ranks=ranks, **stats)
    on = mpi.run(program, ranks=ranks, LD_PRELOAD=preloaded(), **stats)
    off = mpi.run(program, ranks=ranks, LD_PRELOAD=preloaded(), TEMPI_DISABLE="1", **stats)
    assert sum(line.startswith("ok ") for line in verdicts(plain)) == lines
    assert verdicts(on) == verdicts(plain)
    assert verdicts(off) == verdicts(plain)
    assert counter(on.stderr, "sends") == ranks * messages
    assert counter(plain.stderr, "calls_seen") is None
    assert counter(off.stderr, "calls_seen") is None


@every_toolchain
def test_a_thread_with_a_small_stack_uses_irregular_types(mpi: Toolchain, programs: Path) -> None:
    """64 KiB, of which Open MPI needs less than a quarter. MPICH by itself needs more than 128 KiB."""
    small = 64 << 10 if "openmpi" in mpi.name else 512 << 10
    run = mpi.run(built(mpi, programs, "small_stack"), str(small), ranks=2, LD_PRELOAD=preloaded(), TEMPI_FORCE="1")
    assert verdicts(run) == ["ok small stack"]


@every_toolchain
def test_statistics_go_to_a_file_too(mpi: Toolchain, programs: Path, tmp_path: Path) -> None:
    program = built(mpi, programs, "p2p")
    path = tmp_path / 'a "name".json'
    stats = {"TEMPI_STATS": "1", "TEMPI_STATS_FILE": str(path), "TEMPI_FORCE": "1", "TEMPI_MODEL": "0"}
    run = mpi.run(program, ranks=2, LD_PRELOAD=preloaded(), **stats)
    verdicts(run)
    written = json.loads(path.read_text())
    assert (written["tempi_statistics"], written["ranks"], written["tables"]) == (1, 2, None)
    assert written["sum"]
    assert {name: counter(run.stderr, name) for name in written["sum"]} == written["sum"]
    assert written["most"].keys() == written["sum"].keys()
    assert 2 * written["most"]["sends"] >= written["sum"]["sends"] > written["most"]["sends"]
    (tmp_path / "printed").write_text(run.stdout + run.stderr)
    assert counted.read(str(path)).sum == counted.read(str(tmp_path / "printed")).sum
    assert [each.name for each in sorted(tmp_path.iterdir())] == [path.name, "printed"]


@every_toolchain
def test_statistics_list_the_functions_that_tempi_does_not_accelerate(
    mpi: Toolchain, programs: Path, tmp_path: Path
) -> None:
    program, path = built(mpi, programs, "left"), tmp_path / "run.json"
    on = {"LD_PRELOAD": preloaded(), "TEMPI_COLLECTIVES": "library"}
    run = mpi.run(program, ranks=2, TEMPI_STATS="1", TEMPI_STATS_FILE=str(path), **on)
    verdicts(run)
    (tmp_path / "printed").write_text(run.stderr)
    for name in ("run.json", "printed"):
        found = counted.read(str(tmp_path / name))
        assert found.fallbacks == {"MPI_Bcast": {"calls": 2 * 3, "bytes": 2 * 3 * 64}}
        assert found.sum["fallback_function"] == 2 * 3
    assert run.stderr.count("3 calls left to the library") == 2


@every_toolchain
def test_statistics_alone_in_a_file_or_nowhere(mpi: Toolchain, programs: Path, tmp_path: Path) -> None:
    program = built(mpi, programs, "p2p")
    on = {"LD_PRELOAD": preloaded(), "TEMPI_FORCE": "1"}
    quiet = mpi.run(program, ranks=2, TEMPI_STATS_FILE=str(tmp_path / "run.json"), **on)
    verdicts(quiet)
    assert counter(quiet.stderr, "sends") is None
    assert json.loads((tmp_path / "run.json").read_text())["sum"]["sends"] > 0
    blocked = tmp_path / "none" / "run.json"
    unwritable = mpi.run(program, ranks=2, TEMPI_STATS_FILE=str(blocked), **on)
    assert verdicts(unwritable) == verdicts(quiet)
    assert unwritable.stderr.count(f"TEMPI_STATS_FILE: cannot write {blocked}: No such file or directory") == 1


@every_toolchain
def test_a_trace_has_each_pack_and_unpack(mpi: Toolchain, programs: Path, tmp_path: Path) -> None:
    """Also of short messages that need not be planned (csrc/shim/p2p/unplanned.h)."""
    program, file = built(mpi, programs, "repeats"), tmp_path / "trace"
    run = mpi.run(program, ranks=2, LD_PRELOAD=preloaded(), TEMPI_FORCE="1", TEMPI_TRACE=str(file))
    assert verdicts(run) == ["ok repeats"]
    for rank in range(2):
        text = (tmp_path / f"trace.{rank}").read_text()
        events = json.loads(text.rstrip().rstrip(",") + "]")
        assert {(each["args"]["bytes"], each["pid"], each["ph"]) for each in events} == {(128, rank, "X")}
        of = Counter((each["name"], each["cat"]) for each in events)
        late = of.pop(("unpack", "MPI_Irecv"), 0) + of.pop(("unpack", "completion"), 0)
        assert of == {("pack", "MPI_Send"): 100, ("unpack", "MPI_Recv"): 100, ("pack", "MPI_Isend"): 100}
        assert late == 100
        starts = [each["ts"] for each in events]
        assert starts == sorted(starts)
        assert all(each["dur"] >= 0 for each in events)


@every_toolchain
def test_a_trace_that_cannot_be_written_is_said_once_a_rank(mpi: Toolchain, programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "none" / "trace"
    run = mpi.run(built(mpi, programs, "repeats"), ranks=2, LD_PRELOAD=preloaded(), TEMPI_TRACE=str(file))
    assert verdicts(run) == ["ok repeats"]
    for rank in range(2):
        assert run.stderr.count(f"TEMPI_TRACE: cannot write {file}.{rank}: No such file or directory") == 1


@every_toolchain
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize(("name", "ranks", "lines", "messages"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_a_program_runs_alike_with_deferred_sends(
    mpi: Toolchain, programs: Path, name: str, ranks: int, lines: int, messages: int, delay: str
) -> None:
    program = built(mpi, programs, name)
    settings = {"TEMPI_STATS": "1", "TEMPI_FORCE": "1", "TEMPI_CHECK": "1", "TEMPI_TEST_DELAY": delay}
    run = mpi.run(program, ranks=ranks, LD_PRELOAD=preloaded(), **settings)
    assert sum(line.startswith("ok ") for line in verdicts(run)) == lines
    assert counter(run.stderr, "sends") == ranks * messages
    assert bool(counter(run.stderr, "deferred")) == (delay != "0")
    assert counter(run.stderr, "checks")
    assert counter(run.stderr, "check_failures") is None


@every_toolchain
@pytest.mark.parametrize(("ranks", "sessions"), [(2, 1), (1, 3)])
def test_sessions_without_init(mpi: Toolchain, programs: Path, ranks: int, sessions: int) -> None:
    """Several in a row on one rank only: MPICH 5.0.2 fails at that now and then between ranks."""
    program = built(mpi, programs, "sessions")
    plain = mpi.run(program, str(sessions), ranks=ranks)
    if "no sessions" in plain.stdout:
        pytest.skip(plain.stdout.strip())
    if plain.returncode != 0:
        pytest.skip(f"{mpi.name}: such sessions do not work without tempi either")
    on = mpi.run(program, str(sessions), ranks=ranks, LD_PRELOAD=preloaded(), TEMPI_FORCE="1")
    assert verdicts(on) == verdicts(plain) == [f"ok session {turn}" for turn in range(sessions)]
    for turn in range(sessions):
        assert on.stderr.count(f"turn {turn}: sends {turn + 1}") == ranks
        assert plain.stderr.count(f"turn {turn}: sends -1") == ranks


@every_toolchain
@pytest.mark.parametrize("level", ["single", "multiple"])
def test_calls_within_finalize(mpi: Toolchain, programs: Path, level: str) -> None:
    """In a delete callback of MPI_COMM_SELF, which is a program's last word (MPI-4.1, 11.2.4)."""
    program = built(mpi, programs, "farewell", "-ldl")
    plain = mpi.run(program, level, ranks=2)
    on = mpi.run(program, level, ranks=2, LD_PRELOAD=preloaded(), TEMPI_FORCE="1")
    assert sum(line.startswith("ok ") for line in verdicts(plain)) == 6
    assert verdicts(on) == verdicts(plain)
    carried = sorted(line for line in on.stderr.splitlines() if line.startswith("within MPI_Finalize: "))
    assert carried == [f"within MPI_Finalize: collectives {n}, sends 1" for n in (1, 2)]


@every_toolchain
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_tool_that_wraps_requests_sees_each_call_once(mpi: Toolchain, programs: Path, place: str) -> None:
    tool = programs / f"libtool-{mpi.name}.so"
    if not tool.exists():
        mpi.compile(tool, HERE / "tool.c", "-shared", "-fPIC")
    program = built(mpi, programs, "p2p")
    alone = mpi.run(program, ranks=2, LD_PRELOAD=str(tool))
    chain = preloaded(tool) if place == "before" else preloaded(after=(tool,))
    both = mpi.run(program, ranks=2, LD_PRELOAD=chain, TEMPI_FORCE="1", TEMPI_STATS="1")
    assert verdicts(both) == verdicts(alone)
    assert "tool posted=" in both.stdout
    off = mpi.run(program, ranks=2, LD_PRELOAD=chain, TEMPI_FORCE="1", TEMPI_DISABLE="1")
    assert verdicts(off) == verdicts(alone)
    assert counter(both.stderr, "sends") == 2 * PROGRAMS[0][3]
