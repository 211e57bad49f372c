"""Tables and verdicts from made-up records."""

from __future__ import annotations

import io
import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tempi.bench import suite
from tempi.bench.suites import halo as suite_halo
from tempi.bench.suites import overhead as suite_overhead
from tempi.bench.suites import pack as suite_pack
from tempi.bench.suites import pingpong as suite_pingpong
from tempi.measure import records
from tempi.measure.records import Record

pytestmark = pytest.mark.once

Make = Callable[..., Record]


def test_the_setting_names_mpi_and_machine() -> None:
    meta = {
        "mpi": "MPICH Version: 5.0.2, more",
        "machine": {"cpu": "a processor", "arch": "x86_64"},
        "cpu_level": "avx2",
    }
    taken = Record("pack", "case", "pack", "library", 8, (1.0,), meta)
    assert suite.setting([taken]) == "MPICH Version: 5.0.2, a processor, x86_64, avx2"
    assert suite.setting([]) == "unknown MPI"


def times(value: float) -> list[float]:
    """Nine samples around a value, in steps of 0.1%."""
    return [value * (1 + 0.001 * step) for step in range(-4, 5)]


def printed(show: Callable[[Console, list[Record]], object], found: list[Record]) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    show(console, found)
    return console.export_text()


def pack_case(make: Make, tempi: float, library: float = 2e-6, bound: float = 1e-6, **meta: object) -> list[Record]:
    return [
        make("library", *times(library), **meta),
        make("tempi", *times(tempi), engaged=True, **meta),
        make("bound", *times(bound), **meta),
    ]


def test_pack_speed_up_is_library_over_tempi(make_record: Make) -> None:
    (row,) = suite_pack.rows(pack_case(make_record, 1e-6))
    assert row.speedup.value == pytest.approx(2.0)
    assert row.share is not None
    assert row.share.value == pytest.approx(1.0)
    assert row.engaged
    assert row.misses == ()


def test_pack_slower_than_allowed_is_a_miss(make_record: Make) -> None:
    (row,) = suite_pack.rows(pack_case(make_record, 2.2e-6, bound=2e-6))
    assert row.misses == ("slower",)
    assert row.speedup.value < 1


def test_pack_twenty_nanoseconds_are_no_miss(make_record: Make) -> None:
    (row,) = suite_pack.rows(pack_case(make_record, 120e-9, library=100e-9, bound=100e-9))
    assert row.misses == ()


@pytest.mark.parametrize(("run", "missed"), [(8, ()), (64, ("bound",))])
def test_pack_share_of_the_bound_depends_on_the_run(make_record: Make, run: int, missed: tuple[str, ...]) -> None:
    (row,) = suite_pack.rows(pack_case(make_record, 1e-6, bound=0.7e-6, run=run))
    assert row.misses == missed


def test_pack_repeats_have_to_agree_on_a_miss(make_record: Make) -> None:
    slow = pack_case(make_record, 3e-6, bound=3e-6)
    assert suite_pack.rows(slow + slow)[0].misses == ("slower",)
    fast = pack_case(make_record, 1e-6)
    assert suite_pack.rows(slow + fast)[0].misses == ()


def test_pack_refused_subjects_are_named_and_not_compared(make_record: Make) -> None:
    wrong = make_record("library", refused="3 wrong packed bytes, the first at 8")
    found = [wrong, make_record("tempi", *times(1e-6), engaged=True)]
    assert suite_pack.rows(found) == []
    assert "c, pack, library: 3 wrong packed bytes" in printed(suite_pack.show, found)


def test_pack_summary_has_means_and_misses(make_record: Make) -> None:
    found = pack_case(make_record, 1e-6)
    found += [
        make_record("library", *times(2e-6), case="d"),
        make_record("tempi", *times(4e-6), case="d", engaged=False),
    ]
    text = printed(suite_pack.show, found)
    assert "geometric mean 1.00x over all 2 cases, 2.00x over the 1 (50%) where tempi acts" in text
    assert "not stable" not in text
    assert "1 of 2 slower than 1.05 x library + 20 ns\n  d, pack" in text
    assert "worst over the library: 0.50x (d" in text
    assert "worst over the better of library and hand: 0.50x (d" in text


