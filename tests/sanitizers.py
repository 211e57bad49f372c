"""Programs under the sanitizers: how they are started, and where ThreadSanitizer works."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

THREADS = "-fsanitize=thread"
ADDRESSES = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

CSRC = Path(__file__).resolve().parents[1] / "csrc"
#: The engine's base without the calls of other parts, for programs that link a part of it.
BASE = [
    CSRC / "base" / f"{name}.c"
    for name in ("config", "copy_bytes", "method", "thread_cache", "log", "stats", "text", "thread")
]


def exchange_program(driver: Path, folder: Path, *flags: str, wrapped: Sequence[str] = ()) -> Path:
    """The driver with the engine's base and csrc/exchange, but for what needs rings; a skip without gcc.

    `wrapped`: calls of the C library that the driver replaces.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = folder / driver.stem
    parts = [path for path in sorted((CSRC / "exchange").glob("*.c")) if path.stem not in ("exchange", "ring")]
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", *warnings, f"-I{CSRC}", "-O1", "-g1", *flags]
    wraps = [f"-Wl,--wrap={name}" for name in wrapped]
    subprocess.run([*command, driver, *BASE, *parts, *wraps, "-o", program, "-lpthread"], check=True, timeout=300)
    return program


def output(*command: object) -> str:
    """Of a program that must end well and say nothing on stderr."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def without_randomisation() -> list[str]:
    """Older ThreadSanitizers cannot start where the kernel moves a process's memory about widely."""
    found = shutil.which("setarch")
    works = found and subprocess.run([found, "-R", "true"], check=False, capture_output=True).returncode == 0
    return [found, "-R"] if found and works else []


def needs_thread_sanitizer(folder: Path) -> list[str]:
    """What its programs are started by; skips the test where they do not run."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    empty, program = folder / "empty.c", folder / "empty"
    empty.write_text("int main(void) { return 0; }\n")
    if subprocess.run(["gcc", THREADS, empty, "-o", program], check=False).returncode != 0:
        pytest.skip("gcc has no ThreadSanitizer here")
    start = without_randomisation()
    if subprocess.run([*start, program], check=False, capture_output=True).returncode != 0:
        pytest.skip("ThreadSanitizer does not start on this kernel")
    return start


def address_runtime() -> Path:
    """The library that must come before all others in a process with code under AddressSanitizer; else a skip."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    name = ["gcc", "-print-file-name=libasan.so"]
    found = Path(subprocess.run(name, capture_output=True, text=True, check=True).stdout.strip())
    if not found.is_file():
        pytest.skip("gcc has no AddressSanitizer here")
    return found


def address_reports(text: str) -> list[str]:
    """Bad accesses, and those leaks that the engine allocated."""
    found = re.findall(r"^==\d+==ERROR: AddressSanitizer:.*?(?=^==\d+==ABORTING|\Z)", text, re.M | re.S)
    for leak in re.findall(r"^(?:Direct|Indirect) leak of .*?(?=^\s*$)", text, re.M | re.S):
        frames = re.findall(r"^ +#\d+ 0x\w+ (.*)$", leak, re.MULTILINE)
        outside = [frame for frame in frames if "libasan" not in frame and "libsanitizer" not in frame]
        if outside and re.search(r"libtempi|/csrc/", outside[0]):
            found.append(leak)
    return found


def undefined_reports(text: str) -> list[str]:
    """Only the engine is built with this sanitizer."""
    return re.findall(r"^.*: runtime error: .*$", text, re.MULTILINE)
