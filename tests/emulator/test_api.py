"""The emulated interface is NVIDIA's: compiled against a real cuda.h, where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
FUNCTIONS = re.findall(r"X\((cu\w+)\)", (CSRC / "emulator" / "driver" / "functions.h").read_text())
PAIRS = {
    "tempi_emu_copy2d": "CUDA_MEMCPY2D",
    "tempi_emu_copy3d": "CUDA_MEMCPY3D",
    "tempi_emu_uuid": "CUuuid",
    "tempi_emu_access": "CUmemAccessDesc",
    "tempi_emu_allocation": "CUmemAllocationProp",
}

OFFSETS = [
    (mine, member, real, field)
    for mine, real in (("tempi_emu_copy2d", "CUDA_MEMCPY2D"), ("tempi_emu_copy3d", "CUDA_MEMCPY3D"))
    for member, field in (("src_device", "srcDevice"), ("dst_host", "dstHost"), ("width", "WidthInBytes"))
]


def cuda_header() -> Path:
    places = [Path("/usr/local/cuda/include"), *sorted(Path("/usr/local").glob("cuda-*/include"))]
    for place in places:
        if (place / "cuda.h").is_file():
            return place
    pytest.skip("no cuda.h here")


def printed(folder: Path, compiler: str, include: str, expressions: list[str], *flags: str) -> list[str]:
    """The values that a C program prints for compile-time constants."""
    source, program = folder / "say.c", folder / "say"
    lines = "\n".join(f'printf("%lld\\n", (long long)({e}));' for e in expressions)
    head = f'#include "{include}"\n#include <stddef.h>\n#include <stdio.h>\n'
    source.write_text(f"{head}int main(void) {{ {lines} return 0; }}\n")
    subprocess.run([compiler, *flags, source, "-o", program], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()


def test_types_and_results_are_those_of_cuda_h(tmp_path: Path, compiler: str) -> None:
    include = cuda_header()
    results = re.findall(r"X\((CUDA_\w+), \d+,", (CSRC / "emulator" / "driver" / "api.h").read_text())
    assert len(results) > 25
    ours = [*results, *(f"sizeof({name})" for name in PAIRS)]
    theirs = [*results, *(f"sizeof({name})" for name in PAIRS.values())]
    for mine, member, their, field in OFFSETS:
        ours.append(f"offsetof({mine}, {member})")
        theirs.append(f"offsetof({their}, {field})")
    real = printed(tmp_path, compiler, "cuda.h", theirs, f"-I{include}")
    assert printed(tmp_path, compiler, "emulator/driver/api.h", ours, f"-I{CSRC}") == real


def test_every_function_of_the_table_exists_and_is_cudas(driver_library: Path) -> None:
    nm = shutil.which("nm") or pytest.skip("no nm here")
    listing = subprocess.run([nm, "-D", "--defined-only", driver_library], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert {name for name in exported if name.startswith("cu")} == set(FUNCTIONS)
    assert all(name.startswith(("cu", "tempi_emulator_")) for name in exported), exported
    header = (cuda_header() / "cuda.h").read_text()
    assert [name for name in FUNCTIONS if not re.search(rf"\b{name}\b", header)] == []
