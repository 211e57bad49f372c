"""Builds the engine: libtempi.so, and one libtempi-<abi>.so for each MPI ABI whose mpi.h is found.

    python csrc/build.py --out DIR [--work DIR]

setup.py uses it; on its own it is the quick way to build in a working tree. Only changed files are
compiled again. CC, CFLAGS and LDFLAGS are honoured; TEMPI_MPI_PREFIX adds MPI installations (or compiler
wrappers) to those of this Python's own environment and of the PATH.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

CSRC = Path(__file__).resolve().parent
sys.path.insert(0, str(CSRC))

from table import generate  # noqa: E402  (only after the path is known)

KERNELS = CSRC.parent / "build" / "kernels"  # compiled by setup.py or python -m tempi.kernels --out
NEUTRAL = (
    "base",
    "topology",
    "datatype",
    "pack",
    "memory",
    "cuda",
    "choose",
    "exchange",
    "transfer",
    "api",
    "interposer",
)
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes")
# Threads of programs may have stacks of 64 KiB.
FRAME = "-Wframe-larger-than=12800"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", *WARNINGS, FRAME)
# GCC clears structures of some hundred bytes by `rep stos`, which takes long to begin: with stores a collective of half
# a microsecond took 20 to 40 ns less on Zen 4, the only processor measured. Not all compilers know this flag.
CLEAR = "-mmemset-strategy=vector_loop:512:noalign,libcall:-1:noalign"
# nodelete: the slots and callbacks registered with the MPI point into this code, so it must stay loaded.
# noseparate-code: fewer segments, because every process that inherits LD_PRELOAD pays for loading them.
LINK = (
    "-shared",
    "-Wl,-z,noseparate-code",
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
    "-Wl,-z,nodelete",
    "-Wl,--as-needed",
)
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}  # trampolines


class BuildError(Exception):
    """The engine cannot be built; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Mpi:
    """One mpi.h: its ABI, its version for comparison, and the flags that find it."""

    abi: str
    version: tuple[int, ...]
    flags: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.abi} {'.'.join(map(str, self.version))} ({' '.join(self.flags)})"


def compiler() -> list[str]:
    """CC, or the system's C compiler."""
    for candidate in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    raise BuildError("no C compiler found: install gcc, or name one with CC=...")


