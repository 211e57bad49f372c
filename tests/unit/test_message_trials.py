"""Trials of messages on the program's own rounds (csrc/choose/message_trials.c), with an artificial clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from message_rounds import (
    ENOUGH,
    LIBRARY,
    ON_TRIAL,
    OWN,
    PLACE,
    PLACES,
    PROBE,
    RECV,
    SECOND,
    SEND,
    STREAMED,
    UNUSED,
    USUAL,
    Program,
    ffi,
    first_place,
    in_a_process,
    key_of,
    lib,
    settled,
    times,
)


@pytest.fixture
def program() -> Iterator[Program]:
    with in_a_process() as made:
        yield made


def test_the_words_fill_the_memory_that_the_registry_has_for_them() -> None:
    assert ffi.sizeof("tempi_message_words") == PLACE


@pytest.mark.parametrize("usual", [LIBRARY, OWN])
@pytest.mark.parametrize("scale", [2000, 40_000, 9_000_000])
@pytest.mark.parametrize(("library", "own", "winner"), [(1.0, 0.9, OWN), (1.0, 0.2, OWN), (0.9, 1.0, LIBRARY)])
def test_the_faster_method_is_settled(
    program: Program, usual: int, scale: int, library: float, own: float, winner: int
) -> None:
    ways = program.rounds(key_of(1), usual, times(library * scale, own * scale))
    assert set(ways[:8]) == {usual}
    assert settled(ways) == winner


@pytest.mark.parametrize(
    ("usual", "library", "winner"),
    [(LIBRARY, 50_000, LIBRARY), (LIBRARY, 51_000, LIBRARY), (LIBRARY, 52_500, OWN),
     (OWN, 50_000, LIBRARY), (OWN, 49_500, LIBRARY), (OWN, 51_000, OWN)],
)  # fmt: skip
def test_of_near_equals_the_library_has_the_message(program: Program, usual: int, library: int, winner: int) -> None:
    """It is left for a gain of 3%, and taken back where nothing is lost."""
    ways = program.rounds(key_of(1), usual, times(library, 50_000))
    assert set(ways) == {LIBRARY, OWN}
    assert settled(ways) == winner


@pytest.mark.parametrize("faster", [STREAMED, OWN])
def test_of_equals_among_the_others_the_one_in_use_stays(program: Program, faster: int) -> None:
    program.streams = True
    seconds = {LIBRARY: 50_000, OWN: 10_200, STREAMED: 10_200, faster: 10_000}
    assert settled(program.rounds(key_of(1), OWN, seconds.__getitem__)) == OWN


@pytest.mark.parametrize("usual", [LIBRARY, OWN])
def test_the_examination_of_messages_that_are_left_does_not_decide(program: Program, usual: int) -> None:
    """In a trial it is in each round of theirs, 40 ns on each side, and afterwards in none."""
    ways = program.rounds(key_of(1), usual, times(1000, 950))
    assert set(ways) == {LIBRARY, OWN}
    assert settled(ways) == LIBRARY
    program.repeats = False
    assert settled(program.rounds(key_of(2), usual, times(1000, 900))) == OWN


def test_a_hopeless_method_has_one_short_turn(program: Program) -> None:
    ways = program.rounds(key_of(1), OWN, times(50_000, 5000))
    assert 0 < ways.count(LIBRARY) <= 5


@pytest.mark.parametrize("usual", [LIBRARY, OWN])
@pytest.mark.parametrize("fastest", [LIBRARY, OWN, STREAMED])
@pytest.mark.parametrize("gain", [0.9, 0.3])
def test_the_fastest_of_three_methods_is_settled(program: Program, usual: int, fastest: int, gain: float) -> None:
    """Also if another one is better than the usual one, too."""
    program.streams = True
    nanoseconds = {LIBRARY: 20_000.0, OWN: 19_000.0, STREAMED: 18_500.0}
    nanoseconds[fastest] *= gain
    ways = program.rounds(key_of(1), usual, nanoseconds.__getitem__)
    assert set(ways) >= {LIBRARY, OWN, STREAMED}
    assert settled(ways) == fastest


def test_the_third_method_is_tried_only_where_it_may_gain(program: Program) -> None:
    assert STREAMED not in program.rounds(key_of(1), LIBRARY, times(5000, 4000, 1))
    program.streams = True
    assert program.rounds(key_of(2), LIBRARY, times(5000, 4000, 30_000)).count(STREAMED) <= 5 + PROBE
    assert settled(program.rounds(key_of(3), LIBRARY, times(5000, 30_000, 4000))) == STREAMED


def test_the_first_rounds_of_a_method_do_not_count(program: Program) -> None:
    """It allocates its buffers in them."""
    spent = {LIBRARY: 0, OWN: 0}

    def seconds(method: int) -> float:
        spent[method] += 1
        return (4000 if method == OWN else 5000) + (100_000 if spent[method] <= 2 else 0)

    assert settled(program.rounds(key_of(1), LIBRARY, seconds)) == OWN


def test_a_slow_first_turn_does_not_decide(program: Program) -> None:
    """A method may need more rounds than are left out until its caches are filled."""
    spent = {LIBRARY: 0, OWN: 0}

    def seconds(method: int) -> float:
        spent[method] += 1
        return (400_000 if method == LIBRARY else 500_000) * (2.2 if method == LIBRARY and spent[method] <= 12 else 1)

    assert settled(program.rounds(key_of(1), OWN, seconds)) == LIBRARY


def test_a_quiet_moment_does_not_decide(program: Program) -> None:
    """In which the usual method is faster than the other one, once."""
    spent = {LIBRARY: 0, OWN: 0}

    def seconds(method: int) -> float:
        spent[method] += 1
        if method == LIBRARY:
            return 8000
        return 7000 if 14 <= spent[OWN] <= 19 else 10_000  # in its second turn

    assert settled(program.rounds(key_of(1), OWN, seconds)) == LIBRARY


@pytest.mark.parametrize("begun", range(0, 10_000, 500))
def test_the_rarer_speed_of_a_machine_does_not_decide(program: Program, begun: int) -> None:
    """It changes every some milliseconds; in 3 of 10 the method is faster that is slower otherwise."""
    start, key = program.now[0] - begun * 1000, key_of(1)

    def seconds(method: int) -> float:
        rare = (program.now[0] - start) % 10_000_000 < 3_000_000
        return {False: {LIBRARY: 20_000, OWN: 22_000}, True: {LIBRARY: 40_000, OWN: 30_000}}[rare][method]

    program.rounds(key, LIBRARY, seconds, 16)
    while lib.tempi_passing.trial_runs:
        program.rounds(key, LIBRARY, seconds, 1)
    assert program.words.ways[first_place(key)] == key | LIBRARY


@pytest.mark.parametrize(("period", "begun"), [(period, begun) for period in (5, 8) for begun in range(period)])
def test_rounds_beside_a_barrier_do_not_decide(program: Program, period: int, begun: int) -> None:
    """Of the rounds between two barriers the first one begins while the peer still unpacks, and the last one waits for
    that; of the library's pieces there is little to unpack then."""
    now = itertools.count(begun)

    def seconds(method: int) -> float:
        took, unpacks = (24e6, 5.5e6) if method == OWN else (22.5e6, 0.1e6)
        return took + {0: -unpacks, period - 1: unpacks}.get(next(now) % period, 0)

    assert settled(program.rounds(key_of(1), OWN, seconds)) == LIBRARY