def test_records_become_a_data_file_of_the_docs(make_record: Make, tmp_path: Path) -> None:
    machine = {"cpu": "CPU", "cores": 2, "commit": "abc"}
    found = [record.with_meta(machine=machine, mpi="MPICH Version: 5.0.2") for record in pack_case(make_record, 1e-6)]
    records.write(tmp_path / "records", found)
    tables = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "tables"), run_name="tables")
    made = tables["data"](str(tmp_path / "records"), "the command", "2026-01-31")
    assert json.loads(tables["text"](made)) == made
    (row,) = (dict(zip((column["name"] for column in made["columns"]), row, strict=True)) for row in made["rows"])
    assert (row["library"], row["tempi"], row["speed-up"], row["of bound"], row["acts"]) == (2, 1, 2, 1, True)
    assert (made["command"], made["date"], made["machine"]["commit"]) == ("the command", "2026-01-31", "abc")
    assert tables["name"](made["bench"], made["mpi"]) == f"{made['bench']}-mpich.json"


def test_pingpong_is_held_against_the_better_of_two(make_record: Make) -> None:
    def case(tempi: float) -> list[Record]:
        subjects = {"library": 4e-6, "hand": 2e-6, "tempi": tempi}
        return [make_record(name, *times(value), op="one way") for name, value in subjects.items()]

    (good,) = suite_pingpong.rows(case(2.1e-6))
    assert not good.misses
    assert good.speedup.value > 1.8
    (bad,) = suite_pingpong.rows(case(3e-6))
    assert bad.misses
    assert bad.speedup.value > 1.3
    text = printed(suite_pingpong.show, case(3e-6))
    assert "worst over the library: 1.33x (c" in text
    assert "worst over the better of library and hand: 0.67x (c" in text


def test_pingpong_forced_is_compared_within_its_own_launch(make_record: Make) -> None:
    subjects = {"library": 4e-6, "hand": 4e-6, "tempi": 4e-6}
    found = [make_record(name, *times(value), op="one way") for name, value in subjects.items()]
    beside = {"library beside forced": 8e-6, "forced": 4e-6}
    found += [make_record(name, *times(value), op="one way") for name, value in beside.items()]
    (row,) = suite_pingpong.rows(found)
    assert row.forced is not None
    assert row.forced.value == pytest.approx(2.0)


def test_overhead_is_what_tempi_adds(make_record: Make) -> None:
    found = [
        make_record("library", *times(100e-9), op="call", target=3e-9),
        make_record("tempi", *(value + 2e-9 for value in times(100e-9)), op="call", target=3e-9),
    ]
    (row,) = suite_overhead.rows(found)
    assert row.added.value == pytest.approx(2e-9)
    assert not row.missed
    late = [found[0], make_record("tempi", *times(110e-9), op="call", target=3e-9)]
    assert suite_overhead.rows(late)[0].missed


def halo_records(make: Make, tempi: float, counters: dict[str, int] | None = None) -> list[Record]:
    meta = {"ranks": 2, "mpi": "MPICH", "cells": 10, "wrong": 0}
    found = []
    for subject, value in {"library": 2e-3, "tempi": tempi, "hand": 1e-3}.items():
        more = {"counters": counters or {}} if subject == "tempi" else {}
        for op in ("post", "send", "wait", "exchange"):
            found.append(make(subject, *times(value), op=op, **meta, **more))
    return found


def test_halo_reports_what_was_accelerated(make_record: Make) -> None:
    counters = {"sends": 156, "recvs": 156, "runs": 123456, "fallback_rule": 4}
    text = printed(suite_halo.show, halo_records(make_record, 1e-3, counters))
    assert "156 sends, 156 receives (123,456 separate copies); 4 left to the library" in text
    assert "2.00 [2.00, 2.00]" in text


def test_halo_counts_collective_calls(make_record: Make) -> None:
    text = printed(suite_halo.show, halo_records(make_record, 1e-3, {"collectives": 2}))
    assert "2 collective calls" in text
    assert "0 sends" not in text


