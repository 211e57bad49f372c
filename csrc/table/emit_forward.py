"""forward.c: large-count calls that the plain function cannot serve directly."""

from __future__ import annotations

from table import overlay
from table.buffers import blocking_name
from table.emit_abi import NOTICE, arguments, declarable, is_inline, narrowed, wide
from table.header import Header
from table.rows import Row, exported_rows
from table.standard import Parameter

OWNERS = {"COMMUNICATOR": "comm", "FILE": "file", "WINDOW": "win"}
SELECT = {
    "peers": "TEMPI_LARGE_COUNT_PEERS",
    "local": "TEMPI_LARGE_COUNT_LOCAL",
    "root_peers": "TEMPI_LARGE_COUNT_PEERS",
    "in": "TEMPI_LARGE_COUNT_IN",
    "out": "TEMPI_LARGE_COUNT_OUT",
}


def too_large(row: Row) -> str:
    """The MPI error for a count that this library cannot take, at the handler of the call's object."""
    for parameter in row.function.plain.parameters:
        if parameter.kind in OWNERS and parameter.direction == "in":
            return f"tempi_too_large_{OWNERS[parameter.kind]}({parameter.name})"
    return "tempi_too_large_comm(MPI_COMM_SELF)"  # MPI-5.0 9.3: errors that belong to no object


def head(row: Row, prefix: str) -> str:
    names = ", ".join(wide(row.function).names)
    return (
        f"int tempi_{prefix}_{row.name}(const struct tempi_mpi *next{arguments(row)})\n{{\n"
        f"    if ({'next->large && ' if prefix == 'fwd' and not arrays(row) else ''}"
        f"next->{row.name}_c != NULL)\n        return next->{row.name}_c({names});\n"
    )


def arrays(row: Row) -> list[Parameter]:
    return [p for p in row.function.plain.parameters if p.poly and p.is_array]


def pairs(row: Row) -> list[tuple[str, str]]:
    """The scalar (count, type) pairs, if only they are widened and helper types keep the meaning:
    not in reductions, whose operations see the datatype."""
    if row.function.of_kind("OPERATION"):
        return []
    found = {b.count: b.type for b in row.buffers if b.type and b.count}
    widened = {p.name for p in row.function.plain.parameters if p.poly}
    return list(found.items()) if set(found) == widened else []


def meaningless(row: Row, argument: str) -> str:
    """The condition under which an argument must not be read: at MPI_IN_PLACE, or not at the root.
    (In a reduction the same counts also describe the result, so they are valid in place.)"""
    if row.function.of_kind("OPERATION"):
        return ""
    for buffer in row.buffers:
        if argument not in (buffer.count, buffer.displacements):
            continue
        if buffer.in_place:
            return f"{buffer.argument} == MPI_IN_PLACE"
        if buffer.root_only:
            return "!tempi_is_root(comm, root)"
    return ""


def significant(row: Row, argument: str) -> str:
    condition = meaningless(row, argument)
    return f"{condition} ? 0 : {argument}" if condition else argument


def large_scalar(row: Row) -> str:
    """tempi_large_X: the _c function, the plain one, helper types, or an error; in this order."""
    function = row.function
    poly = [p.name for p in function.plain.parameters if p.poly]
    fits = " && ".join(f"TEMPI_FITS_INT({name})" for name in poly)
    text = head(row, "large")
    text += f"    if ({fits})\n        return next->{row.name}({', '.join(narrowed(function))});\n"
    helped = pairs(row)
    if not helped:
        unused = "".join(f"    (void){n};\n" for n in function.plain.names if n not in poly)
        return f"{text}{unused}    return {too_large(row)};\n}}\n"
    names = {count: f"pair{i}.count" for i, (count, _) in enumerate(helped)}
    names |= {type_: f"pair{i}.type" for i, (_, type_) in enumerate(helped)}
    for i in range(len(helped)):
        text += f"    struct tempi_count_type pair{i} = {{0}};\n"
    makes = " ||\n        ".join(
        f"!tempi_count_type_make({significant(row, count)}, {type_}, &pair{i})"
        for i, (count, type_) in enumerate(helped)
    )
    frees = "".join(f"    tempi_count_type_free(&pair{i});\n" for i in range(len(helped)))
    call = ", ".join(names.get(n, n) for n in function.plain.names)
    return (
        f"{text}    int result;\n    if ({makes})\n        result = {too_large(row)};\n"
        f"    else\n        result = next->{row.name}({call});\n{frees}    return result;\n}}\n"
    )


