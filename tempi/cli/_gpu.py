"""`tempi doctor` on CUDA: the driver, the devices, the kernels for them, peer access, stream order, array libraries.
CUDA awareness is reported with each MPI library (_machine.py)."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempi import _engine
from tempi.cli._machine import Finding, ask, probe_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["findings", "gpu"]

#: Packages of array libraries with device memory, by the library's usual name.
_LIBRARIES = {
    "CuPy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
    "numba-cuda": ("numba-cuda",),
    "PyTorch": ("torch",),
}


def gpu() -> Iterator[Finding]:
    """Probes in a separate process, since a broken driver may crash it."""
    nodes = sorted(each.name for each in Path("/dev").glob("nvidia[0-9]*"))
    return findings(ask(["gpu"], probe_environment()), nodes)


def findings(answer: Mapping[str, Any], nodes: list[str]) -> Iterator[Finding]:
    """Findings from the probe's answer, on a machine with these device files."""
    data = {**answer, "nodes": nodes}
    if "driver" not in answer:
        text, advice = f"the CUDA driver cannot be queried: {answer.get('error')}", "see whether nvidia-smi answers"
        yield Finding("gpu", "warning", text, advice, data)
        return
    if answer["emulated"]:
        yield _emulated(data)
    elif answer["version"] is None:
        yield _without_driver(nodes, data)
    else:
        yield _driver(answer, data)
    for ordinal, device in enumerate(answer["devices"]):
        yield _device(ordinal, device)
    if len(answer["devices"]) > 1:
        yield _peers(answer.get("peers"))
    if answer["devices"]:
        yield _order()
    yield _libraries(answer)


def _emulated(data: Mapping[str, Any]) -> Finding:
    text = (
        f"EMULATED: the CUDA driver is CUDA on the CPU, a test device (CUDA {data['version']}); "
        "the devices below are no GPUs, and times measured on them say nothing about one"
    )
    return Finding("gpu", "warning", text, "unset TEMPI_CUDA_DRIVER to use a real GPU", data)


def _without_driver(nodes: list[str], data: Mapping[str, Any]) -> Finding:
    if os.environ.get("TEMPI_CUDA_DRIVER") == "none":
        text, advice = "TEMPI_CUDA_DRIVER=none: device memory is left to the MPI library", "unset TEMPI_CUDA_DRIVER"
        return Finding("gpu", "warning", text, advice, data)
    if not nodes:
        return Finding("gpu", "note", "no CUDA driver and no NVIDIA device: host memory only", data=data)
    text = f"/dev has {', '.join(nodes)}, but libcuda.so.1 cannot be loaded: host memory only"
    return Finding("gpu", "warning", text, "install NVIDIA's driver here, or give the container its libraries", data)


def _driver(answer: Mapping[str, Any], data: Mapping[str, Any]) -> Finding:
    count = len(answer["devices"])
    text = f"CUDA driver {answer['driver']}, CUDA {answer['version']}, {count} device{'' if count == 1 else 's'}"
    if count:
        return Finding("gpu", "ok", text, data=data)
    why = f": {answer['error']}" if answer["error"] else ""
    advice = "see whether nvidia-smi lists a device, and what CUDA_VISIBLE_DEVICES says"
    return Finding("gpu", "warning", f"{text}{why}", advice, data)


def _device(ordinal: int, device: Mapping[str, Any]) -> Finding:
    text = (
        f"device {ordinal}: {device['name']}, compute capability {device['capability']}, "
        f"{device['memory'] / 2**30:.1f} GiB"
    )
    kernels = device["kernels"]
    if kernels is None:
        advice = "install tempi again without TEMPI_NO_KERNELS, where its kernels can be compiled"
        return Finding("gpu", "warning", f"{text}; this build has no kernels for it", advice, device)
    how = "PTX, which the driver compiles at first use" if kernels == "ptx" else f"machine code for {kernels}"
    return Finding("gpu", "ok", f"{text}; kernels: {how}", data=device)


def _peers(pairs: Sequence[tuple[int, int, bool]] | None) -> Finding:
    """Which devices can access each other's memory."""
    if pairs is None:
        return Finding("gpu", "note", "peer access: the driver does not say")
    data = {"peers": list(pairs)}
    without = [f"{one} and {other}" for one, other, access in pairs if not access]
    if not without:
        return Finding("gpu", "ok", "peer access: between all devices", data=data)
    text = f"peer access: none between devices {', '.join(without)}"
    return Finding("gpu", "note", text, data=data)


def _order() -> Finding:
    """What a message of device memory waits for."""
    named = "for the stream that the program names (tempi_comm_set_stream, __cuda_array_interface__, DLPack)"
    order = os.environ.get("TEMPI_STREAM_ORDER")
    known = any(name == "TEMPI_STREAM_ORDER" for name, *_ in _engine.items("config"))
    if known and order == "none":
        text = f"stream order: messages wait {named}; others for nothing: the program synchronizes by itself"
    else:
        order, text = "legacy", f"stream order: messages wait {named}, else for the legacy default stream"
    return Finding("gpu", "ok", text, data={"stream_order": order})


def _version(packages: tuple[str, ...]) -> str | None:
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None


def _libraries(answer: Mapping[str, Any]) -> Finding:
    found = {name: version for name, packages in _LIBRARIES.items() if (version := _version(packages))}
    if found:
        text = ", ".join(f"{name} {version}" for name, version in found.items())
        return Finding("arrays", "ok", f"device arrays in Python: {text}", data=found)
    text = "device arrays in Python: none of CuPy, numba-cuda, PyTorch is installed"
    if answer["version"] is None or answer["emulated"] or not answer["devices"]:
        return Finding("arrays", "note", text, data=found)
    extra = "cuda13" if int(answer["version"].split(".")[0]) >= 13 else "cuda12"
    return Finding("arrays", "note", text, f"pip install 'tempi[{extra}]'", found)
