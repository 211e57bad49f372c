"""C programs with memory of the emulated devices: forks, threads, contexts, CUDA that comes late or goes early."""

from __future__ import annotations

from pathlib import Path

import pytest

from preload.test_device_failures import LIBRARY, every_mpi
from preload.toolchains import HERE, Toolchain, counter, preloaded

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="this build has no emulated CUDA")

#: Lines "ok ..." that each case prints, and messages of device memory that tempi carries a rank.
CASES = {"fork": (3, 2), "gone": (2, 2), "late": (2, 2), "threads": (4, 160), "contexts": (6, 6)}
BANNER = "emulated: CUDA on the CPU, a test device; no time measured on it says anything about a GPU"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devices")


@every_mpi
@pytest.mark.parametrize("case", CASES)
def test_device_memory_at_lifes_edges(mpi: Toolchain, programs: Path, case: str) -> None:
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
    assert counter(run.stderr, "device_packs") == counter(run.stderr, "device_unpacks")
    least = messages if case in ("threads", "contexts") else messages // 2
    assert (counter(run.stderr, "device_packs") or 0) >= 2 * least
    said = [line for line in run.stderr.splitlines() if "tempi[" in line and not line.endswith(BANNER)]
    assert said == []
