"""The part of `tempi explain` that tells what each method for device memory is predicted to take."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tempi.cli._predicted import _BAR, _WHERE, PEERS, _time
from tempi.model import predict, store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tempi._datatypes import Datatype

__all__ = ["lines", "records"]

_METHODS = {
    "library": "library", "device": "device", "oneshot": "one-shot", "staged": "staged", "pipelined": "pipelined",
}  # fmt: skip
_DIRECTIONS = {"send": "sent", "recv": "received"}
EMULATED = "EMULATED DEVICE (CUDA on the CPU): these times are none of a GPU's"


def records(datatype: Datatype, count: int, peer: str, memory: str) -> Iterator[dict[str, Any]]:
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


def lines(datatype: Datatype, count: int, peer: str, memory: str) -> Iterator[str]:
    """In words, with a bar for each method."""
    found = list(records(datatype, count, peer, memory))
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
