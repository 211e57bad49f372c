"""Runs the GPU worker's timing on the emulated device, as if its times were valid, and prints the records:
`python gpu_pretend.py FOLDER`. The sizes are tiny and the times mean nothing: the test checks only that they are
taken. FOLDER receives the translated empty kernel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tempi import emulator
from tempi.bench.gpu import probes
from tempi.bench.gpu.cases import Face, Indexed, Vector
from tempi.bench.gpu.halo import Halo
from tempi.bench.workers import gpu as worker_gpu
from tempi.measure.cuda_driver import Driver

CASES = (Vector(4096, 8, 64), Vector(4096, 16, 32, True), Face(10, 1), Face(10, 2), Indexed(4096))


def main() -> None:
    folder = Path(sys.argv[1])
    for ptx in probes.MODULES:
        emulator.compile_ptx(ptx.rstrip(b"\0").decode(), folder)
    os.environ["TEMPI_EMULATOR_MODULES"] = str(folder)
    driver = Driver()
    driver.emulated = False
    plan = worker_gpu.Plan(True, 1 << 16, 1 << 12, CASES, Halo(points=6, radius=2), gather=32, oneshot=(1 << 12,))
    bench = worker_gpu.Bench(driver, plan, 0.01, 1 << 21, {"device": driver.describe()})
    for part in worker_gpu.PARTS.values():
        for record in part(bench):
            print(record.line())


if __name__ == "__main__":
    main()
