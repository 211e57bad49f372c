"""A Slurm of one node in a folder: munged, slurmctld and slurmd of its own, which end with it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Slurm", "missing", "started"]

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo")
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
PATIENCE = 60.0  # seconds that the daemons have to answer
CPUS = 8  # that the node is said to have: so many ranks may run there

CONFIGURATION = """\
ClusterName=tempi
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=100 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=60 State=UP
"""


def missing() -> str | None:
    """Why it cannot be started here."""
    lacking = [name for name in TOOLS if shutil.which(name, path=PATH) is None]
    if lacking:
        return f"no {', '.join(lacking)} here: apt install slurm-wlm munge"
    return None if os.geteuid() == 0 else "only root may start a slurmd that starts jobs"


@dataclass(frozen=True, slots=True)
class Slurm:
    """`run` starts one of its commands."""

    folder: Path

    def run(self, *words: object, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        others = ("SLURM_", "PMI", "OMPI_COMM", "TEMPI_", "LD_PRELOAD")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        own = kept | {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")} | variables
        return subprocess.run(
            list(map(str, words)), env=own, cwd=cwd, capture_output=True, text=True, timeout=180, check=False
        )

    def kinds(self) -> set[str]:
        """Ways to start an MPI that `srun --mpi=list` names."""
        output = self.run("srun", "--mpi=list")
        return set((output.stdout + output.stderr).split())


def _ports(n: int) -> list[int]:
    """That many unused ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _daemon(folder: Path, *words: str) -> Iterator[None]:
    with (folder / f"{words[0]}.log").open("w") as log:
        environment = os.environ | {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until(folder: Path, what: str, words: Sequence[str]) -> None:
    """Asks again until the answer is there."""
    deadline = time.monotonic() + PATIENCE
    while (output := Slurm(folder).run(*words).stdout.strip()) != what:
        if time.monotonic() > deadline:
            logs = "".join(path.read_text() for path in folder.glob("*.log"))
            raise AssertionError(f"{' '.join(words)}: {output!r}, not {what!r}\n{logs}")
        time.sleep(0.2)


@contextmanager
def started(folder: Path) -> Iterator[Slurm]:
    """Three daemons; none is left."""
    host = socket.gethostname().partition(".")[0]
    controller, daemon = _ports(2)
    user = pwd.getpwuid(os.geteuid()).pw_name
    for name in ("state", "spool"):
        (folder / name).mkdir()
    folder.chmod(0o755)  # munged refuses a folder that others may write to
    text = CONFIGURATION.format(host=host, controller=controller, daemon=daemon, folder=folder, user=user, cpus=CPUS)
    (folder / "slurm.conf").write_text(text)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    with ExitStack() as stack:
        stack.enter_context(
            _daemon(folder, "munged", "--force", "--foreground", f"--socket={folder}/munge.socket", *files)
        )
        stack.enter_context(_daemon(folder, "slurmctld", "-D", "-i"))
        stack.enter_context(_daemon(folder, "slurmd", "-D", "-N", host))
        _until(folder, "idle", ("sinfo", "--noheader", "--format=%t"))
        yield Slurm(folder)