def target_machine(cc: list[str]) -> str:
    """The compiler's target machine, which may differ from the host."""
    run = subprocess.run([*cc, "-dumpmachine"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BuildError(f"{shlex.join(cc)} -dumpmachine fails: is it a C compiler?")
    return run.stdout.strip().split("-")[0]


# ---- finding mpi.h ---------------------------------------------------------------------------------


def wrapper_flags(wrapper: str) -> tuple[str, ...]:
    """The -I and -D flags of an mpicc of any MPI."""
    for option in ("--showme:compile", "-show", "-compile-info"):
        try:
            run = subprocess.run([wrapper, option], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ()
        if run.returncode == 0:
            return tuple(w for w in shlex.split(run.stdout) if w.startswith(("-I", "-D")))
    return ()


def prefix_flags(prefix: Path) -> tuple[str, ...]:
    """The flags for the mpi.h of an installation, or of a compiler wrapper given instead."""
    if prefix.is_file():
        return wrapper_flags(str(prefix))
    include = prefix / "include"
    if (include / "mpi.h").is_file():
        return (f"-I{include}",)
    wrapper = prefix / "bin" / "mpicc"
    return wrapper_flags(str(wrapper)) if wrapper.is_file() else ()


def candidates() -> Iterable[tuple[str, ...]]:
    """Candidate flags for finding an mpi.h."""
    named = os.environ.get("TEMPI_MPI_PREFIX", "").split(os.pathsep)
    own = (sys.prefix, str(Path(sys.executable).parent.parent), sys.base_prefix)
    for prefix in dict.fromkeys((*named, *own)):
        if prefix and (flags := prefix_flags(Path(prefix))):
            yield flags
    for name in ("mpicc", "mpicc.openmpi", "mpicc.mpich"):
        if (path := shutil.which(name)) and (flags := wrapper_flags(path)):
            yield flags


def identify(cc: list[str], flags: tuple[str, ...]) -> Mpi | None:
    """The ABI of an mpi.h, by its macros; None if it is unsupported or unreadable."""
    run = subprocess.run(
        [*cc, *flags, "-E", "-dM", "-x", "c", "-"],
        input="#include <mpi.h>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        return None
    macros = dict(re.findall(r"^#define (\w+) (.*)$", run.stdout, re.MULTILINE))

    def numbers(*names: str) -> tuple[int, ...]:
        return tuple(int(macros.get(name, "0")) for name in names)

    if "OMPI_MAJOR_VERSION" in macros:
        names = ("OMPI_MAJOR_VERSION", "OMPI_MINOR_VERSION", "OMPI_RELEASE_VERSION")
        return Mpi("openmpi", numbers(*names), flags)
    if "MPICH_VERSION" in macros:
        version = tuple(int(n) for n in re.findall(r"\d+", macros["MPICH_VERSION"])[:3])
        return Mpi("mpich", version, flags)
    if "MPI_ABI_VERSION" in macros:
        return Mpi("standard", numbers("MPI_VERSION", "MPI_SUBVERSION"), flags)
    return None


def all_mpis(cc: list[str]) -> tuple[Mpi, ...]:
    """All mpi.h found, without duplicates."""
    found: dict[tuple[str, tuple[int, ...]], Mpi] = {}
    for flags in candidates():
        # MPICH 5 selects the standard ABI by a macro, which has no effect elsewhere.
        for mpi in (identify(cc, flags), identify(cc, (*flags, "-DMPI_ABI"))):
            if mpi is not None:
                found.setdefault((mpi.abi, mpi.version), mpi)
    return tuple(found[key] for key in sorted(found))


def find_mpis(cc: list[str]) -> tuple[Mpi, ...]:
    """The newest mpi.h of each ABI: a shim built with it runs on older libraries too."""
    return tuple({mpi.abi: mpi for mpi in all_mpis(cc)}.values())


# ---- compiling --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unit:
    """The compilation of one C or assembler file to an object."""

    source: Path
    target: Path
    command: tuple[str, ...]

    def fresh(self) -> bool:
        """Whether the object is newer than its inputs and was made by the same command or a stricter one."""
        record, depends = self.target.with_suffix(".cmd"), self.target.with_suffix(".d")
        if not (self.target.exists() and record.exists() and depends.exists()):
            return False
        made = self.target.stat().st_mtime_ns
        files = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
        by = record.read_text()
        return shlex.join(self.command) in (by, by.replace(" -Werror", "")) and all(
            Path(f).exists() and Path(f).stat().st_mtime_ns <= made for f in files
        )

    def compile(self) -> bool:
        """Compiles if needed; whether it was needed."""
        if self.fresh():
            return False
        self.target.parent.mkdir(parents=True, exist_ok=True)
        record = self.target.with_suffix(".cmd")
        record.unlink(missing_ok=True)  # the output of an interrupted compiler must not count as fresh
        run = subprocess.run(self.command, capture_output=True, text=True, check=False)
        sys.stderr.write(run.stderr)
        if run.returncode != 0:
            raise BuildError(f"{self.source.name} does not compile: {shlex.join(self.command)}")
        record.write_text(shlex.join(self.command))
        return True


@functools.cache
def accepted(flag: str, *cc: str) -> tuple[str, ...]:
    """The flag, if this compiler has it."""
    command = [*cc, "-Werror", flag, "-x", "c", "-c", "-", "-o", os.devnull]
    return (flag,) if subprocess.run(command, input=b"", capture_output=True, check=False).returncode == 0 else ()


def unit(cc: list[str], source: Path, directory: Path, flags: Iterable[str]) -> Unit:
    target = directory / f"{source.parent.name}-{source.stem}.o"
    depends = ("-MMD", "-MF", str(target.with_suffix(".d")))
    extra = shlex.split(os.environ.get("CFLAGS", ""))
    command = (*cc, *FLAGS, *accepted(CLEAR, *cc), *flags, *extra, *depends, "-c", str(source), "-o", str(target))
    return Unit(source, target, command)


@functools.cache
def compilers() -> ThreadPoolExecutor:
    """As many at a time as there are cores, for all libraries together."""
    return ThreadPoolExecutor(max(2, os.cpu_count() or 2))


def compile_all(units: Sequence[Unit]) -> bool:
    """The longest first, so that no core is left alone with one."""
    ordered = sorted(units, key=lambda u: -u.source.stat().st_size)
    return any(list(compilers().map(Unit.compile, ordered)))


def link(command: list[str], library: Path, changed: bool) -> None:
    """Links unless the command and the inputs are unchanged. LDFLAGS come before objects and libraries."""
    first = next((i for i, word in enumerate(command) if word.endswith(".o")), len(command))
    command = [*command[:first], *shlex.split(os.environ.get("LDFLAGS", "")), *command[first:]]
    objects = [Path(word) for word in command if word.endswith(".o")]
    made = library.stat().st_mtime_ns if library.exists() else 0
    record = library.with_suffix(".link")
    same = record.exists() and record.read_text() == shlex.join(command)
    if made and same and not changed and all(one.stat().st_mtime_ns <= made for one in objects):
        return
    library.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    # Link into a new file: processes that have the old one mapped must not see it change.
    part = library.with_suffix(".part")
    run = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True, check=False)
    sys.stderr.write(run.stderr)
    if run.returncode != 0:
        raise BuildError(f"{library.name} does not link: {shlex.join(command)}")
    part.replace(library)
    record.write_text(shlex.join(command))


def kernels() -> Any:
    """Loads tempi/kernels/_build.py by its path: its package needs the engine that is built here."""
    path = CSRC.parent / "tempi" / "kernels" / "_build.py"
    spec = importlib.util.spec_from_file_location("tempi_kernels_build", path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_neutral(cc: list[str], out: Path, work: Path) -> bool:
    """Builds libtempi.so: the interposer and the part of the engine that needs no mpi.h."""
    target = target_machine(cc)
    machine = MACHINES.get(target)
    if machine is None:
        raise BuildError(f"no trampolines for {target}: tempi runs on x86-64 and arm64")
    made = work / "generated"
    generate.write(made, generate.neutral_files() | kernels().c_files(KERNELS))
    sources = [f for part in NEUTRAL for f in sorted((CSRC / part).glob("*.c"))]
    sources += [made / f"trampolines_{machine}.S", made / "kernels_table.c"]
    flags = (f"-I{CSRC}", f"-I{made}")
    units = [unit(cc, source, work / "engine", flags) for source in sources]
    changed = compile_all(units)
    script = f"-Wl,--version-script={made / 'exports.map'}"
    objects = [str(u.target) for u in units]
    libraries = ["-lpthread", "-ldl"]
    command = [*cc, *LINK, "-Wl,-soname,libtempi.so", script, *objects, *libraries]
    link(command, out / "libtempi.so", changed)
    return changed


def build_shim(cc: list[str], mpi: Mpi, out: Path, work: Path, engine_changed: bool) -> None:
    """Builds libtempi-<abi>.so: the shim, compiled against that ABI's mpi.h and linked to no MPI."""
    made = work / mpi.abi
    generate.write(made, generate.abi_files([*cc, *mpi.flags]))
    sources = [*sorted((CSRC / "shim").rglob("*.c")), *sorted(made.glob("*.c"))]
    includes = (f"-I{CSRC}", f"-I{work / 'generated'}", f"-I{made}")
    # After tempi's own, and as system headers, to suppress their warnings.
    theirs = [f"-isystem{f[2:]}" if f.startswith("-I") else f for f in mpi.flags]
    flags = ("-fvisibility=hidden", *includes, *theirs)
    units = [unit(cc, source, made / "objects", flags) for source in sources]
    changed = compile_all(units) or engine_changed
    name = f"libtempi-{mpi.abi}.so"
    objects = [str(u.target) for u in units]
    engine = [str(out / "libtempi.so"), "-Wl,-rpath,$ORIGIN", "-lpthread"]
    link([*cc, *LINK, f"-Wl,-soname,{name}", *objects, *engine], out / name, changed)


def build_bench(cc: list[str], out: Path, work: Path, engine_changed: bool) -> None:
    """Builds libtempi-bench.so: the timing loops of `tempi bench`."""
    flags = (f"-I{CSRC}", "-fvisibility=hidden")
    sources = sorted((CSRC.parent / "bench" / "native").glob("*.c"))
    units = [unit(cc, source, work / "bench", flags) for source in sources]
    changed = compile_all(units) or engine_changed
    objects = [str(u.target) for u in units]
    engine = [str(out / "libtempi.so"), "-Wl,-rpath,$ORIGIN", "-ldl", "-lm"]
    name = "libtempi-bench.so"
    link([*cc, *LINK, f"-Wl,-soname,{name}", *objects, *engine], out / name, changed)


def emulator() -> ModuleType:
    """Loads tempi.emulator by its path: its parent package loads the engine, which may not be built yet."""
    name = "tempi_emulator"
    if name not in sys.modules:
        path = CSRC.parent / "tempi" / "emulator"
        spec = importlib.util.spec_from_file_location(
            name, path / "__init__.py", submodule_search_locations=[str(path)]
        )
        if spec is None or spec.loader is None:
            raise BuildError(f"{path} is missing")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def build_emulator(cc: list[str], out: Path, work: Path, shipped: Iterable[Path]) -> tuple[str, ...]:
    """Builds libtempi-cuda.so (CUDA on the CPU) and translates PTX files; returns the libraries' names."""
    flags = (f"-I{CSRC}", "-fvisibility=hidden")
    units = [unit(cc, source, work / "emulator", flags) for source in sorted((CSRC / "emulator").rglob("*.c"))]
    changed = compile_all(units)
    name = "libtempi-cuda.so"
    objects = [str(u.target) for u in units]
    command = [*cc, *LINK, f"-Wl,-soname,{name}", *objects, "-lpthread", "-ldl", "-lm"]
    link(command, out / name, changed)
    translator = emulator()
    try:
        made = [translator.compile_ptx(path.read_text(), out, cc=cc) for path in shipped]
    except (translator.PtxError, translator.CompileError) as error:
        raise BuildError(f"a shipped kernel cannot be translated for the emulator: {error}") from None
    return (name, *(library.name for library in made))


def shipped_ptx() -> list[Path]:
    """The PTX that the engine embeds."""
    return [path for target, path in kernels().images(KERNELS) if target == "ptx"]


def build(out: Path, work: Path) -> tuple[Mpi, ...]:
    """Builds into `out`, with intermediate files in `work`; returns the MPI ABIs that were found."""
    cc = compiler()
    mpis = find_mpis(cc)
    changed = build_neutral(cc, out, work)
    others: list[Callable[[], object]] = [functools.partial(build_shim, cc, mpi, out, work, changed) for mpi in mpis]
    others.append(lambda: build_bench(cc, out, work, changed))
    others.append(lambda: build_emulator(cc, out, work, shipped_ptx()))
    with ThreadPoolExecutor(len(others)) as together:
        for done in [together.submit(other) for other in others]:
            done.result()
    return mpis


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the tempi engine.")
    parser.add_argument("--out", type=Path, required=True, help="where the libraries go")
    parser.add_argument("--work", type=Path, help="objects and generated code (default OUT/work)")
    options = parser.parse_args()
    try:
        mpis = build(options.out.resolve(), (options.work or options.out / "work").resolve())
    except BuildError as error:
        raise SystemExit(f"csrc/build.py: {error}") from None
    for mpi in mpis:
        sys.stdout.write(f"built for {mpi.label}\n")
    if not kernels().images(KERNELS):
        sys.stdout.write(f"{kernels().MISSING} (python -m tempi.kernels --out build/kernels)\n")


if __name__ == "__main__":
    main()
