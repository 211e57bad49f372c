"""The table of functions: complete, consistent, and its generated code agrees with every installed mpi.h."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import build
from table import (
    emit_abi,
    emit_bounce,
    emit_fallback,
    emit_interposer,
    emit_trampolines,
    emit_wrappers,
    generate,
    overlay,
    symbols,
)
from table.overlay import Class, Role
from table.rows import Bounce, Row, all_rows, exported_rows, library_symbols, slots

CSRC = Path(build.__file__).parent
ROWS = {row.name: row for row in all_rows()}
CC = build.compiler()
MPIS = build.all_mpis(CC)
STRICT = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wconversion"]


def overlay_names() -> set[str]:
    sets = (overlay.ACTED, overlay.ENDS, overlay.SENDS, overlay.PROGRESS, overlay.MAY_BLOCK)
    tables = (overlay.NEVER, overlay.UNSERVED, overlay.OWN_IMPLEMENTATION, overlay.OPTIONAL, overlay.EXPORTED_LOCAL)
    others = (overlay.ROLES, overlay.ARRAY_LENGTH, overlay.IN_PLACE, overlay.AUXILIARY, overlay.TIMES)
    more = (overlay.PARTIAL, overlay.REFUSED, overlay.SYNCHRONISES)
    return set().union(*sets, *tables, *others, *more, overlay.NOT_A_MESSAGE)


def test_every_function_of_the_standard_has_a_row() -> None:
    assert len(ROWS) > 500
    assert {"Send", "Alltoallw", "Psend_init", "Session_init", "T_pvar_read", "Wtime"} <= set(ROWS)


def test_the_overlay_names_only_functions_of_the_standard() -> None:
    assert overlay_names() <= set(ROWS)


def test_no_function_has_two_classes() -> None:
    sets = [overlay.ENDS, overlay.SENDS, overlay.PROGRESS, overlay.MAY_BLOCK]
    assert sum(map(len, sets)) == len(frozenset().union(*sets))


def communicates(row: Row) -> bool:
    """Has a buffer and a communicator, or makes or completes requests."""
    buffers_move = bool(row.buffers) and bool(row.function.of_kind("COMMUNICATOR"))
    return buffers_move or row.role in (Role.COMPLETES, Role.STARTS)


@pytest.mark.parametrize("row", [r for r in ROWS.values() if communicates(r)], ids=lambda r: r.name)
def test_a_function_that_communicates_is_local_only_by_decision(row: Row) -> None:
    packing = row.name in {"Pack", "Unpack"}
    persistent = row.name.endswith("_init")  # communicates when it is started
    assert row.kind is not Class.LOCAL or packing or persistent


@pytest.mark.parametrize("row", [r for r in ROWS.values() if r.buffers], ids=lambda r: r.name)
def test_every_message_buffer_is_fully_described(row: Row) -> None:
    names = set(row.function.plain.names)
    for buffer in row.buffers:
        assert {buffer.argument} <= names
        assert {buffer.count, buffer.displacements, buffer.type} - {""} <= names
        assert bool(buffer.displacements) == bool(buffer.unit)
        one_element = row.name in {"Compare_and_swap", "Fetch_and_op"}
        tool = row.name.startswith("T_")
        described_before = row.name.endswith("_end")  # a split collective's second half
        assert buffer.count or one_element or tool or described_before
        packed_side = row.name.startswith(("Pack", "Unpack"))
        assert buffer.type or packed_side or tool or described_before


@pytest.mark.parametrize("row", [r for r in ROWS.values() if r.buffers], ids=lambda r: r.name)
def test_arrays_of_counts_know_their_lengths(row: Row) -> None:
    for buffer in row.buffers:
        arrays = buffer.count and row.function.parameter(buffer.count).is_array
        assert (buffer.pieces == "one") == (not arrays)


def test_rows_that_one_can_check_by_eye() -> None:
    send, recv = ROWS["Send"], ROWS["Irecv"]
    assert [(b.argument, b.count, b.type, b.direction) for b in send.buffers] == [("buf", "count", "datatype", "in")]
    assert (recv.role, recv.buffers[0].direction, recv.kind) == (Role.CREATES, "out", Class.PROGRESS)
    assert (ROWS["Waitall"].role, ROWS["Waitall"].many_requests) == (Role.COMPLETES, True)
    assert ROWS["Startall"].role is Role.STARTS
    assert ROWS["Request_get_status"].role is Role.INSPECTS
    assert ROWS["Request_free"].role is Role.RELEASES
    gatherv = ROWS["Igatherv"].buffers[1]
    assert (gatherv.displacements, gatherv.unit, gatherv.pieces) == ("displs", "extent", "root_peers")
    assert gatherv.root_only
    assert ROWS["Igatherv"].buffers[0].in_place
    assert ROWS["Alltoallw"].buffers[0].unit == "byte"
    assert ROWS["Allreduce"].buffers[0].type == "datatype"


def test_exports_are_what_every_library_has_or_what_we_implement() -> None:
    for row in exported_rows():
        if row.name not in overlay.OWN_IMPLEMENTATION and row.name not in overlay.OPTIONAL:
            for library, names in library_symbols().items():
                assert f"MPI_{row.name}" in names, library
                assert f"PMPI_{row.name}" in names or not row.twin, library


def test_the_five_libraries_are_there() -> None:
    assert set(library_symbols()) == {
        "mpich-4.0.2",
        "mpich-5.0.2",
        "openmpi-4.1.4",
        "openmpi-5.0.11",
        "standard-5.0.2",
    }


def test_the_matrix_of_symbols_is_read_as_it_is_written() -> None:
    assert symbols.table(symbols.load()) == symbols.FILE.read_text()
    assert {"MPI_Send", "PMPI_Send", "MPI_Send_c", "PMPI_Send_c"} <= symbols.load()["mpich-5.0.2"]
    assert "MPI_Send_c" not in symbols.load()["openmpi-5.0.11"]


def test_a_library_is_added_as_a_column_and_removed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, library, file = tmp_path / "mine.c", tmp_path / "libmine.so", tmp_path / "symbols.txt"
    source.write_text("int MPI_Send, PMPI_Send, MPI_New_c, other, MPIX_Mine; static int MPI_Recv = 1;\n")
    subprocess.run([*CC, "-shared", "-fPIC", source, "-o", library], check=True)
    before = symbols.FILE.read_text()
    file.write_text(before)
    monkeypatch.setattr(symbols, "FILE", file)
    symbols.main(["--add", f"mine-1.0={library}"])
    assert symbols.load() == library_symbols() | {"mine-1.0": {"MPI_Send", "PMPI_Send", "MPI_New_c"}}
    symbols.main(["--remove", "mine-1.0"])
    assert file.read_text() == before


def test_acted_functions_are_exported_in_both_forms_and_by_both_entries() -> None:
    names = {slot.symbol for slot in slots()}
    for name in overlay.ACTED:
        suffixes = ("", "_c") if ROWS[name].has_large else ("",)
        assert {f"{p}MPI_{name}{s}" for p in ("", "P") for s in suffixes} <= names


def test_a_call_without_work_for_tempi_is_passed_on_at_once() -> None:
    """Else each call costs 5 ns. Where a function has several types, all of them must be plain. Of messages also those
    pass that are known to be the library's, but not those that end a round while a trial counts rounds."""
    passes = {name: emit_wrappers.passes(row) for name, row in ROWS.items()}
    left = "tempi_message_is_left(datatype, count, source, comm, TEMPI_OP_RECV)"
    assert passes["Irecv"] == f"tempi_quiet() && (tempi_type_plain(datatype) || {left})"
    assert passes["Recv"] == f"tempi_quiet() && (tempi_type_plain(datatype) || (!tempi_passing.trial_runs && {left}))"
    assert passes["Sendrecv"].count("tempi_type_plain") == 2
    assert passes["Waitall"] == "tempi_completions_pass()"
    once = "tempi_type_named_at_once"
    passed = "tempi_types_named_at_once(recvtype, sendtype) && tempi_collective_passes(comm, TEMPI_FUNCTION_Gather"
    assert passes["Gather"] == f"{passed}, true)"
    assert passes["Igather"] == f"{passed}, false)"
    assert passes["Bcast"] == f"{once}(datatype) && tempi_collective_passes(comm, TEMPI_FUNCTION_Bcast, true)"
    named = "tempi_type_named(recvtype) && tempi_type_named(sendtype)"
    left = f"tempi_quiet() && {named} && tempi_collective_leaves(comm, TEMPI_FUNCTION_Gather"
    assert emit_wrappers.leaves(ROWS["Gather"]) == f"{left}, true)"
    assert emit_wrappers.leaves(ROWS["Igather"]) == f"{left}, false)"
    assert passes["Allreduce"] == f"tempi_quiet() && !tempi_collective_meets() && {once}(datatype)"
    assert passes["Iallreduce"] == f"tempi_quiet() && {once}(datatype)"
    assert passes["Alltoallw"] == passes["Ialltoallw"].replace("(comm, false, ", "(comm, true, ")
    assert passes["Neighbor_alltoallw"] == passes["Ineighbor_alltoall"] == passes["Gather_init"] == ""
    assert passes["Alltoallw"].startswith(
        "tempi_quiet() && tempi_collective_copies(comm, true, sendbuf, (tempi_numbers)"
    )
    assert passes["Init"] == passes["Type_commit"] == passes["Request_get_status_any"] == ""


