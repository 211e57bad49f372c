"""The part of `tempi explain` that shows the predicted time of each method for device memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tempi.cli._predicted import _BAR, _time
from tempi.model import predict, store
from tempi.model.peers import BY_WORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tempi._datatypes import Datatype

__all__ = ["lines", "records"]

_METHODS = {name: name for name in predict.METHODS} | {"oneshot": "one-shot"}
_DIRECTIONS = {"send": "sent", "recv": "received"}
_CALLS = {"pack": "MPI_Pack", "unpack": "MPI_Unpack"}
_PACKED = {
    "pinned": "pinned memory", "device": "memory of the same device", "plain": "memory that the device cannot access",
}  # fmt: skip
EMULATED = "EMULATED DEVICE (CUDA on the CPU): these are not times of a GPU"


def _cases() -> Iterator[tuple[str, str | None]]:
    """Operations, and the memory of the packed bytes of MPI_Pack and MPI_Unpack."""
    yield from ((operation, None) for operation in _DIRECTIONS)
    yield from ((operation, packed) for packed in _PACKED for operation in _CALLS)


def records(datatype: Datatype, count: int, peer: str, memory: str) -> Iterator[dict[str, Any]]:
    """One object for each MPI library, GPU, direction, and memory of MPI_Pack and MPI_Unpack that leaves a choice;
    `prediction` is None if there are no tables. A library is CUDA-aware here if it was when it was measured."""
    layout = datatype.canonical()
    size, run = int(layout.size) * count, _is_run(layout, count)
    for _, found in store.local(devices=True) if size else ():
        if isinstance(found, store.StoreError) or found.mismatch() is not None:
            continue
        try:
            model = predict.Model(found.machine.table)
        except store.StoreError:
            continue  # `tempi doctor` reports it
        cuda_aware = bool(found.about.get("aware"))
        for operation, packed in _cases():
            prediction = model.predict_device(
                layout, size, operation, BY_WORD[peer].name, packed=packed or "pinned", memory=memory, contiguous=run,
                cuda_aware=cuda_aware,
            )  # fmt: skip
            if packed is not None and (prediction is None or len(prediction.seconds) < 2):
                continue
            record: dict[str, Any] = {"mpi": found.machine.mpi, "gpu": str(found.machine.gpu), "operation": operation}
            record |= {"emulated": found.emulated, "peer": peer, "bytes": size, "memory": memory, "aware": cuda_aware}
            record |= {"packed": packed} if packed else {"rule": _rule(layout, size, cuda_aware)}
            yield record | {"prediction": asdict(prediction) if prediction else None}


def _is_run(layout: Any, count: int) -> bool:
    return bool(layout.dense) or (count == 1 and layout.runs == 1)


def _rule(layout: Any, size: int, cuda_aware: bool) -> str:
    return predict.rule_method(size, cuda_aware=cuda_aware, contiguous=bool(layout.dense))


def _parts(seconds: tuple[float, float, float]) -> str:
    names = ("pack", "message", "unpack")
    return " + ".join(f"{name} {_time(part)}" for name, part in zip(names, seconds, strict=True))


def _head(record: dict[str, Any]) -> str:
    size, memory = f"{record['bytes']:,} B", f"{record['memory']} memory"
    if "packed" in record:
        way = "into" if record["operation"] == "pack" else "from"
        return f"{_CALLS[record['operation']]} of {size} of {memory} {way} {_PACKED[record['packed']]}"
    where = BY_WORD[record["peer"]].where
    where = where if record["operation"] == "send" else where.replace("to ", "from ", 1)
    return f"a message of {size} of {memory} {_DIRECTIONS[record['operation']]} {where}"


def _device_block(record: dict[str, Any]) -> Iterator[str]:
    prediction = record["prediction"]
    if prediction is None:
        rule = _METHODS[record["rule"]]
        yield f"{_head(record)}: not calibrated for this shape or peer; the built-in rule chooses {rule}"
        return
    yield f"{_head(record)}: {_METHODS[prediction['method']]}"
    slowest = max(prediction["seconds"].values())
    for method, seconds in prediction["seconds"].items():
        bar = "#" * max(1, round(_BAR * seconds / slowest))
        line = f"  {_METHODS[method]:<10}{bar:<{_BAR}} {_time(seconds)}"
        whole = method == "library" or "packed" in record
        yield line if whole else f"{line}  ({_parts(prediction['parts'][method])})"


def lines(datatype: Datatype, count: int, peer: str, memory: str) -> Iterator[str]:
    """As text, with a bar for each method."""
    found = list(records(datatype, count, peer, memory))
    layout = datatype.canonical()
    size = int(layout.size) * count
    if not found:
        yield "No GPU is calibrated here (`tempi calibrate` on a machine with one). By the built-in rule:"
        for cuda_aware, text in ((False, "is not CUDA-aware"), (True, "is CUDA-aware")):
            yield f"  if the MPI library {text}: {_METHODS[_rule(layout, size, cuda_aware)]}"
    for number, record in enumerate(found):
        if number == 0 or (found[number - 1]["mpi"], found[number - 1]["gpu"]) != (record["mpi"], record["gpu"]):
            yield f"Predicted with {record['mpi']} and {record['gpu']}:"
            if record["emulated"]:
                yield EMULATED
        yield from _device_block(record)
