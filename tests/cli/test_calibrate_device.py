"""Tables of device memory determine the methods of programs' messages; on the emulated device."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launching import environment, launcher
from tables import CARD, made_up, without_emulator
from tempi.measure import launch, records
from tempi.model import grid, store

pytestmark = pytest.mark.once

RANKS = Path(__file__).resolve().parent / "device_ranks.py"
#: By rank: messages through a device buffer, one-shot, staged, pipelined; left to the library; choices made.
BY_RULE = ["0", "8", "4", "0", "0", "0"]
FOUND = {
    "oneshot": ["0", "12", "0", "0", "0", "12"],
    "staged": ["0", "0", "12", "0", "0", "12"],
    "pipelined": ["0", "0", "8", "4", "0", "12"],  # a single piece is staged
}


@pytest.fixture(autouse=True)
def _emulator() -> None:
    without_emulator()


def tempi(cache: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "tempi", *map(str, words)]
    own = environment(cache) | variables
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with a tiny calibration of the emulated device."""
    without_emulator()
    launcher()
    cache = tmp_path_factory.mktemp("calibrated")
    done = tempi(cache, "calibrate", "--quick", "--seconds", "1", TEMPI_CUDA_DRIVER="emulated")
    assert done.returncode == 0, done.stderr
    assert "EMULATED DEVICE" in done.stderr
    return cache


def ranks(cache: Path, **variables: str) -> tuple[list[list[str]], str]:
    """Per rank the counters; and stderr."""
    own = {"TEMPI_CUDA_DRIVER": "emulated", "TEMPI_EMULATOR_STREAMS": "random", **variables}
    line = launch.command(launcher(), 2, [sys.executable, "-P", str(RANKS)], own)
    done = subprocess.run(line, env=environment(cache), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("rank ")], done.stderr


def test_the_fastest_method_carries_every_call_and_ranks_may_choose_differently(tmp_path: Path) -> None:
    for name in ("oneshot", "pipelined"):
        (tmp_path / name).write_bytes(store.table_of(made_up(name)))
    found, _ = ranks(tmp_path, MODEL_OF_0=str(tmp_path / "oneshot"), MODEL_OF_1=str(tmp_path / "pipelined"))
    assert found == [FOUND["oneshot"], FOUND["pipelined"]]


def test_the_cards_file_is_found_beside_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path))
    path = store.save(made_up("staged"))
    assert "EMULATED" in path.name
    assert ranks(tmp_path)[0] == [FOUND["staged"]] * 2
    path.with_suffix(".table").write_bytes(b"no table")
    found, said = ranks(tmp_path, TEMPI_DATATYPE_AUTO="1")
    assert found == [BY_RULE] * 2
    (line,) = [line for line in said.splitlines() if "not used for device memory" in line]
    assert path.stem in line
    assert "it is not a file of tempi tables" in line


