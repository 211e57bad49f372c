"""wrappers.c: the shim's entries, one for each exported name."""

from __future__ import annotations

import textwrap

from table.buffers import blocking_name
from table.emit_abi import NOTICE, declarable
from table.emit_bounce import CARRIED, described, owner
from table.emit_fallback import condition as count_condition
from table.emit_fallback import count_call
from table.header import Header
from table.overlay import (
    COLLECTIVES,
    CONNECTS,
    EXTENSIONS,
    MEETS,
    MISORDERED,
    OPTIONAL,
    OWN_IMPLEMENTATION,
    REFUSED,
    REPEATED,
    SETTLED,
    SYNCHRONISES,
    Class,
    Role,
)
from table.rows import Bounce, Row, Slot, slots

GUARDS = {
    Class.MAY_BLOCK: "tempi_before_blocking()",
    Class.ENDS: "tempi_before_blocking()",
    Class.PROGRESS: "tempi_progress()",
    Class.SENDS: "tempi_before_sending(comm)",
}


# Before and after the library's call: whether the file's view has a derived datatype, and its pending bounces.
OF_FILES = {
    "File_set_view": (
        "",
        "    if (result == MPI_SUCCESS)\n        tempi_file_view_set(fh, etype, filetype);\n",
    ),
    "File_close": (
        "    const MPI_File file = fh != NULL ? *fh : MPI_FILE_NULL;\n"
        "    const bool viewed = tempi_file_view_drop(file);\n",
        "    if (result != MPI_SUCCESS && viewed)\n        tempi_file_view_add(file);\n"
        "    if (result == MPI_SUCCESS && tempi_bounce_is_pending())\n        tempi_bounce_closed(file);\n",
    ),
}


# Of a process alone, which the library may do as a copy (shim/coll/collective.h).
COPIES = frozenset({"Alltoallw", "Ialltoallw"})


def table_of(slot: Slot) -> str:
    return f"tempi_{'lib' if slot.profiling else 'next'}{'_large' if slot.large else ''}"


def library_call(slot: Slot) -> str:
    """With the arguments of the entry. A library without the large-count form gets the other one, if they fit."""
    row, table = slot.row, table_of(slot)
    form = row.function.large if slot.large else row.function.plain
    assert form is not None
    if slot.large:
        return f"tempi_fwd_{row.name}(&{table}, {', '.join(form.names)})"
    return f"{table}.{row.name}({', '.join(form.names)})"


def large_count_outputs(row: Row) -> list[str]:
    """Output arguments that are int here and MPI_Count in the large-count form."""
    if not row.has_large:
        return []
    return [p.name for p in row.function.plain.parameters if p.poly and p.direction != "in"]


def blocks(row: Row) -> str:
    """Whether the call does, in C."""
    return "true" if row.name == blocking_name(row.name) else "false"


def copies(row: Row) -> str:
    """The condition under which the library copies a block of a process alone."""
    arrays = [p.name for p in row.function.plain.parameters if p.is_array]
    given = (name if "types" in name else f"(tempi_numbers)TEMPI_NUMBERS({name})" for name in arrays)
    return f"tempi_collective_copies(comm, {blocks(row)}, sendbuf, {', '.join(given)})"


def collective_test(row: Row, test: str) -> str:
    """The condition under which the library does a collective that tempi may carry, beside that on its datatypes. It
    counts the call, so it comes last: if another one fails the rest counts it. "": it takes more than that."""
    blocking = blocking_name(row.name)
    known = row.name == blocking or (blocking not in MISORDERED and not row.name.endswith("_init"))
    if not known or not count_condition(row):
        return ""
    return f"tempi_collective_{test}(comm, TEMPI_FUNCTION_{blocking}, {blocks(row)})"


def types_of(row: Row) -> list[str]:
    return sorted({buffer.type for buffer in row.buffers if buffer.type})


def collective_passes(row: Row) -> str:
    """By what an earlier call has found, in a table that is there while all is quiet."""
    test, types = collective_test(row, "passes"), types_of(row)
    named = f"tempi_type{'s' if len(types) > 1 else ''}_named_at_once({', '.join(types)})"
    return f"{named} && {test}" if test else ""


