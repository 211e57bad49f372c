"""``tempi calibrate`` from the command line, and programs that choose by its tables."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launching import environment, launcher, version
from tempi.calibration import adaptive
from tempi.measure import launch
from tempi.model import grid, samples, store

SMALL = ("--quick", "--seconds", "2", "--most", 1 << 16)
RANKS = Path(__file__).resolve().parent / "model_ranks.py"


def tempi(cache: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "tempi", *map(str, words)]
    return subprocess.run(
        command, env=environment(cache, **variables), capture_output=True, text=True, timeout=300, check=False
    )


def ranks(cache: Path, *shapes: str, **variables: str) -> tuple[list[list[str]], str]:
    """Per rank: tables in force, sends, receives, calls left to the library, choices made, locality probes, and the
    peer's location; and stderr. `shapes`: vectors to exchange, "run,stride" in bytes."""
    line = launch.command(launcher(), 2, [sys.executable, "-P", str(RANKS), *shapes], variables)
    done = subprocess.run(line, env=environment(cache), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("rank ")], done.stderr


def made_up(host: float, **peers: float) -> store.Calibration:
    """A calibration in which tempi takes `host` times as long as the library for every message; `peers`: factor on the
    library's message times there (same-LLC ranks of the node: 1)."""
    points = []
    factors = {"library_message": 4.0, "contiguous": host, "stage_pack": host, "stage_unpack": 2 * host}
    for quantity, factor in factors.items():
        column = grid.PLAIN if quantity == "contiguous" else grid.Column("regular", 8, 64)
        for peer, part in ({"node": 1.0} | peers).items() if quantity in grid.MESSAGES else ((None, 1.0),):
            own = factor * (part if quantity == "library_message" else 1.0)
            for size in (64, 1 << 20):
                points.append(store.Point(quantity, column, size, peer, (1e-9 * size * own,) * 9))
    return store.Calibration(store.machine(version()), tuple(points), {"when": "now", "complete": True})


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with a tiny calibration."""
    cache = tmp_path_factory.mktemp("calibrated")
    done = tempi(cache, "calibrate", *SMALL, "--json", cache / "summary")
    assert done.returncode == 0, done.stderr
    assert json.loads((cache / "summary").read_text())["complete"] is True
    return cache


def only(cache: Path, suffix: str) -> Path:
    (found,) = cache.glob(f"model-*{suffix}")
    return found


def test_a_calibration_has_every_quantity_and_raw_sample(calibrated: Path) -> None:
    found = store.read(only(calibrated, ".json"))
    assert {point.quantity for point in found.points} == {*grid.QUANTITIES, *grid.BESIDE}
    assert {point.column.family for point in found.points} == set(grid.FAMILIES)
    assert found.peers == ["self", "node"]
    assert all(len(point.seconds) >= adaptive.FEWEST for point in found.points)
    assert found.machine.cpu == found.about["machine"]["cpu"]
    assert only(calibrated, ".table").read_bytes() == store.table_of(found)


def test_a_program_chooses_by_the_calibration(calibrated: Path) -> None:
    for found in ranks(calibrated)[0]:
        assert found[0] == str(only(calibrated, ".table"))
        assert int(found[4]) == 12  # six types, sent and received; a second message uses the cached choice


def test_show_and_doctor_list_the_calibration(calibrated: Path) -> None:
    shown = tempi(calibrated, "calibrate", "--show").stdout
    assert "regular, peer node" in shown
    assert "run 64 stride 576" in shown
    output = tempi(calibrated, "doctor", sys.executable).stdout
    assert "model: calibrated with" in output


def test_a_calibration_is_exported_and_imported(calibrated: Path, tmp_path: Path) -> None:
    shipped = tmp_path / "shipped.json"
    assert tempi(calibrated, "calibrate", "--export", shipped).returncode == 0
    done = tempi(tmp_path / "new", "calibrate", "--import", shipped)
    assert done.returncode == 0, done.stderr
    for suffix in (".json", ".table"):
        assert only(tmp_path / "new", suffix).read_bytes() == only(calibrated, suffix).read_bytes()


@pytest.mark.once
def test_explain_predicts_every_method_and_names_the_choice(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    own = made_up(0.5)
    store.write(tmp_path / "own.json", own)
    vector = "vector(1024,1,8,DOUBLE)"
    without = tempi(tmp_path / "cache", "explain", vector, "--peer", "same-node").stdout
    assert "This machine is not calibrated" in without
    assert tempi(tmp_path / "cache", "calibrate", "--import", tmp_path / "own.json").returncode == 0
    output = tempi(tmp_path / "cache", "explain", vector, "--peer", "same-node", "--json", tmp_path / "json").stdout
    assert f"Predicted with {own.machine.mpi}" in output
    assert "a message of 8,192 B to a rank of the same node: tempi carries it" in output
    assert "pack 4.1 us + message 4.1 us + unpack 8.19 us" in output
    records = [json.loads(line) for line in (tmp_path / "json").read_text().splitlines()]
    sends = [record for record in records if record.get("operation") == "send"]
    assert [record["acts"] for record in sends] == [True]
    assert sends[0]["prediction"]["library"] == pytest.approx(4e-9 * 8192)
    assert sends[0]["prediction"]["host"] == pytest.approx(2e-9 * 8192)
    other = tempi(tmp_path / "cache", "explain", vector, "--peer", "other-node").stdout
    assert "not calibrated for this shape or peer" in other


@pytest.mark.parametrize("far", [0.5, 8.0])
def test_other_llc_ranks_of_the_node_have_separate_choices(tmp_path: Path, far: float) -> None:
    """Same-LLC ranks' messages are left to the library here, other-LLC ranks' by either table."""
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up(2.0, far=far)))
    for locality, ours in (("same-llc", False), ("other-llc", far > 2)):
        for found in ranks(tmp_path, TEMPI_MODEL=str(path), TEMPI_LOCALITY=locality)[0]:
            assert found[-2:] == ["0", "same-node" if locality == "same-llc" else "same-node-far"]
            assert (int(found[1]) > 0) == (int(found[2]) > 0) == ours


def test_without_other_llc_tables_the_same_llc_ones_are_used(tmp_path: Path) -> None:
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up(0.5)))
    for found in ranks(tmp_path, TEMPI_MODEL=str(path), TEMPI_LOCALITY="other-llc")[0]:
        assert found[1:4] == ["12", "12", "0"]


def test_tables_of_the_other_locality_class_must_predict_a_factor_of_one_and_a_half(tmp_path: Path) -> None:
    """The rule leaves all runs of 8 bytes on pages of their own to the library, of whose time tempi takes 0.75."""
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up(0.75)))
    for locality, sends in (("same-llc", 6), ("other-llc", 0)):
        for found in ranks(tmp_path, "8,4096", TEMPI_MODEL=str(path), TEMPI_LOCALITY=locality)[0]:
            assert int(found[1]) == int(found[2]) == sends


def test_messages_probe_the_locality_of_their_peer(tmp_path: Path) -> None:
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up(0.5)))
    for found in ranks(tmp_path, TEMPI_MODEL=str(path), TEMPI_LOCALITY="auto")[0]:
        assert found[-1] in ("same-node", "same-node-far")
        assert 1 <= int(found[-2]) <= 24  # of 24 messages
        assert found[1:4] == ["12", "12", "0"]


def test_the_rule_carries_more_between_other_llc_ranks_of_open_mpi(tmp_path: Path) -> None:
    """64 KiB in runs of 24 bytes close together: tempi is faster on each measured machine (csrc/choose/rule.c)."""
    sends = {}
    for locality in ("same-llc", "other-llc"):
        found, _ = ranks(tmp_path, "24,48", TEMPI_MODEL="0", TEMPI_LOCALITY=locality)
        sends[locality] = {int(each[1]) for each in found}
    (near,), (far,) = sends["same-llc"], sends["other-llc"]
    assert far - near == (2 if "Open MPI" in version() else 0)


def test_the_rule_chooses_for_code_of_open_mpi_that_no_table_knows(tmp_path: Path) -> None:
    """Of vectors of bytes in runs of 16 the rule carries 128 bytes and 64 KiB, the tables nothing."""
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up(2.0)))
    for found in ranks(tmp_path, "16,32", TEMPI_MODEL=str(path))[0]:
        assert int(found[1]) == int(found[2]) == (4 if "Open MPI" in version() else 0)


@pytest.mark.once
def test_import_refuses_other_machines_and_damage_in_one_line(tmp_path: Path) -> None:
    own = made_up(1.0)
    other = store.Calibration(store.Machine("abacus", 1, own.machine.mpi, own.machine.tempi), own.points)
    store.write(tmp_path / "other.json", other)
    (tmp_path / "damaged.json").write_text((tmp_path / "other.json").read_text()[:-9])
    for name, why in (("other.json", "another machine"), ("damaged.json", "damaged"), ("none.json", "No such file")):
        done = tempi(tmp_path / "new", "calibrate", "--import", tmp_path / name)
        assert done.returncode == 1
        assert why in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.more
def test_calibrating_twice_agrees_within_the_spread(calibrated: Path, tmp_path: Path) -> None:
    """Compares the intervals of both runs, widened by a factor of two: other work may slow the machine in one of
    them. Most points agree even then; a wrong unit or shape in one run would not."""
    assert tempi(tmp_path, "calibrate", *SMALL).returncode == 0
    first = {point.key: point for point in store.read(only(calibrated, ".json")).points}
    again = {point.key: point for point in store.read(only(tmp_path, ".json")).points}
    assert first.keys() == again.keys()
    agree = 0
    for key, one in first.items():
        (low, high), (lower, higher) = samples.interval(one.seconds), samples.interval(again[key].seconds)
        agree += low / 2 <= higher and lower <= 2 * high
    assert agree >= 0.8 * len(first)


@pytest.mark.parametrize(("host", "acts"), [(0.5, True), (2.0, False)])
def test_the_cheaper_method_is_used(tmp_path: Path, host: float, acts: bool) -> None:
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up(host)))
    for found in ranks(tmp_path, TEMPI_MODEL=str(path))[0]:
        assert found[:5] == [str(path), *(["12", "12", "0"] if acts else ["0", "0", "24"]), "12"]


def test_a_choice_is_made_for_the_size_of_the_first_message(tmp_path: Path) -> None:
    """tempi's messages become slow between 4,096 and 6,000 bytes: 128 and 4,096 bytes are its own, not the middle of
    the step that begins with 4,096."""
    even = made_up(0.5)
    made = [
        replace(point, size=size, seconds=(point.seconds[0] / 64 * size * slower,) * 9)
        for point in even.points
        if point.size == 64
        for size in (64, 4096, 6000, 1 << 20)
        for slower in [100 if point.quantity == "contiguous" and size > 4096 else 1]
    ]
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(replace(even, points=tuple(made))))
    for found in ranks(tmp_path, "8,16", TEMPI_MODEL=str(path))[0]:
        assert found[1:3] == ["4", "4"]


@pytest.mark.parametrize("ways", [("ours", "theirs"), ("ours", "off"), ("off", "theirs")], ids="-".join)
def test_ranks_that_choose_differently_still_match(tmp_path: Path, ways: tuple[str, str]) -> None:
    """Each sends to the other and receives from it, so that both ends use either method."""
    counts = {"ours": ["12", "12", "0"], "theirs": ["0", "0", "24"], "off": ["0", "0", "0"]}
    for name, host in (("ours", 0.5), ("theirs", 2.0)):
        (tmp_path / name).write_bytes(store.table_of(made_up(host)))
    first, second = ("off" if way == "off" else str(tmp_path / way) for way in ways)
    found, _ = ranks(tmp_path, MODEL_OF_0=first, MODEL_OF_1=second)
    assert [each[1:4] for each in found] == [counts[way] for way in ways]


@pytest.mark.once
def test_a_refused_table_is_one_line_and_the_rule_applies(tmp_path: Path) -> None:
    by_rule, _ = ranks(tmp_path, TEMPI_MODEL="0")
    assert [each[0] for each in by_rule] == ["None", "None"]
    own = made_up(0.5)
    foreign = store.Calibration(store.Machine("abacus", 1, own.machine.mpi, own.machine.tempi), own.points)
    old = store.Calibration(store.Machine(own.machine.cpu, own.machine.cores, own.machine.mpi, "0.0"), own.points)
    (tmp_path / "foreign").write_bytes(store.table_of(foreign))
    (tmp_path / "old").write_bytes(store.table_of(old))
    (tmp_path / "damaged").write_bytes(store.table_of(own)[:-1])
    for name in ("foreign", "old", "damaged", "missing"):
        found, said = ranks(tmp_path, TEMPI_MODEL=str(tmp_path / name))
        assert found == by_rule
        lines = [line for line in said.splitlines() if "is not used" in line]
        assert len(lines) == 1
        assert str(tmp_path / name) in lines[0]


def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    own = made_up(1.0)
    store.write(tmp_path / "own.json", own)
    done = tempi(blocked, "calibrate", "--import", tmp_path / "own.json")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


# -- before anything is measured ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("--quick",), ("--quick", "--export", "{file}/out.json"), ()])
def test_an_unwritable_folder_is_reported_before_measuring(tmp_path: Path, words: tuple[str, ...]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = tmp_path if "--export" in words else blocked / "cache"
    done = tempi(cache, "calibrate", *(word.format(file=blocked) for word in words), "--seconds", "2")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {blocked}")
    assert "nothing was measured" in line


@pytest.mark.once
def test_a_quick_calibration_is_measured_and_exported(tmp_path: Path) -> None:
    """Also if an older one exists already."""
    (tmp_path / "cache").mkdir()
    store.write(tmp_path / "old.json", made_up(0.5))
    assert tempi(tmp_path / "cache", "calibrate", "--import", tmp_path / "old.json").returncode == 0
    done = tempi(tmp_path / "cache", "calibrate", *SMALL, "--export", tmp_path / "new.json")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'new.json'} written" in done.stdout
    (found,) = store.read_all(tmp_path / "new.json")
    assert found == store.read(only(tmp_path / "cache", ".json"))
    assert len(found.points) > len(made_up(0.5).points)


@pytest.mark.parametrize(
    "words",
    [("--show", "--quick"), ("--import", "x", "--seconds", "3"), ("--mpi", "MPICH"), ("--quick", "--mpi", "MPICH"),
     ("--show", "--most", "4096")],
)  # fmt: skip
def test_options_that_would_be_ignored_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = tempi(tmp_path, "calibrate", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_calibrate_reports_the_confidence_of_the_choices_and_an_advice(calibrated: Path) -> None:
    shown = tempi(calibrated, "calibrate", "--show", "--json", calibrated / "shown")
    assert re.search(r"choices: [\d,]+ of [\d,]+ are sure \(\d+%\)", shown.stdout)
    assert "not stable" not in shown.stdout
    assert "nothing to do" in shown.stdout or "to do: calibrate again" in shown.stdout
    choices = json.loads((calibrated / "shown").read_text())["choices"]
    assert 0 <= choices["sure"] <= choices["choices"]
    assert (choices["sure"] == choices["choices"]) == (choices["doubts"] == [])


# The import of a module interrupts the process, as a Ctrl-C in that moment does; "site" is within Python's own start.
INTERRUPTS = """
import os, sys
class Named:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), 2)
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("INTERRUPTED_AT"):
            os.kill(os.getpid(), 2)
        if name + ", __set_name__" == os.environ.get("INTERRUPTED_AT"):
            type("Owner", (), {"name": Named()})
