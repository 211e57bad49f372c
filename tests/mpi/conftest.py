"""Tests under mpirun: every rank runs the same tests, and all ranks agree on each verdict.

After each test the ranks exchange their outcomes: a test that failed on one rank fails on all, and the others
name that rank. A rank that fails reports at once on stderr, because its partners may be waiting for it in a
call that never returns; then the watchdog ends the job. Only rank 0 reports to the terminal.
"""

from __future__ import annotations

import faulthandler
import io
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from examples import strided
from pending import agree
from world import ENTRY, MPI, Memory, committed, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

WATCHDOG_SECONDS = 600.0 if os.environ.get("MPITEST_BIG") == "1" else 60.0

_stderr = sys.__stderr__ or sys.stderr
_verdicts = MPI.COMM_WORLD.Dup()
_shared: list[Any] = []  # the communicator of the `comm` fixture, until a test fails


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if MPI.COMM_WORLD.rank == 0:
        return
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter._tw._file = io.StringIO()


def pytest_report_header() -> str:
    return f"{MPI.COMM_WORLD.size} ranks, {ENTRY} entry, {MPI.Get_library_version().splitlines()[0]}"


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "passed"
    return "skipped" if isinstance(error, pytest.skip.Exception) else "failed"


def _agree(own: str) -> None:
    """Raises on every rank if a rank failed or the outcomes differ."""
    outcomes = _verdicts.allgather(own)
    bad = [rank for rank, outcome in enumerate(outcomes) if outcome == "failed"]
    if bad and own != "failed":
        _shared.clear()
        pytest.fail(f"failed on rank {', '.join(map(str, bad))}", pytrace=False)
    if not bad and len(set(outcomes)) > 1:
        pytest.fail(f"ranks disagree: {outcomes}", pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True, file=_stderr)
    error: BaseException | None = None
    try:
        yield
    except BaseException as caught:
        error = caught
        if _outcome(caught) == "failed":
            rank = MPI.COMM_WORLD.rank
            text = "".join(traceback.format_exception(caught, limit=-3))
            _stderr.write(f"[rank {rank}] FAILED {item.nodeid}\n{text}\n")
            _stderr.flush()
    _agree(_outcome(error))
    faulthandler.cancel_dump_traceback_later()
    if error is not None:
        _shared.clear()
        raise error


@pytest.fixture
def comm() -> Any:
    """A communicator over all ranks without pending messages; errors are exceptions.

    Tests that pass leave it like that. After one that fails the next gets another: messages may be left over.
    """
    if not _shared:
        made = MPI.COMM_WORLD.Dup()
        made.Set_errhandler(MPI.ERRORS_RETURN)
        _shared.append(made)
    return _shared[0]


@pytest.fixture
def ready(comm: Any) -> Iterator[Any]:
    """A communicator of all ranks whose processes have agreed on nonblocking ones."""
    own = comm.Dup()
    agree(own)
    yield own
    own.Free()


@pytest.fixture(scope="module")
def buffered() -> Iterator[None]:
    """Room for buffered sends."""
    MPI.Attach_buffer(np.empty(1 << 23, np.uint8))
    yield
    MPI.Detach_buffer()


@pytest.fixture
def mismatches() -> int:
    """For a test that provokes a failure of TEMPI_CHECK: the number before it."""
    return snapshot()["check_failures"]


@pytest.fixture(autouse=True)
def nothing_lost(request: pytest.FixtureRequest) -> Iterator[None]:
    """No check of TEMPI_CHECK failed, and no test left the engine disabled."""
    before = snapshot()
    yield
    if "mismatches" not in request.fixturenames:
        assert snapshot()["check_failures"] == before["check_failures"]


@pytest.fixture
def own() -> Iterator[Any]:
    """A communicator of this process alone, in which nothing was sent yet."""
    made = MPI.COMM_SELF.Dup()
    made.Set_errhandler(MPI.ERRORS_RETURN)
    yield made
    made.Free()


@pytest.fixture
def unlike() -> None:
    """After two bursts of different lengths none is expected to be as long as the last: nothing starts by itself."""
    for n in (9, 10):
        memory = [Memory(strided(4), 1, where="device") for _ in range(2 * n)]
        with committed(strided(4)) as datatype:
            requests = [MPI.COMM_SELF.Irecv(m.message(datatype), 0, i) for i, m in enumerate(memory[:n])]
            requests += [MPI.COMM_SELF.Isend(m.message(datatype), 0, i) for i, m in enumerate(memory[n:])]
            MPI.Request.Waitall(requests)
