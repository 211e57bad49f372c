"""Each call of the CUDA driver fails once, or loses the device, under messages of an MPI program: what arrives is
right, or MPI says that it failed, and nothing is left behind. On the emulated device.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from preload.toolchains import ENGINE, HERE, Toolchain, preloaded, toolchains

DRIVER = HERE.parents[1] / "csrc" / "cuda" / "driver.h"
LIBRARY = ENGINE.with_name("libtempi-cuda.so")
STEPS = 48

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="this build has no emulated CUDA")

#: The possible results of a failure of each driver function. "right": every message still arrives. A kind of
#: object: it leaks, since freeing it failed. "unused": no message calls the function, and why.
FUNCTIONS = {
    "Init": "unused: the program has done it; for tempi doctor",
    "GetErrorName": "unused: names failures of other functions, but not its own",
    "DriverGetVersion": "unused: for tempi doctor",
    "DeviceGetCount": "unused: for tempi doctor",
    "DeviceGetName": "unused: for tempi doctor",
    "CtxGetDevice": "unused: for memory of pools while a context of the program's own is current",
    "EventElapsedTime": "unused: for tempi bench",
    "Memcpy2DAsync": "unused: kernels do what it does",
    "DeviceGet": "right",
    "DeviceGetAttribute": "right",
    "DeviceTotalMem": "right",
    "DevicePrimaryCtxRetain": "right",
    "DevicePrimaryCtxRelease": "right",
    "DevicePrimaryCtxGetState": "right",
    "CtxGetCurrent": "right",
    "CtxPushCurrent": "right, unused: the program's context is the one",
    "CtxPopCurrent": "right, unused: as CtxPushCurrent",
    "MemRangeGetAttribute": "right, unused: for devices that access pageable memory",
    "PointerGetAttribute": "right",
    "PointerGetAttributes": "right",
    "MemAlloc": "right",
    "MemFree": "device",
    "MemHostAlloc": "right, unused: for devices with addresses of their own for registered memory",
    "MemFreeHost": "host, unused: as MemHostAlloc",
    "MemHostRegister": "right",
    "MemHostUnregister": "registered",
    "PointerSetAttribute": "unused: as IpcGetMemHandle; the emulated driver lacks it",
    "IpcGetMemHandle": "unused: between processes, see tests/mpi/test_collective_devices.py",
    "IpcOpenMemHandle": "unused: as IpcGetMemHandle",
    "IpcCloseMemHandle": "unused: as IpcGetMemHandle",
    "MemsetD8Async": "right, unused: for streams that wait for the default stream, or are waited for",
    "MemcpyAsync": "right",
    "MemcpyBatchAsync": "right, unused: for several staged messages",
    "StreamCreate": "right, unused: for drivers without priorities",
    "StreamCreateWithPriority": "right",
    "CtxGetStreamPriorityRange": "right",
    "StreamQuery": "right",
    "StreamIsCapturing": "right, unused: for streams that the program names",
    "StreamWriteValue32": "right",
    "StreamDestroy": "stream",
    "StreamSynchronize": "right, unused: only after a failure",
    "StreamWaitEvent": "right, unused: for pipelined messages, and streams that wait for each other",
    "EventCreate": "right, unused: as StreamWaitEvent",
    "EventDestroy": "event, unused: as StreamWaitEvent",
    "EventRecord": "right, unused: as StreamWaitEvent",
    "EventQuery": "right, unused: for drivers that write no flags",
    "EventSynchronize": "right, unused: as EventQuery",
    "ModuleLoadData": "right",
    "ModuleUnload": "module",
    "ModuleGetFunction": "right",
    "FuncLoad": "right",
    "OccupancyMaxActiveBlocksPerMultiprocessor": "right",
    "LaunchKernel": "right",
    "ThreadExchangeStreamCaptureMode": "right",
}
#: Called at each poll of a batch, so their number depends on how long the device takes.
POLLED = ("CtxGetCurrent", "PointerGetAttribute", "StreamQuery", "ThreadExchangeStreamCaptureMode")
TRIED = [name for name, outcome in FUNCTIONS.items() if not outcome.startswith("unused")]
USED = [name for name, outcome in FUNCTIONS.items() if "unused" not in outcome]


def chains() -> list[Toolchain]:
    """One of each MPI."""
    return list({chain.abi: chain for chain in toolchains() if chain.abi != "standard"}.values())


every_mpi = pytest.mark.parametrize("mpi", chains(), ids=lambda chain: chain.name)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failing")


class Outcome:
    """The output of one run, and the driver's record of calls and leaks."""

    def __init__(self, mpi: Toolchain, folder: Path, *rule: str, **given: str) -> None:
        program, report = folder / f"failing-{mpi.name}", folder / f"report-{mpi.name}.json"
        report.unlink(missing_ok=True)
        if not program.exists():
            mpi.compile(program, HERE / "failing.c", f"-I{HERE}")
        settings: dict[str, Any] = {"TEMPI_FORCE": "1", "TEMPI_EMULATOR_REPORT": str(report)} | given
        settings |= {"TEMPI_CUDA_DRIVER": "emulated", "DEVICE_LIBRARY": str(LIBRARY), "LD_PRELOAD": preloaded()}
        self.run = mpi.run(program, *rule, **settings)
        assert self.run.returncode == 0, self.run.stdout + self.run.stderr
        assert self.run.stdout.endswith("end\n"), self.run.stdout
        self.steps = Counter(line.split()[0] for line in self.run.stdout.splitlines() if " of " in line)
        assert sum(self.steps.values()) == STEPS
        assert self.steps["WRONG"] == 0, self.run.stdout
        read_report = json.loads(report.read_text())
        self.left = {kind: n for kind, n in read_report["live"].items() if n}
        self.calls = {re.sub(r"^cu|_v2$", "", name): n for name, n in read_report["calls"].items()}