def test_halo_shows_a_slowdown(make_record: Make) -> None:
    rows = {row.subject: row for row in suite_halo.rows(halo_records(make_record, 4e-3))}
    assert rows["tempi"].speedup is not None
    assert rows["tempi"].speedup.value == pytest.approx(0.5)


def test_halo_says_if_tempi_did_not_act(make_record: Make) -> None:
    found = [record for record in halo_records(make_record, 1e-3) if record.subject != "tempi"]
    assert "tempi did not act" in printed(suite_halo.show, found)


def test_unstable_results_are_reported(make_record: Make) -> None:
    found = halo_records(make_record, 1e-3)
    shaky = [1e-3, 2e-3, 1e-3, 2e-3, 1e-3, 2e-3]
    found = [record for record in found if (record.subject, record.op) != ("hand", "exchange")]
    found.append(make_record("hand", *shaky, op="exchange", ranks=2, mpi="MPICH"))
    assert "not stable: hand: 95% interval" in printed(suite_halo.show, found)


def test_halo_on_an_emulated_device_has_no_times(make_record: Make) -> None:
    meta = {"ranks": 2, "mpi": "MPICH", "cells": 1000, "wrong": 0, "device": "E", "emulated": True}
    counters = {"sends": 4, "recvs": 4, "launches": 2}
    found = [make_record("tempi", op="check", counters=counters, **meta), make_record("hand", op="check", **meta)]
    text = printed(suite_halo.show, found)
    assert "EMULATED DEVICE (CUDA on the CPU): correctness only, no times" in text
    assert "4 sends, 4 receives, 2 kernel launches" in text
    assert " us" not in text
    assert "over" not in text


def test_halo_without_the_library_is_held_against_hand(make_record: Make) -> None:
    found = [record for record in halo_records(make_record, 0.5e-3) if record.subject != "library"]
    rows = {row.subject: row for row in suite_halo.rows(found)}
    assert rows["tempi"].speedup is not None
    assert rows["tempi"].speedup.value == pytest.approx(2.0)
    assert rows["hand"].speedup is None
    assert "over hand" in printed(suite_halo.show, found)


def test_halo_demonstrations_are_named_by_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPI_CUDA_DRIVER", raising=False)
    assert suite_halo.demo_name(None) == "halo"
    assert suite_halo.demo_name("device") == "halo-device"
    monkeypatch.setenv("TEMPI_CUDA_DRIVER", "emulated")
    assert suite_halo.demo_name("host") == "halo"
    assert suite_halo.demo_name("device") == "halo-emulated"


def test_program_options_are_passed_on() -> None:
    given = {"grid": "1,1,2", "paper": True, "combine": False, "radius": None, "fields": 2}
    assert suite_halo.program_arguments(given) == ("--grid", "1,1,2", "--paper", "--fields", "2")


def test_records_are_grouped_by_case_and_operation(make_record: Make) -> None:
    found = [make_record("a", 1.0), make_record("a", 2.0), make_record("b", 3.0, op="unpack")]
    groups = suite.by_case(found)
    assert list(groups) == [("c", "pack"), ("c", "unpack")]
    assert suite.samples(groups["c", "pack"]["a"]) == [1.0, 2.0]


def test_halo_plain_is_compared_by_way_of_hand(make_record: Make) -> None:
    """A machine that is half as fast during the plain launch does not make the library look better."""
    found = halo_records(make_record, 1e-3)
    for subject, value in {"plain": 4e-3, "hand beside plain": 2e-3}.items():
        found.append(make_record(subject, *times(value), op="exchange", ranks=2, mpi="MPICH"))
    rows = {row.subject: row for row in suite_halo.rows(found)}
    assert "hand beside plain" not in rows
    assert rows["plain"].speedup is not None
    assert rows["plain"].speedup.value == pytest.approx(1.0)


def test_shaky_speed_ups_are_counted(make_record: Make) -> None:
    found = pack_case(make_record, 1e-6)
    found += [
        make_record("library", 1e-6, 2e-6, 1e-6, 2e-6, 1e-6, 2e-6, case="d"),
        make_record("tempi", *[1e-6] * 6, case="d", engaged=True),
    ]
    text = printed(suite_pack.show, found)
    assert "1 of 2 speed-ups are not stable: 95% interval above 10%" in text
