"""A shipped calibration between two ranks: the built-in rule decides unless the other method is predicted to be 1.5
times faster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launching import environment, launcher, version
from tempi import _engine
from tempi.measure import launch
from tempi.model import grid, store

RANKS = Path(__file__).resolve().parent / "shipped_ranks.py"


def tables(own: float, largest: int) -> bytes:
    """By which tempi takes `own` times as long as the library, measured up to `largest` bytes."""
    made = {"library_message": 4.0, "contiguous": own, "stage_pack": own, "stage_unpack": 2 * own}
    points = []
    for quantity, factor in made.items():
        peers = ("node", "far") if quantity in grid.MESSAGES else (None,)
        column = grid.PLAIN if quantity == "contiguous" else grid.Column("regular", 8, 64)
        for peer in peers:
            for size in (64, largest):
                points.append(store.Point(quantity, column, size, peer, (1e-9 * size * factor,) * 9))
    return store.table_of(store.Calibration(store.machine(version()), tuple(points)))


def engine_with(folder: Path, shipped: bytes | None) -> Path:
    """A copy of the engine beside these tables; None: no tables."""
    library = Path(_engine.library_path())
    shutil.copytree(library.parent, folder / "lib")
    (folder / "tables").mkdir()
    room = _engine.ffi.new("char[256]")
    if _engine.lib.tempi_shipped_name(version().encode(), room, 256) != _engine.lib.TEMPI_OK:
        pytest.skip("this system does not report its processor's vendor or caches")
    if shipped is not None:
        (folder / "tables" / (_engine.text(room) or "")).write_bytes(shipped)
    return folder / "lib" / library.name


def ran(folder: Path, shipped: bytes | None, **variables: str) -> tuple[dict[str, list[int]], str]:
    """The lines of numbers that the ranks print, by their first words; their other output."""
    made = {"TEMPI_LIBRARY": str(engine_with(folder, shipped)), "TEMPI_CACHE_DIR": str(folder), "TEMPI_STATS": "1"}
    line = launch.command(launcher(), 2, [sys.executable, "-P", str(RANKS)], made | variables)
    done = subprocess.run(line, env=environment(folder), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line.split() for line in done.stdout.splitlines() if line.startswith(("sent ", "outside "))]
    return {name: [int(word) for word in words] for name, *words in found}, done.stderr


def sent(folder: Path, own: float | None, **variables: str) -> tuple[list[int], str]:
    """Messages that tempi sent, of three with runs of 4096 and of three with runs of 8; the output at the end."""
    found, said = ran(folder, None if own is None else tables(own, 1 << 20), **variables)
    return found["sent"], said


@pytest.mark.once
def test_a_shipped_table_overrides_the_rule_where_it_is_sure(tmp_path: Path) -> None:
    faster, said = sent(tmp_path / "faster", 0.5)
    assert faster == [3, 3]
    assert ".table" in said
    slower, _ = sent(tmp_path / "slower", 2.0)
    assert slower == [0, 0]


@pytest.mark.once
def test_the_rule_decides_where_a_shipped_table_is_not_sure(tmp_path: Path) -> None:
    by_rule, said = sent(tmp_path / "none", None)
    assert "the built-in rule" in said
    advice = _engine.text(_engine.lib.tempi_calibration_advice(version().encode())) or ""
    assert "`tempi calibrate` (two and a half minutes" in advice
    assert f"tempi: this machine is not calibrated: {advice}\n" in said
    assert by_rule[0] == 0
    for name, own in {"a little faster": 0.8, "a little slower": 1.25}.items():
        assert sent(tmp_path / name, own)[0] == by_rule


@pytest.mark.once
def test_a_setting_selects_the_rule(tmp_path: Path) -> None:
    assert sent(tmp_path, 0.5, TEMPI_MODEL="0")[0][0] == 0


def test_only_tables_of_the_users_own_warn_of_larger_messages(tmp_path: Path) -> None:
    """Messages of 64 KiB and of 32 KiB, with one choice each; the largest size of the tables is 16 KiB."""
    made, warning = tables(0.5, 1 << 14), "is larger than any that was calibrated"
    (tmp_path / "own.table").write_bytes(made)
    for name, variables, lines in (
        ("shipped", {}, 0),
        ("shipped, told", {"TEMPI_LOG": "info"}, 2),  # once in each rank
        ("own", {"TEMPI_MODEL": str(tmp_path / "own.table")}, 2),
    ):
        found, said = ran(tmp_path / name, made, **variables)
        assert found == {"sent": [3, 3], "outside": [2]}, name
        assert said.count(warning) == lines, said