def calls_to_fail(name: str, made: int, part: int) -> list[tuple[str, str]]:
    """The first call of a function, and one at 1/`part` of a run in which it is called `made` times: which call,
    counted from which step on."""
    later = ("1", str(STEPS // part)) if name in POLLED else (str(max(1, made // part)), "0")
    return sorted({("1", "0"), later})


@pytest.fixture(scope="module")
def clean(programs: Path) -> dict[str, Outcome]:
    """Runs without a failure."""
    return {mpi.name: Outcome(mpi, programs) for mpi in chains()}


def test_every_function_of_the_driver_has_a_case() -> None:
    members = re.findall(r"^    X\([01], (\w+), ", DRIVER.read_text(), re.MULTILINE)
    assert sorted(members) == sorted(FUNCTIONS)


@every_mpi
def test_without_failures_all_is_right_and_every_used_function_is_called(
    mpi: Toolchain, clean: dict[str, Outcome]
) -> None:
    done = clean[mpi.name]
    assert done.steps == {"right": STEPS}
    assert done.left == {}
    assert [name for name in USED if not done.calls.get(name)] == []


@every_mpi
@pytest.mark.parametrize("name", TRIED)
@pytest.mark.once
def test_one_failure(mpi: Toolchain, clean: dict[str, Outcome], programs: Path, name: str) -> None:
    made = clean[mpi.name].calls.get(name, 0)
    for k, step in calls_to_fail(name, made, 2):
        done = Outcome(mpi, programs, f"cu{name}", k, step)
        assert done.steps == {"right": STEPS}, (k, step, done.run.stdout)
        kind = FUNCTIONS[name].split(",")[0]
        assert done.left in ({}, {kind: 1}), (k, step)


#: Calls that set up a program's own context, and check whether it still exists.
OF_CONTEXTS = ("PointerGetAttribute", "PointerGetAttributes", "DevicePrimaryCtxGetState", "DevicePrimaryCtxRetain",
               "DeviceGet", "MemAlloc", "StreamCreateWithPriority", "ModuleLoadData")  # fmt: skip


@every_mpi
@pytest.mark.parametrize("name", OF_CONTEXTS)
@pytest.mark.once
def test_one_failure_in_a_context_of_the_programs_own(mpi: Toolchain, programs: Path, name: str) -> None:
    for k in (1, 2, 5):
        done = Outcome(mpi, programs, f"cu{name}", str(k), "0", DEVICE_OWN_CONTEXT="1")
        assert done.calls["CtxCreate"] == 1
        assert done.steps == {"right": STEPS}, (k, done.run.stdout)
        assert done.left == {}, k


@every_mpi
@pytest.mark.parametrize(
    "name", ["PointerGetAttributes", "MemAlloc", "MemHostRegister", "MemcpyAsync", "StreamCreateWithPriority",
             "StreamQuery", "StreamWriteValue32", "ModuleLoadData", "LaunchKernel"]
)  # fmt: skip
@pytest.mark.once
def test_a_lost_device(mpi: Toolchain, clean: dict[str, Outcome], programs: Path, name: str) -> None:
    """The current message and all later ones end with an error; the program continues to its end."""
    for k, step in calls_to_fail(name, clean[mpi.name].calls[name], 3):
        done = Outcome(mpi, programs, f"cu{name}", k, step, "lost")
        assert set(done.steps) <= {"right", "error", "gone"}
        assert done.steps["gone"] or done.steps["error"]
        assert "device memory is left to the MPI library from now on" in done.run.stderr


@every_mpi
def test_failures_of_streams_that_run_at_any_time(mpi: Toolchain, programs: Path) -> None:
    for k in ("5", "40", "160"):
        done = Outcome(mpi, programs, "any", k, "0", "999", TEMPI_EMULATOR_STREAMS="random")
        assert set(done.steps) <= {"right", "error"}