def leaves(row: Row) -> str:
    """The condition if no earlier call has told."""
    test = collective_test(row, "leaves")
    named = (f"tempi_type_named({name})" for name in types_of(row))
    return " && ".join(["tempi_quiet()", *named, test]) if test else ""


def passes(row: Row) -> str:
    """The condition under which a function that tempi may act in has nothing to do; "" if it takes more than a test.
    The call is then forwarded with its arguments in their registers: moving them is most of a wrapper's cost."""
    if row.name in COPIES:
        return f"tempi_quiet() && {copies(row)}"
    if blocking_name(row.name) in COLLECTIVES:
        return collective_passes(row)
    if blocking_name(row.name) in MEETS:
        meets = ["!tempi_collective_meets()"] if row.name in MEETS else []
        named = (f"tempi_type_named_at_once({p.name})" for p in row.function.of_kind("DATATYPE"))
        return " && ".join(["tempi_quiet()", *meets, *named])
    if row.name in SETTLED:
        return f"tempi_packing_is_left{SETTLED[row.name]}"
    if row.name in REPEATED:
        left = f"tempi_message_is_left{REPEATED[row.name]}"
        if row.kind is Class.MAY_BLOCK:
            left = f"(!tempi_passing.trial_runs && {left})"
        return f"tempi_quiet() && (tempi_type_plain(datatype) || {left})"
    types = [buffer.type for buffer in row.buffers]
    if types and all(types):
        return " && ".join(["tempi_quiet()", *(f"tempi_type_plain({name})" for name in types)])
    if row.role in (Role.COMPLETES, Role.INSPECTS) and row.name not in OWN_IMPLEMENTATION:
        return "tempi_completions_pass()"
    return ""


def passed_on(slot: Slot, condition: str) -> str:
    """The fast path of a function, before its body."""
    row, target = slot.row, f"{table_of(slot)}.{slot.row.name}{'_c' if slot.large else ''}"
    form = row.function.large if slot.large else row.function.plain
    assert form is not None
    if not condition:
        return ""
    if slot.large:
        condition = f"{target} != NULL && {condition}"
    return f"    if (__builtin_expect({condition}, 1))\n        return {target}({', '.join(form.names)});\n"


def completed(row: Row, call: str) -> str:
    """Tells the trials of messages (choose/message_trials.h) that the call has completed some."""
    given = {p.name for p in row.function.plain.parameters}
    some = next((f" && {name} != NULL && *{name} > 0" for name in ("flag", "outcount") if name in given), "")
    return (
        f"    const int result = {call};\n    if (result == MPI_SUCCESS{some})\n"
        "        tempi_message_waited();\n    return result;\n"
    )


def acted_body(slot: Slot) -> str:
    row, table = slot.row, table_of(slot)
    form = row.function.large if slot.large else row.function.plain
    assert form is not None
    if row.name in EXTENSIONS:
        return f"    return tempi_{row.name}({', '.join(form.names)});\n"
    outputs = [] if slot.large else large_count_outputs(row)
    passed = ", ".join(f"&wide_{n}" if n in outputs else n for n in form.names)
    passed = f", {passed}" if passed else ""
    call = f"tempi_impl_{row.name}(&{table}{passed})"
    if row.role is Role.COMPLETES:
        return completed(row, call)
    if not outputs:
        return f"    return {call};\n"
    (name,) = outputs  # a position; the library reports an invalid one
    return (
        f"    if ({name} == NULL)\n        return {table}.{row.name}({', '.join(form.names)});\n"
        f"    MPI_Count wide_{name} = *{name};\n    int result = {call};\n"
        f"    *{name} = ({row.function.parameter(name).type.rstrip(' *')})wide_{name};\n    return result;\n"
    )


def bounced(slot: Slot) -> str:
    """Device buffers on a library that is not CUDA-aware go to another function (emit_bounce.py)."""
    row = slot.row
    form = row.function.large if slot.large else row.function.plain
    assert form is not None
    if row.bounce is Bounce.REFUSED:
        base, size = REFUSED[row.name]
        return (
            f"    if (tempi_bounces() && tempi_bounce_refuses({base}, {size}))\n"
            f'        return tempi_bounce_refuse({owner(row)}, "MPI_{row.name}");\n'
        )
    if row.bounce not in CARRIED:
        return ""
    condition = "tempi_bounce_is_pending()" if row.bounce is Bounce.END else "tempi_bounces()"
    name = f"tempi_bounced_{row.name}{'_c' if slot.large else ''}"
    call = returned(row, f"{name}(&{table_of(slot)}, {', '.join(form.names)})")
    return f"    if ({condition}) {{\n{textwrap.indent(call, '    ')}    }}\n"


