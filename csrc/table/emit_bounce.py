"""bounced.c: the functions whose device buffers the shim bounces through host memory for the library."""

from __future__ import annotations

from table import overlay
from table.buffers import Buffer, blocking_name
from table.emit_abi import NOTICE, declarable
from table.header import Header
from table.rows import Bounce, Row, exported_rows
from table.standard import Signature

LENGTHS = {
    "one": "TEMPI_ONCE",
    "peers": "TEMPI_LARGE_COUNT_PEERS",
    "root_peers": "TEMPI_LARGE_COUNT_PEERS",
    "local": "TEMPI_LARGE_COUNT_LOCAL",
    "in": "TEMPI_LARGE_COUNT_IN",
    "out": "TEMPI_LARGE_COUNT_OUT",
}
OWNERS = {"COMMUNICATOR": "COMM", "FILE": "FILE", "WINDOW": "WIN"}
CARRIED = frozenset({Bounce.CALL, Bounce.REQUEST, Bounce.PERSISTENT, Bounce.WINDOW, Bounce.BEGIN, Bounce.END})


def owner(row: Row) -> str:
    """The object whose error handler gets a failure."""
    for parameter in row.function.plain.parameters:
        if parameter.kind in OWNERS and parameter.direction == "in":
            return f"TEMPI_OWNER_{OWNERS[parameter.kind]}({parameter.name})"
    return "TEMPI_OWNER_COMM(MPI_COMM_SELF)"  # MPI-5.0 9.3: errors that belong to no object


def partial(row: Row) -> bool:
    """Whether an output may be written only in part."""
    reads = row.name.startswith(("File_read", "File_iread"))
    return reads or blocking_name(row.name) in overlay.PARTIAL


def in_place(row: Row) -> str:
    """The condition under which MPI_IN_PLACE replaces the input, so that the output holds it; "" for never."""
    for buffer in row.buffers:
        if buffer.in_place and buffer.direction == "in":
            return f"{buffer.argument} == MPI_IN_PLACE"
    return ""


def does(row: Row, buffer: Buffer) -> str:
    """The use of the buffer by the call in this process (read, written), as a C expression."""
    names = {p.name for p in row.function.plain.parameters}
    if "root" in names and buffer.direction == "inout":
        return "tempi_bounce_broadcasts(comm, root)"
    plain = {"in": "TEMPI_READS", "out": "TEMPI_WRITES", "inout": "TEMPI_READS | TEMPI_WRITES"}
    text = plain[buffer.direction]
    if buffer.direction == "out" and partial(row):
        text += " | TEMPI_KEEPS"
    if buffer.in_place:
        text = f"{buffer.argument} == MPI_IN_PLACE ? 0 : {text}"
    elif buffer.direction == "out" and (condition := in_place(row)):
        text = f"{condition} ? TEMPI_READS | {text} : {text}"
    if "root" in names:
        where = "root" if buffer.root_only else "leaf"
        text = f"!tempi_bounce_at_{where}(comm, root) ? 0 : {text}"
    if row.function.of_kind("WINDOW"):
        ignored = "target_rank == MPI_PROC_NULL"
        if buffer.direction == "in" and any(b.direction == "out" for b in row.buffers) and "op" in names:
            ignored += " || op == MPI_NO_OP"
        text = f"{ignored} ? 0 : {text}"
    return text


def times(row: Row, buffer: Buffer) -> str:
    if blocking_name(row.name) == "Reduce_scatter_block" and buffer.direction == "out":
        return f"{in_place(row)} ? TEMPI_LARGE_COUNT_LOCAL : TEMPI_ONCE"
    return LENGTHS[buffer.times if buffer.pieces == "one" else buffer.pieces]


