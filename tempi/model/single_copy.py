"""How an MPI library moves a large message between two ranks of a node: in a single copy, from process to process, or
in two through shared memory. Times depend on it: a derived message of MPICH 5 becomes one iovec per run under CMA.

The MPI tools interface (MPI-4.1, chapter 15) gives the answer, in a process that has called MPI_Init: MPICH 5 decides
by ``MPIR_CVAR_CH4_CMA_ENABLE`` and Yama's ptrace_scope, Open MPI 5 by the components of its ``smsc`` framework that it
has opened, Open MPI 4 by ``btl_vader_single_copy_mechanism``. None of them tests in MPI_Init whether the kernel
permits it (a container's seccomp filter may not), so `refused` does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["MECHANISMS", "before_init", "effective", "mechanism", "ptrace_scope", "refused"]

#: In the order of Open MPI's priorities.
MECHANISMS = ("xpmem", "cma", "knem", "none")
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_ROOM = 4096  # bytes for the longest variable; Open MPI's texts have 2048
_ENABLED = {"cma": "MPIR_CVAR_CH4_CMA_ENABLE", "xpmem": "MPIR_CVAR_CH4_XPMEM_ENABLE"}
_DEVICES = {"xpmem": Path("/dev/xpmem"), "knem": Path("/dev/knem")}


class _Tools:
    """Control variables of an MPI library, by name."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        provided = ctypes.c_int()
        library.MPI_T_init_thread(0, ctypes.byref(provided))

    def number(self, name: str) -> int | None:
        """The value of an integer variable; None if the library has none of that name."""
        index, handle, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        if self._library.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)) != 0:
            return None
        if self._library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)) != 0:
            return None
        room = ctypes.create_string_buffer(_ROOM)
        failed = self._library.MPI_T_cvar_read(handle, room)
        self._library.MPI_T_cvar_handle_free(ctypes.byref(handle))
        return None if failed else ctypes.c_int.from_buffer(room).value

    def word(self, name: str) -> str | None:
        """The name of an enumeration's value."""
        index, kind, items = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        if self._library.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)) != 0:
            return None
        unused = ctypes.c_int()
        texts = (None, None, ctypes.byref(unused), ctypes.byref(unused), ctypes.byref(kind))
        about = (None, None, ctypes.byref(unused), ctypes.byref(unused))
        if self._library.MPI_T_cvar_get_info(index, *texts, *about) != 0 or not kind:
            return None
        self._library.MPI_T_enum_get_info(kind, ctypes.byref(items), None, None)
        value = self.number(name)
        for item in range(items.value):
            own, text, length = ctypes.c_int(), ctypes.create_string_buffer(_ROOM), ctypes.c_int(_ROOM)
            self._library.MPI_T_enum_get_item(kind, item, ctypes.byref(own), text, ctypes.byref(length))
            if own.value == value:
                return text.value.decode("ascii", "replace")
        return None


def _mpich(tools: _Tools) -> str:
    on = [name for name, variable in _ENABLED.items() if tools.number(variable)]
    return next((name for name in MECHANISMS if name in on and _there(name)), "none")


def _vader(tools: _Tools) -> str | None:
    """Open MPI 4's answer; None for other libraries."""
    setting = tools.word("btl_vader_single_copy_mechanism")
    return setting if setting is None or setting in MECHANISMS else "none"


def _openmpi(tools: _Tools) -> str:
    vader = _vader(tools)
    if vader is not None:
        return vader
    ranks = {name: tools.number(f"smsc_{name}_priority") for name in MECHANISMS if name != "none"}
    open_ones = {name: rank for name, rank in ranks.items() if rank is not None and rank >= 0 and _there(name)}
    return max(open_ones, key=lambda name: open_ones[name], default="none")


def _there(name: str) -> bool:
    """Whether the kernel has the mechanism's module."""
    return name not in _DEVICES or _DEVICES[name].exists()


def before_init(library: ctypes.CDLL, abi: str) -> str | None:
    """Open MPI 4's answer, which is "none" after MPI_Init in a process without peers; None for other libraries."""
    return _vader(_Tools(library)) if abi == "openmpi" else None


def mechanism(library: ctypes.CDLL, abi: str) -> str:
    """The one of `MECHANISMS` that the library intends to use, in a process that has called its MPI_Init. A single rank
    is enough, except for Open MPI 4 (`before_init`)."""
    tools = _Tools(library)
    if abi == "openmpi":
        return _openmpi(tools)
    return _mpich(tools)


def ptrace_scope() -> str | None:
    """Yama's ptrace_scope; None if the kernel has no Yama, which is equivalent to "0"."""
    try:
        return _YAMA.read_text(encoding="ascii").strip()
    except OSError:
        return None


class _Piece(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _read(pid: int, address: int, size: int) -> int:
    """errno of process_vm_readv, 0 on success."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = ctypes.create_string_buffer(size)
    here, there = _Piece(ctypes.addressof(own), size), _Piece(address, size)
    call = libc.process_vm_readv
    call.restype = ctypes.c_ssize_t
    call.argtypes = (ctypes.c_int, *(ctypes.c_void_p, ctypes.c_ulong) * 2, ctypes.c_ulong)
    found = call(pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
    return 0 if found == size else ctypes.get_errno() or 5


def _child(work: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(work())
        finally:
            os._exit(255)
    return pid


def refused() -> str | None:
    """Why a process may not read another's memory by process_vm_readv; None if it may.

    Two children of this process try it, since ranks of a node are siblings: Yama lets a parent read its children. Call
    it only in a process without threads, since it forks.
    """
    size = 4096
    block = ctypes.create_string_buffer(bytes(size), size)
    reader, writer = os.pipe()

    def wait() -> int:
        os.close(writer)
        os.read(reader, 1)
        return 0

    owner = _child(wait)
    other = _child(lambda: _read(owner, ctypes.addressof(block), size))
    _, status = os.waitpid(other, 0)
    os.close(writer)
    os.waitpid(owner, 0)
    os.close(reader)
    code = os.waitstatus_to_exitcode(status)
    return os.strerror(code) if 0 < code < 255 else None if code == 0 else "the probe failed"


def effective(meant: str, why_not: str | None, abi: str) -> str:
    """The mechanism that the library really uses, from its intention and from `refused`. Open MPI falls back if CMA is
    refused; MPICH does not notice."""
    return "none" if meant == "cma" and why_not is not None and abi == "openmpi" else meant
