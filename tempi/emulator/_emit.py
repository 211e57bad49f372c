"""A PTX module as the C source of a shared object that the emulated driver can load."""

from __future__ import annotations

from collections.abc import Iterable

from . import _arithmetic, _control, _memory
from . import _syntax as syntax
from ._errors import PtxError
from ._parser import parse
from ._types import PRED
from ._writer import HANDLERS, Words, Writer

# Importing these modules fills the table of instructions.
FAMILIES = (_arithmetic, _control, _memory)

HEAD = """\
/* Generated from PTX by tempi.emulator; do not edit. */
#include "emulator/ptx/ptx_compute.h"
"""


def translate(ptx: str) -> str:
    """The C source of a PTX module; PtxError names the line that cannot be translated."""
    module = parse(ptx)
    places, size = layout(module.variables)
    parts = [HEAD]
    for number, kernel in enumerate(module.kernels):
        parts.append(kernel_source(module, kernel, number, places))
    parts.append(tables(module, places, size, ptx.encode()))
    return "\n".join(parts)


def fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash, under which the driver finds the translation of a PTX text."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def layout(variables: Iterable[syntax.Variable]) -> tuple[dict[str, int], int]:
    """The offset of each variable, and the total size."""
    places, end = {}, 0
    for variable in variables:
        end = -(-end // variable.align) * variable.align
        places[variable.name] = end
        end += variable.size
    return places, end


def kernel_places(module: syntax.Module, kernel: syntax.Kernel) -> tuple[dict[str, int], int, int, int]:
    """Offsets in the kernel's own memories, and the sizes of shared, local and param memory."""
    params, param_size = layout(kernel.params)
    local, local_size = layout(kernel.locals)
    static = [v for v in (*module.shared, *kernel.shared) if not v.dynamic]
    shared, shared_size = layout(static)
    dynamic = [v for v in (*module.shared, *kernel.shared) if v.dynamic]
    if dynamic:  # begins after the static part, with the strictest alignment of its names
        align = max(v.align for v in dynamic)
        shared_size = -(-shared_size // align) * align
    return params | local | shared | {"": shared_size}, shared_size, local_size, param_size


def kernel_source(module: syntax.Module, kernel: syntax.Kernel, number: int, variables: dict[str, int]) -> str:
    places, shared_size, local_size, param_size = kernel_places(module, kernel)
    waits = any(isinstance(s, syntax.Instruction) and s.opcode in _control.WAITING for s in kernel.body)
    writer = Writer(kernel, waits, variables | places)
    for statement in kernel.body:
        if isinstance(statement, syntax.Label):
            writer.write(f"{statement.name}:;")
        else:
            write_instruction(writer, statement)
    name = f"k{number}"
    fields = [f"uint{r.bits}_t {r.name};" for r in kernel.registers]
    head = f"static int {name}(tempi_ptx_block *b, tempi_ptx_thread *t, void *registers)\n{{"
    tail = "return TEMPI_PTX_EXIT;\n}"
    if waits:
        struct = f"struct {name}_registers {{\n" + "\n".join([*fields, "int none;"]) + "\n};"
        body = [struct, head, f"struct {name}_registers *const r = registers;", "switch (t->pc) {", "case 0:;"]
        source = [*body, *writer.lines, "default:;", "}", tail]
    else:
        body = [f"uint{r.bits}_t {r.name} = (uint{r.bits}_t)0xcdcdcdcdcdcdcdcdull;" for r in kernel.registers]
        source = [head, *body, *writer.lines, tail]
    sizes = (param_size, shared_size, local_size, writer.sites)
    return "\n".join([*source, *kernel_tables(kernel, name, waits, places, sizes)]) + "\n"


def write_instruction(writer: Writer, statement: syntax.Instruction) -> None:
    handler = HANDLERS.get(statement.opcode)
    if handler is None:
        raise PtxError(statement.line, f"unknown instruction {statement.opcode} in {statement.text!r}")
    writer.here = statement
    writer.write(f"/* {statement.line} */")
    if statement.guard is not None:
        writer.write(f"if ({writer.value(statement.guard, PRED)}) {{")
    handler(writer, Words(statement))
    if statement.guard is not None:
        writer.write("}")


def kernel_tables(
    kernel: syntax.Kernel, name: str, waits: bool, places: dict[str, int], sizes: tuple[int, int, int, int]
) -> list[str]:
    """The kernel's row in the module's table, as a macro, and the arrays that it points to."""
    offsets = ", ".join(str(places[p.name]) for p in kernel.params) or "0"
    widths = ", ".join(str(p.size) for p in kernel.params) or "0"
    registers = f"sizeof(struct {name}_registers)" if waits else "0"
    param_size, shared_size, local_size, sites = sizes
    row = (
        f'{{ "{kernel.name}", {name}, {registers}, {len(kernel.params)}, {name}_offsets, {name}_sizes, '
        f"{param_size}, {shared_size}, {local_size}, {sites}, {kernel.max_threads} }}"
    )
    return [
        f"static const uint32_t {name}_offsets[] = {{ {offsets} }};",
        f"static const uint32_t {name}_sizes[] = {{ {widths} }};",
        f"#define {name.upper()}_ROW {row}",
    ]


def tables(module: syntax.Module, places: dict[str, int], size: int, text: bytes) -> str:
    rows = [f"    K{i}_ROW," for i in range(len(module.kernels))] or ["    {0},"]
    lines = ["static const tempi_ptx_kernel kernels[] = {", *rows, "};"]
    for i, variable in enumerate(module.variables):
        data = ", ".join(map(str, variable.values)) or "0"
        lines.append(f"static const uint8_t values{i}[] = {{ {data} }};")
    lines.append("static const tempi_ptx_variable variables[] = {")
    for i, variable in enumerate(module.variables):
        place = places[variable.name]
        lines.append(f'    {{ "{variable.name}", {place}, {variable.size}, values{i}, {len(variable.values)} }},')
    lines.append("    {0}\n};")
    numbers = f"{module.isa}, {module.target}, {len(module.kernels)}, {len(module.variables)}"
    identity = f"0x{fnv1a(text):x}ull, {len(text)}, {size}"
    lines.append(
        '__attribute__((visibility("default"))) const tempi_ptx_module tempi_ptx = '
        f"{{ TEMPI_PTX_ABI, {numbers}, {identity}, kernels, variables }};"
    )
    return "\n".join(lines) + "\n"
