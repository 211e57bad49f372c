"""mpi4py's communicators and matched messages, extended to accept non-contiguous arrays.

mpi4py's classes cannot be modified, so each has a subclass of the same name here, and each method that
creates a communicator returns one of ours. Objects that mpi4py creates by itself (in mpi4py.futures, or
through its C interface) stay plain; ``isinstance(plain, Comm)`` is still true for them.

Each class derives from its mpi4py class and from the methods below, not from the other classes here: CPython
constructs an object by the first extension type among the bases, so a Cartcomm derived from our Comm would
skip mpi4py's check that there is a grid. `_Kind` answers ``issubclass(Cartcomm, Intracomm)``.

The contiguity check is written out in each kind of method: every message runs it, and a call costs more than
the check. Arrays of other libraries take the slower path through `tempi._ordered`.
"""

from __future__ import annotations

import copyreg
import ctypes
import functools
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from mpi4py.MPI import ANY_SOURCE, ANY_TAG, PROC_NULL
from numpy import ndarray

from tempi import _collectives
from tempi._arrays import incoming, outgoing
from tempi._ordered import PLAIN, arrive, call, depart

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from mpi4py.MPI import Prequest, Request, Status
    from mpi4py.typing import BufSpec

    _Method = TypeVar("_Method", bound=Callable[..., Any])
    _AnyComm = MPI.Comm  # the class that the methods are mixed into
else:
    _AnyComm = object

__all__ = [
    "COMM_NULL",
    "COMM_SELF",
    "COMM_WORLD",
    "Cartcomm",
    "Comm",
    "Distgraphcomm",
    "Graphcomm",
    "Intercomm",
    "Intracomm",
    "Message",
    "Topocomm",
]

_Base = MPI.Comm
_NOBODY = (PROC_NULL, PROC_NULL)

#: Attributes of mpi4py's module that belong to the module itself.
_MODULE_NAMES = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__")

#: mpi4py class to our class, and back.
_ours: dict[type, type] = {}
_plain: dict[type, type] = {}
#: mpi4py's constant communicators, our object for each, and its name. Its constant messages are not replaced:
#: mpi4py recognizes by identity that receiving one does not consume it.
_constants: list[tuple[Any, Any, str]] = []


class _Kind(type):
    """Makes an mpi4py object an instance of our class of the same name."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(_plain.get(cls, cls), instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(_plain.get(cls, cls), subclass)


def adopt(found: Any) -> Any:
    """`found`, or our object for the same handle if `found` is a plain mpi4py object."""
    cls = _ours.get(type(found))
    if cls is None or found is MPI.MESSAGE_NO_PROC or found is MPI.MESSAGE_NULL:
        return found
    for plain, constant, _ in _constants:
        if found is plain:
            return constant
    try:
        return cls(found)
    except TypeError:
        # Open MPI 5.0.11 says of a distributed graph made from a Cartesian communicator that it is Cartesian.
        return found


def _sending(method: _Method) -> _Method:
    """mpi4py's send method, extended to accept non-contiguous arrays."""

    def send(self: MPI.Comm, buf: BufSpec, dest: int, tag: int = 0) -> Any:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and dest != PROC_NULL:
                buf = outgoing(buf)
        elif type(buf) not in PLAIN and dest != PROC_NULL:
            return call(method, self, depart(buf), dest, tag)
        return method(self, buf, dest, tag)

    return _named(send, method)


def _preparing(method: _Method) -> _Method:
    """The same for a persistent send, whose buffer is read at each start."""

    def prepare(self: MPI.Comm, buf: BufSpec, dest: int, tag: int = 0) -> Any:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and dest != PROC_NULL:
                buf = outgoing(buf)
        elif type(buf) not in PLAIN and dest != PROC_NULL:
            buf = depart(buf, wait=True)
        return method(self, buf, dest, tag)

    return _named(prepare, method)


def _named(made: Callable[..., Any], method: _Method) -> _Method:
    made.__name__ = method.__name__
    made.__qualname__ = f"_Methods.{method.__name__}"
    return made  # type: ignore[return-value]