@pytest.mark.parametrize("begun", range(2))
def test_other_work_in_every_other_round_does_not_decide(program: Program, begun: int) -> None:
    now = itertools.count(begun)

    def seconds(method: int) -> float:
        return (22e6 if method == OWN else 20e6) + 30e6 * (next(now) % 2)

    assert settled(program.rounds(key_of(1), OWN, seconds)) == LIBRARY


def test_a_few_slow_turns_seldom_decide(program: Program) -> None:
    """In 4 of 10 times of 15 ms the library takes twice as long, and then the other method is faster."""
    draw = random.Random(1)
    slow: dict[int, bool] = {}

    def seconds(method: int) -> float:
        now = program.now[0] // 15_000_000
        return 300_000 * (1.5 if method == OWN else 2 if slow.setdefault(now, draw.random() < 0.4) else 1)

    ends = [program.rounds(key_of(shape), LIBRARY, seconds)[-1] for shape in range(100)]
    assert ends.count(OWN) <= 18


def longest_turn(ways: list[int], method: int) -> int:
    return max(len(list(turn)) for way, turn in itertools.groupby(ways) if way == method)


def test_other_work_does_not_shorten_a_turn(program: Program) -> None:
    """It is long in every other round, and few of those without it say little."""
    now = itertools.count()
    plain = longest_turn(program.rounds(key_of(1), LIBRARY, times(1e6, 1.1e6)), OWN)
    ways = program.rounds(key_of(2), LIBRARY, lambda method: times(1e6, 1.1e6)(method) + 20e6 * (next(now) % 2))
    assert longest_turn(ways, OWN) >= plain


