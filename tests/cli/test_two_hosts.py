"""Jobs over two hosts, which scripts/two-hosts emulates on this machine: as root, if possible."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tempi.measure import launch
from tempi.model import grid, store

HERE = Path(__file__).resolve().parent
TWO_HOSTS = str(HERE.parents[1] / "scripts" / "two-hosts")
BYTES = (1 << 14) * 16  # of one message of host_ranks.py
ROUNDS = 2
CANNOT = 77
SELF, NODE, OTHER = "self", "same-node", "other-node"


@pytest.fixture(scope="module")
def launcher() -> launch.Launcher:
    try:
        return launch.find_launcher()
    except launch.LaunchError as error:
        pytest.skip(str(error))


def environment(launcher: launch.Launcher, **variables: str) -> dict[str, str]:
    apart = r"TEMPI_(?!LIBRARY|MPI_PREFIX)|LD_PRELOAD$|PMI|OMPI_COMM_WORLD"
    own = {name: value for name, value in launch.environment(launcher.path).items() if not re.match(apart, name)}
    return own | {"TEMPI_LOCALITY": "same-llc"} | variables


def run(launcher: launch.Launcher, line: Sequence[object], **variables: str) -> str:
    done = subprocess.run(
        list(map(str, line)), env=environment(launcher, **variables), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ranks(launcher: launch.Launcher, n: int, way: str, *before: str, **variables: str) -> Any:
    """What host_ranks.py prints."""
    program = [sys.executable, "-P", str(HERE / "host_ranks.py"), way]
    line = [*before, launcher.path, "-n", n, "env", *(f"{k}={v}" for k, v in variables.items()), *program]
    lines = [line for line in run(launcher, line).splitlines() if line.startswith("[")]
    return json.loads(lines[0])


def ranks_if_possible(launcher: launch.Launcher, n: int, way: str, *before: str) -> Any:
    """As `ranks`; skips where the library cannot do it without tempi either."""
    try:
        return ranks(launcher, n, way, *before)
    except AssertionError:
        program = ["env", "TEMPI_DISABLE=1", sys.executable, "-P", HERE / "host_ranks.py", way]
        plain = map(str, [*before, launcher.path, "-n", n, *program])
        done = subprocess.run([*plain], env=environment(launcher), timeout=120, check=False)
        if done.returncode != 0:
            pytest.skip(f"this way does not work without tempi either: {way}")
        raise


def places(me: int, order: Sequence[int]) -> list[str]:
    """Of the ranks in that order, seen from one of them; even ones are on one host, odd ones on the other."""
    found = [SELF if rank == me else NODE if (rank - me) % 2 == 0 else OTHER for rank in order]
    return [*found, max(found, key=(SELF, NODE, OTHER).index)]


# -- where ranks are --------------------------------------------------------------------------------------------


def tables(path: Path, launcher: launch.Launcher) -> str:
    """Tables in which tempi is faster on the node, and the library between nodes."""
    points = []
    column = grid.Column("regular", 16, 48)
    for size in (64, 1 << 20):
        for quantity in grid.WITHIN:
            points.append(store.Point(quantity, column, size, None, (1e-9 * size,) * 9))
        for peer, library in (("node", 4e-9), ("other", 2e-9)):
            points.append(store.Point("contiguous", grid.PLAIN, size, peer, (1e-9 * size,) * 9))
            points.append(store.Point("library_message", column, size, peer, (library * size,) * 9))
    code = "from tempi import MPI; print(MPI.Get_library_version())"
    version = run(launcher, [sys.executable, "-P", "-c", code])
    path.write_bytes(store.table_of(store.Calibration(store.machine(version), tuple(points))))
    return str(path)


def test_each_rank_of_each_communicator_has_the_right_peer_class(
    launcher: launch.Launcher, hosts: str, tmp_path: Path
) -> None:
    """And the choice for messages uses it: here tempi carries those within a host, the library the others."""
    found = ranks(launcher, 4, "world", hosts, TEMPI_MODEL=tables(tmp_path / "made.table", launcher))
    for me, rank in enumerate(found):
        assert rank["host"] == ("node-a", "node-b")[me % 2]
        assert rank["good"]
        assert rank["whole"] == places(me, range(4))
        assert rank["backwards"] == places(me, (3, 2, 1, 0))
        assert rank["parity"] == places(me, (0, 2) if me % 2 == 0 else (1, 3))
        assert rank["halves"] == places(me, (0, 1) if me < 2 else (2, 3))
        assert rank["other parity"] == [OTHER] * 3
        assert (rank["sends"], rank["recvs"], rank["fallback_rule"]) == (ROUNDS, ROUNDS, 2 * 2 * ROUNDS)
    assert len({rank["memory"] for rank in found}) == 2  # so the hosts share none


def test_locality_is_probed_on_each_host(launcher: launch.Launcher, hosts: str) -> None:
    for me, rank in enumerate(ranks(launcher, 4, "world", hosts, TEMPI_LOCALITY="auto")):
        assert rank["good"]
        for name, others in (("whole", range(4)), ("backwards", (3, 2, 1, 0))):
            assert [where.removesuffix("-far") for where in rank[name]] == places(me, others)


def test_between_hosts_messages_go_over_the_network(launcher: launch.Launcher, hosts: str) -> None:
    for force in ("1", "0"):
        found = ranks(launcher, 2, "world", hosts, TEMPI_FORCE=force, TEMPI_MODEL="0")
        for me, rank in enumerate(found):
            assert rank["good"]
            assert rank["whole"] == places(me, range(2))
            assert rank["came"] >= ROUNDS * BYTES


def test_a_rank_without_tempi_counts_as_on_another_node(launcher: launch.Launcher, hosts: str) -> None:
    found = ranks(launcher, 4, "world", hosts, HOSTS_OFF="2")
    assert all(rank["good"] for rank in found)
    assert found[0]["whole"] == [SELF, OTHER, OTHER, OTHER, OTHER]
    assert found[1]["whole"] == places(1, range(4))
    assert found[2]["whole"] is None


def test_sessions_find_the_peer_classes_too(launcher: launch.Launcher, hosts: str) -> None:
    found = ranks_if_possible(launcher, 4, "session", hosts)
    assert [rank["whole"] for rank in found] == [places(me, range(4)) for me in range(4)]
    assert all(rank["good"] for rank in found)


def test_processes_of_another_world_count_as_on_another_node(
    launcher: launch.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one host: each world knows its own ranks, but not those of the other."""
    monkeypatch.setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    monkeypatch.setenv("OMPI_MCA_rmaps_base_oversubscribe", "1")
    own, child, (world, parent) = ranks_if_possible(launcher, 1, "spawn")
    assert own == [SELF, SELF]
    assert world == [SELF, NODE, NODE]
    assert child == [OTHER] * 3
    assert parent == [OTHER] * 2


