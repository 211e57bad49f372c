"""C programs with memory of emulated devices: forks, threads, contexts, CUDA that is loaded late or unloaded early."""

from __future__ import annotations

from pathlib import Path

import pytest

from preload.test_device_failures import LIBRARY, every_mpi
from preload.toolchains import HERE, Toolchain, counter, preloaded

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="this build has no emulated CUDA")

#: Lines "ok ..." that each case prints, and messages of device memory that tempi carries a rank.
CASES = {
    "fork": (3, 2),
    "gone": (2, 2),
    "late": (2, 2),
    "threads": (4, 160),
    "contexts": (6, 6),
    "own": (3, 27),
    "destroyed": (3, 41),
    "reset": (6, 5),
    "elsewhere": (6, 6),
    "opened": (1, 1),
    "early": (3, 1),
    "selves": (1, 0),
}
#: Contexts of the program's own that memory was met in, and those that were gone by the end, over both ranks.
CONTEXTS = {"own": (6, 0), "destroyed": (82, 82), "reset": (0, 8), "elsewhere": (8, 0)}
BANNER = "emulated: CUDA on the CPU, a test device; no time measured on it says anything about a GPU"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devices")


@every_mpi
@pytest.mark.parametrize("case", CASES)
def test_device_memory_at_the_end_of_contexts_threads_and_processes(mpi: Toolchain, programs: Path, case: str) -> None:
    program = programs / f"devices-{mpi.name}"
    if not program.exists():
        mpi.compile(program, HERE / "devices.c", f"-I{HERE}")
    run = mpi.run(
        program,
        case,
        ranks=2,
        LD_PRELOAD=preloaded(),
        DEVICE_LIBRARY=str(LIBRARY),
        TEMPI_CUDA_DRIVER="emulated",
        TEMPI_EMULATOR_DEVICES="2",
        TEMPI_EMULATOR_STREAMS="random",
        TEMPI_STATS="1",
    )
    lines, messages = CASES[case]
    assert run.returncode == 0, run.stdout + run.stderr
    assert sum(line.startswith("ok ") for line in run.stdout.splitlines()) == lines, run.stdout
    if case != "selves":  # whose host memory is not packed by a device
        # Of a receive whose memory is gone with its context the launch fails.
        failed = 2 if case in ("destroyed", "reset") else 0
        assert (counter(run.stderr, "device_packs") or 0) + failed == counter(run.stderr, "device_unpacks")
    # The pending work of one thread when the others begin depends on their timing.
    assert bool(counter(run.stderr, "self_moves")) == (case == "selves")
    # Each rank has a receive whose memory goes with its context.
    assert (counter(run.stderr, "device_errors") or 0) == (2 if case in ("destroyed", "reset") else 0)
    least = messages if case in ("threads", "contexts", *CONTEXTS) else messages // 2
    assert (counter(run.stderr, "device_packs") or 0) >= 2 * least
    met = (counter(run.stderr, "contexts") or 0, counter(run.stderr, "contexts_gone") or 0)
    assert met == CONTEXTS.get(case, (0, 0))
    assert not counter(run.stderr, "cuda_failures")
    said = [line for line in run.stderr.splitlines() if "tempi[" in line and not line.endswith(BANNER)]
    assert said == []
