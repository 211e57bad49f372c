"""Calibrations on disk: round trips, refused files, and damage of every kind."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from table import emit_format
from tempi import _engine
from tempi.model import grid, predict, store

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
COLUMN = grid.Column("regular", 8, 16)


@pytest.fixture
def calibration() -> store.Calibration:
    """Few points, of every quantity."""
    made = []
    for number, quantity in enumerate((*grid.BESIDE, *grid.QUANTITIES)):
        peer = "node" if quantity in grid.MESSAGES else None
        column = grid.PLAIN if quantity == "contiguous" else COLUMN
        for size in (256, 4096):
            seconds = tuple(1e-9 * size * (number + 1) * (1 + 0.01 * k) for k in range(7))
            made.append(store.Point(quantity, column, size, peer, seconds))
    return store.Calibration(store.machine("some MPI 1.0"), tuple(made), {"when": "now"})


@pytest.fixture
def table(tmp_path: Path, calibration: store.Calibration) -> Path:
    path = tmp_path / "good.table"
    path.write_bytes(store.table_of(calibration))
    return path


def test_a_calibration_survives_its_file(tmp_path: Path, calibration: store.Calibration) -> None:
    store.write(tmp_path / "a.json", calibration)
    assert store.read(tmp_path / "a.json") == calibration
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]  # nothing in between is left


def test_save_puts_both_files_where_the_engine_looks(
    tmp_path: Path, calibration: store.Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path / "cache"))
    path = store.save(calibration)
    assert path.parent == tmp_path / "cache"
    assert path.with_suffix(".table").read_bytes() == store.table_of(calibration)
    assert [found for _, found in store.local()] == [calibration]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, calibration: store.Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    store.write(path, calibration)

    def fail(_handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(store.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        store.write(path, replace(calibration, points=()))
    assert store.read(path) == calibration
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def _damages(text: str) -> dict[str, str]:
    lines = text.splitlines(keepends=True)
    return {
        "empty": "",
        "no JSON": "hello\n" + text,
        "another JSON": '{"name": 1}\n',
        "a list": "[1]\n",
        "header alone": lines[0],
        "last line gone": "".join(lines[:-1]),
        "cut in a line": text[:-20],
        "a digit changed": text.replace('"size": 4096', '"size": 4097', 1),
        "header without machine": text.replace('"machine"', '"engine"', 1),
        "header of a wrong type": text.replace('"cores": ', '"cores": "x", "c": ', 1),
        "another version": text.replace('"tempi_calibration": 3', '"tempi_calibration": 99', 1),
    }


@pytest.mark.parametrize("kind", list(_damages("{}\n{}\n")))
def test_damaged_samples_are_refused_in_one_line(tmp_path: Path, calibration: store.Calibration, kind: str) -> None:
    path = tmp_path / "a.json"
    store.write(path, calibration)
    path.write_text(_damages(path.read_text())[kind])
    with pytest.raises(store.StoreError) as caught:
        store.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_samples_that_are_missing_or_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(store.StoreError, match="No such file"):
        store.read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(store.StoreError):
        store.read(path)


def test_a_later_calibration_keeps_peer_classes_that_it_lacks(calibration: store.Calibration) -> None:
    def with_peer(peer: str) -> tuple[store.Point, ...]:
        return tuple(replace(p, peer=peer if p.peer else None) for p in calibration.points)

    old = replace(calibration, points=with_peer("other"))
    new = replace(calibration, points=with_peer("node"))
    both = store.merge(old, new)
    assert both.peers == ["node", "other"]
    assert len({point.key for point in both.points}) == len(both.points)
    elsewhere = replace(old, machine=replace(old.machine, cores=999))
    assert store.merge(elsewhere, new) == new
    assert store.merge(None, new) == new


def test_packing_within_messages_is_kept_from_the_nearest_class(calibration: store.Calibration) -> None:
    column = grid.Column("regular", 8, 64)

    def seen(peer: str, seconds: float) -> store.Calibration:
        points = [store.Point(quantity, column, 64, None, (seconds,)) for quantity in (*grid.WITHIN, "own_pack")]
        points.append(store.Point("library_message", column, 64, peer, (seconds,)))
        return replace(calibration, points=tuple(points))

    def medians(merged: store.Calibration) -> dict[str, float]:
        assert len({point.key for point in merged.points}) == len(merged.points)
        return {point.quantity: point.median for point in merged.points if point.peer is None}

    assert medians(store.merge(seen("node", 1.0), seen("other", 2.0))) == dict.fromkeys(grid.WITHIN, 1.0) | {
        "own_pack": 2
    }
    for old, new in (("other", "node"), ("node", "node"), ("self", "other")):
        assert set(medians(store.merge(seen(old, 1.0), seen(new, 2.0))).values()) == {2.0}


def test_tables_are_for_one_machine_mpi_and_version(table: Path, calibration: store.Calibration) -> None:
    own = calibration.machine
    model = predict.Model(table)
    assert model.mismatch(own) is None
    for other, why in (
        (replace(own, cores=999), "machine"),
        (replace(own, cpu="abacus"), "machine"),
        (replace(own, mpi="other MPI"), "MPI"),
        (replace(own, tempi="0.0"), "version"),
    ):
        assert why in str(model.mismatch(other))


def test_the_path_of_a_calibration_depends_on_the_machine(calibration: store.Calibration) -> None:
    own = calibration.machine
    others = (own, replace(own, cores=999), replace(own, cpu="abacus"), replace(own, mpi="other MPI"))
    assert len({each.table for each in others}) == len(others)
    assert replace(own, tempi="0.0").table == own.table  # measured anew, it takes the old one's place


def test_the_first_line_names_the_mpi() -> None:
    assert store.machine("MPICH Version:      5.0.2\nMPICH Release date: x").mpi == "MPICH Version: 5.0.2"
    assert store.machine("\n  Open MPI v5.0.11,  package \t x\0").mpi == "Open MPI v5.0.11, package x"


def test_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.delenv("TEMPI_CACHE_DIR", raising=False)
    assert store.machine("").table.parent == Path(platformdirs.user_cache_dir("tempi"))


@pytest.mark.parametrize("size", [0, 1, 100, 655, 656, 800, -1])
def test_cut_tables_are_refused(table: Path, size: int) -> None:
    table.write_bytes(table.read_bytes()[:size])
    with pytest.raises(store.StoreError, match="it is"):
        predict.Model(table)


def test_tables_with_any_byte_changed_are_refused(table: Path) -> None:
    good = table.read_bytes()
    for place in range(0, len(good), 7):
        table.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        with pytest.raises(store.StoreError):
            predict.Model(table)
    table.write_bytes(good)
    predict.Model(table)


def test_a_path_without_a_table_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(store.StoreError):
        predict.Model(tmp_path)
    with pytest.raises(store.StoreError, match="No such file"):
        predict.Model(tmp_path / "none")


def test_without_an_mpi_no_model_is_in_use() -> None:
    assert _engine.lib.tempi_model_in_use() == _engine.ffi.NULL


@pytest.fixture
def with_device(tmp_path: Path, calibration: store.Calibration) -> Path:
    """A table of host and device memory."""
    made = list(calibration.points)
    for number, quantity in enumerate(grid.DEVICE_QUANTITIES):
        peer = "node" if quantity in grid.DEVICE_MESSAGES else None
        column = COLUMN if "pack" in quantity or quantity == "device_library" else grid.PLAIN
        for size in (256, 4096):
            seconds = tuple(1e-9 * size ** (1 + number / 9) * (1 + 0.01 * k) for k in range(7))
            made.append(store.Point(quantity, column, size, peer, seconds, "device"))
    gpu = store.Gpu("NVIDIA Abacus", "570.1", 12080, False)
    path = tmp_path / "device.table"
    path.write_bytes(store.table_of(store.Calibration(replace(calibration.machine, gpu=gpu), tuple(made))))
    return path


def test_sanitizers_find_nothing(tmp_path: Path, with_device: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = tmp_path / "table_file_driver"
    (tmp_path / "table_format.h").write_text(emit_format.header())
    flags = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", f"-I{tmp_path}", "-O1", "-g1")
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    parts = [CSRC / "choose" / f"{name}.c" for name in ("table_file", "shape", "predict_device")]
    sources: tuple[str | Path, ...] = (HERE / "table_file_driver.c", *parts, "-lm")  # the driver compares with libm
    subprocess.run(["gcc", *flags, *sanitizers, *sources, "-o", program], check=True, timeout=300)
    done = subprocess.run([program, with_device], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
