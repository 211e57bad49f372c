"""MPI's functions, parameters and kinds as the MPI Forum publishes them (package pympistandard).

Holds only the data that the table needs, as plain values: no other module uses pympistandard.
"""

from __future__ import annotations

from dataclasses import dataclass

import pympistandard as forum


@dataclass(frozen=True, slots=True)
class Parameter:
    """One C parameter: `const? type name array`, in its plain or its large-count form."""

    name: str
    kind: str
    type: str
    const: bool
    array: str
    direction: str
    length: str | None
    root_only: bool

    @property
    def declared_type(self) -> str:
        """The type as a parameter type, with arrays as pointers, for casts and function types."""
        const = "const " if self.const else ""
        if self.array == "[][3]":
            return f"{const}{self.type} (*)[3]"
        return f"{const}{self.type}{' *' if self.array else ''}"

    @property
    def declaration(self) -> str:
        if self.type == "...":
            return "..."
        const = "const " if self.const else ""
        return f"{const}{self.type} {self.name}{self.array}"

    @property
    def poly(self) -> bool:
        """Whether its type differs in the large-count form."""
        return self.kind.startswith("POLY")

    @property
    def is_array(self) -> bool:
        return self.array != ""


@dataclass(frozen=True, slots=True)
class Signature:
    """One C prototype, without its name."""

    returns: str
    parameters: tuple[Parameter, ...]

    @property
    def declared(self) -> str:
        return ", ".join(p.declaration for p in self.parameters) or "void"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @property
    def types(self) -> frozenset[str]:
        """Every MPI type that the prototype names."""
        words = [self.returns, *(p.type for p in self.parameters)]
        return frozenset(w.strip(" *") for w in words if w.startswith("MPI_"))


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the standard; `name` is without its MPI_ prefix."""

    name: str
    plain: Signature
    large: Signature | None

    def parameter(self, name: str) -> Parameter:
        return next(p for p in self.plain.parameters if p.name == name)

    def of_kind(self, kind: str) -> tuple[Parameter, ...]:
        return tuple(p for p in self.plain.parameters if p.kind == kind)


def _parameter(source: forum.isoc.ISOCParameter) -> Parameter:
    raw = source._parseset
    if raw["kind"] == "VARARGS":
        return Parameter("...", "VARARGS", "...", False, "", "in", None, False)
    base = source.type
    # A list as length means two dimensions; only MPI_Group_range_incl and _excl have one.
    length = raw["length"]
    return Parameter(
        name=raw["name"],
        kind=raw["kind"],
        type=base.replace("*", " *", 1) if "*" in base else base,
        const=raw["constant"],
        array=source.array,
        direction=raw["param_direction"],
        length=length if isinstance(length, str) else None,
        root_only=raw["root_only"],
    )


def _signature(symbol: forum.isoc.ISOCSymbol) -> Signature:
    return Signature(
        returns=symbol.return_type,
        parameters=tuple(_parameter(p) for p in symbol.parameters),
    )


def _function(procedure: forum.Procedure) -> Function:
    return Function(
        name=procedure._parseset["name"].removeprefix("MPI_"),
        plain=_signature(procedure.express.iso_c),
        large=(_signature(procedure.express.embiggen.iso_c) if procedure.has_embiggenment() else None),
    )


def load() -> dict[str, Function]:
    """Every function that the standard expresses in C, by its name without MPI_."""
    # The data bundled with pympistandard, never data that the environment points to.
    forum.use_api_version(1, force_bundled=True)
    functions = (_function(p) for p in forum.PROCEDURES.values() if p._parseset["attributes"]["c_expressible"])
    return {f.name: f for f in sorted(functions, key=lambda f: f.name)}
