"""Python -> PTX -> machine code, without a GPU.

1. Numba makes PTX of every kernel, for the oldest target (_table.TARGETS).
2. The texts become one module: C names for the entries, no Numba environment, the end of _done, one header whose
   `.version` is lowered to `PTX_VERSION`, which drivers since CUDA 11.0 accept.
3. ptxas assembles the module for every target, which also checks that the lowered version suffices.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tempi.kernels import _done
from tempi.kernels._table import ALL, TARGETS, Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["CompileError", "Usage", "assemble", "compile_ptx", "find_ptxas", "merge"]

PTX_VERSION = "7.0"
_HEADER = f".version {PTX_VERSION}\n.target {TARGETS[0]}\n.address_size 64\n"


class CompileError(Exception):
    """The kernels cannot be compiled; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of one kernel on one target, as ptxas reports them."""

    kernel: str
    target: str
    registers: int
    spill_stores: int  # bytes
    spill_loads: int  # bytes
    shared: int  # bytes
    code: int  # bytes of machine code


# -- Numba ------------------------------------------------------------------------------------------


def _function(kernel: Kernel) -> Callable[..., None]:
    from tempi.kernels import _boxes, _narrow, _strided, _table_box, _transpose

    if kernel.family == "strided":
        made = _strided.make(kernel.width, kernel.index)
    elif kernel.family in _narrow.MAKE:
        made = _narrow.MAKE[kernel.family](kernel.width, kernel.index)
    elif kernel.family == "table":
        made = _table_box.make(kernel.index)
    elif kernel.family == "transpose":
        made = _transpose.make(kernel.width)
    else:
        made = _boxes.make(kernel.index, kernel.family == "tables")
    return made  # type: ignore[no-any-return]


def _numba(kernel: Kernel) -> str:
    """The PTX of one kernel as Numba writes it."""
    from numba import cuda
    from numba.cuda import types

    of = {"u32": types.uint32, "u64": types.uint64}
    signature = types.void(*(of[kind] for kind in kernel.types))
    digits = TARGETS[0].removeprefix("sm_")
    capability = (int(digits[:-1]), int(digits[-1]))
    # A device function that a kernel calls is compiled for "the current device", and there may be none:
    # numba-cuda 0.30 has no other way to set the target.
    here = SimpleNamespace(compute_capability=capability)
    with patch("numba.cuda.dispatcher.get_current_device", lambda: here):
        text, _ = cuda.compile(
            _function(kernel),
            signature,
            device=False,
            abi="numba",
            cc=capability,
            output="ptx",
            launch_bounds=kernel.bounds,
        )
    return str(text)


def _entry(text: str, name: str) -> str:
    """Numba's PTX of a kernel, from its shared memory on, with C names."""
    body = text[text.index(".address_size") :].split("\n", 1)[1]
    lines = [line for line in body.splitlines() if "NumbaEnv" not in line and not line.lstrip().startswith("//")]
    body = "\n".join(lines).strip()
    found = re.findall(r"\.visible \.entry (\w+)", body)
    if len(found) != 1 or ".func" in body or ".extern" in body:
        raise CompileError(f"{name}: Numba made more than one function of it")
    body = body.replace(found[0], name).replace(".visible .shared", ".shared")
    return re.sub(r"\b_cudapy_smem_\w*", lambda match: f"{name}_{match[0].strip('_')}", body)


def merge(texts: Iterable[tuple[str, str]]) -> str:
    """One module of (kernel name, PTX of one kernel) pairs."""
    parts = [_HEADER]
    for name, text in texts:
        # Labels and registers are local to an entry, so those of two kernels cannot collide.
        parts.append(_done.append(_entry(text, name), name))
    return "\n\n".join(parts) + "\n"


def compile_ptx(kernels: Iterable[Kernel] = ALL, tell: Callable[[str], None] = lambda _: None) -> str:
    """The PTX of all kernels as one module."""
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        raise CompileError(f"{error}: pip install 'tempi[kernels]'") from None
    texts = []
    for kernel in kernels:
        tell(kernel.name)
        texts.append((kernel.name, _numba(kernel)))
    return merge(texts)


# -- ptxas ------------------------------------------------------------------------------------------


def find_ptxas() -> str:
    """ptxas of the compiler wheel in this environment, else on the PATH."""
    for folder in (*sys.path, *(str(p) for p in Path(sys.prefix).glob("lib/python*/site-packages"))):
        for inner in ("nvidia/cuda_nvcc/bin/ptxas", "nvidia/cu12/bin/ptxas"):
            if os.access(path := Path(folder) / inner, os.X_OK):
                return str(path)
    if found := shutil.which("ptxas"):
        return found
    raise CompileError("no ptxas: pip install 'tempi[kernels]'")


_PROPERTIES = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<target>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def _code_sizes(image: bytes) -> dict[str, int]:
    """Bytes of each `.text.<kernel>` section of a cubin, which is a 64-bit little-endian ELF."""
    table = int.from_bytes(image[40:48], "little")
    entry, count, names = (int.from_bytes(image[at : at + 2], "little") for at in (58, 60, 62))

    def field(section: int, at: int, size: int) -> int:
        start = table + section * entry + at
        return int.from_bytes(image[start : start + size], "little")

    strings = field(names, 24, 8)
    sizes = {}
    for section in range(count):
        start = strings + field(section, 0, 4)
        name = image[start : image.index(b"\0", start)].decode()
        if name.startswith(".text."):
            sizes[name.removeprefix(".text.")] = field(section, 32, 8)
    return sizes


def _assemble_one(ptxas: str, ptx: Path, target: str) -> list[Usage]:
    out = ptx.with_name(f"{target}.cubin")
    command = [ptxas, "-v", f"--gpu-name={target}", str(ptx), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"ptxas refuses the kernels for {target}: {done.stderr.strip()}")
    sizes = _code_sizes(out.read_bytes())
    found = []
    for match in _PROPERTIES.finditer(done.stderr):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        found.append(
            Usage(
                kernel=match["name"],
                target=target,
                registers=int(match["registers"]),
                spill_stores=int(match["stores"]),
                spill_loads=int(match["loads"]),
                shared=int(shared[1]) if shared else 0,
                code=sizes[match["name"]],
            )
        )
    return found


def assemble(ptx: Path, targets: Iterable[str] = TARGETS) -> list[Usage]:
    """Writes `<target>.cubin` beside the PTX file for every target; returns the resources of each kernel."""
    ptxas = find_ptxas()
    with ThreadPoolExecutor(2) as pool:
        return [usage for part in pool.map(lambda t: _assemble_one(ptxas, ptx, t), targets) for usage in part]


def usage_row(usage: Usage) -> dict[str, Any]:
    """For JSON."""
    return {name: getattr(usage, name) for name in Usage.__slots__}