def test_a_turn_of_unsteady_rounds_is_longer(program: Program) -> None:
    draw = random.Random(1)
    steady = program.rounds(key_of(1), LIBRARY, times(2e6, 2.2e6))
    unsteady = program.rounds(key_of(2), LIBRARY, lambda method: times(2e6, 2.2e6)(method) * draw.uniform(0.8, 1.6))
    assert longest_turn(unsteady, OWN) > 2 * longest_turn(steady, OWN)


@pytest.mark.parametrize("usual", [LIBRARY, OWN])
def test_noise_seldom_hides_a_small_difference(program: Program, usual: int) -> None:
    """Of 15%, as large as the noise."""
    nanoseconds = {usual: 10_000, LIBRARY + OWN - usual: 8_500}
    draw = random.Random(1)

    def seconds(method: int) -> float:
        return nanoseconds[method] * draw.uniform(0.85, 1.3)

    ends = [program.rounds(key_of(shape), usual, seconds)[-1] for shape in range(100)]
    assert ends.count(usual) <= 10


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_hide_a_clear_difference(program: Program, seed: int) -> None:
    draw = random.Random(seed)

    def seconds(method: int) -> float:
        return (10_000 if method == OWN else 20_000) * (1 + draw.expovariate(8)) + (
            300_000 if draw.random() < 0.02 else 0
        )

    ways = program.rounds(key_of(1), LIBRARY, seconds)
    assert ways[-100:].count(OWN) > 70  # a change in the noise begins another trial


def test_trials_of_equals_get_rarer(program: Program) -> None:
    """Even if one wins now and the other one then, and probes go on."""
    draw = random.Random(1)
    methods = set()
    for _ in range(40_000):
        method = program.post(key_of(1), OWN)
        methods |= set() if lib.tempi_passing.trial_runs else {method}
        program.complete(10_000 * draw.uniform(0.85, 1.3))
    assert methods == {LIBRARY, OWN}
    assert program.trials <= 12


def test_a_burst_is_one_round(program: Program) -> None:
    """To post is cheaper with tempi, to wait for all of them is dearer: all of it counts."""
    ways: list[int] = []
    for _ in range(ENOUGH):
        ways = [program.post(key_of(1), OWN) for _ in range(16)]
        program.now[0] += sum(100 if method == OWN else 1000 for method in ways)
        program.complete(sum(9000 if method == OWN else 1000 for method in ways))
    assert set(ways) == {LIBRARY}


@pytest.mark.parametrize("first", [SEND, RECV])
@pytest.mark.parametrize("burst", [1, 4])
def test_a_round_contains_both_sides(program: Program, first: bool, burst: int) -> None:
    """Of a ping-pong, of one or some blocking messages at a time, the sends alone are faster with tempi."""
    ways: list[int] = []
    for _ in range(ENOUGH):
        for receives in (first, not first):
            for _ in range(burst):
                ways.append(program.post(key_of(1), OWN, receives))
                slow, fast = (9000, 2000) if receives else (500, 1000)
                program.complete(slow if ways[-1] == OWN else fast, (not receives,))
    assert settled(ways) == LIBRARY


def test_another_process_is_followed(program: Program) -> None:
    key = key_of(1)
    for method in (LIBRARY, OWN, STREAMED):
        program.words.ways[first_place(key)] = key | method
        usual = LIBRARY if method == OWN else OWN
        assert set(program.rounds(key, usual, times(5000, 1000))) == {method}
    assert not lib.tempi_passing.trial_runs


