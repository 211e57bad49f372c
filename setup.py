"""Builds the engine into the package; what is only data about the package is in pyproject.toml."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from cffi import FFI
from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "csrc"))

import build as engine  # noqa: E402  (csrc/build.py, only after the path is known)

HEADER = ROOT / "csrc" / "tempi.h"


def declarations(header: str) -> str:
    """The header without its preprocessor lines and its C++ guard, as cffi reads it."""
    lines, guarded = [], False
    for line in header.splitlines():
        if line.startswith("#"):
            guarded = line.startswith("#ifdef __cplusplus")
        elif not guarded:
            lines.append(line)
    return "\n".join(lines)


class BuildWithEngine(build_py):
    """build_py, and then libtempi*.so, the header and the cffi module into the package."""

    def run(self) -> None:
        package = Path(self.build_lib) / "tempi"
        shutil.rmtree(package, ignore_errors=True)  # an earlier build's modules may be gone by now
        super().run()
        self.compile_kernels()
        self.build_engine(package)
        (package / "include").mkdir(parents=True, exist_ok=True)
        shutil.copy2(HEADER, package / "include")
        ffi = FFI()
        ffi.cdef(declarations(HEADER.read_text()))
        ffi.set_source("tempi._tempi_cffi", None)
        ffi.emit_python_code(str(package / "_tempi_cffi.py"))

    def compile_kernels(self) -> None:
        kernels = engine.kernels()
        try:
            reason = kernels.ensure(engine.KERNELS)
        except subprocess.CalledProcessError as error:
            why = (error.stderr or "").strip()
            hint = "the GPU kernels do not compile (TEMPI_NO_KERNELS=1 does without)"
            raise SetupError(f"tempi: {hint}: {why}") from None
        sys.stdout.write(f"tempi: {kernels.MISSING}: {reason}\n" if reason else "tempi: GPU kernels compiled\n")

    def build_engine(self, package: Path) -> None:
        work = ROOT / "build" / "engine"
        try:
            mpis = engine.build(work / "lib", work)
        except engine.BuildError as error:
            raise SetupError(f"tempi: {error}") from None
        target = package / "lib"
        target.mkdir(parents=True, exist_ok=True)
        for name in ("libtempi.so", "libtempi-bench.so", *(f"libtempi-{m.abi}.so" for m in mpis)):
            shutil.copy2(work / "lib" / name, target)
        for library in (work / "lib" / "libtempi-cuda.so", *(work / "lib").glob("tempi-ptx-*.so")):
            shutil.copy2(library, target)
        (package / "include" / "emulator").mkdir(parents=True, exist_ok=True)
        for header in ("ptx.h", "ptx_compute.h"):
            shutil.copy2(ROOT / "csrc" / "emulator" / header, package / "include" / "emulator")
        for mpi in mpis:
            sys.stdout.write(f"tempi: built for {mpi.label}\n")
        if not mpis:
            sys.stdout.write(
                "tempi: no mpi.h was found, so this build will not act in any MPI program; install an "
                "MPI (pip install mpich) or set TEMPI_MPI_PREFIX, and install tempi again\n"
            )


class PlatformDistribution(Distribution):
    """Holds machine code, so it belongs into the platform's own directory."""

    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    """Tagged for this platform, but for any Python 3: nothing links to libpython."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel},
)
