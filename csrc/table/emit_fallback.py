"""fallback.c: counts calls with a derived datatype of the functions that tempi does not act in.

A wrapper tests whether its datatypes are all predefined; only if one may be derived it calls
tempi_fallback_<name>, which describes the call's buffers as for the bounce, and counts. A file's view may have a
derived datatype too (shim/report/file_views.h).
"""

from __future__ import annotations

from table.emit_abi import NOTICE, blob, declarable
from table.emit_bounce import described, forms
from table.header import Header
from table.overlay import COLLECTIVES
from table.rows import Row, exported_rows
from table.standard import Signature


def counted_rows() -> tuple[Row, ...]:
    return tuple(row for row in exported_rows() if row.counted)


def functions_header() -> str:
    """functions.h: numbers and names of the counted functions, the same for every ABI. Collectives that tempi may carry
    have the lowest ones: what is kept of them with a communicator fits in a cache line."""
    names = sorted((row.name for row in counted_rows()), key=lambda name: name not in COLLECTIVES)
    numbers = "".join(f"    TEMPI_FUNCTION_{name},\n" for name in names)
    text = blob([f"MPI_{name}" for name in names]).replace("\n", " \\\n")
    return (
        f"{NOTICE}#ifndef TEMPI_FUNCTIONS_H\n#define TEMPI_FUNCTIONS_H\n\n"
        f"enum {{\n{numbers}    TEMPI_FUNCTION_COUNT\n}};\n\n"
        f"/* Those before it are collectives that tempi may carry. */\n"
        f"enum {{ TEMPI_COLLECTIVE_COUNT = {len(COLLECTIVES)} }};\n\n"
        f"/* In that order, each ended by a NUL. */\n#define TEMPI_FUNCTION_NAMES \\\n{text}\n\n#endif\n"
    )


def condition(row: Row) -> str:
    """The condition that a datatype may be derived; "" if that takes a loop: arrays of datatypes."""
    types = row.function.of_kind("DATATYPE")
    if any(p.is_array for p in types):
        return ""
    views = ["tempi_file_views_any()"] if row.function.of_kind("FILE") else []
    return " || ".join([f"!tempi_type_named({p.name})" for p in types] + views)


def target(row: Row) -> str:
    """The target's count and datatype, for one-sided operations that have them."""
    names = {p.name for p in row.function.plain.parameters}
    return "target_count, target_datatype" if "target_datatype" in names else "0, MPI_DATATYPE_NULL"


def prototype(row: Row, form: Signature, large: bool) -> str:
    return f"void tempi_fallback_{row.name}{'_c' if large else ''}({form.declared})"


def noted(row: Row, form: Signature) -> str:
    """Counts the call by its buffers, and by the view of its file."""
    names = {p.name for p in form.parameters}
    if row.function.of_kind("FILE"):
        (buffer,) = row.buffers
        return f"    tempi_fallback_note_file(TEMPI_FUNCTION_{row.name}, fh, {buffer.count}, {buffer.type});\n"
    typed = [buffer for buffer in row.buffers if buffer.type]
    buffers = "".join(f"        {described(row, buffer)},\n" for buffer in typed)
    if "partitions" in names:
        buffers = buffers.replace(".count = count", ".count = (MPI_Count)partitions * count")
    comm = "comm" if "comm" in names else "MPI_COMM_NULL"
    return (
        f"    const tempi_bounce_argument buffers[] = {{\n{buffers}    }};\n"
        f"    tempi_fallback_note(TEMPI_FUNCTION_{row.name}, {comm}, buffers, {len(typed)}, {target(row)});\n"
    )


def counting(row: Row, form: Signature, large: bool) -> str:
    ignored = "".join(f"    (void){name};\n" for name in form.names)
    return (
        f"{prototype(row, form, large)}\n{{\n{ignored}"
        f"    if (!tempi_fallback_wanted())\n        return;\n{noted(row, form)}}}\n"
    )


def chosen(header: Header) -> list[Row]:
    return [row for row in counted_rows() if declarable(row, header)]


def prototypes(header: Header) -> str:
    lines = "".join(f"{prototype(row, form, large)};\n" for row in chosen(header) for form, large in forms(row))
    guard = "TEMPI_COUNT_FALLBACKS_H"
    return f'{NOTICE}#ifndef {guard}\n#define {guard}\n#include "mpi_table.h"\n\n{lines}#endif\n'


def functions(header: Header) -> str:
    body = "\n".join(counting(row, form, large) for row in chosen(header) for form, large in forms(row))
    return f'{NOTICE}#include "count_fallbacks.h"\n\n#include "shim/report/fallback_calls.h"\n\n{body}'


def count_call(row: Row, form: Signature, large: bool) -> str:
    """The counting code of a wrapper, before it forwards the call."""
    if not row.counted:
        return ""
    call = f"tempi_fallback_{row.name}{'_c' if large else ''}({', '.join(form.names)});"
    test = condition(row)
    return f"    if ({test})\n        {call}\n" if test else f"    {call}\n"
