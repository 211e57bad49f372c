"""A program whose messages are tried (csrc/choose/message_trials.c), with an artificial clock."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cffi import FFI

from tempi import _engine

KEYS, PLACES, PLACE = 2042, 4, 16384
SEND, RECV = False, True
USUAL, LIBRARY, OWN, STREAMED, ON_TRIAL = 0, 1, 2, 3, 4
METHOD = 3
UNUSED = 1 << 16  # messages
PROBE = 12  # rounds that a probe takes at most, of which 6 are of another method
ENOUGH = 1200  # rounds, after which each trial is over, also with a second contest
SECOND = 10**9
ffi = FFI()
ffi.cdef(
    """
typedef struct { uint64_t running; int64_t rest; uint64_t ways[2046]; } tempi_message_words;
void tempi_message_trials_start(tempi_message_words *words, int own);
void tempi_message_trials_stop(void);
typedef struct { tempi_message_words *trials; bool trial_runs, shared; int disabled; uint64_t passed; }
    tempi_passing_state;
extern tempi_passing_state tempi_passing;
extern uint32_t tempi_message_completions[2];
uint64_t tempi_message_trial_key(uint32_t shape, int step, int class);
typedef struct { uint64_t key; uint64_t *word; bool receives, streams, repeats; uint32_t messages; int64_t most;
    uint8_t usual; }
    tempi_message_post;
int tempi_message_trial_post(const tempi_message_post *post);
void tempi_message_trial_look(void);
int tempi_message_settled(const uint64_t *word);
void tempi_message_trial_pretend(const int64_t *now);
"""
)
lib: Any = ffi.dlopen(_engine.library_path())


@dataclass
class Program:
    """One process of a node, its clock, and the words that it shares with others."""

    words: Any = field(default_factory=lambda: ffi.new("tempi_message_words *"))
    streams: bool = False
    repeats: bool = True
    messages: int = 1  # that each post stands for
    most: int = 10 * SECOND  # nanoseconds that a message takes, or fewer
    now: Any = field(default_factory=lambda: ffi.new("int64_t *", SECOND))
    running: int = 0  # rounds of the running trial or probe
    trials: int = 0  # without probes

    def __post_init__(self) -> None:
        lib.tempi_message_trial_pretend(self.now)
        lib.tempi_message_trials_start(self.words, 0)

    def word(self, key: int) -> int | None:
        """The index of the key's word."""
        places = range(first_place(key), first_place(key) + PLACES)
        return next((i for i in places if self.words.ways[i] ^ key < 8), None)

    def post(self, key: int, usual: int, receives: bool = SEND) -> int:
        """As choose.c does."""
        lib.tempi_message_trial_look()
        i = self.word(key)
        method = USUAL if i is None else self.words.ways[i] & METHOD
        word = ffi.NULL if i is None else ffi.addressof(self.words, "ways", i)
        post = [key, word, receives, self.streams, self.repeats, self.messages, self.most]
        post.append(usual if method == USUAL else method)
        return int(lib.tempi_message_trial_post(ffi.new("tempi_message_post *", post)))

    def complete(self, took: float, rounds: tuple[bool, ...] = (SEND, RECV)) -> None:
        """A call that takes so long and ends rounds that began with a send, or with a receive, or both."""
        self.now[0] += int(took)
        self.running = self.running + 1 if lib.tempi_passing.trial_runs else 0
        self.trials += self.running == PROBE + 1
        if self.running:
            for which in rounds:
                lib.tempi_message_completions[which] += 1

    def rounds(self, key: int, usual: int, seconds: Callable[[int], float], n: int = ENOUGH) -> list[int]:
        """The methods of n rounds of one message each; `seconds`: the time (ns) that a method takes."""
        ways = []
        for _ in range(n):
            ways.append(self.post(key, usual))
            self.complete(seconds(ways[-1]))
        return ways


@contextlib.contextmanager
def in_a_process() -> Iterator[Program]:
    yield Program()
    lib.tempi_message_trials_stop()
    lib.tempi_message_trial_pretend(ffi.NULL)


def key_of(shape: int) -> int:
    return int(lib.tempi_message_trial_key(shape, 20, 1))


def first_place(key: int) -> int:
    return (key >> 3) % KEYS


def times(library: float, own: float, streamed: float = 0) -> Callable[[int], float]:
    return lambda method: {LIBRARY: library, OWN: own, STREAMED: streamed}[method]


def settled(ways: list[int]) -> int:
    """The method of the last rounds, but for those of a probe."""
    (method, n), *_ = collections.Counter(ways[-50:]).most_common()
    assert n >= 50 - 6
    return method


def settle_for_long(program: Program, key: int, usual: int, seconds: Callable[[int], float]) -> None:
    """The next trial comes after some thousand rounds."""
    while program.trials < 4 or lib.tempi_passing.trial_runs:
        program.rounds(key, usual, seconds, 1)
