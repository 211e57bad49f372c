"""Messages that wait in shared memory, from C: under the sanitizers, between processes and threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanitizers import ADDRESSES, THREADS, exchange_program, needs_thread_sanitizer, output

HERE = Path(__file__).resolve().parent
WRAPPED = ("posix_fallocate", "mmap", "munmap", "realloc", "process_vm_readv")
KEPT = (64 << 10) + (16 << 10)  # KiB of free blocks: long ones, and all the others of these tests


def build(folder: Path, *flags: str) -> Path:
    return exchange_program(HERE / "post_driver.c", folder, *flags, wrapped=WRAPPED)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"), *ADDRESSES)


def numbers(text: str) -> list[list[int]]:
    return [[int(word) for word in line.split() if word.isdigit()] for line in text.splitlines()]


def exchanged_enough(counts: list[list[int]]) -> bool:
    """Whether messages have waited, been used early, been offered, and offers been withdrawn or refused; been stored by
    their senders, and read where these did not come."""
    unread, early, offered, *others = zip(*counts, strict=True)
    return max(unread) > 100 and min(early) > 50 and min(offered) > 5 and min(map(sum, others)) > 0


@pytest.mark.parametrize("members", [2, 4])
def test_every_byte_arrives_whenever_it_is_read(driver: Path, folder: Path, members: int) -> None:
    # How often each happens hangs on when the processes run: what one exchange lacks another one has.
    total = [[0] * 7 for _ in range(members)]
    for seed in range(members, members + 40, 4):
        seen = numbers(output(driver, "processes", folder, members, 1000, seed))
        total = [[sum(pair) for pair in zip(*rows, strict=True)] for rows in zip(total, seen, strict=True)]
        if exchanged_enough(total):
            return
    pytest.fail(f"unread, early, offered, withdrawn, refused, stored, waited: {total}")


@pytest.mark.parametrize("seed", range(20, 30))
@pytest.mark.more
def test_every_byte_arrives_with_other_seeds(driver: Path, folder: Path, seed: int) -> None:
    output(driver, "processes", folder, 3, 3000, seed)
    output(driver, "left", folder, 1500, seed)


def test_thousands_wait_and_their_memory_is_used_again(driver: Path, folder: Path) -> None:
    turns = numbers(output(driver, "unread", folder, 3000, 5))
    assert len(turns) == 4
    for turn, (most, kept, left) in enumerate(turns):
        assert most > 2 * KEPT
        assert kept < KEPT
        assert left == kept if turn % 2 == 0 else left < kept / 3
    assert turns[3][1] - turns[1][1] < 4 << 10


def test_a_long_message_takes_little_more_memory_than_it_has_bytes(driver: Path, folder: Path) -> None:
    """They begin a little behind their block's start on some processors."""
    assert 32 << 10 <= numbers(output(driver, "memory", folder, 3))[0][0] <= (32 << 10) + 8


def test_what_is_sent_stays_when_its_sender_has_ended(driver: Path, folder: Path) -> None:
    output(driver, "left", folder, 800, 6)


def test_a_file_without_a_folder_serves_as_well(driver: Path) -> None:
    output(driver, "processes", "-", 3, 500, 9)
    output(driver, "left", "-", 800, 6)


def test_a_file_of_that_path_but_with_another_number_is_not_opened(driver: Path) -> None:
    output(driver, "another", "-")


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.more)])
def test_failures_lose_nothing_and_keep_nothing(driver: Path, folder: Path, step: int) -> None:
    """Memory, mappings: what was sent arrives, what could not be sent says so, and later all works again."""
    ((unsent, unmapped),) = numbers(output(driver, "failing", folder, step, 7))
    assert unsent > 100
    assert unmapped > 20


def test_a_signal_does_not_take_memory_away(driver: Path, folder: Path) -> None:
    """posix_fallocate on shared memory ends with EINTR where a timer's signal is pending."""
    output(driver, "interrupted", folder, 8)


def test_a_long_message_goes_in_parts_of_which_few_wait(driver: Path, folder: Path) -> None:
    """Or all, if they are to be unpacked while later ones are packed."""
    assert numbers(output(driver, "parts", folder, 7)) == [[10, 2], [10, 10]]


def test_a_limit_of_file_sizes_does_not_end_the_process(driver: Path, folder: Path) -> None:
    """Beyond it the system sends SIGXFSZ."""
    output(driver, "limited", folder)
    output(driver, "limited", "-")


def test_threads_do_not_race(tmp_path: Path, folder: Path) -> None:
    start = needs_thread_sanitizer(tmp_path)
    program = build(tmp_path, THREADS)
    for members, messages in ((2, 600), (3, 300)):
        assert len(numbers(output(*start, program, "threads", folder, members, messages, members))) == members
