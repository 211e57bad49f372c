"""One complete row for every MPI function: the standard's data joined with the overlay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from table import overlay, symbols
from table.buffers import Buffer, buffers_of
from table.overlay import Class, Role
from table.standard import Function, Parameter, Signature, load


class Bounce(StrEnum):
    """How long host memory replaces device buffers, on a library that is not CUDA-aware."""

    NONE = "none"
    CALL = "call"  # until the function returns
    REQUEST = "request"  # until its request completes
    PERSISTENT = "persistent"  # from each start of its request to its completion
    WINDOW = "window"  # until the window's operations are complete
    BEGIN = "begin"  # the split collective's first half: until the second
    END = "end"  # the second half
    REFUSED = "refused"  # host memory cannot replace it


@dataclass(frozen=True, slots=True)
class Row:
    """All that tempi knows about one function; `reason` explains an exception."""

    function: Function
    kind: Class
    role: Role
    many_requests: bool
    buffers: tuple[Buffer, ...]
    acted: bool
    bounce: Bounce
    exported: bool
    twin: bool  # whether PMPI_<name> is exported beside MPI_<name>
    reason: str

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def symbol(self) -> str:
        """Its name in C; the name of an extension includes its prefix."""
        return self.name if self.name in overlay.EXTENSIONS else f"MPI_{self.name}"

    @property
    def counted(self) -> bool:
        """Whether calls with a derived datatype are counted as left to the library."""
        typed = any(buffer.type for buffer in self.buffers)
        return self.exported and typed and (not self.acted or self.name in overlay.NEVER_CARRIED)

    @property
    def has_large(self) -> bool:
        return self.function.large is not None


@cache
def library_symbols() -> dict[str, frozenset[str]]:
    """The MPI_ and PMPI_ names of each supported library, by library and version."""
    return symbols.load()


def everywhere(symbol: str) -> bool:
    """Whether every supported library has this name (invariant 3 of docs/design.md)."""
    return all(symbol in names for names in library_symbols().values())


def class_of(name: str) -> Class:
    for kind, names in (
        (Class.ENDS, overlay.ENDS),
        (Class.MAY_BLOCK, overlay.MAY_BLOCK),
        (Class.SENDS, overlay.SENDS),
        (Class.PROGRESS, overlay.PROGRESS),
    ):
        if name in names:
            return kind
    # A persistent request that tempi carries: the processes agree on it when it is made.
    return Class.MAY_BLOCK if name.removesuffix("_init") in overlay.COLLECTIVES else Class.LOCAL


def role_of(function: Function) -> Role:
    if function.name in overlay.ROLES:
        return overlay.ROLES[function.name]
    directions = {p.direction for p in function.of_kind("REQUEST")}
    if "out" in directions:
        return Role.CREATES
    if "inout" in directions:
        return Role.COMPLETES
    return Role.INSPECTS if directions else Role.NONE


def bounce_of(function: Function) -> Bounce:
    """The bounce of every function with buffers that tempi does not act in, except the tool interface."""
    name = function.name
    if name in overlay.REFUSED:
        return Bounce.REFUSED
    by_hand = name in overlay.ACTED - overlay.BOUNCES_ITSELF
    if by_hand or name.startswith("T_") or not buffers_of(function):
        return Bounce.NONE
    endings = {"_init": Bounce.PERSISTENT, "_begin": Bounce.BEGIN, "_end": Bounce.END}
    for ending, bounce in endings.items():
        if name.endswith(ending):
            return bounce
    if function.of_kind("REQUEST"):
        return Bounce.REQUEST
    return Bounce.WINDOW if function.of_kind("WINDOW") else Bounce.CALL


def reason_of(name: str, wanted: bool, exported: bool) -> str:
    """Why a function is exported although its class does not require it, or not although it does."""
    for table in (overlay.NEVER, overlay.OWN_IMPLEMENTATION, overlay.OPTIONAL, overlay.EXPORTED_LOCAL):
        if name in table:
            return table[name]
    return overlay.UNSERVED[name] if wanted and not exported else ""


def row_of(function: Function) -> Row:
    name, kind = function.name, class_of(function.name)
    acted = name in overlay.ACTED
    bounce = bounce_of(function)
    wanted = acted or kind is not Class.LOCAL or bounce is not Bounce.NONE or name in overlay.EXPORTED_LOCAL
    ours = name in overlay.OWN_IMPLEMENTATION or name in overlay.OPTIONAL
    served = everywhere(f"MPI_{name}") or ours
    exported = wanted and served and name not in overlay.NEVER
    return Row(
        function=function,
        kind=kind,
        role=role_of(function),
        many_requests=any(p.is_array for p in function.of_kind("REQUEST")),
        buffers=buffers_of(function),
        acted=acted,
        bounce=bounce,
        exported=exported,
        twin=exported and (everywhere(f"PMPI_{name}") or ours),
        reason=reason_of(name, wanted, exported),
    )


@cache
def all_rows() -> tuple[Row, ...]:
    return tuple(row_of(function) for function in load().values())


@cache
def exported_rows() -> tuple[Row, ...]:
    return tuple(row for row in all_rows() if row.exported)


def extension_of(name: str) -> Row:
    parameters, reason = overlay.EXTENSIONS[name]
    plain = Signature(
        "int", tuple(Parameter(n, "", type_, False, "", way, None, False) for n, type_, way in parameters)
    )
    return Row(
        function=Function(name, plain, None),
        kind=Class.LOCAL,
        role=Role.NONE,
        many_requests=False,
        buffers=(),
        acted=True,
        bounce=Bounce.NONE,
        exported=True,
        twin=False,
        reason=reason,
    )


@cache
def extension_rows() -> tuple[Row, ...]:
    return tuple(extension_of(name) for name in overlay.EXTENSIONS)


@dataclass(frozen=True, slots=True)
class Slot:
    """One exported symbol, in the order of the trampolines and of the shim's entries."""

    row: Row
    profiling: bool
    large: bool

    @property
    def symbol(self) -> str:
        return f"{'P' if self.profiling else ''}{self.row.symbol}{'_c' if self.large else ''}"


@cache
def slots() -> tuple[Slot, ...]:
    return tuple(
        Slot(row, profiling, large)
        for row in (*exported_rows(), *extension_rows())
        for large in ((False, True) if row.has_large else (False,))
        for profiling in ((False, True) if row.twin else (False,))
    )
