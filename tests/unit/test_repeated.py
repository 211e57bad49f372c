"""Messages that need not be examined again (csrc/choose/repeated.h), compiled by itself."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI

from tempi import _engine

CSRC = Path(__file__).resolve().parents[2] / "csrc"
LIBRARY, OWN, ON_TRIAL = 1, 2, 4
ANY, WORD, EXAMINED = 1 << LIBRARY | 1 << OWN, 17, 32
SIZES = {
    1000: 255,
    10_000: 255,
    20_000: 63,
    100_000: 15,
    1_000_000: 3,
}  # bytes, and how many messages pass for each that is examined

SOURCE = """
#include "choose/repeated.h"
tempi_message_words words;
tempi_passing_state tempi_passing;
uint32_t tempi_message_completions[2];
static tempi_repeated repeated;
void with_trials(_Bool on) { tempi_passing.trials = on ? &words : NULL; }
void set_word(int i, uint64_t value) { words.ways[i] = value; }
uint64_t key(uint64_t comm, int rank, int64_t count) { return tempi_repeated_key(comm, rank, count); }
int pass(uint64_t key, unsigned methods) { return tempi_repeated_pass(&repeated, key, methods); }
unsigned passed(uint64_t key, int64_t bytes) { return tempi_repeated_passed(&repeated, key, bytes); }
void note(uint64_t key, int64_t bytes, unsigned i, int method)
{ tempi_repeated_note(&repeated, key, bytes, i, method); }
"""


@pytest.fixture
def lib(tmp_path: Path) -> Any:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    (tmp_path / "repeated.c").write_text(SOURCE)
    made = tmp_path / "repeated.so"
    # Bound to itself: the engine exports names of this library too, and other tests have made them global.
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-Wl,-Bsymbolic", f"-I{CSRC}"]
    subprocess.run(["gcc", *flags, tmp_path / "repeated.c", "-o", made], check=True)
    ffi = FFI()
    ffi.cdef(
        "void with_trials(bool on); void set_word(int i, uint64_t value);"
        "uint64_t key(uint64_t comm, int rank, int64_t count); int pass(uint64_t key, unsigned methods);"
        "unsigned passed(uint64_t key, int64_t bytes);"
        "void note(uint64_t key, int64_t bytes, unsigned i, int method);"
    )
    return ffi.dlopen(str(made))


def learn(lib: Any, key: int, bytes_: int, method: int) -> None:
    for _ in range(EXAMINED):
        assert getattr(lib, "pass")(key, ANY) == 0
        lib.note(key, bytes_, WORD, method)


@pytest.mark.parametrize("bytes_", SIZES)
@pytest.mark.parametrize("method", [LIBRARY, OWN])
@pytest.mark.parametrize("trials", [False, True])
def test_a_message_passes_after_some_were_examined(lib: Any, bytes_: int, method: int, trials: bool) -> None:
    lib.with_trials(trials)
    key, passes = lib.key(3, 1, 1), getattr(lib, "pass")
    learn(lib, key, bytes_, method)
    for _ in range(3):
        assert [passes(key, ANY) for _ in range(SIZES[bytes_])] == [method] * SIZES[bytes_]
        assert passes(key, ANY) == 0
        assert lib.passed(key, bytes_) == SIZES[bytes_]
        lib.note(key, bytes_, WORD, method)


def test_the_engine_keeps_its_own_trials(lib: Any) -> None:
    """Else its pointer is left to a library that is unloaded, and the next test reads there."""
    engine = ctypes.CDLL(_engine.library_path())
    lib.with_trials(True)
    assert ctypes.c_void_p.in_dll(engine, "tempi_passing").value is None  # its first member


def test_only_the_same_message_passes(lib: Any) -> None:
    passes = getattr(lib, "pass")
    learn(lib, lib.key(3, 1, 1), 1000, OWN)
    for other in ((4, 1, 1), (3, 2, 1), (3, 1, 2), (3, -1, 1)):
        assert passes(lib.key(*other), ANY) == 0
    assert passes(lib.key(3, 1, 1), 1 << LIBRARY) == 0
    assert passes(lib.key(3, 1, 1), 1 << OWN) == OWN


def test_messages_that_programs_have_side_by_side_have_keys_of_their_own(lib: Any) -> None:
    """Handles that are small numbers (MPICH) or addresses, all ranks of a node, counts up to 2^31."""
    comms = [0x44000000, 0x44000001, 0x84000000, 0x84000003, 0x7F12_3456_7890, 0x7F12_3456_78F0, 0x5555_6000_0040]
    counts = [1, 2, 3, 4, 8, 64, 128, 192, 1000, 1024, 65536, 1 << 20, (1 << 20) + 8, (1 << 31) - 1]
    messages = [(comm, rank, count) for comm in comms for rank in (-2, -1, *range(128), 1 << 20) for count in counts]
    keys = {lib.key(*one) for one in messages}
    assert len(keys) == len(messages)
    assert all(key % (1 << 29) == 0 for key in keys)  # the lower bits are for the method


def test_none_passes_while_its_method_is_on_trial_or_after_it_has_changed(lib: Any) -> None:
    lib.with_trials(True)
    key, passes = lib.key(3, 1, 1), getattr(lib, "pass")
    learn(lib, key, 1000, OWN)
    for word, method in ((0, OWN), (OWN, OWN), (OWN | ON_TRIAL, 0), (LIBRARY | ON_TRIAL, 0), (LIBRARY, 0), (OWN, OWN)):
        lib.set_word(WORD, 0xABC << 3 | word)
        assert passes(key, ANY) == method
        lib.set_word(WORD + 1, 0xABC << 3 | LIBRARY | ON_TRIAL)  # another message's
        assert passes(key, ANY) == method
