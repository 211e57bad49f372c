"""Builds the engine into the package; static package metadata is in pyproject.toml."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cffi import FFI
from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "csrc"), str(ROOT / "scripts" / "backend")]

from tempi_frontend import tell  # noqa: E402

if sys.version_info >= (3, 11):  # noqa: UP036  (an older one is refused by pip, once it has the metadata from here)
    import build as engine  # csrc/build.py, importable only after the path is set

HEADER = ROOT / "csrc" / "tempi.h"


def declarations(header: str) -> str:
    """The header without its preprocessor lines and its C++ guard, for cffi."""
    lines, guarded = [], False
    for line in header.splitlines():
        if line.startswith("#"):
            guarded = line.startswith("#ifdef __cplusplus")
        elif not guarded:
            lines.append(line)
    return "\n".join(lines)


class BuildWithEngine(build_py):
    """Runs build_py, then adds libtempi*.so, the header and the cffi module to the package."""

    def run(self) -> None:
        try:
            engine.compiler()  # fails early, before slow steps and output
        except engine.BuildError as error:
            raise SetupError(f"tempi: {error}") from None
        package = Path(self.build_lib) / "tempi"
        shutil.rmtree(package, ignore_errors=True)  # removes modules of earlier builds that no longer exist
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
        reason = kernels.ensure(engine.KERNELS)
        if reason is None:
            sys.stdout.write("tempi: GPU kernels compiled\n")
        elif kernels.unwanted():
            sys.stdout.write(f"tempi: {kernels.MISSING}: {reason}\n")
        else:
            tell(f"tempi: {kernels.MISSING}: {reason} ({kernels.HINT})")

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
        headers = package / "include" / "emulator" / "ptx"
        headers.mkdir(parents=True, exist_ok=True)
        for header in ("ptx.h", "ptx_compute.h"):
            shutil.copy2(ROOT / "csrc" / "emulator" / "ptx" / header, headers)
        for mpi in mpis:
            sys.stdout.write(f"tempi: built for {mpi.label}\n")
        if not mpis:
            tell(
                "tempi: no mpi.h found: built without an engine, so it will not act in any MPI program; install an "
                "MPI (pip install mpich) or set TEMPI_MPI_PREFIX, and install tempi again"
            )


class SourcesWithKernels(sdist):
    """Adds the compiled kernels to the sdist, so that its users need not compile them."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        kernels = engine.kernels()
        reason = kernels.ensure(engine.KERNELS)
        images = [path for _, path in kernels.images(engine.KERNELS)]
        if not images:
            tell(f"tempi: GPU kernels are NOT in this source distribution: {reason} ({kernels.HINT})")
            return
        target = Path(base_dir) / kernels.SHIPPED.relative_to(ROOT)
        target.mkdir(parents=True, exist_ok=True)
        for path in (*images, images[0].with_name(kernels.USAGE)):
            shutil.copy2(path, target)


class PlatformDistribution(Distribution):
    """The package contains machine code, so it belongs in the platform's own directory."""

    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    """Tagged for this platform and any Python 3: nothing links to libpython."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel, "sdist": SourcesWithKernels},
)