def test_each_exception_has_its_reason() -> None:
    for row in ROWS.values():
        asks = row.kind is not Class.LOCAL or row.acted or row.bounce is not Bounce.NONE
        assert bool(row.reason) or row.exported == asks, row.name
    wanted = {r.name for r in ROWS.values() if r.kind is not Class.LOCAL and not r.exported}
    assert wanted == set(overlay.UNSERVED)


def test_no_data_no_callback_and_no_probe_is_exported() -> None:
    names = {slot.symbol for slot in slots()}
    assert not {n for n in names if n.removeprefix("P").removeprefix("MPI_").isupper()}
    assert not {f"MPI_{name}" for name in overlay.NEVER} & names
    assert "MPI_Get_version" not in names


def test_export_map_slots_and_trampolines_name_the_same_symbols() -> None:
    names = [slot.symbol for slot in slots()]
    assert len(names) == len(set(names))
    assert re.findall(r"^    (P?MPIX?_\w+);$", emit_interposer.exports(), re.MULTILINE) == names
    assert re.findall(r'"(P?MPIX?_\w+)\\0"', emit_interposer.slots_header()) == names
    for text in (emit_trampolines.x86_64(), emit_trampolines.aarch64()):
        assert re.findall(r"\.globl (P?MPIX?_\w+)", text) == names