# -- calibrating ------------------------------------------------------------------------------------------------


@pytest.mark.more
def test_calibrating_over_two_hosts_adds_the_class(launcher: launch.Launcher, hosts: str, tmp_path: Path) -> None:
    tempi = [sys.executable, "-P", "-m", "tempi"]
    calibrate = [*tempi, "calibrate", "--quick", "--seconds", "2", "--most", "4096"]
    own = {"TEMPI_CACHE_DIR": str(tmp_path)}
    run(launcher, calibrate, **own)
    (path,) = tmp_path.glob("model-*.json")
    first = store.read(path)
    assert first.peers == ["self", "node"]
    run(launcher, [hosts, launcher.path, "-n", 2, *calibrate], **own)
    both = store.read(path)
    assert both.peers == ["self", "node", "other"]
    of_node = {point for point in first.points if point.peer == "node" or point.quantity in grid.WITHIN}
    assert of_node == {point for point in both.points if point.peer == "node" or point.quantity in grid.WITHIN}
    assert {point.quantity for point in both.points if point.peer == "other"} == set(grid.MESSAGES)
    for peer, where in (("same-node", "a rank of the same node"), ("other-node", "another node")):
        output = run(launcher, [*tempi, "explain", "vector(256,1,8,DOUBLE)", "--peer", peer, "--count", 1], **own)
        assert f"a message of 2,048 B to {where}: " in output
        assert "not calibrated" not in output


# -- the hosts themselves -----------------------------------------------------------------------------------------


def namespaces() -> set[str]:
    """Networks that processes of this machine are in."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                found.add(str((entry / "ns" / "net").readlink()))
        except OSError:
            continue
    return found


def open_files(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found.add(str(entry.readlink()))
    return found


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert reached()


def test_nothing_is_left_whatever_happens(hosts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where a script that is killed leaves its folder
    before = namespaces()
    done = subprocess.run([hosts, "sh", "-c", "sleep 300 & exit 3"], timeout=60, check=False)
    assert done.returncode == 3
    assert namespaces() <= before
    assert not list(tmp_path.iterdir())
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen([hosts, "cat"], stdin=subprocess.PIPE, start_new_session=True)
        wait_until(lambda: len(namespaces() - before) == 2)
        process.send_signal(number)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
        wait_until(lambda: namespaces() <= before)


def test_the_numbers_that_are_searched_for_are_not_free(hosts: str, tmp_path: Path) -> None:
    """Else they go to the hosts of a job beside this one, which is killed then."""
    search, halt = tmp_path / "readlink", tmp_path / "halt"
    search.write_text(f'#!/bin/sh\nwhile [ -e {halt} ]; do sleep 0.01; done\nexec {shutil.which("readlink")} "$@"\n')
    search.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    before = namespaces()
    job = subprocess.Popen([hosts, "cat"], stdin=subprocess.PIPE, env=os.environ | {"PATH": path})
    wait_until(lambda: len(namespaces() - before) == 2)
    own = namespaces() - before
    assert job.stdin is not None
    halt.touch()
    job.stdin.close()
    try:
        wait_until(lambda: namespaces() <= before)
        assert own <= open_files(job.pid)
    finally:
        halt.unlink()
    assert job.wait(timeout=60) == 0


def test_a_machine_without_namespaces_gives_a_reason_in_one_line() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, TWO_HOSTS, "true"], env={"PATH": str(HERE)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == CANNOT
    assert done.stderr.splitlines() == [
        "two-hosts: no ip here: install iproute2 and util-linux"
        if os.geteuid() == 0
        else "two-hosts: only root may make network namespaces"
    ]
