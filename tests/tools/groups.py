"""The groups of MPI tests: what is set in their processes, which files, how many ranks, by which entries.

`make test` runs of each group what SHORT says of the MPI; `make test-more` the rest, which only repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

RANKS = (1, 2, 4)

Short = Mapping[str, Mapping[str, tuple[int, ...]]]  # of an MPI, by an entry, at these numbers of ranks

#: What `make test` runs of a group: planted faults are found there (planted.py). Of other MPIs it runs everything.
SHORT: Short = {"mpich": {"preload": (2,)}, "openmpi": {"import": (2,)}}
BASE: Short = {"mpich": {"preload": (1, 2)}, "openmpi": {"import": (2,)}}
BY_BOTH: Short = {"mpich": {"preload": (1, 2)}, "openmpi": {"import": (4,), "preload": (1,)}}
ON_MPICH: Short = {"mpich": {"preload": (2,)}, "openmpi": {}}
ON_OPENMPI: Short = {"mpich": {}, "openmpi": {"import": (2,)}}
AT_ONE: Short = {"mpich": {"preload": (1,)}, "openmpi": {}}
AT_FOUR: Short = {"mpich": {"preload": (4,)}, "openmpi": {}}
UNEVEN: Short = {"mpich": {"preload": (3,)}, "openmpi": {"import": (5,)}}
NOWHERE: Short = {"mpich": {}, "openmpi": {}}  # another group has that method on the one or the other side


COLLECTIVES = (
    "test_collectives.py",
    "test_collective_neighbors.py",
    "test_collective_outstanding.py",
    "test_collective_passing.py",
    "test_collective_requests.py",
)
#: In host memory only; between groups of different sizes on an odd number of ranks.
IN_HOST_MEMORY = ("test_collective_graphs.py", "test_collectives_between_groups.py")


@dataclass(frozen=True, slots=True)
class Group:
    settings: Mapping[str, str]
    patterns: tuple[str, ...]
    ranks: tuple[int, ...] = (2,)
    apart: tuple[str, ...] = ()  # patterns of files that are excluded
    both_entries: bool = True
    short: Short = field(default_factory=lambda: SHORT)
    hosts: bool = False  # over two hosts, which scripts/two-hosts makes
    system: bool = False  # with the MPI of the system of the same ABI
    few: tuple[str, ...] = ()  # patterns of what `make test` runs of it; none: of all

    def files(self, folder: Path, kind: str | None, repeats: bool, more: bool) -> set[Path]:
        """Of a job that only repeats, or not, what `make test` or else `make test-more` runs on that MPI."""
        taken = {path for pattern in self.patterns for path in folder.glob(pattern)}
        taken -= {path for pattern in self.apart for path in folder.glob(pattern)}
        few = {path for path in taken if any(path.match(pattern) for pattern in self.few)}
        few = few if few and kind in self.short else taken
        if repeats:
            return taken if more else set()
        return taken - few if more else few

    def entries(self, kind: str | None) -> tuple[str, ...]:
        """A variation goes by one entry, another one on Open MPI than elsewhere."""
        if self.both_entries:
            return ("preload", "import")
        return ("import",) if kind == "openmpi" else ("preload",)

    def jobs(self, kind: str | None) -> Iterator[tuple[str, int, bool]]:
        """(entry, ranks, whether it only repeats)."""
        entries = self.entries(kind)
        short = self.short.get(kind or "", dict.fromkeys(entries, self.ranks))
        for entry in entries:
            for n in self.ranks:
                yield entry, n, n not in short.get(entry, ())


def variation(
    settings: Mapping[str, str],
    *patterns: str,
    ranks: tuple[int, ...] = (2,),
    short: Short = SHORT,
    hosts: bool = False,
    system: bool = False,
    few: tuple[str, ...] = (),
) -> Group:
    """Tests of what happens behind the entry, or that run by both entries elsewhere, with something else set."""
    return Group(settings, patterns, ranks, both_entries=False, short=short, hosts=hosts, system=system, few=few)


#: Groups that `make test` runs also if its time is up: many of the others run tests of these with other settings.
ALWAYS = ("base", "fallbacks", "by rule", "device")

FORCED = {"TEMPI_FORCE": "1"}
#: By the built-in rule: this machine's calibrations do not affect the tests.
EMULATED = FORCED | {"TEMPI_CUDA_DRIVER": "emulated", "TEMPI_MODEL": "0"}
RANDOM = {"TEMPI_EMULATOR_STREAMS": "random", "TEMPI_EMULATOR_PAGEABLE": "late"}

#: The same tests with their memory on the emulated device (tests/devices.py).
DEVICE = EMULATED | {"MPITEST_MEMORY": "device"}
BOUNCED = DEVICE | RANDOM | {"TEMPI_COLLECTIVES": "library"}
FEW_ON_DEVICE = ("test_completion.py", "test_pairings.py")
PAIRINGS = ("test_pairings.py",)
ON_DEVICE = (*FEW_ON_DEVICE, "test_status.py", "test_pack.py", "test_types.py", "test_communicators.py")

#: Tests that choose their memories themselves, on two devices. They count what devices read, also where a rank gets no
#: core for a while.
DEVICES = EMULATED | RANDOM | {"TEMPI_EMULATOR_DEVICES": "2", "TEMPI_CUDA_IPC_PATIENCE": "2000000"}
OF_DEVICES = (
    "test_memories.py",
    "test_mixed.py",
    "test_self.py",
    "test_self_requests.py",
    "test_bursts.py",
    "test_device_errors.py",
    "test_driver_calls.py",
    "test_streams.py",
    "test_collective_devices.py",
    "test_collective_mixed.py",
)

#: Tests that need a setting of another group than base, which takes all files.
APART = (
    *OF_DEVICES,
    "test_bounce_*.py",
    "test_checked.py",
    "test_deferred.py",
    "test_device_*.py",
    "test_dropin_aware.py",
    "test_dropin_devices.py",
    "test_fallbacks.py",
    "test_rule_*.py",
    "test_pageable_access.py",
    "test_signatures.py",
    "test_stage.py",
)

#: Deferred sends affect all posting and completing calls, so those files run once more with them.
GROUPS: dict[str, Group] = {
    "base": Group(FORCED, ("test_*.py",), RANKS, APART, short=BASE),
    "fallbacks": Group(FORCED | {"TEMPI_COLLECTIVES": "library"}, ("test_fallbacks.py",), RANKS, short=BY_BOTH),
    "checked": variation(
        FORCED | {"TEMPI_CHECK": "1"},
        "test_pack.py",
        "test_completion.py",
        "test_pairings.py",
        "test_signatures.py",
        short=ON_MPICH,
    ),
    "deferred": variation(
        FORCED | {"TEMPI_TEST_DELAY": "7"},
        *("test_deferred.py", "test_completion.py", "test_status.py", "test_pairings.py"),
        ranks=RANKS,
    ),
    "staging": variation(FORCED | {"TEMPI_STAGE_MAX": "1M"}, "test_stage.py", ranks=RANKS),
    "by rule": variation({"TEMPI_MODEL": "0"}, "test_completion.py", "test_status.py", "test_rule_*.py"),
    "device": Group(DEVICE | RANDOM, ON_DEVICE, (1, 2)),
    "device, drop-in": Group(DEVICE | RANDOM, ("test_dropin_devices.py",), (1, 2)),
    "device, programs": Group(DEVICE | RANDOM, ("test_device_programs.py",), (1, 2)),
    "device, aware": variation(DEVICE | {"TEMPI_CUDA_AWARE": "1"}, "test_dropin_aware.py", ranks=(1,), short=AT_ONE),
    "device, one-shot": variation(DEVICE | {"TEMPI_METHOD": "oneshot"}, *FEW_ON_DEVICE, short=NOWHERE),
    "device, rows": variation(
        DEVICE | {"TEMPI_COPY_ROWS": "64"},
        *FEW_ON_DEVICE,
        "test_device_rows.py",
        short=ON_MPICH,
        few=(*PAIRINGS, "test_device_rows.py"),
    ),
    "device, staged": variation(DEVICE | {"TEMPI_METHOD": "staged"}, *FEW_ON_DEVICE, short=ON_MPICH, few=PAIRINGS),
    "device, pipelined": variation(DEVICE | {"TEMPI_METHOD": "pipelined"}, *FEW_ON_DEVICE, short=NOWHERE),
    "device, pageable": variation(
        DEVICES | {"TEMPI_STAGE_MAX": "512K", "TEMPI_COLLECTIVES": "library"}, "test_device_pageable.py", short=SHORT
    ),
    "device, unlike": variation(
        DEVICE | {"MPITEST_METHODS": "oneshot,pipelined"}, *FEW_ON_DEVICE, short=ON_MPICH, few=PAIRINGS
    ),
    "device, checked": variation(DEVICE | {"TEMPI_CHECK": "1"}, *FEW_ON_DEVICE, short=ON_MPICH, few=PAIRINGS),
    "bounce": Group(DEVICE | RANDOM, ("test_bounce_requests.py", "test_bounce_windows.py"), (1, 2)),
    "collectives, more ranks": variation(FORCED, *COLLECTIVES, *IN_HOST_MEMORY, ranks=(3, 5, 6, 7, 8), short=UNEVEN),
    "collectives, MPI of the system": variation(
        FORCED, *COLLECTIVES, *IN_HOST_MEMORY, ranks=(1, 2, 3, 4, 8), short=NOWHERE, system=True
    ),
    "types, MPI of the system": variation(FORCED, "test_types.py", short=NOWHERE, system=True),
    "device, MPI of the system": variation(
        DEVICE | RANDOM,
        *COLLECTIVES,
        ranks=(2, 4),
        short=NOWHERE,
        system=True,
    ),
    # Over the network Open MPI sleeps for milliseconds: there tests/preload has a job of each kind.
    "two hosts": variation(
        FORCED, "test_collectives*.py", "test_collective_*.py", ranks=(4,), short=AT_FOUR, hosts=True
    ),
    "device, two hosts": variation(
        DEVICE | RANDOM,
        *COLLECTIVES,
        ranks=(4,),
        short=NOWHERE,
        hosts=True,
    ),
    "device, collectives": variation(DEVICE | RANDOM, *COLLECTIVES, ranks=(2, 4)),
    # Open MPI takes seconds for each file: of these `make test` has the collectives there. None goes through shared
    # memory.
    "bounce, collectives and files": Group(
        BOUNCED, ("test_bounce_collectives.py", "test_bounce_files.py"), (1, 2), short=ON_MPICH
    ),
    "bounce, collectives": variation(BOUNCED, "test_bounce_collectives.py", ranks=(2, 4), short=ON_OPENMPI),
    # The same calls carried by tempi.
    "device, collectives by name": variation(
        DEVICE | RANDOM, "test_bounce_collectives.py", ranks=(2, 4), short=ON_MPICH
    ),
    "devices": Group(DEVICES, OF_DEVICES, (1, 2)),
    "devices, more ranks": variation(
        DEVICES, "test_collective_mixed.py", "test_driver_calls.py", ranks=(4,), short=AT_FOUR
    ),
    "devices, unlike": variation(
        DEVICES | {"MPITEST_METHODS": "staged,oneshot,pipelined"},
        "test_memories.py",
        "test_mixed.py",
        "test_bursts.py",
        short=ON_MPICH,
    ),
    "devices, at once": variation(
        DEVICES | {"TEMPI_LAUNCH_AT_ONCE": "1"},
        "test_bursts.py",
        "test_memories.py",
        "test_mixed.py",
        short=ON_MPICH,
    ),
    "devices, unordered": variation(DEVICES | {"TEMPI_STREAM_ORDER": "none"}, "test_streams.py", short=ON_MPICH),
    "devices, pageable access": variation(
        DEVICES | {"TEMPI_EMULATOR_PAGEABLE_ACCESS": "1"}, "test_pageable_access.py", short=ON_MPICH
    ),
    "devices, aware": variation(DEVICES | {"TEMPI_CUDA_AWARE": "1"}, "test_mixed.py"),
    "devices, checked": variation(
        DEVICES | {"TEMPI_CHECK": "1"},
        "test_checked.py",
        "test_mixed.py",
        "test_self*.py",
        "test_bursts.py",
        short=ON_MPICH,
    ),
    "devices, staged": variation(DEVICES | {"TEMPI_METHOD": "staged"}, "test_mixed.py", short=NOWHERE),
    "devices, pipelined": variation(DEVICES | {"TEMPI_METHOD": "pipelined"}, "test_mixed.py", short=NOWHERE),
}