def test_the_page_has_a_line_for_every_function() -> None:
    lines = [line for line in emit_interposer.functions_page().splitlines() if line.startswith("| MPI_")]
    assert len(lines) == len(ROWS)
    assert any("MPI_Isendrecv " in line and "must not overtake" in line for line in lines)


def test_every_buffer_is_acted_in_or_bounced() -> None:
    """A function with a buffer that neither packs nor bounces would hand a device address to the library."""
    left = {row.name for row in ROWS.values() if row.buffers and not row.acted and row.bounce is Bounce.NONE}
    assert {name for name in left if not name.startswith("T_")} == set()


def test_bounced_buffers_that_one_can_check_by_eye() -> None:
    def text(name: str) -> list[str]:
        return [emit_bounce.described(ROWS[name], buffer) for buffer in ROWS[name].buffers]

    assert text("Bcast") == [
        "{.address = buffer, .does = tempi_bounce_broadcasts(comm, root), .count = count, .type = datatype, "
        ".times = TEMPI_ONCE}"
    ]
    send, recv = text("Gather")
    assert "!tempi_bounce_at_leaf(comm, root) ? 0 : sendbuf == MPI_IN_PLACE ? 0 : TEMPI_READS" in send
    assert "!tempi_bounce_at_root(comm, root) ? 0 : sendbuf == MPI_IN_PLACE ? TEMPI_READS | TEMPI_WRITES" in recv
    assert ".times = TEMPI_LARGE_COUNT_PEERS" in recv
    assert ".does = TEMPI_WRITES | TEMPI_KEEPS" in text("File_read_all_begin")[0]
    assert "tempi_bounce_at_leaf" in text("Scatterv_init")[1]
    send, recv = text("Ireduce_scatter")
    assert ".own = !(sendbuf == MPI_IN_PLACE)" in recv
    assert ".own" not in send
    assert ".in_bytes = true, .types = recvtypes" in text("Neighbor_alltoallw")[1]
    assert "op == MPI_NO_OP ? 0" in text("Rget_accumulate")[0]
    assert "op == MPI_NO_OP" not in text("Accumulate")[0]


