"""Fortran programs by mpif.h, `use mpi` and `use mpi_f08`, with tempi, without it and with it off."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from preload.fortran import WAYS, Fortran, fortran_of
from preload.toolchains import HERE, Toolchain, counter, every_toolchain, preloaded

every_way = pytest.mark.parametrize("way", WAYS, ids=WAYS.values())
#: Of what is the same on any number of ranks one way is enough.
few_ways = pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way == 3 else pytest.mark.more) for way in WAYS], ids=WAYS.values()
)
SOURCE = HERE / "collectives.F90"
OF_F08 = HERE / "collective_f08.fi"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fortran")


def verdicts(run: subprocess.CompletedProcess[str]) -> list[str]:
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


# -- messages ---------------------------------------------------------------------------------------------


@every_toolchain
@every_way
def test_messages_by_every_way(mpi: Toolchain, programs: Path, way: int) -> None:
    fortran, program = fortran_of(mpi, programs), programs / f"ring{way}-{mpi.name}"
    if not fortran.passes_types:
        pytest.skip("the binding of Open MPI 4 cannot pass MPI_Alltoallw to a later library")
    fortran.compile(program, way, HERE / "ring.F90")
    stats = {"TEMPI_STATS": "1", "TEMPI_FORCE": "1"}
    plain = fortran.run(program, ranks=2, **stats)
    on = fortran.run(program, ranks=2, LD_PRELOAD=preloaded(), **stats)
    off = fortran.run(program, ranks=2, LD_PRELOAD=preloaded(), TEMPI_DISABLE="1", **stats)
    assert sum(line.startswith("ok ") for line in verdicts(plain)) == 10
    assert verdicts(on) == verdicts(off) == verdicts(plain)
    assert (counter(on.stderr, "sends"), counter(on.stderr, "recvs")) == (14, 14)
    assert (counter(on.stderr, "packs"), counter(on.stderr, "unpacks")) == (2, 2)
    assert counter(on.stderr, "collectives") == 2 * 2
    assert counter(off.stderr, "sends") is None


# -- collectives ------------------------------------------------------------------------------------------


def collectives_of(fortran: Fortran, programs: Path, way: int) -> tuple[Path, bool]:
    """The program, and whether it has persistent forms."""
    with_them, without = (programs / f"collectives{way}{which}-{fortran.mpi.name}" for which in ("-persistent", ""))
    sources = (SOURCE, HERE / "counted_collectives.c")
    if not with_them.exists() and not without.exists():
        fortran.compile(without, way, *sources)
        fortran.try_compile(with_them, f"-DWAY={way}", "-DPERSISTENT", *sources)
    return (with_them, True) if with_them.exists() else (without, False)


def types_of(fortran: Fortran) -> str:
    if fortran.mpi.abi != "openmpi":
        return "always"
    return "later" if fortran.passes_types else "never"


def calls_of(way: int, types: str, forms: tuple[str, ...], persistent: bool) -> list[str]:
    """The program's calls in their order. Each persistent request is started twice."""

    def names_of(source: Path) -> list[str]:
        names = re.findall(r"call verdict\('([^']+)'\)", source.read_text())
        return [name for name in names if types != "never" or not name.startswith("Alltoallw")]

    in_all, of_f08 = names_of(SOURCE), names_of(OF_F08)
    assert (len(in_all), len(of_f08)) == ((29, 3) if types != "never" else (26, 2))
    of_f08 = [name for name in of_f08 if way == 3 and (persistent or "large" not in name)]
    calls = [f"{name} blocking" for name in in_all + of_f08]
    for form in forms[1:]:
        calls += [f"{name} {form}" for name in in_all for _ in range(2 if form == "persistent" else 1)]
    return calls


def carried(run: subprocess.CompletedProcess[str]) -> dict[str, set[int]]:
    """How often, on the ranks, by call."""
    counts: dict[str, set[int]] = {}
    for least, most, call in re.findall(r"^carried (-?\d+) (-?\d+) (.*)$", run.stderr, re.MULTILINE):
        counts.setdefault(call, set()).update((int(least), int(most)))
    return counts


@every_toolchain
@few_ways
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives_deliver_and_are_carried(mpi: Toolchain, programs: Path, way: int, ranks: int) -> None:
    fortran = fortran_of(mpi, programs)
    program, persistent = collectives_of(fortran, programs, way)
    # Persistent calls of one process end in a wait without end in MPICH 4.0, which does some of them (collectives.md).
    assert persistent or mpi.abi == "openmpi"
    starts = persistent and (ranks > 1 or mpi.name != "mpich-system")
    forms = ("blocking", "nonblocking", "persistent")[: 3 if starts else 2]
    types = types_of(fortran)
    done = fortran.run(program, forms[-1], types, ranks=ranks, LD_PRELOAD=preloaded())
    calls = calls_of(way, types, forms, persistent)
    assert verdicts(done) == [f"ok  {call}" for call in calls]
    # A process alone has nothing to do in them.
    nothing = {call for call in calls if ranks == 1 and re.search("Bcast|in place", call)}
    counts = carried(done)
    assert counts.keys() == set(calls)
    assert {call: count for call, count in counts.items() if call not in nothing and count != {1}} == {}


@every_toolchain
@every_way
def test_blocking_collectives_are_the_library_s_without_tempi(mpi: Toolchain, programs: Path, way: int) -> None:
    fortran = fortran_of(mpi, programs)
    program, persistent = collectives_of(fortran, programs, way)
    types = types_of(fortran)
    calls = calls_of(way, types, ("blocking",), persistent)
    for settings in ({}, {"LD_PRELOAD": preloaded(), "TEMPI_DISABLE": "1"}):
        done = fortran.run(program, "blocking", types, ranks=2, **settings)
        assert verdicts(done) == [f"ok  {call}" for call in calls]
        assert carried(done) == {call: {0} for call in calls}
