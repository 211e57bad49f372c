"""The table of GPU kernels. It needs only Python: builds without a kernel compiler read it too.

A kernel's parameters are listed as the engine passes them: ``u64`` or ``u32``; ``off`` is u32 in an
``_i32`` kernel and u64 in an ``_i64`` kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALL", "BLOCK", "DONE_PARAMS", "KERNELS_OF_A_WIDTH", "TARGETS", "Kernel", "c_header", "c_names"]

BLOCK = 256  # threads of every kernel: its launch bound
WIDTHS = (1, 2, 4, 8, 16)
TARGETS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled kernel. `width` is 0 if the word's size is a parameter."""

    family: str
    width: int
    index: int  # bits of a byte offset
    params: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        width = f"_w{self.width}" if self.width else ""
        return f"tempi_{self.family}{width}_i{self.index}"

    @property
    def types(self) -> tuple[str, ...]:
        """u32 or u64 for each parameter."""
        return tuple(f"u{self.index}" if kind == "off" else kind for _, kind in self.params)

    @property
    def bounds(self) -> tuple[int, ...]:
        """Threads of a block and, where the assembler would save registers and load a descriptor in turns, blocks of a
        multiprocessor: 64 registers a thread."""
        return (BLOCK, 4) if (self.family, self.index) == ("tables", 32) else (BLOCK,)


def _params(text: str) -> tuple[tuple[str, str], ...]:
    """``"u64: dst src, u32: first"`` as (name, type) pairs."""
    pairs = []
    for group in text.split(","):
        kind, names = group.split(":")
        pairs += [(name, kind.strip()) for name in names.split()]
    return tuple(pairs)


# Axes are numbered from the innermost (0) on; the outermost one has its strides in dl, sl only.
_AXIS = "u32: n{0} m{0} h{0}, off: d{0} s{0}"
_RANGE = "u64: dst src, u32: first end naxes"
_ONE_SIDED = "u32: n{0} m{0} h{0}, off: x{0}"  # the other side is contiguous
_GROUPS = ", ".join(
    ["u64: dst src, u32: first groups body end naxes", *(_ONE_SIDED.format(i) for i in range(3)), "off: xl"]
)
_TABLE = "u32: form, u64: table packed guide, u32: shift, u64: start"
_DESCRIBED = "u64: descs axes map, u32: map_shift chunks"
PARAMS = {
    "strided": ", ".join([_RANGE, *(_AXIS.format(i) for i in range(3)), "off: dl sl"]),
    "table": ", ".join([_RANGE, *(_AXIS.format(i) for i in range(2)), "off: dl sl", _TABLE]),
    "boxes": _DESCRIBED,
    "tables": _DESCRIBED,
    "gather": _GROUPS,
    "scatter": _GROUPS,
    "transpose": ("u64: dst src, u32: tiles na nb ta tb, u64: sa db, u32: n2, u64: d2 s2, u64: d3 s3"),
}
#: Behind them: addresses of the flag that the kernel writes at its end, or 0, and of its counter of blocks (_done.py).
DONE_PARAMS = ("u64", "u64")
KERNELS_OF_A_WIDTH = {"strided": WIDTHS, "gather": (1, 2), "scatter": (1,), "transpose": (1, 2, 4, 8)}


def _all() -> tuple[Kernel, ...]:
    made = []
    for family, text in PARAMS.items():
        for index in (64,) if family == "transpose" else (32, 64):
            widths = KERNELS_OF_A_WIDTH.get(family, (0,))
            made += [Kernel(family, width, index, _params(text)) for width in widths]
    return tuple(made)


ALL = _all()


def c_header() -> str:
    """kernels_names.h: the kernels' numbers."""
    lines = [
        "/* Generated from tempi/kernels/_table.py: do not edit. */",
        "#ifndef TEMPI_KERNELS_NAMES_H",
        "#define TEMPI_KERNELS_NAMES_H",
        f"enum {{ TEMPI_KERNEL_BLOCK = {BLOCK} }}; /* threads in a block of every kernel */",
        "enum tempi_kernel_id {",
        *(f"    {kernel.name.upper().replace('TEMPI_', 'TEMPI_KERNEL_')}," for kernel in ALL),
        "    TEMPI_KERNEL_COUNT",
        "};",
        "/* The number of parameters of each. */",
        "extern const unsigned char tempi_kernel_nparams[];",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def c_names() -> str:
    """The C definitions of the names and parameter counts declared in kernels_names.h and cuda/kernels.h."""
    names = ",\n".join(f'    "{kernel.name}"' for kernel in ALL)
    counts = ", ".join(str(len(kernel.params)) for kernel in ALL)
    return (
        f"const char *const tempi_kernel_names[] = {{\n{names}\n}};\n"
        f"const unsigned char tempi_kernel_nparams[] = {{{counts}}};\n"
    )