def test_every_typed_buffer_is_carried_or_counted() -> None:
    """Calls that tempi always leaves to the library are counted by function; those it may handle, by reason."""
    typed = {row.name for row in ROWS.values() if row.exported and any(buffer.type for buffer in row.buffers)}
    counted = {row.name for row in emit_fallback.counted_rows()}
    carried = overlay.ACTED - overlay.NEVER_CARRIED
    assert counted == typed - carried
    assert {"Bcast", "Alltoallw_init", "Ineighbor_alltoallw", "Put", "File_iwrite", "Psend_init"} <= counted
    assert not counted & {"Send", "Sendrecv_replace", "Mrecv", "Pack", "Barrier"}


def test_predefined_types_cost_a_lookup() -> None:
    assert emit_fallback.condition(ROWS["Gather"]) == "!tempi_type_named(sendtype) || !tempi_type_named(recvtype)"
    assert "target_datatype" in emit_fallback.condition(ROWS["Put"])
    assert emit_fallback.condition(ROWS["Alltoallw"]) == ""


def test_only_the_programs_calls_of_files_count() -> None:
    text = emit_wrappers.returned(ROWS["File_write_all"], "call()")
    assert text.index("++tempi_this_thread.inside") < text.index("call()") < text.index("--tempi_this_thread.inside")
    assert emit_wrappers.returned(ROWS["Bcast"], "call()") == "    return call();\n"


def test_every_access_to_a_file_asks_for_its_view() -> None:
    accesses = [row for row in emit_fallback.counted_rows() if row.name.startswith("File_")]
    assert len(accesses) == 28
    assert all("tempi_file_views_any()" in emit_fallback.condition(row) for row in accesses)
    assert "tempi_file_view_set" in emit_wrappers.returned(ROWS["File_set_view"], "call()")
    text = emit_wrappers.returned(ROWS["File_close"], "call()")
    assert text.index("tempi_file_view_drop(file)") < text.index("call()") < text.index("tempi_file_view_add(file)")


def test_calls_count_also_where_device_memory_may_go_through_the_host() -> None:
    for slot in slots():
        if slot.row.name in ("Bcast", "File_read_at", "Put"):
            text = emit_wrappers.forwarded_body(slot)
            assert text.index("tempi_fallback_") < text.index("tempi_bounces()")


def test_functions_that_complete_one_sided_operations_end_their_bounce() -> None:
    """All of the standard's completions at the origin: MPI-5.0 section 12.5."""
    asked = {n for n in ROWS if n.startswith(("Win_flush", "Win_unlock", "Win_fence", "Win_complete", "Win_free"))}
    assert set(overlay.SYNCHRONISES) == asked - {"Win_free_keyval"}
    assert all(ROWS[name].exported for name in asked - {"Win_free_keyval"})


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_trampolines_assemble(machine: str, tmp_path: Path) -> None:
    assembler = shutil.which(f"{machine}-linux-gnu-gcc")
    if assembler is None:
        pytest.skip(f"no {machine}-linux-gnu-gcc")
    source = tmp_path / "trampolines.S"
    source.write_text(generate.neutral_files()[f"trampolines_{machine}.S"])
    subprocess.run([assembler, "-c", source, "-o", tmp_path / "t.o"], check=True)


