"""The build step of the kernels: reuses or compiles the images, and embeds them in C.

It needs only Python, so that csrc/build.py, which builds the engine anywhere, can load it by its path. Compiled images are in ``tempi/kernels/compiled`` of a source distribution, else in ``build/kernels``:
the PTX, a cubin for each target, and ``kernels.json`` with a digest of their sources and the
resources of each kernel.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHIPPED = HERE / "compiled"  # in a source distribution
PTX, USAGE, REASON = "tempi.ptx", "kernels.json", "missing.txt"
# The compilers: Numba, and NVIDIA's compiler as wheels. CUDA 13 compilers do not support sm_70. With BOUNDS this
# is the extra `kernels` of pyproject.toml; a test compares the two.
COMPILER = (
    "numba-cuda==0.30.*",
    "cuda-bindings==12.9.*",
    "nvidia-cuda-nvcc-cu12==12.9.*",
    "nvidia-cuda-nvrtc-cu12==12.9.*",
)
# Versions of their dependencies that work: numba-cuda 0.30 accepts any NumPy, and fails with 2.5.
BOUNDS = ("numba>=0.61,<0.69", "numpy>=1.26,<2.5", "click>=8")
HINT = "install a wheel of tempi, or install again where pip finds numba-cuda"
MISSING = "GPU kernels are NOT in this build, so that device buffers will have no fast path"


def _load_table() -> Any:
    """_table.py by its path: importing tempi would load an engine that may not be built yet."""
    name = "tempi_kernels_table"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / "_table.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look up their module
        spec.loader.exec_module(module)
    return sys.modules[name]


table = _load_table()


def digest() -> str:
    """Changes with the kernels' sources and the requested compilers."""
    seen = hashlib.sha256(repr(COMPILER).encode())
    for path in sorted(HERE.glob("*.py")):
        if path.name not in ("__main__.py", "_build.py"):
            seen.update(path.name.encode() + b"\0" + path.read_bytes())
    return seen.hexdigest()


def unwanted() -> bool:
    """Whether the environment asks for a build without kernels."""
    return os.environ.get("TEMPI_NO_KERNELS", "") not in ("", "0")


def fresh(folder: Path) -> bool:
    """Whether the folder has the images of these sources."""
    try:
        made = json.loads((folder / USAGE).read_text())
    except (OSError, ValueError):
        return False
    images = [folder / PTX, *(folder / f"{target}.cubin" for target in table.TARGETS)]
    return made.get("digest") == digest() and all(image.is_file() for image in images)


def note(folder: Path, usage: list[dict[str, Any]]) -> None:
    """Marks a folder of images as complete and up to date."""
    text = json.dumps({"digest": digest(), "usage": usage}, indent=1)
    part = folder / (USAGE + ".part")
    part.write_text(text + "\n")
    part.replace(folder / USAGE)


def find(folder: Path) -> Path | None:
    """The folder of images of these sources: that of the source distribution, else the given one; None: neither."""
    return next((each for each in (SHIPPED, folder) if fresh(each)), None)


def keep_reason(folder: Path, why: str) -> None:
    """Stores, for the build that follows, why there are no images."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REASON).write_text(why + "\n")
    except OSError:
        return  # that build fails for the same reason and reports it


def forget_reason(folder: Path) -> str | None:
    """Returns and removes the stored reason."""
    try:
        why = (folder / REASON).read_text().strip()
        (folder / REASON).unlink()
    except OSError:
        return None
    return why


def ensure(folder: Path) -> str | None:
    """Compiles the kernels unless they are up to date, if this Python can. Returns why there are none, or None."""
    if unwanted():
        return "TEMPI_NO_KERNELS is set"
    if find(folder) is not None:
        return None
    numba = importlib.util.find_spec("numba_cuda")
    if numba is None or numba.origin is None:
        return forget_reason(folder) or "numba-cuda is not installed"
    prefix = Path(numba.origin).parents[4]  # of lib/pythonX.Y/site-packages/numba_cuda/__init__.py
    why = compile_with(sys.executable, prefix, folder)
    return f"their compilers fail: {why}" if why else None


def compile_with(python: str, prefix: Path, folder: Path) -> str | None:
    """Compiles the kernels in a process of the Python whose compilers are under `prefix`; why it failed, or None."""
    # As `python -m tempi.kernels --out FOLDER`, but there is no engine to load yet. The compiler's wheels are searched
    # in Python's prefixes, to which pip's isolated build environment must be added.
    program = (
        "import runpy, site, sys, types; site.PREFIXES.insert(0, sys.argv.pop(1)); "
        "package = types.ModuleType('tempi'); package.__path__ = [sys.argv.pop(1)]; sys.modules['tempi'] = package; "
        "runpy.run_module('tempi.kernels', run_name='__main__')"
    )
    command = [python, "-c", program, str(prefix), str(HERE.parent), "--quiet", "--out", str(folder)]
    own = dict(os.environ)
    if python != sys.executable:
        own.pop("PYTHONPATH", None)  # an isolated build's own packages
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
    return said.splitlines()[-1] if done.returncode else None


def images(folder: Path | None) -> list[tuple[str, Path]]:
    """(target, file) of each image, in the engine's order; empty if the folder's images are of other sources."""
    found = None if folder is None or unwanted() else find(folder)
    if found is None:
        return []
    cubins = [(target, found / f"{target}.cubin") for target in table.TARGETS]
    return [*cubins, ("ptx", found / PTX)]


def _embedded(number: int, path: Path) -> str:
    """A C declaration of the file's bytes and a terminating zero."""
    name = f"tempi_kernel_image_{number}"
    return (
        f"/* {hashlib.sha256(path.read_bytes()).hexdigest()} */\n"  # so that the text changes with the file
        f'__asm__(".section .rodata\\n.balign 64\\n.type {name}, @object\\n{name}:\\n"\n'
        f'        ".incbin \\"{path}\\"\\n.byte 0\\n.size {name}, . - {name}\\n.previous\\n");\n'
        f'extern const char {name}[] __attribute__((visibility("hidden")));\n'
    )


def c_files(folder: Path | None) -> dict[str, str]:
    """The generated header and source of the engine, by file name."""
    found = images(folder)
    embedded = "".join(_embedded(i, path) for i, (_, path) in enumerate(found))
    rows = []
    for i, (target, path) in enumerate(found):
        size = path.stat().st_size + (1 if target == "ptx" else 0)
        rows.append(f'    {{"{target}", tempi_kernel_image_{i}, {size}}},\n')
    source = (
        "/* Generated by tempi/kernels/_build.py: do not edit. */\n"
        '#include "cuda/kernels.h"\n\n'
        f"{table.c_names()}\n{embedded}\n"
        f"const int tempi_kernel_image_count = {len(found)};\n"
        f"const tempi_kernel_image tempi_kernel_images[] = {{\n{''.join(rows)}    {{NULL, NULL, 0}}}};\n"
    )
    return {"kernels_names.h": table.c_header(), "kernels_table.c": source}