def forward_outputs(row: Row) -> str:
    """tempi_fwd_X with a scalar output: an int variable around the plain call."""
    parameters = row.function.plain.parameters
    outputs = [p for p in parameters if p.poly and p.direction != "in"]
    names = {p.name: f"{p.name} == NULL ? NULL : &large_count_{p.name}" for p in outputs}
    tests, before, after = [], "", ""
    for parameter in parameters:
        name, start, type_ = parameter.name, "0", parameter.type.rstrip(" *")
        if parameter.poly and parameter not in outputs and type_ == "int":
            tests.append(f"TEMPI_FITS_INT({name})")
        if parameter not in outputs:
            continue
        if parameter.direction == "inout":
            if type_ == "int":
                tests.append(f"({name} == NULL || TEMPI_FITS_INT(*{name}))")
            start = f"{name} == NULL ? 0 : ({type_})*{name}"
        before += f"        {type_} large_count_{name} = {start};\n"
        after += f"        if (result == MPI_SUCCESS && {name} != NULL)\n            *{name} = large_count_{name};\n"
    values = zip(parameters, narrowed(row.function), strict=True)
    call = ", ".join(names.get(p.name, value) for p, value in values)
    if not tests:  # no inputs, so the plain function always serves
        body = f"{before}        int result = next->{row.name}({call});\n{after}        return result;\n"
        return f"{head(row, 'fwd')}{body.replace(' ' * 8, ' ' * 4)}}}\n"
    return (
        f"{head(row, 'fwd')}    if ({' && '.join(tests)}) {{\n"
        f"{before}        int result = next->{row.name}({call});\n{after}        return result;\n    }}\n"
        f"    if (next->{row.name}_c != NULL)\n"
        f"        return next->{row.name}_c({', '.join(wide(row.function).names)});\n"
        f"    return {too_large(row)};\n}}\n"
    )


def forward_arrays(row: Row) -> str:
    """tempi_fwd_X with arrays of counts: int copies, which live as long as the call may read them."""
    function = row.function
    lengths = overlay.ARRAY_LENGTH[blocking_name(row.name)]
    text = head(row, "fwd")
    nonblocking = "1" if function.of_kind("REQUEST") else "0"
    text += f"    struct tempi_large_count ints = {{.comm = comm, .nonblocking = {nonblocking}}};\n"
    names = {}
    for parameter in arrays(row):
        wide_type = next(p.type for p in wide(function).parameters if p.name == parameter.name)
        kind = "counts" if wide_type == "MPI_Count" else "aints"
        names[parameter.name] = f"large_count_{parameter.name}"
        text += (
            f"    const int *large_count_{parameter.name} = tempi_large_count_{kind}(&ints, "
            f"{parameter.name},\n        {SELECT[lengths[parameter.name]]}, "
            f"{meaningless(row, parameter.name) or 0});\n"
        )
    tests = []
    for parameter in function.plain.parameters:
        if parameter.poly and not parameter.is_array:
            condition = meaningless(row, parameter.name)
            test = f"TEMPI_FITS_INT({parameter.name})"
            tests.append(f"({condition} || {test})" if condition else test)
    call = ", ".join(names.get(p.name, a) for p, a in zip(function.plain.parameters, narrowed(function), strict=True))
    call = f"next->{row.name}({call})"
    if tests:
        call = f"!({' && '.join(tests)}) ? {too_large(row)}\n                : {call}"
    return (
        f"{text}    int result = ints.failed;\n    if (result == MPI_SUCCESS)\n"
        f"        result = {call};\n    tempi_large_count_end(&ints);\n    return result;\n}}\n"
    )


def forward(row: Row) -> str:
    if is_inline(row):
        return large_scalar(row)
    return forward_arrays(row) if arrays(row) else forward_outputs(row)


def forwards(header: Header) -> str:
    body = "\n".join(forward(row) for row in exported_rows() if row.has_large and declarable(row, header))
    return f"""{NOTICE}#include "mpi_table.h"

#include <stddef.h>

#include "shim/large_count.h"

{body}"""
