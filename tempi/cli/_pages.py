"""`tempi doctor` on mapped memory (MPI_Alloc_mem, tempi.empty): whether it has pages as large as other memory."""

from __future__ import annotations

from pathlib import Path

from tempi.cli._machine import Finding

__all__ = ["SETTINGS", "finding"]

SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_LARGE = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"


def _chosen(name: str) -> str:
    """The selected word of a setting, as in "always [madvise] never"; empty if the kernel has none."""
    try:
        text = (SETTINGS / name).read_text(encoding="ascii")
    except OSError:
        return ""
    return text.partition("[")[2].partition("]")[0]


def finding() -> Finding:
    """As csrc/shim/alloc_mem.c decides."""
    ordinary, shared = _chosen("enabled"), _chosen("shmem_enabled")
    large = shared not in ("", "never", "deny")
    data = {"enabled": ordinary, "shmem_enabled": shared}
    if large:
        text = "memory of MPI_Alloc_mem and tempi.empty is mapped by the ranks of the node, in large pages"
        return Finding("mapped-memory", "ok", text, data=data)
    kept = ordinary == "always"
    text = (
        f"shared memory has no large pages (shmem_enabled: {shared or 'no such setting'}): tempi.empty has small ones"
        + (", and MPI_Alloc_mem stays the library's (TEMPI_ALLOC_MEM=auto)" if kept else "")
    )
    return Finding("mapped-memory", "note", text, f"for one-copy collectives at full speed, as root: {_LARGE}", data)
