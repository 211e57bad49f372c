"""Runs the tests of installing (`make test-install`): ``python tests/tools/install.py VENV [--order WORD] [--part P]``

VENV has tempi and pytest, dist the wheel (for the part `wheel`; the other one is `sources`). Each Python installs the
sources in a step of its own, the longest there are; with --order only one does, which WORD draws, and with the newest
packages alone. The last line is `N passed, N failed, N skipped`.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "install"))

import pythons
import suite


def step(name: str, only: str = "", marked: str = "") -> suite.Step:
    file = str(suite.ROOT / "tests" / "install" / f"test_{name}.py")
    words = (*suite.pytest_of(file, marked=marked), *(("-k", only) if only else ()))
    return suite.Step(f"install, {name}" + (f", {only}" if only else ""), words, limit=1500.0)


def steps(order: str | None, part: str) -> list[suite.Step]:
    """The longest first."""
    drawn = [version for version in pythons.VERSIONS if pythons.interpreter(version)]
    if order is not None:
        drawn = [random.Random(order).choice(drawn)]
        print(f"install, clone: Python {drawn[0]} alone; `make test-install` has all")
    marked = "" if order is None else "not more"
    others = "not (" + " or ".join(pythons.VERSIONS) + ")"
    sources = [*(step("clone", version, marked) for version in drawn), step("clone", others)]
    return {"wheel": [step("wheel")], "sources": sources}.get(part, [sources[0], step("wheel"), *sources[1:]])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("venv", type=Path)
    parser.add_argument("--order", metavar="WORD")
    parser.add_argument("--part", choices=["wheel", "sources"], default="")
    options = parser.parse_args()
    environment = suite.environment_of(options.venv.resolve(), None)
    kept = {k: v for k, v in os.environ.items() if not re.match("TEMPI_(?!MPI_PREFIX)|LD_PRELOAD$", k)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    total, start = suite.Tally(), time.monotonic()
    for _, tally in suite.run(steps(options.order, options.part), environment, kept, len(os.sched_getaffinity(0))):
        total.add(tally)
    print(f"installing in {time.monotonic() - start:.0f} s:")
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