def collective(row: Row) -> str:
    """A collective that tempi may carry: it describes the buffers as for the bounce."""
    blocking = blocking_name(row.name)
    if blocking not in COLLECTIVES:
        return ""
    function = f"TEMPI_FUNCTION_{blocking}"
    begin, carry, where = f"begin(comm, {function})", "tempi_collective_carry", ""
    if row.name.endswith("_init"):
        begin, carry, where = f"begin_init(comm, {function})", "tempi_coll_request_init", "request, "
    elif row.name != blocking:
        begin, carry, where = f"begin_request(comm, {function})", "tempi_coll_request_start", "request, "
    sent, received = row.buffers[0], row.buffers[-1]  # MPI_Bcast has one, for both
    buffers = "".join(f"            {described(row, buffer)},\n" for buffer in (sent, received))
    root = "root" if any(p.name == "root" for p in row.function.plain.parameters) else "-1"
    return (
        f"    tempi_node_comm *const node = tempi_collective_{begin};\n"
        "    if (__builtin_expect(node != NULL, 0)) {\n        int result;\n"
        f"        const tempi_bounce_argument buffers[] = {{\n{buffers}        }};\n"
        f"        const tempi_collective call = {{{function}, TEMPI_PATTERN_{COLLECTIVES[blocking]}, "
        f'comm, node, {root}, "MPI_{row.name}", false}};\n'
        f"        if ({carry}(&call, buffers, {where}&result))\n"
        "            return result;\n    }\n"
    )


def misordered(row: Row) -> str:
    """A call in which some library delivers the blocks of neighbours wrongly, and that it is to do."""
    blocking = blocking_name(row.name)
    if blocking not in MISORDERED or row.name == blocking:
        return ""
    return f'    tempi_neighbor_order_left(comm, TEMPI_FUNCTION_{blocking}, "MPI_{row.name}");\n'


def connected(row: Row, call: str) -> str:
    """The call has made a communicator with a topology."""
    made = [p.name for p in row.function.of_kind("COMMUNICATOR") if p.direction == "out"]
    if row.name not in CONNECTS:
        return ""
    (comm,) = made
    return (
        f"    const int result = {call};\n    if (result == MPI_SUCCESS)\n"
        f"        tempi_collective_connect(*{comm});\n    return result;\n"
    )


def synchronised(row: Row, call: str) -> str:
    """The call completes the pending bounces of a window."""
    if row.name not in SYNCHRONISES:
        return ""
    freed = row.name == "Win_free"
    target = SYNCHRONISES[row.name] or "TEMPI_ALL_TARGETS"
    return (
        f"    if (tempi_bounce_is_pending(){' && win != NULL' if freed else ''}) {{\n"
        f"        tempi_bounce *claimed = tempi_bounce_claim({'*win' if freed else 'win'}, {target});\n"
        f"        return tempi_bounce_{'forget' if freed else 'synchronised'}(claimed, {call});\n    }}\n"
    )


def forwarded_body(slot: Slot) -> str:
    row = slot.row
    guard = "tempi_post_all()" if row.name == "Abort" else GUARDS.get(row.kind, "")
    body = f"    if (tempi_pending_any())\n        {guard};\n" if guard else ""
    form = row.function.large if slot.large else row.function.plain
    assert form is not None
    body += "    tempi_collective_meet(comm);\n" if row.name in MEETS else ""
    body += collective(row) + misordered(row) + count_call(row, form, slot.large) + bounced(slot)
    call = library_call(slot)
    if slot.large:
        return body + returned(row, call)
    return body + synchronised(row, call) + (connected(row, call) or returned(row, call))


def returned(row: Row, call: str) -> str:
    """Marks file calls: ROMIO calls PMPI functions, which are not the program's calls."""
    if not row.name.startswith("File_"):
        return f"    return {call};\n"
    before, after = OF_FILES.get(row.name, ("", ""))
    return (
        f"{before}    ++tempi_this_thread.inside;\n    const int result = {call};\n"
        f"    --tempi_this_thread.inside;\n{after}    return result;\n"
    )


