"""Runs the tests of installing: ``python tests/tools/install.py VENV``, of `make test-install`.

VENV has tempi and pytest, dist the wheel. The last line is `N passed, N failed, N skipped`.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import suite


def main(venv: Path) -> int:
    environment = suite.environment_of(venv.resolve(), None)
    files = [str(suite.ROOT / "tests" / "install" / f"test_{name}.py") for name in ("clone", "wheel")]
    steps = [suite.Step(f"install, {Path(f).stem}", suite.pytest_of(f), limit=1500.0) for f in files]
    kept = {k: v for k, v in os.environ.items() if not re.match("TEMPI_(?!MPI_PREFIX)|LD_PRELOAD$", k)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    total, start = suite.Tally(), time.monotonic()
    for _, tally in suite.run(steps, environment, kept, len(os.sched_getaffinity(0))):
        total.add(tally)
    print(f"installing in {time.monotonic() - start:.0f} s:")
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