def described(row: Row, buffer: Buffer) -> str:
    """The initialiser of a tempi_bounce_argument."""
    arrays = {p.name: p.is_array for p in row.function.plain.parameters}
    fields = {"address": buffer.argument, "does": does(row, buffer)}
    if arrays.get(buffer.count):
        fields["counts"] = f"TEMPI_NUMBERS({buffer.count})"
        if not buffer.displacements and buffer.direction == "out":
            fields["own"] = f"!({in_place(row)})"
    else:
        fields["count"] = buffer.count or "1"  # the one-element operations on windows
    if buffer.displacements:
        fields["displacements"] = f"TEMPI_NUMBERS({buffer.displacements})"
        if buffer.unit == "byte":
            fields["in_bytes"] = "true"
    fields["types" if arrays[buffer.type] else "type"] = buffer.type
    fields["times"] = times(row, buffer)
    return "{" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"


def finish(row: Row) -> str:
    match row.bounce:
        case Bounce.REQUEST if row.function.of_kind("WINDOW"):
            return "tempi_bounce_attach_target(bounce, result, target_rank, request)"
        case Bounce.REQUEST:
            return "tempi_bounce_attach(bounce, result, request)"
        case Bounce.PERSISTENT:
            return "tempi_bounce_attach_persistent(bounce, result, request)"
        case Bounce.WINDOW:
            return "tempi_bounce_pend(bounce, result, target_rank)"
        case Bounce.BEGIN:
            return "tempi_bounce_begin(bounce, result)"
        case _:
            return "tempi_bounce_close(bounce, result)"


def prototype(row: Row, form: Signature, large: bool) -> str:
    return f"int tempi_bounced_{row.name}{'_c' if large else ''}(const struct tempi_mpi *next, {form.declared})"


def called(row: Row, large: bool, arguments: list[str]) -> str:
    text = ", ".join(arguments)
    return f"tempi_fwd_{row.name}(next, {text})" if large else f"next->{row.name}({text})"


def second_half(row: Row, form: Signature) -> str:
    (buffer,) = row.buffers
    given = f"tempi_bounce_given(bounce, {buffer.argument})"
    arguments = [given if name == buffer.argument else name for name in form.names]
    return (
        f"{prototype(row, form, False)}\n{{\n"
        "    tempi_bounce *bounce = tempi_bounce_resume(fh);\n"
        f"    const int result = {called(row, False, arguments)};\n"
        "    return tempi_bounce_end(bounce, result);\n}\n"
    )


def function(row: Row, form: Signature, large: bool) -> str:
    if row.bounce is Bounce.END:
        return second_half(row, form)
    buffers = "".join(f"        {described(row, buffer)},\n" for buffer in row.buffers)
    given = {buffer.argument: f"buffers[{i}].given" for i, buffer in enumerate(row.buffers)}
    arguments = [given.get(name, name) for name in form.names]
    when = "LATER" if row.bounce is Bounce.PERSISTENT else "NOW"
    return (
        f"{prototype(row, form, large)}\n{{\n"
        f"    tempi_bounce_argument buffers[] = {{\n{buffers}    }};\n"
        "    tempi_bounce *bounce;\n"
        f"    int result = tempi_bounce_open({owner(row)}, buffers, {len(row.buffers)}, "
        f"TEMPI_BOUNCE_{when}, &bounce);\n"
        "    if (result != MPI_SUCCESS)\n        return result;\n"
        f"    result = {called(row, large, arguments)};\n"
        f"    return {finish(row)};\n}}\n"
    )


def carried(header: Header) -> list[Row]:
    return [row for row in exported_rows() if row.bounce in CARRIED and declarable(row, header)]


def forms(row: Row) -> list[tuple[Signature, bool]]:
    large = row.function.large
    return [(row.function.plain, False)] + ([(large, True)] if large is not None else [])


def prototypes(header: Header) -> str:
    """bounced.h: one prototype per form of each function."""
    lines = "".join(f"{prototype(row, form, large)};\n" for row in carried(header) for form, large in forms(row))
    return f'{NOTICE}#ifndef TEMPI_BOUNCED_H\n#define TEMPI_BOUNCED_H\n#include "mpi_table.h"\n\n{lines}#endif\n'


def functions(header: Header) -> str:
    body = "\n".join(function(row, form, large) for row in carried(header) for form, large in forms(row))
    return f'{NOTICE}#include "bounced.h"\n\n#include "shim/bounce/bounce.h"\n\n{body}'
