"""The buffers of a function: the arguments for their addresses, counts and types.

In the standard's argument order a buffer is followed by its count (or counts, displacements) and its
type; where two buffers are adjacent (the reductions), both share the arguments after the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from table import overlay
from table.standard import Function, Parameter

COUNTS = ("POLYXFER_NUM_ELEM", "POLYXFER_NUM_ELEM_NNI", "XFER_NUM_ELEM", "XFER_NUM_ELEM_NNI")
DISPLACEMENTS = ("POLYDISPLACEMENT", "DISPLACEMENT", "POLYDISPLACEMENT_AINT_COUNT")
OTHER_COUNTS = (
    "POLYDTYPE_NUM_ELEM",
    "POLYDTYPE_NUM_ELEM_NNI",
    "POLYDTYPE_PACK_SIZE",
    "POLYNUM_BYTES",
    "POLYNUM_BYTES_NNI",
    "PACK_EXTERNAL_SIZE",
)


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer argument; counts and types are names of arguments, "" for none."""

    argument: str
    direction: str  # in: read; out: written; inout: both
    count: str
    displacements: str
    unit: str  # of the displacements: "extent", "byte", or "" without any
    type: str
    pieces: str  # number of counts: "one", or a length of overlay.ARRAY_LENGTH
    times: str  # how often the single count applies: "one", or a length too
    root_only: bool
    in_place: bool
    bottom: bool


def blocking_name(name: str) -> str:
    """The blocking form: Alltoallv for Alltoallv, Ialltoallv and Alltoallv_init."""
    stem = name.removesuffix("_init")
    if stem.startswith("I") and stem[1:].capitalize() in _COLLECTIVES:
        return stem[1:].capitalize()
    return stem


_COLLECTIVES = frozenset((*overlay.IN_PLACE, *overlay.ARRAY_LENGTH, *overlay.TIMES)) | {
    "Bcast",
    "Neighbor_allgather",
    "Neighbor_alltoall",
}


def _described_by(function: Function, start: int) -> tuple[Parameter, ...]:
    """The arguments after buffer number `start` that belong to it."""
    parameters = function.plain.parameters
    end = start + 1
    while end < len(parameters) and parameters[end].kind == "BUFFER":
        end += 1
    first = end
    while end < len(parameters) and parameters[end].kind != "BUFFER":
        end += 1
        if parameters[end - 1].kind == "DATATYPE":
            break
    return parameters[first:end]


def _first(parameters: tuple[Parameter, ...], kinds: tuple[str, ...]) -> Parameter | None:
    return next((p for p in parameters if p.kind in kinds), None)


def _count_of(found: tuple[Parameter, ...]) -> Parameter | None:
    """The count; the packed side of Pack and Unpack, and partitions, use other kinds for it."""
    return _first(found, COUNTS) or _first(found, OTHER_COUNTS)


def _one(function: Function, index: int) -> Buffer:
    parameter = function.plain.parameters[index]
    found = _described_by(function, index)
    count, type_ = _count_of(found), _first(found, ("DATATYPE",))
    displacements = _first(tuple(p for p in found if p.is_array), DISPLACEMENTS)
    base = blocking_name(function.name)
    lengths = overlay.ARRAY_LENGTH.get(base, {})
    unit = "byte" if type_ and type_.is_array else "extent"
    return Buffer(
        argument=parameter.name,
        direction=parameter.direction,
        count=count.name if count else "",
        displacements=displacements.name if displacements else "",
        unit=unit if displacements else "",
        type=type_.name if type_ else "",
        pieces=lengths[count.name] if count and count.is_array else "one",
        times=overlay.TIMES.get(base, {}).get(parameter.name, "one"),
        # The standard's data also marks Scatterv_init's recvbuf, but every process has one.
        root_only=parameter.root_only and overlay.IN_PLACE.get(base) != parameter.name,
        in_place=overlay.IN_PLACE.get(base) == parameter.name,
        bottom=type_ is not None,
    )


def buffers_of(function: Function) -> tuple[Buffer, ...]:
    if function.name in overlay.NOT_A_MESSAGE:
        return ()
    return tuple(_one(function, i) for i, p in enumerate(function.plain.parameters) if p.kind == "BUFFER")