def test_a_process_that_has_left_its_trial_is_not_followed_for_ever(program: Program) -> None:
    key = key_of(1)
    program.words.ways[first_place(key)] = key | OWN | ON_TRIAL
    program.words.running = ((program.now[0] + 2 * SECOND) >> 20) << 16 | 9
    assert set(program.rounds(key, LIBRARY, times(10**6, 10**7), 128)) == {OWN}
    assert settled(program.rounds(key, LIBRARY, times(10**6, 10**7), 256)) == LIBRARY
    assert program.words.ways[first_place(key)] == key | LIBRARY


def test_the_method_is_published(program: Program) -> None:
    key = key_of(1)
    program.rounds(key, LIBRARY, times(5000, 1000))
    assert program.words.ways[first_place(key)] == key | OWN
    assert program.words.running == 0


def test_keys_with_the_same_places_have_each_their_word(program: Program) -> None:
    """Beyond their number a key has the usual method."""
    place = first_place(key_of(1))
    keys = [key_of(n) for n in range(1, 80_000) if first_place(key_of(n)) == place][: PLACES + 1]
    for key in keys[:-1]:
        assert settled(program.rounds(key, LIBRARY, times(5000, 1000))) == OWN
    assert set(program.rounds(keys[-1], LIBRARY, times(5000, 1000))) == {LIBRARY}
    assert all(program.post(key, LIBRARY) == OWN for key in keys[:-1])
    assert len({program.word(key) for key in keys[:-1]}) == PLACES


