"""Programs under the sanitizers: how they are started, and where ThreadSanitizer works."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

THREADS = "-fsanitize=thread"

CSRC = Path(__file__).resolve().parents[1] / "csrc"
#: The engine's base without the calls of other parts, for programs that link a part of it.
BASE = [CSRC / "base" / f"{name}.c" for name in ("config", "method", "thread_cache", "log", "stats", "thread")]


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