class _Methods(_AnyComm):
    """The methods of every communicator that send or receive one buffer, or broadcast one."""

    __slots__ = ()

    def __reduce__(self) -> str | tuple[Any, ...]:
        for _, constant, name in _constants:
            if self is constant:
                return name
            if self == constant:
                return copyreg.__newobj__, (type(self), constant)  # type: ignore[attr-defined]
        return _Base.__reduce__(self)

    def free(self) -> None:
        if all(self is not constant for _, constant, _ in _constants):
            _Base.free(self)

    Send = _sending(_Base.Send)
    Bsend = _sending(_Base.Bsend)
    Ssend = _sending(_Base.Ssend)
    Rsend = _sending(_Base.Rsend)
    Isend = _sending(_Base.Isend)
    Ibsend = _sending(_Base.Ibsend)
    Issend = _sending(_Base.Issend)
    Irsend = _sending(_Base.Irsend)
    Send_init = _preparing(_Base.Send_init)
    Bsend_init = _preparing(_Base.Bsend_init)
    Ssend_init = _preparing(_Base.Ssend_init)
    Rsend_init = _preparing(_Base.Rsend_init)

    def Recv(
        self,
        buf: BufSpec,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and source != PROC_NULL:
                buf = incoming(buf)
        elif type(buf) not in PLAIN and source != PROC_NULL:
            return call(_Base.Recv, self, arrive(buf), source, tag, status)  # type: ignore[no-any-return]
        return _Base.Recv(self, buf, source, tag, status)

    def Irecv(self, buf: BufSpec, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and source != PROC_NULL:
                buf = incoming(buf)
        elif type(buf) not in PLAIN and source != PROC_NULL:
            return call(_Base.Irecv, self, arrive(buf), source, tag)  # type: ignore[no-any-return]
        return _Base.Irecv(self, buf, source, tag)

    def Recv_init(self, buf: BufSpec, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and source != PROC_NULL:
                buf = incoming(buf)
        elif type(buf) not in PLAIN and source != PROC_NULL:
            buf = arrive(buf, wait=True)
        return _Base.Recv_init(self, buf, source, tag)

    def Sendrecv(
        self,
        sendbuf: BufSpec,
        dest: int,
        sendtag: int = 0,
        recvbuf: BufSpec | None = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        if isinstance(sendbuf, ndarray):
            if not sendbuf.flags.forc and dest != PROC_NULL:
                sendbuf = outgoing(sendbuf)
        elif type(sendbuf) not in PLAIN and dest != PROC_NULL:
            sendbuf = depart(sendbuf, wait=True)
        if isinstance(recvbuf, ndarray):
            if not recvbuf.flags.forc and source != PROC_NULL:
                recvbuf = incoming(recvbuf)
        elif type(recvbuf) not in PLAIN and source != PROC_NULL:
            recvbuf = arrive(recvbuf, wait=True)
        return _Base.Sendrecv(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, status)

    def Isendrecv(
        self,
        sendbuf: BufSpec,
        dest: int,
        sendtag: int = 0,
        recvbuf: BufSpec | None = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        if isinstance(sendbuf, ndarray):
            if not sendbuf.flags.forc and dest != PROC_NULL:
                sendbuf = outgoing(sendbuf)
        elif type(sendbuf) not in PLAIN and dest != PROC_NULL:
            sendbuf = depart(sendbuf, wait=True)
        if isinstance(recvbuf, ndarray):
            if not recvbuf.flags.forc and source != PROC_NULL:
                recvbuf = incoming(recvbuf)
        elif type(recvbuf) not in PLAIN and source != PROC_NULL:
            recvbuf = arrive(recvbuf, wait=True)
        return _Base.Isendrecv(self, sendbuf, dest, sendtag, recvbuf, source, recvtag)

    def Sendrecv_replace(
        self,
        buf: BufSpec,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and (dest, source) != _NOBODY:
                buf = incoming(buf)
        elif type(buf) not in PLAIN and (dest, source) != _NOBODY:
            buf = arrive(buf, wait=True)
        return _Base.Sendrecv_replace(self, buf, dest, sendtag, source, recvtag, status)

    # Isendrecv_replace stays mpi4py's: MPICH 5.0.2 itself receives wrong bytes into a strided type there.
    # Refusing a view is better than corrupting it.

    def Bcast(self, buf: BufSpec, root: int = 0) -> None:
        if not buf.flags.forc if isinstance(buf, ndarray) else type(buf) not in PLAIN:
            buf = _broadcast(self, buf, root)
        return _Base.Bcast(self, buf, root)

    def Ibcast(self, buf: BufSpec, root: int = 0) -> Request:
        if not buf.flags.forc if isinstance(buf, ndarray) else type(buf) not in PLAIN:
            buf = _broadcast(self, buf, root)
        return _Base.Ibcast(self, buf, root)


def _broadcast(comm: MPI.Comm, array: Any, root: int) -> BufSpec:
    """The message of a broadcast, which one rank (or group) sends and the others receive."""
    if comm.Is_inter():
        sends = root == MPI.ROOT
        if root == PROC_NULL:
            return array  # type: ignore[no-any-return]  # not examined
    else:
        sends = root == comm.Get_rank()
    if isinstance(array, ndarray):
        return outgoing(array) if sends else incoming(array)
    return (depart if sends else arrive)(array, wait=True)  # type: ignore[no-any-return]


class Comm(_Methods, MPI.Comm, metaclass=_Kind):
    """As mpi4py\'s Comm; buffers may also be non-contiguous arrays."""

    __slots__ = ()


class Intracomm(_Methods, MPI.Intracomm, metaclass=_Kind):
    """As mpi4py\'s Intracomm; buffers may also be non-contiguous arrays."""

    __slots__ = ()


class Topocomm(_Methods, MPI.Topocomm, metaclass=_Kind):
    """As mpi4py\'s Topocomm; buffers may also be non-contiguous arrays."""

    __slots__ = ()


class Cartcomm(_Methods, MPI.Cartcomm, metaclass=_Kind):
    """As mpi4py\'s Cartcomm; buffers may also be non-contiguous arrays."""

    __slots__ = ()


class Graphcomm(_Methods, MPI.Graphcomm, metaclass=_Kind):
    """As mpi4py\'s Graphcomm; buffers may also be non-contiguous arrays."""

    __slots__ = ()


class Distgraphcomm(_Methods, MPI.Distgraphcomm, metaclass=_Kind):
    """As mpi4py\'s Distgraphcomm; buffers may also be non-contiguous arrays."""

    __slots__ = ()


class Intercomm(_Methods, MPI.Intercomm, metaclass=_Kind):
    """As mpi4py\'s Intercomm; buffers may also be non-contiguous arrays."""

    __slots__ = ()


class Message(MPI.Message, metaclass=_Kind):
    """As mpi4py\'s matched Message; buffers may also be non-contiguous arrays."""

    __slots__ = ()

    def Recv(self, buf: BufSpec, status: Status | None = None) -> None:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and self != MPI.MESSAGE_NO_PROC:
                buf = incoming(buf)
        elif type(buf) not in PLAIN and self != MPI.MESSAGE_NO_PROC:
            return call(MPI.Message.Recv, self, arrive(buf), status)  # type: ignore[no-any-return]
        return MPI.Message.Recv(self, buf, status)

    def Irecv(self, buf: BufSpec) -> Request:
        if isinstance(buf, ndarray):
            if not buf.flags.forc and self != MPI.MESSAGE_NO_PROC:
                buf = incoming(buf)
        elif type(buf) not in PLAIN and self != MPI.MESSAGE_NO_PROC:
            return call(MPI.Message.Irecv, self, arrive(buf))  # type: ignore[no-any-return]
        return MPI.Message.Irecv(self, buf)


#: Methods that return a new communicator or message of mpi4py's own class.
_MAKERS = (
    *("Create", "Split", "Split_type", "Shrink", "Ishrink", "Get_parent", "Join"),
    *("Create_group", "Create_from_group", "Create_from_groups", "Create_intercomm", "Merge"),
    *("Create_cart", "Create_graph", "Create_dist_graph_adjacent", "Create_dist_graph", "Sub"),
    *("Spawn", "Spawn_multiple", "Accept", "Connect"),
    *("Mprobe", "Improbe", "mprobe", "improbe", "Probe", "Iprobe", "probe", "iprobe"),
    *("fromhandle", "fromint", "f2py"),
)
#: On communicators, these four only say whether there is a message.
_PROBES = ("Probe", "Iprobe", "probe", "iprobe")


def _adopting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = method(*args, **kwargs)
        if isinstance(made, tuple):
            return tuple(adopt(each) for each in made)
        return adopt(made)

    return wrapper


#: The forms of a function.
_FORMS = ("{}", "I{}", "{}_init")


def _accept_views(cls: type, base: type) -> None:
    """In the collectives that this class of mpi4py has."""
    for name in _collectives.NAMES:
        for form in _FORMS:
            full = form.format(name.lower() if form[0] == "I" else name)
            method = getattr(base, full, None)
            if method is not None:
                setattr(cls, full, _named(_collectives.accepting(name, method), method))


def _register(cls: type, base: type) -> None:
    _accept_views(cls, base)
    cls.__module__ = "tempi.MPI"  # the public location, also for pickle
    _ours[base] = cls
    _plain[cls] = base
    for name, method in (*vars(_Methods).items(), *vars(cls).items()):
        if callable(method) and method.__doc__ is None:
            method.__doc__ = getattr(getattr(base, name, None), "__doc__", None)
    for name in _MAKERS:
        method = getattr(base, name, None)
        if method is None or (name in _PROBES and cls is not Message):
            continue
        # A class method is bound to mpi4py's class, so it returns an object of that class.
        bound = getattr(method, "__self__", None) is base
        setattr(cls, name, staticmethod(_adopting(method)) if bound else _adopting(method))


for _each in (Comm, Intracomm, Topocomm, Cartcomm, Graphcomm, Distgraphcomm, Intercomm, Message):
    _register(_each, getattr(MPI, _each.__name__))


def _twin(cls: type[Any], constant: MPI.Comm) -> Any:
    """Our object for the handle of a constant, made without an MPI call: MPI may not be initialized yet."""
    made = cls()
    ctypes.memmove(MPI._addressof(made), MPI._addressof(constant), MPI._sizeof(constant))
    return made


COMM_NULL = _twin(Comm, MPI.COMM_NULL)
COMM_SELF = _twin(Intracomm, MPI.COMM_SELF)
COMM_WORLD = _twin(Intracomm, MPI.COMM_WORLD)
for _name in ("COMM_NULL", "COMM_SELF", "COMM_WORLD"):
    _constants.append((getattr(MPI, _name), globals()[_name], _name))


def namespace() -> dict[str, object]:
    """The contents of ``tempi.MPI``: the names of mpi4py's module, with our classes in their place."""
    names = {name: value for name, value in vars(MPI).items() if name not in _MODULE_NAMES}
    return {**names, **{name: globals()[name] for name in __all__}}
