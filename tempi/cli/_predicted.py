"""The part of `tempi explain` that tells what each method is predicted to take."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tempi import _engine
from tempi.model import predict, store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tempi._datatypes import Datatype

__all__ = ["PEERS", "device_lines", "device_records", "lines", "records"]

#: As a person says it, and as the tables have it.
PEERS = {"self": "self", "same-node": "node", "other-node": "other"}
_OPERATIONS = {"send": "a message", "pack": "MPI_Pack", "unpack": "MPI_Unpack"}
_WHERE = {"self": " to itself", "same-node": " to a rank of the same node", "other-node": " to another node"}
_METHODS = {
    "library": "library", "device": "device", "oneshot": "one-shot", "staged": "staged", "pipelined": "pipelined",
}  # fmt: skip
_DIRECTIONS = {"send": "sent", "recv": "received"}
EMULATED = "EMULATED DEVICE (CUDA on the CPU): these times are none of a GPU's"
_BAR = 40  # characters of the slower method
_RULE = {"MPICH": "MPICH Version: 5", "Open MPI": "Open MPI v5"}


def _models() -> Iterator[tuple[str, predict.Model]]:
    """Each MPI that is calibrated on this machine."""
    for _, found in store.local():
        if isinstance(found, store.Calibration) and found.mismatch() is None:
            try:
                yield found.machine.mpi, predict.Model(found.machine.table)
            except store.StoreError:
                continue  # `tempi doctor` tells


def records(datatype: Datatype, count: int, peer: str) -> Iterator[dict[str, Any]]:
    """One object for each MPI and operation; `prediction` is None where there are no tables."""
    layout = datatype.canonical()
    size = int(layout.size) * count
    for mpi, model in _models() if size else ():
        for operation in _OPERATIONS:
            told = model.predict(layout, size, operation, PEERS[peer])
            acts = model.acts(layout, size, operation, PEERS[peer])
            record: dict[str, Any] = {"mpi": mpi, "operation": operation, "peer": peer, "bytes": size}
            yield record | {"prediction": asdict(told) if told else None, "acts": acts}


def _time(seconds: float) -> str:
    micro = 1e6 * seconds
    return f"{micro:,.0f} us" if micro >= 1000 else f"{micro:.3g} us"


def _bars(told: dict[str, Any]) -> Iterator[str]:
    slower = max(told["library"], told["host"])
    for method, name in (("library", "library"), ("host", "tempi")):
        bar = "#" * max(1, round(_BAR * told[method] / slower))
        yield f"  {name:<8}{bar:<{_BAR}} {_time(told[method])}"


def _block(record: dict[str, Any]) -> Iterator[str]:
    what = _OPERATIONS[record["operation"]]
    sends = record["operation"] == "send"
    where = _WHERE[record["peer"]] if sends else ""
    told = record["prediction"]
    if told is None:
        yield f"{what}{where}: not calibrated for this shape or peer; the built-in rule chooses"
        return
    choice = "tempi carries it" if record["acts"] else "it is left to the library"
    yield f"{what} of {record['bytes']:,} B{where}: {choice}"
    yield from _bars(told)
    if sends:
        parts = (f"{name} {_time(told[name])}" for name in ("pack", "message", "unpack"))
        yield f"  {'':<8}tempi: {' + '.join(parts)}"


def _by_rule(datatype: Datatype, count: int) -> Iterator[str]:
    layout = datatype.canonical()
    for name, version in _RULE.items():
        acts = _engine.lib.tempi_rule_choice(version.encode(), layout, layout.size * count, 2)
        yield f"  {name}: {'tempi carries it' if acts else 'it is left to the library'}"


def lines(datatype: Datatype, count: int, peer: str) -> Iterator[str]:
    """In words, with a bar for each method."""
    found = list(records(datatype, count, peer))
    if not found:
        yield "This machine is not calibrated (`tempi calibrate`). By the built-in rule, a message:"
        yield from _by_rule(datatype, count)
        return
    for number, record in enumerate(found):
        if number == 0 or found[number - 1]["mpi"] != record["mpi"]:
            yield f"Predicted with {record['mpi']}:"
        yield from _block(record)


# -- device memory ------------------------------------------------------------------------------------------


def device_records(datatype: Datatype, count: int, peer: str, memory: str) -> Iterator[dict[str, Any]]:
    """One object for each MPI, card and direction; `prediction` is None where there are no tables. A library
    takes device addresses here if it did when it was measured."""
    layout = datatype.canonical()
    size = int(layout.size) * count
    for _, found in store.local(devices=True) if size else ():
        if isinstance(found, store.StoreError) or found.mismatch() is not None:
            continue
        try:
            model = predict.Model(found.machine.table)
        except store.StoreError:
            continue  # `tempi doctor` tells
        aware = bool(found.about.get("aware"))
        for direction in _DIRECTIONS:
            told = model.predict_device(layout, size, direction, PEERS[peer], memory=memory, aware=aware)
            record: dict[str, Any] = {"mpi": found.machine.mpi, "gpu": str(found.machine.gpu), "operation": direction}
            record |= {"emulated": found.emulated, "peer": peer, "bytes": size, "memory": memory, "aware": aware}
            record["rule"] = predict.rule_method(size, aware=aware)
            yield record | {"prediction": asdict(told) if told else None}


def _parts(seconds: tuple[float, float, float]) -> str:
    names = ("pack", "message", "unpack")
    return " + ".join(f"{name} {_time(part)}" for name, part in zip(names, seconds, strict=True))


def _device_block(record: dict[str, Any]) -> Iterator[str]:
    what, told = _DIRECTIONS[record["operation"]], record["prediction"]
    where = _WHERE[record["peer"]]
    where = where if record["operation"] == "send" else where.replace(" to ", " from ")
    head = f"a message of {record['bytes']:,} B of {record['memory']} memory {what}{where}"
    if told is None:
        yield f"{head}: not calibrated for this shape or peer; the built-in rule takes {_METHODS[record['rule']]}"
        return
    yield f"{head}: {_METHODS[told['method']]}"
    slowest = max(told["seconds"].values())
    for method, seconds in told["seconds"].items():
        bar = "#" * max(1, round(_BAR * seconds / slowest))
        line = f"  {_METHODS[method]:<10}{bar:<{_BAR}} {_time(seconds)}"
        yield line if method == "library" else f"{line}  ({_parts(told['parts'][method])})"


def device_lines(datatype: Datatype, count: int, peer: str, memory: str) -> Iterator[str]:
    """In words, with a bar for each method."""
    found = list(device_records(datatype, count, peer, memory))
    size = int(datatype.canonical().size) * count
    if not found:
        yield "No GPU is calibrated here (`tempi calibrate` on a machine with one). By the built-in rule:"
        for aware, text in ((False, "takes no device addresses"), (True, "takes device addresses")):
            yield f"  where the MPI library {text}: {_METHODS[predict.rule_method(size, aware=aware)]}"
    for number, record in enumerate(found):
        if number == 0 or (found[number - 1]["mpi"], found[number - 1]["gpu"]) != (record["mpi"], record["gpu"]):
            yield f"Predicted with {record['mpi']} and {record['gpu']}:"
            if record["emulated"]:
                yield EMULATED
        yield from _device_block(record)
