"""The engine's predictions and choices for a file of tables; the only binding to that code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tempi import _engine
from tempi.model import grid
from tempi.model.store import Machine, StoreError

__all__ = ["METHODS", "NUMBERS", "OPERATIONS", "PACKED", "DevicePrediction", "Model", "Prediction", "rule_method"]

OPERATIONS = ("pack", "unpack", "send", "recv")
#: The engine's numbers of the methods for device memory (tempi.h), by name; the library's first.
NUMBERS = {
    str(_engine.text(_engine.lib.tempi_method_name(number))): number
    for number in (
        _engine.lib.TEMPI_METHOD_LIBRARY,
        *range(_engine.lib.TEMPI_METHOD_DEVICE, _engine.lib.TEMPI_METHOD_LIBRARY),
    )
}
METHODS = tuple(NUMBERS)
NAMES = {number: name for name, number in NUMBERS.items()}
#: Memory of the packed bytes of MPI_Pack and MPI_Unpack; plain: pageable host memory.
PACKED = ("pinned", "device", "plain")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds. `host` is tempi's method; for a message the sum of `pack`, `message` and `unpack`."""

    library: float
    host: float
    pack: float
    message: float
    unpack: float
    acts: bool


@dataclass(frozen=True, slots=True)
class DevicePrediction:
    """Seconds of each possible method, and the (pack, message, unpack) that they are the sums of."""

    seconds: dict[str, float]
    parts: dict[str, tuple[float, float, float]]
    method: str


class Model:
    """A mapped file of tables. Raises `StoreError` if it is not valid."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        fault = _engine.ffi.new("char const **")
        self._pointer = _engine.lib.tempi_model_open(os.fsencode(path), fault)
        if self._pointer == _engine.ffi.NULL:
            raise StoreError(f"{os.fspath(path)}: {_engine.text(fault[0])}")
        self._pointer = _engine.ffi.gc(self._pointer, _engine.lib.tempi_model_close)

    @property
    def address(self) -> int:
        """Address of the engine's object, for direct calls; valid as long as this object lives."""
        return int(_engine.ffi.cast("uintptr_t", self._pointer))

    def mismatch(self, machine: Machine) -> str | None:
        """Why the tables do not fit that machine; None if they do."""
        return _engine.text(_engine.lib.tempi_model_mismatch(self._pointer, machine.engine()))

    def predict(self, layout: Any, size: int, operation: str = "send", peer: str = "node") -> Prediction | None:
        """The prediction for a message of `size` packed bytes with that engine layout; None without tables."""
        out = _engine.ffi.new("tempi_prediction *")
        numbers = (OPERATIONS.index(operation), grid.PEERS.index(peer))
        status = _engine.lib.tempi_model_predict(self._pointer, layout, size, *numbers, out)
        if status == _engine.lib.TEMPI_ERR_UNSUPPORTED:
            return None
        _engine.check(status, doing="prediction")
        return Prediction(out.library, out.host, out.pack, out.message, out.unpack, bool(out.ours))

    def acts(self, layout: Any, size: int, operation: str = "send", peer: str = "node") -> bool | None:
        """Whether tempi would handle that message; None if the built-in rule decides."""
        numbers = (OPERATIONS.index(operation), grid.PEERS.index(peer))
        choice = _engine.lib.tempi_model_choice(self._pointer, layout, size, *numbers)
        return None if choice < 0 else bool(choice)

    def predict_device(
        self, layout: Any, size: int, operation: str = "send", peer: str = "node", *, packed: str = "pinned",
        memory: str = "device", misaligned: bool = False, contiguous: bool = False, cuda_aware: bool = False,
        whole: int = 0, segments: int = 0,
    ) -> DevicePrediction | None:  # fmt: skip
        """The prediction for device memory; None if the built-in rule decides. `packed`: memory of MPI_Pack's and
        MPI_Unpack's packed bytes; `contiguous`: the layout has no gaps; `whole` and `segments`: the bytes are part of
        a message of several memories."""
        asked = _engine.ffi.new("tempi_device_message *")
        asked.bytes, asked.misaligned, asked.contiguous, asked.cuda_aware = size, misaligned, contiguous, cuda_aware
        asked.whole, asked.segments, asked.packed = whole, segments, PACKED.index(packed)
        asked.operation, asked.peer = OPERATIONS.index(operation), grid.PEERS.index(peer)
        asked.memory = grid.MEMORIES.index(memory)
        out = _engine.ffi.new("tempi_device_prediction *")
        status = _engine.lib.tempi_model_predict_device(self._pointer, layout, asked, out)
        if status == _engine.lib.TEMPI_ERR_UNSUPPORTED:
            return None
        _engine.check(status, doing="prediction")
        possible = [name for name in METHODS if out.seconds[NUMBERS[name]] >= 0]
        return DevicePrediction(
            {name: float(out.seconds[NUMBERS[name]]) for name in possible},
            {name: tuple(part[NUMBERS[name]] for part in (out.pack, out.message, out.unpack)) for name in possible},
            NAMES[out.method],
        )


def rule_method(size: int, *, cuda_aware: bool, contiguous: bool = False) -> str:
    """The built-in rule's method for messages of device memory; `contiguous`: without gaps."""
    return NAMES[_engine.lib.tempi_rule_method(size, contiguous, cuda_aware)]