def entry(slot: Slot) -> str:
    form = slot.row.function.large if slot.large else slot.row.function.plain
    assert form is not None
    counting = count_call(slot.row, form, slot.large)
    before, body = "", counting + acted_body(slot) if slot.row.acted else forwarded_body(slot)
    apart = slot.row.name in SETTLED or slot.row.name in REPEATED or blocking_name(slot.row.name) in MEETS
    if apart and passes(slot.row):
        before, body = split(slot, body)
    elif slot.row.acted:
        body = passed_on(slot, passes(slot.row)) + body
    if slot.row.name in OPTIONAL:
        body = f"    if ({table_of(slot)}.{slot.row.name} == NULL)\n        return TEMPI_UNAVAILABLE;\n{body}"
    # What a passing call takes of an entry is then in one or two cache lines.
    aligned = "__attribute__((aligned(64))) " if passes(slot.row) else ""
    return f"{before}{aligned}static int entry_{slot.symbol}({form.declared})\n{{\n{body}}}\n"


def split(slot: Slot, body: str) -> tuple[str, str]:
    """A function for the body, and the entry's own: compiled together, the fast path would save the registers that
    only the body needs."""
    form = slot.row.function.large if slot.large else slot.row.function.plain
    assert form is not None
    condition, again = passes(slot.row), ""
    if slot.row.name in SETTLED:
        again = f"tempi_packing_falls_back{SETTLED[slot.row.name]}"
    elif blocking_name(slot.row.name) in COLLECTIVES and slot.row.name not in COPIES:
        again = leaves(slot.row)
    second = passed_on(slot, again)
    if slot.row.name in COPIES:  # also the first on a communicator, and on a machine with devices
        known = "tempi_collectives && !tempi_pending_any() && !tempi_bounces() && tempi_node_comm_of(comm)"
        second = f"    if ({known} && {copies(slot.row)})\n        return {library_call(slot)};\n"
    rest = f"static __attribute__((noinline)) int rest_{slot.symbol}({form.declared})\n{{\n{second}{body}}}\n\n"
    return rest, f"{passed_on(slot, condition)}    return rest_{slot.symbol}({', '.join(form.names)});\n"


def is_entered(slot: Slot, header: Header) -> bool:
    """Whether the entry has work to do, and this mpi.h has its types."""
    row = slot.row
    idle = row.kind is Class.LOCAL and not row.acted and row.bounce is Bounce.NONE and not slot.large
    return declarable(row, header) and not idle


def wrappers(header: Header) -> str:
    """Functions that are not entered get no entry here: the library's function is used, if there is one."""
    known = [slot for slot in slots() if is_entered(slot, header)]
    entries = "\n".join(entry(slot) for slot in known)
    table = "".join(f"    (void *)entry_{slot.symbol},\n" if slot in known else "    NULL,\n" for slot in slots())
    return f"""{NOTICE}#include "mpi_table.h"

#include <string.h>

#include "impl_prototypes.h"
#include "bounced.h"
#include "base/thread.h"
#include "interposer/interposer.h"
#include "count_fallbacks.h"
#include "shim/impl.h"
#include "shim/bounce/bounce.h"
#include "shim/coll/coll_request.h"
#include "shim/coll/collective.h"
#include "shim/coll/neighbor_order.h"
#include "shim/p2p/message.h"
#include "shim/p2p/packing.h"
#include "shim/report/file_views.h"
#include "shim/comm/cuda_support.h"
#include "slots.h"

{entries}
static void *entries[TEMPI_SLOT_COUNT] = {{
{table}}};

static int unavailable(void)
{{
    return TEMPI_UNAVAILABLE;
}}

void *const *tempi_shim_entries(const struct tempi_interposer *interposer)
{{
    static const char names[] = TEMPI_SLOT_NAMES;
    const char *name = names;
    for (int i = 0; i < TEMPI_SLOT_COUNT; i++, name += strlen(name) + 1) {{
        if (entries[i] == NULL)
            entries[i] = name[0] == 'P' ? interposer->lib(name + 1) : interposer->next(name);
        if (entries[i] == NULL)
            entries[i] = (void *)unavailable;
    }}
    return entries;
}}
"""
