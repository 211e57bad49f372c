"""Measures collectives of derived datatypes: ``mpirun -n N python -m tempi.bench.workers.collectives OPTIONS``.

Subjects: the library's function ("library"), the same call as an interposed program makes it ("tempi"), a programmer's
loops around one contiguous Alltoallv or Neighbor_alltoallv of the library ("hand"), the same loops around one message
of bytes to each process ("hand isend"), and an Irecv and an Isend for each block and a Waitall by tempi ("isend"). Of
blocks of a process to itself also the touching of their lines ("bound"). With --ways instead "tempi", and that with all
flows forced to go one way, by its name. Each is a sequence of C calls with prepared arguments. The contents of a buffer
follow from its rank, so each rank computes what it must receive. A sample begins at a barrier; the samples in a record
are those of the slowest rank, the one with the largest median.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tempi  # noqa: F401  (loads the engine before mpi4py loads an MPI)
from tempi import _engine
from tempi.bench import bars, stats
from tempi.bench.cases import Bytes
from tempi.bench.chosen_exchanges import chosen
from tempi.bench.exchanges import Block, Exchange, OwnBlock, Plain, Position, Tiles
from tempi.bench.one_type import OneType
from tempi.bench.options import CollectiveOptions, parse_collectives
from tempi.measure import _native, sampling, worker
from tempi.measure.records import Record

STATUS_ROOM = 256  # larger than the MPI_Status of any ABI
POISON = 0x5A
SETTLING = 0.5  # seconds
SETTLED, TOGETHER, MOST_TOGETHER = 8, 5, 32  # rounds of all subjects, calls in each
WARMED = 4 << 20  # bytes, at most, after which memory that rests is warm (csrc/exchange/rest.h)
BOUND = "bound"  # a subject that delivers nothing
NULL = _engine.ffi.NULL

Call = tuple[int, tuple[int, ...]]


def key(rank: int) -> int:
    """The byte by which the contents of that rank's buffer differ from those of others."""
    return (157 * rank + 53) & 0xFF


@dataclass(frozen=True, slots=True)
class Side:
    """The blocks that a rank sends or receives, as arguments: counts, displacements and datatypes."""

    blocks: Sequence[Block]
    buffer: Bytes
    types: tuple[Any, ...]  # of mpi4py
    handles: tuple[int, ...]

    @classmethod
    def of(cls, mpi: Any, blocks: Sequence[Block], buffer: Bytes) -> Side:
        types = tuple(block.shape.datatype(mpi) for block in blocks)
        return cls(blocks, buffer, types, tuple(worker.handle(mpi, one) for one in types))

    def free(self) -> None:
        for one in self.types:
            if not one.is_predefined:
                one.Free()

    def address(self, i: int) -> int:
        return int(self.buffer.ctypes.data) + self.blocks[i].place

    @property
    def filled(self) -> list[int]:
        """The blocks that have bytes."""
        return [i for i, block in enumerate(self.blocks) if block.shape.nbytes]

    def by_peer(self) -> dict[int, list[int]]:
        """Those of each process, in an order that both sides of a message know."""
        peers: dict[int, list[int]] = {}
        for i in sorted(self.filled, key=lambda i: self.blocks[i].tag):
            peers.setdefault(self.blocks[i].peer, []).append(i)
        return peers

    @property
    def plain(self) -> bool:
        """Whether no block has gaps."""
        return all(isinstance(self.blocks[i].shape, Plain) for i in self.filled)


@dataclass(frozen=True, slots=True)
class Bench:
    """One exchange in the memory of this rank. `kept`: arrays to which the arguments refer; `last`: calls that free the
    persistent requests, and `types` that were made beside those of the blocks."""

    mpi: Any
    exchange: Exchange
    at: Position
    comm: Any
    sent: Side
    received: Side
    expected: Bytes
    form: str
    kept: list[Any] = field(default_factory=list)
    last: list[Call] = field(default_factory=list)
    types: list[Any] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(block.shape.nbytes for block in self.sent.blocks)

    def free(self) -> None:
        if self.last:
            _once(*self.last)
        for one in self.types:
            one.Free()

    def array(self, kind: Any, values: Sequence[int]) -> int:
        """Address of an array of C."""
        made = (kind * max(len(values), 1))(*values)
        self.kept.append(made)
        return ctypes.addressof(made)

    def room(self, size: int) -> int:
        """Address of so many bytes."""
        made = np.zeros(size + 1, np.uint64)  # aligned for any handle
        self.kept.append(made)
        return int(made.ctypes.data)


