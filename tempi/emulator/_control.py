"""Branches, barriers and operations across the lanes of a warp."""

from __future__ import annotations

from . import _syntax as syntax
from ._types import B32, PRED, U32
from ._writer import Words, Writer, instruction

WAITING = ("bar", "barrier", "shfl", "vote")  # instructions that make a kernel keep its registers in a struct


@instruction("bra")
def bra(w: Writer, words: Words) -> None:
    words.flag("uni")
    (target,) = words.operands(1)
    w.write(f"goto {label(words, target)};")


def label(words: Words, target: syntax.Operand) -> str:
    found = words.instruction.scope.label(target.text) if isinstance(target, syntax.Name) else None
    if found is None:
        raise words.error("an unknown label")
    return found


@instruction("brx")
def brx(w: Writer, words: Words) -> None:
    words.choice("idx")
    words.flag("uni")
    index, table = words.operands(2)
    scope: syntax.Scope | None = words.instruction.scope
    while scope is not None and not (isinstance(table, syntax.Name) and table.text in scope.targets):
        scope = scope.parent
    if scope is None or not isinstance(table, syntax.Name):
        raise words.error("an unknown table of targets")
    for i, name in enumerate(scope.targets[table.text]):
        w.write(f"if ({w.value(index, U32)} == {i}u) goto {label(words, syntax.Name(name))};")


@instruction("ret", "exit")
def leave(w: Writer, words: Words) -> None:
    words.flag("uni")
    words.operands(0)
    w.write("return TEMPI_PTX_EXIT;")


@instruction("trap")
def trap(w: Writer, words: Words) -> None:
    words.operands(0)
    line = words.instruction.line
    w.write(f"tempi_ptx_fault(b, TEMPI_PTX_LAUNCH_FAILED, 0, {line}); return TEMPI_PTX_FAULT;")


@instruction("bar", "barrier")
def barrier(w: Writer, words: Words) -> None:
    if words.instruction.opcode == "bar" and words.flag("warp"):
        words.choice("sync")
        (mask,) = words.operands(1)
        w.write(f"t->given = 0; t->wait_mask = {w.value(mask, U32)};")
        w.stop("TEMPI_PTX_WAIT_WARP")
        return
    words.flag("cta")
    words.choice("sync")
    aligned = words.flag("aligned") or words.instruction.opcode == "bar"
    operands = words.operands(1, 2)
    count = w.value(operands[1], U32) if len(operands) == 2 else "0"
    w.write(f"t->wait_id = {w.value(operands[0], U32)}; t->wait_count = {count};")
    w.write(f"t->aligned = {int(aligned)};")
    w.stop("TEMPI_PTX_WAIT_BLOCK")


@instruction("shfl")
def shfl(w: Writer, words: Words) -> None:
    words.choice("sync")
    mode = words.choice("up", "down", "bfly", "idx")
    kind = words.type("b32")
    destination, a, by, clamp, mask = words.operands(5)
    w.write(f"t->given = {w.value(a, kind)}; t->wait_mask = {w.value(mask, U32)};")
    w.stop("TEMPI_PTX_WAIT_WARP")
    arguments = f"t, TEMPI_PTX_{mode.upper()}, {w.value(by, U32)}, {w.value(clamp, U32)}, &inside"
    w.write(f"{{ uint8_t inside; const uint32_t lane = tempi_ptx_lane({arguments});")
    first = destination.first if isinstance(destination, syntax.Pair) else destination
    w.assign(first, kind, "t->shown[lane]")
    if isinstance(destination, syntax.Pair):
        w.assign(destination.second, PRED, "inside")
    w.write("}")


@instruction("vote")
def vote(w: Writer, words: Words) -> None:
    words.choice("sync")
    mode = words.choice("all", "any", "uni", "ballot")
    kind = words.type("b32" if mode == "ballot" else "pred")
    destination, a, mask = words.operands(3)
    w.write(f"t->given = {w.value(a, PRED)}; t->wait_mask = {w.value(mask, U32)};")
    w.stop("TEMPI_PTX_WAIT_WARP")
    ballot = "tempi_ptx_ballot(t)"
    result = {
        "ballot": ballot,
        "any": f"{ballot} != 0",
        "all": f"{ballot} == t->met_mask",
        "uni": f"{ballot} == 0 || {ballot} == t->met_mask",
    }[mode]
    w.assign(destination, B32 if kind.kind == "b" else PRED, result)


@instruction("nanosleep")
def nanosleep(w: Writer, words: Words) -> None:
    words.type("u32")
    words.operands(1)
