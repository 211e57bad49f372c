from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest

from tempi.measure import records
from tempi.measure.records import Record, RecordError

pytestmark = pytest.mark.once

RECORD = Record("pack", "vector", "unpack", "tempi", 4096, (1.5e-6, 2.0e-6), {"engaged": True})


def test_a_record_survives_its_line() -> None:
    line = RECORD.line()
    assert "\n" not in line
    assert records.parse(line) == RECORD


def test_a_line_has_the_documented_keys() -> None:
    data = json.loads(RECORD.line())
    assert list(data) == ["bench", "case", "op", "subject", "bytes", "seconds", "meta"]


def test_a_file_is_read_as_it_was_written(json_file: Path) -> None:
    other = RECORD.with_meta(engaged=False)
    records.write(json_file, [RECORD, other])
    assert records.read(json_file) == [RECORD, other]


def test_writing_leaves_no_temporary_file(json_file: Path) -> None:
    records.write(json_file, [RECORD])
    assert [file.name for file in json_file.parent.iterdir()] == [json_file.name]


def test_a_failed_write_keeps_the_old_file(json_file: Path) -> None:
    records.write(json_file, [RECORD])
    broken = Record("b", "c", "o", "s", 0, (), {"not": object()})
    with pytest.raises(TypeError):
        records.write(json_file, [RECORD, broken])
    assert records.read(json_file) == [RECORD]
    assert len(list(json_file.parent.iterdir())) == 1


def test_a_target_that_cannot_be_replaced_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "records.json"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        records.write(target, [RECORD])
    assert list(tmp_path.iterdir()) == [target]


def test_dash_is_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    records.write("-", [RECORD])
    assert records.parse(capsys.readouterr().out) == RECORD


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"bench": 3}, '"bench" is not a string'),
        ({"bytes": "many"}, '"bytes" is not an integer'),
        ({"seconds": 1.0}, '"seconds" is not a list'),
        ({"seconds": ["x"]}, '"seconds" is not a list'),
        ({"meta": []}, '"meta" is not an object'),
    ],
)
def test_a_wrong_member_is_named(change: dict[str, object], complaint: str) -> None:
    data = {**json.loads(RECORD.line()), **change}
    with pytest.raises(RecordError, match=complaint):
        records.parse(json.dumps(data))


def test_a_bad_line_is_located(json_file: Path) -> None:
    json_file.write_text(RECORD.line() + "\n\n{oops\n", encoding="utf-8")
    with pytest.raises(RecordError, match=r"records\.json, line 3: not JSON"):
        records.read(json_file)


def test_the_machine_is_described() -> None:
    machine = records.machine()
    assert machine["cores"] >= 1
    assert all(machine[name] for name in ("cpu", "kernel", "python"))
    assert re.search(r"\(family \d+, model \d+\)$", machine["cpu"]) or platform.machine() != "x86_64"
    machine["cores"] = -1
    assert records.machine()["cores"] >= 1


def test_every_record_says_when_the_device_was_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPI_CUDA_DRIVER", raising=False)
    assert "cuda" not in records.machine()
    monkeypatch.setenv("TEMPI_CUDA_DRIVER", "emulated")
    assert records.machine()["cuda"] == "EMULATED: CUDA on the CPU, a test device"


def test_a_journal_has_each_record_at_once_and_replaces_an_earlier_run_with_its_first(json_file: Path) -> None:
    json_file.write_text("an earlier run\n")
    with records.Journal(json_file) as journal:
        assert json_file.read_text() == "an earlier run\n"
        for number in (1, 2):
            assert journal.add(RECORD) is RECORD
            assert records.read(json_file) == [RECORD] * number


def test_where_there_is_no_git_the_commit_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(records.COMMIT, "abc1234")
    assert records._commit() == "abc1234"