# -- what must arrive -----------------------------------------------------------------------------------------------


def expect(bench: Bench) -> None:
    """Computes the receive buffer after the exchange, from the peers' lists of sends."""
    expected, source, at = bench.expected, bench.sent.buffer, bench.at
    expected[:] = source if bench.exchange.one_buffer else POISON
    for block in bench.received.blocks:
        (sent,) = [
            one for one in bench.exchange.sends(at.of(block.peer)) if (one.peer, one.tag) == (at.rank, block.tag)
        ]
        contents = sent.shape.gather(sent.part(source)) ^ np.uint8(key(at.rank) ^ key(block.peer))
        block.shape.scatter(block.part(expected), contents)


def poison(bench: Bench) -> None:
    """Overwrites what was received before."""
    if not bench.exchange.one_buffer:
        bench.received.buffer[:] = POISON
        return
    for block in bench.received.blocks:
        block.shape.scatter(block.part(bench.received.buffer), np.full(block.shape.nbytes, POISON, np.uint8))


def wrong(bench: Bench, timer: _native.Timer, world: Any) -> str | None:
    """The error in the receive buffer of any rank after one exchange, or None."""
    poison(bench)
    world.Barrier()
    timer(1)
    count = int(np.count_nonzero(bench.received.buffer != bench.expected))
    text = f"rank {world.rank} has {count} wrong bytes" if count else None
    return next((answer for answer in world.allgather(text) if answer), None)


# -- the subjects ---------------------------------------------------------------------------------------------------


def _library(name: str) -> int:
    return worker.library_function(f"PMPI_{name}")


def _own(name: str) -> int:
    return worker.tempi_function(f"MPI_{name}") or _library(name)


Lookup = Callable[[str], int]


