"""How a flow is copied, from C: classes, trials of simulated ways, and the two processes of a pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanitizers import ADDRESSES, exchange_program, output

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exchange_program(HERE / "copy_driver.c", tmp_path_factory.mktemp("driver"), *ADDRESSES)


@pytest.mark.parametrize("run", [0, 8, 512, 1 << 20])
def test_flows_are_timed_together_that_stay_in_the_same_caches(driver: Path, run: int) -> None:
    def class_of(kibibytes: int) -> int:
        number, classes = map(int, output(driver, "class", run, kibibytes << 10).split(" of "))
        assert number < classes
        return number

    classes = [class_of(kibibytes) for kibibytes in (2, 8, 64, 256, 2048, 8192)]
    assert classes == sorted(set(classes))
    assert classes[0] == -1
    assert [class_of(kibibytes) for kibibytes in (3, 4, 32, 512, 1024, 4096)] == classes


def test_flows_of_other_runs_are_timed_apart(driver: Path) -> None:
    classes = [output(driver, "class", run, 1 << 20) for run in (0, 8, 64, 256, 1024, 4096, 16384)]
    assert len(set(classes)) == len(classes)


def test_a_way_is_forced_where_a_flow_can_go_it(driver: Path) -> None:
    assert output(driver, "force", 50).split() == ["50", "0"] * 7


SHORT, LONG = 0, 4  # classes: of the short ones not all flows are timed


@pytest.mark.parametrize("size", [SHORT, LONG])
@pytest.mark.parametrize(("flows", "most"), [(60, 1550), (1000, 200)])
def test_the_fastest_way_is_found_and_found_again(driver: Path, flows: int, most: int, size: int) -> None:
    """Of simulated ways, up to four times as slow as the best one."""
    first, *changed, timed = map(int, output(driver, "settle", 500, 3, flows, size).split())
    assert first < most  # thousandths above the best; the first flows are cold
    assert max(changed) < 120
    assert (timed < 450) if size == SHORT else (timed == 1000)


@pytest.mark.parametrize("size", [SHORT, LONG])
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_way_that_is_sometimes_fast_does_not_win(driver: Path, seed: int, size: int) -> None:
    """It costs 1.4 times as much in the mean: packing in memory that the other process has in its caches."""
    assert int(output(driver, "unsteady", 5000, seed, size)) > 800


@pytest.mark.parametrize("size", [SHORT, LONG])
@pytest.mark.parametrize(("flows", "least"), [(1000, 850), (300, 700)])
def test_another_way_is_found_when_flows_come_that_all_ways_are_faster_with(
    driver: Path, flows: int, least: int, size: int
) -> None:
    """What was learned of slower flows does not keep the way that is best now from its trials."""
    assert all(int(output(driver, "others", flows, seed, size)) > least for seed in range(1, 6))


@pytest.mark.parametrize("size", [SHORT, LONG])
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_second_flow_of_a_way_does_not_speak_for_those_that_follow(driver: Path, seed: int, size: int) -> None:
    """It may take memory whose lines the other process does not hold."""
    assert int(output(driver, "warming", 2000, seed, size)) > 930


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_the_best_way_is_found_if_many_flows_are_chosen_before_one_has_ended(driver: Path, size: int) -> None:
    assert all(int(output(driver, "late", 30, seed, size)) > 500 for seed in range(1, 6))


@pytest.mark.parametrize(("size", "most"), [(SHORT, 34), (LONG, 40)])
def test_the_way_changes_for_trials_alone_if_ways_cost_as_much(driver: Path, size: int, most: int) -> None:
    assert all(10 < int(output(driver, "equals", 3000, seed, size)) < most for seed in range(1, 6))


@pytest.mark.parametrize("size", [SHORT, LONG])
@pytest.mark.parametrize("flows", [200, 1000])
def test_the_best_way_comes_back_soon_after_some_slow_flows(driver: Path, flows: int, size: int) -> None:
    """A processor was busy with something else, say: the way was replaced, and nothing else has changed."""
    assert all(int(output(driver, "burst", flows, seed, size)) > 800 for seed in range(1, 6))


@pytest.mark.parametrize(("warm", "least", "most"), [(0.7, 950, 1000), (2.0, 0, 50)])
def test_memory_that_rests_is_judged_when_it_is_warm(driver: Path, warm: float, least: int, most: int) -> None:
    """In the first flows, and whenever it was not used for long, it costs three times as much as later."""
    first, changed = map(int, output(driver, "rested", 6000, warm, 2).split())
    assert least <= first <= most
    assert changed > 950


def test_what_warms_memory_that_rests_tells_nothing(driver: Path) -> None:
    """It is taken from the first trials on."""
    assert int(output(driver, "rested", 200, 0.7, 2).split()[0]) > 800


def test_memory_that_rests_is_not_warmed_at_each_change_of_all_flows(driver: Path) -> None:
    """A program has long and short ones of a class in turn, say."""
    assert int(output(driver, "phases", 12000, SHORT)) < 200


@pytest.mark.parametrize("flows", range(1200, 2300, 200))
def test_memory_that_rests_is_warmed_soon_after_a_change_of_all_flows(driver: Path, flows: int) -> None:
    """Two cores share no cache any more, say."""
    assert int(output(driver, "apart", flows, 2)) > 400


@pytest.mark.parametrize("once", [1, 3])
@pytest.mark.parametrize("flows", [1500, 4000])
def test_a_way_of_which_nothing_is_learned_any_more_is_not_tried_for_ever(
    driver: Path, flows: int, once: float
) -> None:
    """A sender that need not wait runs ahead of its receiver, which tells the time of its last flows alone. Then the
    best way is taken, also if it was about to be tried anew."""
    assert int(output(driver, "untold", flows, once, 2)) > 750


def test_what_is_known_elsewhere_is_a_first_guess(driver: Path) -> None:
    """The way that is the first without a guess is the slower one, and tried in the first three flows with one. None
    takes the place of a trial that has begun."""
    assert output(driver, "guess", LONG).split() == ["0", *"000111", "0", "1", "0"]


def test_both_messages_of_a_pair_go_the_way_that_one_side_chooses(driver: Path, tmp_path: Path) -> None:
    alike, offered, alone = map(int, output(driver, "alike", tmp_path, 300, 5).split())
    assert alike == 300
    assert 20 < offered < 280
    assert 20 < alone < 280  # it does not go on with the last choice of the other one


def test_what_is_streamed_costs_as_much_as_the_slower_side_takes_for_all_parts(driver: Path, tmp_path: Path) -> None:
    assert output(driver, "parts", tmp_path) == "5.00 0.05\n"
