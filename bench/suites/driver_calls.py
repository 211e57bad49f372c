"""``tempi bench driver-calls``: calls of the CUDA driver for a message and for a halo exchange.

Counted by the emulated driver: exact, and the same on a card as long as no wait has to query. Nothing is timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from tempi.bench import suite
from tempi.measure import launch, records
from tempi.measure.records import Record

CASES = 10
#: The most calls of one rank that `run` accepts without a remark.
MOST = {"send": 6, "receive": 6, "exchange": 16, "Neighbor_alltoallw": 20}


def above(found: Sequence[Record]) -> list[Record]:
    """Those with more calls than their target."""
    return [record for record in found if record.meta["calls"] > MOST[record.op]]


def table(found: Sequence[Record]) -> Table:
    made = Table(title="Calls of the CUDA driver by one rank, in the steady state")
    for name in ("messages", "op"):
        made.add_column(name)
    for name in ("calls", "at most"):
        made.add_column(name, justify="right")
    made.add_column("by function")
    for record in found:
        each = ", ".join(f"{n} {name}" for name, n in record.meta["each"].items())
        made.add_row(record.case, record.op, str(record.meta["calls"]), str(MOST[record.op]), each)
    return made


def _records(common: suite.Common) -> Iterator[Record]:
    launcher = launch.find_launcher(common.mpirun)
    variables = {"TEMPI_CUDA_DRIVER": "emulated", "TEMPI_EMULATOR_STREAMS": "immediate", "TEMPI_MODEL": "0"}
    yield from launch.run_worker(launcher, "tempi.bench.workers.driver_calls", (), ranks=2, variables=variables)


def run(common: suite.Common) -> list[Record]:
    """Counts, writes and prints."""
    found = suite.gather(_records(common), CASES, "driver calls")
    if common.json:
        records.write(common.json, found)
    console = common.console()
    console.print(table(found))
    console.print(f"{len(above(found))} of {len(found)} above their target", highlight=False)
    return found