def _formed(bench: Bench, lookup: Lookup, arguments: Sequence[int], name: str = "") -> list[Call]:
    """The calls of one exchange, by its function or by another one, in the form that is measured. A persistent request
    is made now."""
    name, mpi = name or bench.exchange.function, bench.mpi
    if bench.form == "blocking":
        return [(lookup(name), (*arguments,))]
    request, status = bench.room(1), bench.room(STATUS_ROOM // 8)
    wait = (lookup("Wait"), (request, status))
    if bench.form == "nonblocking":
        return [(lookup(form_of(name, bench.form)), (*arguments, request)), wait]
    _once((lookup(form_of(name, bench.form)), (*arguments, worker.handle(mpi, mpi.INFO_NULL), request)))
    bench.last.append((lookup("Request_free"), (request,)))
    return [(lookup("Start"), (request,)), wait]


def _once(*calls: Call) -> None:
    _native.timer(_native.load(), "bench_calls_in_turn", _native.sequence(*calls))(1)


def _tiles(bench: Bench, tiles: Tiles, bytes_at: Sequence[int] | None) -> list[int]:
    """Arguments of a rooted call. `bytes_at`: both sides are packed bytes at these addresses."""
    own, root = (bench.received, bench.sent) if tiles.scatters else (bench.sent, bench.received)
    ranks, mpi = bench.at.ranks, bench.mpi
    if bytes_at is None:
        one = [int(own.buffer.ctypes.data), 1, own.handles[0]]
        whole = mpi.DOUBLE.Create_subarray(tiles.whole, tiles.tile(ranks), (0, 0))
        bench.types.append(whole.Create_resized(0, 8).Commit())
        whole.Free()
        places = [row * tiles.points + column for row, column in (tiles.place(rank, ranks) for rank in range(ranks))]
        each, address, datatype = 1, int(root.buffer.ctypes.data), bench.types[-1]
    else:
        each, datatype = 8 * math.prod(tiles.tile(ranks)), mpi.BYTE
        one = [bytes_at[tiles.scatters], each, worker.handle(mpi, datatype)]
        places, address = [each * rank for rank in range(ranks)], bytes_at[not tiles.scatters]
    arrays = [bench.array(ctypes.c_int, values) for values in ([each] * ranks, places)]
    many = [address, *arrays, worker.handle(mpi, datatype)]
    return [*(many + one if tiles.scatters else one + many), 0]


def _of_one_type(bench: Bench, one: OneType, bytes_at: Sequence[int] | None) -> list[int]:
    """The same of a function with one datatype a side."""
    side = bench.sent if bench.sent.blocks else bench.received
    each, datatype = 1, side.handles[0]
    if bytes_at is not None:
        each, datatype = side.blocks[0].shape.nbytes, worker.handle(bench.mpi, bench.mpi.BYTE)
    addresses = bytes_at or [int(one.buffer.ctypes.data) for one in (bench.sent, bench.received)]
    return one.arguments(bench.at, addresses, each, datatype, lambda values: bench.array(ctypes.c_int, values))


def _typed(bench: Bench, lookup: Lookup) -> list[Call]:
    """One call with a datatype for each block, or for all."""
    comm = worker.handle(bench.mpi, bench.comm)
    if isinstance(bench.exchange, OneType):
        return _formed(bench, lookup, [*_of_one_type(bench, bench.exchange, None), comm])
    if isinstance(bench.exchange, Tiles):
        return _formed(bench, lookup, [*_tiles(bench, bench.exchange, None), comm])
    wide = bench.exchange.function == "Neighbor_alltoallw"
    displacement = ctypes.c_ssize_t if wide else ctypes.c_int
    handle = ctypes.c_uint32 if bench.mpi._sizeof(bench.mpi.Datatype) == 4 else ctypes.c_uint64
    arguments: list[int] = []
    for side in (bench.sent, bench.received):
        arguments += (
            int(side.buffer.ctypes.data),
            bench.array(ctypes.c_int, [block.shape.count for block in side.blocks]),
            bench.array(displacement, [block.place for block in side.blocks]),
            bench.array(handle, side.handles),
        )
    return _formed(bench, lookup, [*arguments, comm])


def _native_function(op: str) -> int:
    return ctypes.cast(getattr(_native.load(), op), ctypes.c_void_p).value or 0


def _copies(bench: Bench, side: Side, op: str, packed: int, blocks: Sequence[int]) -> list[Call]:
    """The loop of each of these blocks, between its place and the packed bytes."""
    calls: list[Call] = []
    for i in blocks:
        shape = side.blocks[i].shape
        transfer = _native.Transfer(
            layout=worker.layout(side.handles[i]),
            memory=side.address(i),
            packed=packed,
            bytes=shape.nbytes,
            count=shape.count,
        )
        bench.kept.append(transfer)
        calls.append((_native_function(op), (ctypes.addressof(transfer),)))
        packed += shape.nbytes
    return calls


@dataclass(frozen=True, slots=True)
class Staging:
    """Addresses of packed bytes of a program that packs by hand; `plain`: it has none, as each process has one block
    without gaps."""

    plain: bool
    sent: int
    received: int

    @classmethod
    def of(cls, bench: Bench) -> Staging:
        plain = bench.sent.plain and bench.received.plain
        addresses = []
        for side in (bench.sent, bench.received):
            buffer = worker.arena(0 if plain else sum(block.shape.nbytes for block in side.blocks))
            bench.kept.append(buffer)
            addresses.append(int(buffer.ctypes.data))
        return cls(plain, *addresses)


def _by_hand(bench: Bench, staging: Staging) -> list[Call]:
    """Packs all blocks, exchanges bytes, unpacks; blocks without gaps are exchanged where they are."""
    comm = worker.handle(bench.mpi, bench.comm)
    arguments: list[int] = []
    for side, packed in ((bench.sent, staging.sent), (bench.received, staging.received)):
        sizes = [block.shape.nbytes for block in side.blocks]
        places = [block.place if staging.plain else sum(sizes[:i]) for i, block in enumerate(side.blocks)]
        arguments += (
            int(side.buffer.ctypes.data) if staging.plain else packed,
            bench.array(ctypes.c_int, sizes),
            bench.array(ctypes.c_int, places),
            worker.handle(bench.mpi, bench.mpi.BYTE),
        )
    sends = bench.sent.filled
    if isinstance(bench.exchange, Tiles):
        arguments = _tiles(bench, bench.exchange, [staging.sent, staging.received])
    if isinstance(bench.exchange, OneType):
        arguments = _of_one_type(bench, bench.exchange, [staging.sent, staging.received])
        sends = sends[:1] if bench.exchange.sends_one else sends
    exchange = _formed(bench, _library, [*arguments, comm], bench.exchange.function.replace("allw", "allv"))
    if staging.plain:
        return exchange
    packs = _copies(bench, bench.sent, "bench_hand_pack", staging.sent, sends)
    unpacks = _copies(bench, bench.received, "bench_hand_unpack", staging.received, bench.received.filled)
    return [*packs, *exchange, *unpacks]


def _packed_places(side: Side, packed: int, plain: bool) -> dict[int, tuple[int, int]]:
    """Address and size of the bytes from or for each process."""
    places = {}
    for peer, blocks in side.by_peer().items():
        size = sum(side.blocks[i].shape.nbytes for i in blocks)
        places[peer] = (side.address(blocks[0]) if plain else packed, size)
        packed += size
    return places


def _own_copy(bench: Bench, source: int, target: int, size: int, plain: bool) -> list[Call]:
    """Of blocks without gaps; packed ones are unpacked from where they are."""
    if not plain:
        return []
    transfer = _native.Transfer(memory=source, packed=target, bytes=size, count=1)
    bench.kept.append(transfer)
    return [(_native_function("bench_memcpy"), (ctypes.addressof(transfer),))]


def _by_hand_isend(bench: Bench, staging: Staging) -> list[Call]:
    """A receive and a packed send of bytes for each process, then one Waitall, then unpacks. What a process has for
    itself it unpacks from where it was packed."""
    mpi, plain, own = bench.mpi, staging.plain, bench.at.rank
    comm, byte = worker.handle(mpi, bench.comm), worker.handle(mpi, mpi.BYTE)
    sent = _packed_places(bench.sent, staging.sent, plain)
    received = _packed_places(bench.received, staging.received, plain)
    total = len(sent.keys() - {own}) + len(received.keys() - {own})
    requests, statuses = bench.room(total), bench.room(total * STATUS_ROOM // 8)
    waits = [(_library("Waitall"), (total, requests, statuses))] if total else []
    calls: list[Call] = []
    unpacks: list[Call] = []
    slots = itertools.count(requests, mpi._sizeof(mpi.Request))
    for peer, (address, size) in received.items():
        if peer != own:
            calls.append((_library("Irecv"), (address, size, byte, peer, 0, comm, next(slots))))
        if not plain:
            source = sent[own][0] if peer == own else address
            unpacks += _copies(bench, bench.received, "bench_hand_unpack", source, bench.received.by_peer()[peer])
    for peer, (address, size) in sent.items():
        if not plain:
            calls += _copies(bench, bench.sent, "bench_hand_pack", address, bench.sent.by_peer()[peer])
        if peer != own:
            calls.append((_library("Isend"), (address, size, byte, peer, 0, comm, next(slots))))
        else:
            calls += _own_copy(bench, address, received[own][0], size, plain)
    return [*calls, *waits, *unpacks]


def _bound(bench: Bench) -> list[Call]:
    """Touches the lines of the block of this process to itself."""
    ((sent,), (received,)) = bench.sent.filled, bench.received.filled
    copy = _native.Copy(
        source_layout=worker.layout(bench.sent.handles[sent]),
        target_layout=worker.layout(bench.received.handles[received]),
        source=bench.sent.address(sent),
        target=bench.received.address(received),
        bytes=bench.sent.blocks[sent].shape.nbytes,
    )
    bench.kept.append(copy)
    return [(_native_function("bench_bound_copy"), (ctypes.addressof(copy),))]


def _messages(bench: Bench) -> list[Call]:
    """A receive and a send for each block, and one Waitall."""
    comm, size = worker.handle(bench.mpi, bench.comm), bench.mpi._sizeof(bench.mpi.Request)
    total = len(bench.received.filled) + len(bench.sent.filled)
    requests, statuses = bench.room(total), bench.room(total * STATUS_ROOM // 8)
    calls: list[Call] = []
    for side, name in ((bench.received, "Irecv"), (bench.sent, "Isend")):
        function = _own(name)
        for i in side.filled:
            block = side.blocks[i]
            message = (side.address(i), block.shape.count, side.handles[i], block.peer, block.tag, comm)
            calls.append((function, (*message, requests + size * len(calls))))
    return [*calls, (_own("Waitall"), (total, requests, statuses))]


def way_names() -> list[str]:
    """Of the ways in which tempi copies a flow, by their numbers."""
    names = (_engine.lib.tempi_copy_way_name(i) for i in itertools.count())
    return [_engine.ffi.string(name).decode() for name in itertools.takewhile(lambda name: name != NULL, names)]


def subjects(bench: Bench, acting: bool, ways: bool) -> dict[str, list[Call]]:
    """Name of each subject and its calls. Without tempi there are no layouts, by which the loops are written."""
    if ways:
        return {name: _typed(bench, _own) for name in ("tempi", *way_names())} if acting else {}
    table = {"library": _typed(bench, _library)}
    if acting:
        staging = Staging.of(bench)
        table |= {"tempi": _typed(bench, _own), "hand": _by_hand(bench, staging)}
        if not isinstance(bench.exchange, OneType):
            table |= {"hand isend": _by_hand_isend(bench, staging), "isend": _messages(bench)}
        table |= {BOUND: _bound(bench)} if isinstance(bench.exchange, OwnBlock) else {}
    return table


# -- measuring ------------------------------------------------------------------------------------------------------


def _together(timer: _native.Timer, world: Any) -> _native.Timer:
    """Starts on all ranks at once."""

    def run(loops: int) -> float:
        world.Barrier()
        return timer(loops)

    return run


def _by_way(timer: _native.Timer, way: int, world: Any) -> _native.Timer:
    """With all flows of this rank by one way, or -1: as chosen; together, after calls that warm what that way uses."""

    def run(loops: int) -> float:
        _engine.lib.tempi_copy_way_force(way)
        timer(2)
        world.Barrier()
        seconds = timer(loops)
        _engine.lib.tempi_copy_way_force(-1)
        return seconds

    return run


def _settle(timer: _native.Timer, world: Any) -> None:
    """Lets the first trials of all ways end, of which a program has one in thousands of calls."""
    one = world.allreduce(timer(1), max)
    timer(max(20, min(300, int(SETTLING / one))))


def _unsettled(timer: _native.Timer, nbytes: int) -> Callable[[], bool]:
    """The same in rounds like those measured: within these calls, of so many bytes, tempi has tried all ways."""
    rounds = iter(range(SETTLED))
    together = min(TOGETHER + WARMED // SETTLED // max(nbytes, 1), MOST_TOGETHER)

    def unsettled() -> bool:
        if next(rounds, None) is None:
            return False
        timer(together)
        return True

    return unsettled


def slowest(taken: Sequence[Sequence[float]]) -> tuple[int, Sequence[float]]:
    """The rank with the largest median, and its samples."""
    rank = max(range(len(taken)), key=lambda one: stats.median(taken[one]).value)
    return rank, taken[rank]


def _engaged(timer: _native.Timer) -> bool:
    """Whether tempi carries the call, or a part of it."""

    def calls() -> int:
        return worker.counter("collectives") + worker.counter("collectives_split")

    before = calls()
    timer(1)
    return calls() > before


def _measure(
    bench: Bench, world: Any, acting: bool, options: CollectiveOptions, meta: dict[str, Any]
) -> Iterator[Record]:
    def record(subject: str, seconds: Sequence[float], **more: Any) -> Record:
        name, op = bench.exchange.name, form_of(bench.exchange.function, options.form)
        return Record("collectives", name, op, subject, bench.nbytes, tuple(seconds), {**meta, **more})

    timers: dict[str, _native.Timer] = {}
    expect(bench)
    forced = {name: way for way, name in enumerate(way_names())} if options.ways else {}
    for name, calls in subjects(bench, acting, options.ways).items():
        sequence = _native.sequence(*calls)
        timer = _native.timer(_native.load(), "bench_calls_in_turn", sequence)
        timer(1)
        bench.comm.Barrier()  # where the processes agree on nonblocking ones
        error = None if name == BOUND else wrong(bench, timer, world)
        if error:
            yield record(name, (), refused=error)
        else:
            timers[name] = _by_way(timer, forced.get(name, -1), world) if options.ways else _together(timer, world)
    engaged = "tempi" in timers and _engaged(timers["tempi"])
    if options.ways and not options.check and engaged:
        _settle(timers["tempi"], world)
    if options.check:
        yield from (record(name, (), checked=True, engaged=engaged) for name in timers if name != BOUND)
        return
    doubt = bars.doubt_of(timers, quick=options.quick)
    nbytes = world.allreduce(bench.nbytes, max)
    unsettled = _unsettled(timers["tempi"], nbytes) if "tempi" in timers else sampling.settled
    taken = sampling.sample(list(timers.values()), options.seconds, world.bcast, unsettled, doubt)
    for name, each in zip(timers, zip(*world.allgather(taken), strict=True), strict=True):
        # Once more: the timed calls ran one after another.
        error = None if name == BOUND else wrong(bench, timers[name], world)
        rank, seconds = slowest(each)
        more = {"engaged": engaged} if name == "tempi" else {}
        yield record(name, (), refused=error) if error else record(name, seconds, slowest=rank, **more)


def form_of(function: str, form: str) -> str:
    """Name of that form, without the prefix."""
    return {"nonblocking": f"I{function.lower()}", "persistent": f"{function}_init"}.get(form, function)


def _too_large(exchange: Exchange, need: int, options: CollectiveOptions, meta: dict[str, Any]) -> Record:
    text = f"needs {need >> 20} MiB a rank, the limit is {options.memory >> 20} MiB"
    op = form_of(exchange.function, options.form)
    return Record("collectives", exchange.name, op, "library", 0, (), {**meta, "refused": text})


def run(options: CollectiveOptions) -> Iterator[Record]:
    """All records, exchange by exchange, on all ranks."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    acting = bool(world.allreduce(worker.active(), MPI.LAND))
    meta = {**worker.describe(MPI), "ranks": world.size, "mapped": options.mapped}
    exchanges = chosen(options.quick, world.size, options.cases)
    spans = [one.span(one.position(world.rank, world.size)) for one in exchanges]
    spans = [int(span) for span in np.max(world.allgather(spans), axis=0)]
    # Source, target, expected contents, and the pattern that is copied to the source; packed contents are less.
    fitting = [4 * span <= options.memory for span in spans]
    most = max((span for span, fits in zip(spans, fitting, strict=True) if fits), default=0)
    source, target = (worker.arena(most, options.mapped) for _ in range(2))
    expected = worker.arena(most)
    for exchange, span, fits in zip(exchanges, spans, fitting, strict=True):
        if not fits:
            yield _too_large(exchange, 4 * span, options, meta)
            continue
        at = exchange.position(world.rank, world.size)
        source[:span] = worker.arena(span)
        source[:span] ^= np.uint8(key(at.rank))
        comm = exchange.comm(MPI, world)
        sent = Side.of(MPI, exchange.sends(at), source[:span])
        received = Side.of(MPI, exchange.receives(at), (source if exchange.one_buffer else target)[:span])
        bench = Bench(MPI, exchange, at, comm, sent, received, expected[:span], options.form)
        yield from _measure(bench, world, acting, options, meta)
        bench.free()
        sent.free()
        received.free()
        comm.Free()


def main() -> None:
    from mpi4py import MPI

    worker.emit(run(parse_collectives()), MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
