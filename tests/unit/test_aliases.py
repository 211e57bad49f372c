"""A counter's former name finds it for one release: in tempi.stats(), in statistics files, in records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tempi
from tempi import _aliases, _engine
from tempi._aliases import COUNTERS, Counters
from tempi.bench.suites import halo as suite_halo
from tempi.measure import records
from tempi.report import counted

OLD, NEW = "left_aware", "fallback_cuda_aware"


def test_former_names_map_to_existing_names() -> None:
    known = {name for name, _, _ in _engine.items("stats")}
    assert set(COUNTERS.values()) <= known
    assert not COUNTERS.keys() & known
    assert len(set(COUNTERS.values())) == len(COUNTERS)
    assert list(COUNTERS) == sorted(COUNTERS)


def test_statistics_of_this_process_are_found_by_a_former_name_with_a_warning() -> None:
    found = tempi.stats()
    with pytest.warns(DeprecationWarning, match=f"{OLD} is named {NEW} now") as warned:
        assert found[OLD] == found[NEW]
    assert [Path(one.filename) for one in warned] == [Path(__file__)]
    with pytest.warns(DeprecationWarning, match=OLD) as warned:
        assert found.counters[OLD] == found.counters[NEW]
    assert [Path(one.filename) for one in warned] == [Path(__file__)]


@pytest.mark.filterwarnings("error")
def test_current_names_cause_no_warning_and_former_ones_are_not_listed() -> None:
    counters = Counters({NEW: 3, "sends": 0})
    assert counters == {NEW: 3, "sends": 0}
    assert list(counters) == [NEW, "sends"]
    assert (counters[NEW], counters["sends"], len(counters)) == (3, 0, 2)
    assert tempi.stats()["sends"] >= 0
    with pytest.raises(KeyError, match="nothing"):
        counters["nothing"]


def test_every_former_name_is_renamed() -> None:
    assert _aliases.renamed(dict.fromkeys((*COUNTERS, "sends"), 1)) == dict.fromkeys((*COUNTERS.values(), "sends"), 1)


def test_an_earlier_statistics_file_is_read_under_the_current_names(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    sums = {"sends": 4, OLD: 2, "distance_looks": 7}
    path.write_text(json.dumps({"tempi_statistics": 1, "ranks": 2, "sum": sums, "most": {OLD: 1}}))
    found = counted.read(str(path))
    assert found.sum == {"sends": 4, NEW: 2, "locality_probes": 7}
    assert found.most == {NEW: 1}


def test_output_of_an_earlier_version_is_read_under_the_current_names(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_text(f"tempi: over 2 ranks:\ntempi:   12  sends: sends\ntempi:   5  {OLD}: left to the library\n")
    assert counted.read(str(path)).sum == {"sends": 12, NEW: 5}


def test_an_earlier_record_is_read_under_the_current_names() -> None:
    line = {"bench": "halo", "case": "c", "op": "exchange", "subject": "tempi", "bytes": 1, "seconds": [1.0]}
    found = records.parse(json.dumps({**line, "meta": {"counters": {"sends": 3, "recvs": 3, "left_rule": 4}}}))
    assert found.meta["counters"] == {"sends": 3, "recvs": 3, "fallback_rule": 4}
    assert suite_halo.accelerated(found.meta["counters"]).endswith("4 left to the library")