def test_a_key_that_is_no_longer_used_gives_up_its_word(program: Program) -> None:
    """To one that finds its places taken; a running trial does not."""
    place = first_place(key_of(1))
    keys = [key_of(n) for n in range(1, 80_000) if first_place(key_of(n)) == place][: PLACES + 1]
    for key in keys[:-1]:
        program.rounds(key, LIBRARY, times(5000, 1000))
    for _ in range(UNUSED // 2):
        for key in keys[1:]:
            program.post(key, LIBRARY)
    assert program.word(keys[0]) is None
    assert all(program.word(key) is not None for key in keys[1:])
    assert settled(program.rounds(keys[-1], LIBRARY, times(5000, 1000))) == OWN


def test_a_change_of_the_machine_is_noticed(program: Program) -> None:
    key = key_of(1)
    assert settled(program.rounds(key, LIBRARY, times(20_000, 5000))) == OWN
    assert settled(program.rounds(key, LIBRARY, times(5000, 20_000), 2 * ENOUGH)) == LIBRARY


def test_a_change_waits_until_the_last_trial_was_worth_its_loss(program: Program) -> None:
    """A hopeless method has lost as much as some hundred messages take, and is tried again after ten times as many."""
    key, hopeless = key_of(1), 400_000
    program.rounds(key, LIBRARY, times(10_000, hopeless), 200)
    assert OWN not in program.rounds(key, LIBRARY, times(15_000, hopeless), 600)
    assert OWN in program.rounds(key, LIBRARY, times(15_000, hopeless), 9000)


def test_messages_that_pass_count_for_those_that_are_seen(program: Program) -> None:
    """Of every 16 one is seen. A change is noticed, and none where there is none."""
    key = key_of(1)
    program.rounds(key, OWN, times(5000, 1000), 15_000)  # until trials are seldom
    program.messages = 16
    assert settled(program.rounds(key, OWN, times(16 * 5000, 16 * 1000), 100)) == OWN
    trials = program.trials
    program.rounds(key, OWN, times(16 * 5000, 16 * 2000), 40)
    assert program.trials == trials + 1


def test_a_kept_choice_takes_what_is_settled() -> None:
    word = ffi.new("uint64_t *")
    for value, method in ((LIBRARY, LIBRARY), (OWN, OWN), (STREAMED, STREAMED), (OWN | ON_TRIAL, USUAL)):
        word[0] = key_of(1) | value
        assert lib.tempi_message_settled(word) == method
    assert lib.tempi_message_settled(ffi.NULL) == USUAL


def test_a_trial_is_repeated(program: Program) -> None:
    """What is faster may change without a change of the method in use."""
    key = key_of(1)
    program.rounds(key, LIBRARY, times(5000, 6000))
    ways = program.rounds(key, LIBRARY, times(5000, 2500), 3000)
    assert ways[-1] == OWN


def test_trials_lose_little(program: Program) -> None:
    """A hopeless method is tried again, but never for more than some percent of the time."""
    start = program.now[0]
    program.rounds(key_of(1), LIBRARY, times(1000, 300_000), 100_000)
    assert program.now[0] - start < 1.05 * 100_000 * 1000


def test_only_one_trial_runs_on_a_node(program: Program) -> None:
    key = key_of(1)
    until = (program.now[0] + SECOND) >> 20
    program.words.running = until << 16 | 9
    assert set(program.rounds(key, LIBRARY, times(5000, 1000), 1000)) == {LIBRARY}
    program.now[0] += 2 * SECOND  # the other process has not gone on
    assert settled(program.rounds(key, LIBRARY, times(5000, 1000))) == OWN


def test_a_trial_that_was_taken_over_ends(program: Program) -> None:
    key = key_of(1)
    ways = program.rounds(key, LIBRARY, times(5000, 4000), 16)
    assert lib.tempi_passing.trial_runs
    theirs = program.words.running = ((program.now[0] + 2 * SECOND) >> 20) << 16 | 9
    ways = program.rounds(key, LIBRARY, times(5000, 4000))
    assert not lib.tempi_passing.trial_runs
    assert program.words.running == theirs
    assert settled(ways) == LIBRARY


def test_a_trial_whose_messages_have_ended_gives_way(program: Program) -> None:
    """But not at once: a program does other things in between."""
    program.rounds(key_of(1), LIBRARY, times(50_000, 40_000), 16)
    assert set(program.rounds(key_of(2), LIBRARY, times(50_000, 10_000), 100)) == {LIBRARY}
    assert lib.tempi_passing.trial_runs
    assert settled(program.rounds(key_of(2), LIBRARY, times(50_000, 10_000), 1000)) == OWN


@pytest.mark.parametrize("others", [48, 900])  # within the time after which another process takes over
def test_a_pause_within_a_trial_does_not_keep_others_from_theirs(program: Program, others: int) -> None:
    """The messages of the trial have ended after it, and many others come. Few of them may lie between its rounds."""
    rounds = iter([50_000] * 20 + [SECOND])
    program.rounds(key_of(1), LIBRARY, lambda _: next(rounds), 21)
    program.rounds(key_of(1), LIBRARY, times(50_000, 40_000), 2)
    assert lib.tempi_passing.trial_runs
    ways = program.rounds(key_of(2), LIBRARY, times(2_000_000, 1_000_000), others)
    assert settled(ways) == (OWN if others > 64 else LIBRARY)
    assert (OWN in ways) == (others > 64)


def test_a_leader_that_stops_leads_no_longer(program: Program) -> None:
    """First one without a method, which it never found, then one with."""
    key = key_of(1)
    place = first_place(key)
    program.words.ways[place] = key
    assert settled(program.rounds(key, LIBRARY, times(5000, 1000), 2000)) == OWN
    lib.tempi_message_trials_start(program.words, 1)  # as another process
    assert set(program.rounds(key, LIBRARY, times(5000, 8000), 130_000)) == {OWN}
    assert settled(program.rounds(key, LIBRARY, times(5000, 8000), 2000)) == LIBRARY


@pytest.mark.parametrize("rounds", [5, 30])
def test_a_leader_whose_key_has_another_one_follows_it(program: Program, rounds: int) -> None:
    """Whether its trial is yet to begin or runs; another trial may begin at once."""
    key = key_of(1)
    program.rounds(key, LIBRARY, times(5000, 4500), rounds)
    assert bool(lib.tempi_passing.trial_runs) == (rounds > 8)
    program.words.ways[first_place(key)] = key | LIBRARY
    assert settled(program.rounds(key, LIBRARY, times(5000, 1000))) == LIBRARY
    assert not lib.tempi_passing.trial_runs
    assert not program.words.running


def test_a_trial_without_rounds_ends(program: Program) -> None:
    """The program waits no more: its messages overlap."""
    key = key_of(1)
    program.rounds(key, LIBRARY, times(5000, 1000), 16)
    assert lib.tempi_passing.trial_runs
    for _ in range(400):
        program.post(key, LIBRARY)
        program.now[0] += 50_000
    assert not lib.tempi_passing.trial_runs
    assert not program.words.running


def test_another_process_s_lease_ends(program: Program) -> None:
    """Else its node would examine each message in full for ever."""
    program.words.running = ((program.now[0] + SECOND) >> 20) << 16 | 9
    for _ in range(64):
        lib.tempi_message_trial_look()
    assert program.words.running
    program.now[0] += 2 * SECOND
    for _ in range(64):
        lib.tempi_message_trial_look()
    assert not program.words.running


def test_the_end_of_mpi_frees_the_node_for_others(program: Program) -> None:
    program.rounds(key_of(1), LIBRARY, times(5000, 4000), 16)
    assert program.words.running
    lib.tempi_message_trials_stop()
    assert not program.words.running


def test_a_message_that_is_a_small_part_of_a_round_is_not_tried(program: Program) -> None:
    """The rest of the round would decide, not the message."""
    program.most = 200
    ways = program.rounds(key_of(1), LIBRARY, times(10_000, 5000))
    assert set(ways) == {LIBRARY}
    assert lib.tempi_message_settled(ffi.addressof(program.words, "ways", program.word(key_of(1)))) == LIBRARY
    program.most = 2000
    assert OWN in program.rounds(key_of(2), LIBRARY, times(10_000, 9000))


@pytest.mark.parametrize(("most", "burst"), [(1000, 1), (300, 3)])
def test_a_method_cannot_gain_much_more_than_its_messages_take(program: Program, most: int, burst: int) -> None:
    """Of a round of 10 microseconds: 2 may be those of messages that usually take 1, but not 5."""
    program.most = most

    def last(shape: int, own: float) -> int:
        for _ in range(ENOUGH):
            ways = [program.post(key_of(shape), LIBRARY) for _ in range(burst)]
            program.complete(own if ways[0] == OWN else 10_000)
        return ways[0]

    assert last(1, 8000) == OWN
    assert last(2, 5000) == LIBRARY


def test_trials_of_many_kinds_of_messages_take_a_small_part_of_a_program(program: Program) -> None:
    """After the first one of each; a round has some messages of each. So do their probes."""
    tried, examined, first, rounds = 0, 0, 4000, 24_000
    for i in range(rounds):
        ways = [program.post(key_of(shape), LIBRARY) for shape in range(1, 9) for _ in range(3)]
        if i >= first:
            tried += OWN in ways
            examined += bool(lib.tempi_passing.trial_runs)
        program.complete(10_000)
    assert 0 < tried < 0.06 * (rounds - first)
    assert examined < 0.16 * (rounds - first)


def test_messages_of_a_burst_count_as_rounds(program: Program) -> None:
    """So a trial of equals is repeated after as many rounds as of messages one by one."""
    begun = []
    for which, burst in enumerate((1, 20)):
        program.trials = 0
        for _ in range(6000):
            for _ in range(burst):
                program.post(key_of(1 + which), LIBRARY)
            program.complete(10_000)
        begun.append(program.trials)
    assert min(begun) > 1
    assert max(begun) - min(begun) <= 1


def test_a_pause_of_the_program_does_not_delay_the_next_trial(program: Program) -> None:
    """It is not the trial's: neither for what it lost, nor for how long it took."""
    spent = {LIBRARY: 0, OWN: 0}

    def seconds(method: int) -> float:
        spent[method] += 1
        return 10_000 + (150_000 if method == OWN and spent[method] % 5 == 1 else 0)

    program.rounds(key_of(1), LIBRARY, seconds)
    assert not lib.tempi_passing.trial_runs
    assert settled(program.rounds(key_of(1), LIBRARY, times(10_000, 5000), 5000)) == OWN


@pytest.mark.parametrize("burst", [1, 4])
def test_short_messages_are_seldom_on_trial(program: Program, burst: int) -> None:
    """In a trial and in a probe each of them is examined, which takes as long as a part of it."""
    examined, rounds, key = 0, 60_000, key_of(1)
    for _ in range(rounds):
        ways = [program.post(key, LIBRARY) for _ in range(burst)]
        examined += bool(lib.tempi_passing.trial_runs)
        program.complete(1200 if ways[0] == OWN else 1000)
    assert program.trials > 1
    assert examined < 0.03 * rounds