def compiles(source: Path, directory: Path, mpi: build.Mpi) -> subprocess.CompletedProcess[str]:
    theirs = [f"-isystem{f[2:]}" if f.startswith("-I") else f for f in mpi.flags]
    includes = [f"-I{CSRC}", f"-I{directory}"]
    command = [*CC, *STRICT, *includes, *theirs, "-fsyntax-only", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def generated(mpi: build.Mpi, directory: Path) -> Path:
    generate.write(directory, generate.neutral_files() | generate.abi_files([*CC, *mpi.flags]))
    return directory


def test_an_mpi_header_is_installed() -> None:
    assert MPIS, "no mpi.h: set TEMPI_MPI_PREFIX, or install an MPI into this environment"


@pytest.mark.parametrize("mpi", MPIS, ids=lambda m: m.label)
def test_generated_code_compiles_without_a_warning(mpi: build.Mpi, tmp_path: Path) -> None:
    directory = generated(mpi, tmp_path)
    for name in ("bind.c", "bounced.c", "forward.c", "left.c", "wrappers.c"):
        run = compiles(directory / name, directory, mpi)
        assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("mpi", MPIS, ids=lambda m: m.label)
def test_a_prototype_unlike_the_header_fails_the_build(mpi: build.Mpi, tmp_path: Path) -> None:
    directory = generated(mpi, tmp_path)
    table = directory / "bind.c"
    text = table.read_text()
    checked = "__typeof__(&MPI_Ssend), int (*)(const void * buf, int count"
    assert checked in text
    table.write_text(text.replace(checked, checked.replace("int count", "long count")))
    run = compiles(table, directory, mpi)
    assert run.returncode != 0
    assert "MPI_Ssend: this mpi.h declares it otherwise" in run.stderr


@pytest.mark.parametrize("name", [*overlay.WITHOUT_CONST, "Waitall", "Send"])
def test_a_known_prototype_may_lack_its_consts(name: str, tmp_path: Path) -> None:
    """Whichever mpi.h is here: Intel MPI's lacks some."""
    declared = emit_abi.pointer("", ROWS[name].function.plain)
    types = "typedef int MPI_Request, MPI_Datatype, MPI_Comm; typedef struct { int error; } MPI_Status;\n"
    source = tmp_path / "declared.c"
    outcomes = []
    for form in (declared, declared.replace("const ", ""), declared.replace("int count", "long count")):
        check = f'_Static_assert({emit_abi.agrees(name, ROWS[name].function.plain)}, "");'
        source.write_text(f"{types}extern __typeof__(*({form})0) MPI_{name};\n{check}\n")
        outcomes.append(
            subprocess.run([*CC, "-w", "-fsyntax-only", source], check=False, capture_output=True).returncode
        )
    lacks, has_count = name in overlay.WITHOUT_CONST or "const " not in declared, "int count" in declared
    assert [code == 0 for code in outcomes] == [True, lacks, not has_count]


def test_a_type_that_the_header_lacks_leaves_its_functions_out() -> None:
    lean = emit_abi.Header(
        functions=frozenset(),
        words=frozenset({"MPI_Aint", "MPI_Comm", "MPI_Count", "MPI_Datatype", "MPI_Status"}),
        macros=frozenset(),
        predefined=(),
    )
    names = {name for name, _ in emit_abi.members(lean)}
    assert "Type_size_x" in names
    assert "Session_init" not in names


def test_unchanged_files_are_not_written_again(tmp_path: Path) -> None:
    generate.write(tmp_path, {"a.h": "one\n"})
    before = (tmp_path / "a.h").stat().st_mtime_ns
    generate.write(tmp_path, {"a.h": "one\n"})
    assert (tmp_path / "a.h").stat().st_mtime_ns == before
    generate.write(tmp_path, {"a.h": "two\n"})
    assert (tmp_path / "a.h").read_text() == "two\n"
