"""``tempi explain``: its text, JSON and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tempi import _draw
from tempi.cli.explain import explain
from tempi.expression import parse

FACE = "subarray([10,12],[8,3],[1,1],INT)"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(explain, list(arguments))
    return done.exit_code, done.output


def test_explain_prints_the_passes_that_changed_something() -> None:
    status, text = run(FACE)
    assert status == 0
    assert "decode: as written" in text
    assert "fold: " in text
    assert "flatten: " not in text
    assert "96 B packed" in text
    assert "8 contiguous pieces" in text


def test_explain_writes_one_json_object_a_state() -> None:
    status, text = run(FACE, "--json", "-", "--count", "2")
    states = [json.loads(line) for line in text.splitlines()]
    assert status == 0
    assert [state["pass"] for state in states] == ["decode", "fold"]
    assert states[-1]["boxes"][0]["dims"] == [[8, 48, 12]]
    assert {state["count"] for state in states} == {2}
    assert {(state["size"], state["extent"]) for state in states} == {(96, 480)}


def test_explain_json_holds_the_table() -> None:
    _, text = run("hindexed([1,2,3,1,9], [0,16,50,100,200], BYTE)", "--json", "-")
    table = json.loads(text.splitlines()[-1])["boxes"][0]["table"]
    assert table == {
        "offsets": [0, 16, 50, 100, 200],
        "packed": [0, 1, 3, 6, 7],
        "lengths": [1, 2, 3, 1, 9],
    }


@pytest.mark.parametrize("text", [FACE, "hvector(6,1,4,vector(6,1,6,FLOAT))", "hvector(3,1,0,INT)", "BYTE"])
def test_explain_draws_a_picture(tmp_path: Path, text: str) -> None:
    picture = tmp_path / "picture.png"
    status, output = run(text, "--png", str(picture))
    assert status == 0
    assert "written" in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_explain_draws_types_of_millions_of_runs(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    status, _ = run("vector(3000,3000,6000,hvector(3000,1,8,FLOAT))", "--png", str(picture), "--count", "4")
    assert status == 0
    assert picture.exists()


def test_explain_says_where_an_expression_is_wrong() -> None:
    done = CliRunner().invoke(explain, ["vector(3,1,INT)"])
    assert done.exit_code != 0
    assert "at character 12: stride" in str(done.exception)


def test_explain_of_nothing_draws_nothing(tmp_path: Path) -> None:
    assert "no bytes" in run("contiguous(0, INT)")[1]
    status, text = run("contiguous(0, INT)", "--png", str(tmp_path / "nothing.png"))
    assert status == 1
    assert "nothing to draw" in text


def test_explain_refuses_a_count_of_zero() -> None:
    assert run(FACE, "--count", "0")[0] == 2


def test_text_drawing_shows_the_order_of_a_transpose() -> None:
    picture = _draw.grid(parse("hvector(6,1,4,vector(6,1,6,FLOAT))").layout())
    assert _draw.text_rows(picture) == [
        "  0 06ciou",
        " 24 17djpv",
        " 48 28ekqw",
        " 72 39flrx",
        " 96 4agmsy",
        "120 5bhntz",
    ]


def test_text_drawing_marks_bytes_used_twice() -> None:
    rows = _draw.text_rows(_draw.grid(parse("hindexed([1,1,1],[0,4,4],INT)").layout()))
    assert rows == ["0 0#"]


def test_grid_places_lie_between_first_and_last() -> None:
    for count in (1, 5):
        picture = _draw.grid(parse(FACE).layout(), count, columns=128, rows=64)
        places = picture.places[~np.isnan(picture.places)]
        assert places.min() >= 0
        assert places.max() <= 1
        assert picture.places.shape[0] <= 64
        assert picture.places.shape[1] <= 128


def ways(text: str, *arguments: str) -> dict[str, tuple[bool, bool]]:
    """By name: whether a block that is sent, or received, can go that way in a collective."""
    status, output = run(text, "--peer", "same-node", "--json", "-", *arguments)
    assert status == 0
    found = [json.loads(line) for line in output.splitlines()]
    return {each["collective_way"]: (each["sent"], each["received"]) for each in found if "collective_way" in each}


ANY, NONE = (True, True), (False, False)


def test_explain_tells_which_ways_short_blocks_can_go_in_collectives() -> None:
    assert ways("vector(8,1,8,DOUBLE)") == {
        "twice": ANY,
        "nontemporal": NONE,
        "packed": NONE,
        "once": NONE,
        "stored": NONE,
        "mapped": NONE,
        "reused": NONE,
    }


def test_explain_tells_which_ways_take_long_runs() -> None:
    short = ways("vector(65536,1,8,DOUBLE)")
    assert short["once"] == (False, True)  # the receiver's blocks may have any runs
    assert (short["stored"], short["mapped"], short["packed"]) == ((True, False), ANY, ANY)
    assert ways("indexed([7000,9000,8000],[0,10000,50000],DOUBLE)")["stored"] == (True, False)
    assert ways("vector(2048,32,64,DOUBLE)")["stored"] == (True, False)
    assert ways("vector(512,128,256,DOUBLE)")["once"] == ANY
    assert ways("vector(512,128,256,DOUBLE)")["stored"] == ANY
    assert ways("vector(32,128,256,DOUBLE)")["stored"] == NONE
    assert ways("vector(32,128,256,DOUBLE)", "--count", "16")["stored"] == ANY


def test_explain_tells_what_a_block_lacks_for_a_way() -> None:
    _, text = run("vector(65536,1,8,DOUBLE)", "--peer", "same-node")
    assert "once         no    yes       one copy, by the receiver (sent needs runs of 512 B or more)" in text
    assert "(received needs runs of 512 B or more)" in text
    _, text = run("indexed([700,900,800],[0,1000,5000],DOUBLE)", "--peer", "same-node-far")
    assert "(sent needs one nest of equal runs)" in text
    assert "(needs 131,072 B or more)" in text


def test_explain_shows_ways_only_between_ranks_of_a_node() -> None:
    vector = "vector(65536,1,8,DOUBLE)"
    assert "nontemporal" not in run(vector)[1]
    for peer, words in (("self", "from layout to layout"), ("other-node", "packed where a message of it would be")):
        _, text = run(vector, "--peer", peer)
        assert words in text
        assert "nontemporal" not in text