sys.meta_path.insert(0, Interrupts())
if os.environ.get("INTERRUPTED_AT") == "site":
    os.kill(os.getpid(), 2)
"""
MOMENTS = (
    "site", "enum", "tempi._tempi_cffi", "tempi._engine", "click", "tempi.cli.main", "tempi.cli.calibrate", "numpy",
    "numpy, __set_name__", "rich.progress", "tempi.calibration.calibrate", "mpi4py",
)  # fmt: skip


@functools.cache
def needs_blocked_interrupts() -> None:
    """Of `env`, by which the script `tempi` keeps Ctrl-C out of Python's own start."""
    if subprocess.run(["env", "--block-signal=INT", "true"], capture_output=True, check=False).returncode:
        pytest.skip("coreutils before 8.31")


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_in_the_first_moments_is_no_traceback(tmp_path: Path, script: Path, moment: str) -> None:
    if moment == "site":
        needs_blocked_interrupts()
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    own = environment(tmp_path, PYTHONPATH=str(tmp_path), INTERRUPTED_AT=moment)
    command: list[str | Path] = [script, "calibrate", "--quick", "--seconds", "2"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("model-*"))


@pytest.mark.parametrize("moment", ["site", "click", "numpy"])
def test_an_interrupt_that_is_ignored_stays_so(tmp_path: Path, script: Path, moment: str) -> None:
    """As of commands that a script has in the background."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    own = environment(tmp_path, PYTHONPATH=str(tmp_path), INTERRUPTED_AT=moment)
    command: list[str | Path] = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", script, "calibrate", "--show"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "no calibration" in done.stdout


def interrupted_after(command: list[str | Path], cache: Path, milliseconds: int, whole: bool) -> tuple[int, str]:
    """Of a new group of processes, the whole one or its leader alone. Returns the exit status and what was said."""
    with in_a_terminal(command, cache, "none", ignored=False) as process:
        time.sleep(milliseconds / 1000)
        (os.killpg if whole else os.kill)(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_an_interrupt_at_any_time_ends_a_command_by_the_signal(
    tmp_path: Path, script: Path, shell: str, whole: bool
) -> None:
    """Whichever of its moments that is: of the shell, of Python's own start, of the imports, of the command."""
    needs_blocked_interrupts()
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    command: list[str | Path] = [shell, script, "calibrate", "--quick", "--seconds", "60"]
    for milliseconds in range(1, 100, 3):
        status, said = interrupted_after(command, tmp_path, milliseconds, whole)
        assert status == -signal.SIGINT, (milliseconds, said)
        assert "Traceback" not in said, (milliseconds, said)