def test_a_setting_overrides_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up("oneshot")))
    found, _ = ranks(tmp_path, TEMPI_MODEL=str(path), TEMPI_DATATYPE_STAGED="1")
    assert found == [["0", "0", "12", "0", "0", "0"]] * 2


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": "NVIDIA H100 80GB HBM3", "emulated": False}, "measured on a GPU, and this is the EMULATED"),
        ({"cuda": 12050}, "another CUDA driver"),
    ],
)
def test_tables_of_another_card_or_driver_are_refused_in_one_line(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    path = tmp_path / "made.table"
    path.write_bytes(store.table_of(made_up("pipelined", replace(CARD, **changed))))
    found, said = ranks(tmp_path, TEMPI_MODEL=str(path))
    assert found == [BY_RULE] * 2
    (line,) = [line for line in said.splitlines() if "not used for device memory" in line]
    assert why in line
    assert str(path) in line


def test_a_calibration_has_every_quantity_of_the_device_and_says_what_it_is(calibrated: Path) -> None:
    (path,) = calibrated.glob("model-*.json")  # the host tables are not changed
    assert "EMULATED" in path.name
    found = store.read(path)
    assert found.emulated
    assert found.machine.gpu is not None
    assert found.machine.gpu.name.startswith("EMULATED")
    assert found.about["complete"] is True
    assert {point.quantity for point in found.points} == {*grid.DEVICE_QUANTITIES} - {*grid.AWARE_QUANTITIES}
    assert {point.column.family for point in found.points} == {*grid.ALL_FAMILIES} - {*grid.CORRECTIONS}
    assert {point.memory for point in found.points} == {"device", "managed"}
    assert found.peers == ["self", "node"]
    assert path.with_suffix(".table").read_bytes() == store.table_of(found)


def test_a_program_on_the_emulator_chooses_by_its_calibration(calibrated: Path) -> None:
    assert [counters[-1] for counters in ranks(calibrated)[0]] == ["12", "12"]


def test_all_output_of_the_calibration_says_that_it_is_emulated(calibrated: Path, tmp_path: Path) -> None:
    shown = tempi(calibrated, "calibrate", "--show").stdout
    assert "EMULATED DEVICE (CUDA on the CPU): its times are not those of a GPU" in shown
    assert shown.count("[EMULATED]") >= 5
    assert "EMULATED" in tempi(calibrated, "doctor").stdout
    words = ("explain", "vector(512,1,4,DOUBLE)", "--peer", "same-node", "--memory", "device")
    output = tempi(calibrated, *words, "--json", tmp_path / "json").stdout
    assert "EMULATED DEVICE (CUDA on the CPU): these are not times of a GPU" in output
    assert "a message of 4,096 B of device memory sent to a rank of the same node: " in output
    records = [json.loads(line) for line in (tmp_path / "json").read_text().splitlines()]
    assert "MPI_Pack of 4,096 B of device memory into pinned memory: " in output
    packed = [(record["operation"], record["packed"]) for record in records if "packed" in record]
    assert packed == [("pack", "pinned"), ("unpack", "pinned")]
    (sent,) = [record for record in records if record.get("operation") == "send"]
    assert sent["emulated"] is True
    prediction = sent["prediction"]
    chosen = prediction["seconds"][prediction["method"]]
    assert chosen <= min(prediction["seconds"].values()) / 0.97  # of near equals the one with fewer steps
    assert set(prediction["seconds"]) == {"oneshot", "staged", "pipelined"}
    assert "No GPU is calibrated here" in tempi(tmp_path, *words).stdout


def test_every_method_is_measured_beside_its_prediction_and_the_choice(calibrated: Path, tmp_path: Path) -> None:
    words = ("bench", "model", "--memory", "device", "--quick", "--seconds", "0.001", "--json", tmp_path / "json")
    done = tempi(calibrated, *words, TEMPI_CUDA_DRIVER="emulated")
    assert done.returncode == 0, done.stderr
    assert "EMULATED DEVICE" in done.stdout
    found = records.read(tmp_path / "json")
    assert {record.subject for record in found} == {"oneshot", "staged", "pipelined", "model"}
    assert all(record.meta["emulated"] and record.meta["checked"] and record.seconds for record in found)
    halves = [record for record in found if "host and device memory" in record.op]
    assert halves
    assert all(record.meta["predicted"] is None for record in halves)
    whole = [record for record in found if record not in halves]
    assert all(set(record.meta["predicted"]) == {"oneshot", "staged", "pipelined"} for record in whole)
    for op, each in {(record.op, 2 if record.op == "one way" else 1) for record in found}:  # a send and a receive
        chosen = [record.meta["chosen"] for record in found if record.subject == "model" and record.op == op]
        assert all(sum(methods.values()) == each for methods in chosen)
    assert {record.op.partition(" ")[0] for record in found} == {"one", "MPI_Pack", "MPI_Unpack"}
    without = tempi(tmp_path, *words, TEMPI_CUDA_DRIVER="emulated")
    assert without.returncode == 1
    assert "run `tempi calibrate` first" in without.stderr


def test_a_calibration_is_exported_and_imported(calibrated: Path, tmp_path: Path) -> None:
    assert tempi(calibrated, "calibrate", "--export", tmp_path / "shipped.json").returncode == 0
    done = tempi(tmp_path / "new", "calibrate", "--import", tmp_path / "shipped.json")
    assert "EMULATED" in done.stdout
    names = {path.name: path.read_bytes() for path in calibrated.iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == names