def workers(argument: str) -> list[int]:
    """The ranks with that argument, once they have begun with their imports."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            is_rank = "tempi.calibration.points" in words and Path(words[0]).name.startswith("python")
            if argument in words and is_rank and "numpy" in (folder / "maps").read_text():
                found.append(int(folder.name))
    return found


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@contextlib.contextmanager
def in_a_terminal(command: list[str | Path], cache: Path, seconds: str, ignored: bool) -> Iterator[Any]:
    """It leads a group of processes, of which none is left in the end; `ignored`: Ctrl-C, at its start."""
    handled = functools.partial(signal.signal, signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
    process = subprocess.Popen(
        command,
        env=environment(cache),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=handled,
    )
    try:
        yield process
    finally:
        for each in workers(seconds):
            os.kill(each, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("later", [0.0, 3.0])
@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupt_of_the_measurement_ends_it_without_a_traceback(
    tmp_path: Path, script: Path, later: float, ignored: bool
) -> None:
    """Of all processes of a terminal; the launcher passes it on to its ranks, also where the command ignores it, as
    those do that a script has in the background."""
    seconds = str(90 + later + os.getpid() / 1e8)  # that nobody else has
    command: list[str | Path] = [script, "calibrate", "--quick", "--seconds", seconds]
    with in_a_terminal(command, tmp_path, seconds, ignored) as process:
        assert until(lambda: len(workers(seconds)) == 2, 60)
        time.sleep(later)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "Traceback" not in said
        assert until(lambda: not workers(seconds), 20)
