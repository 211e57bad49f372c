"""Datatypes that Open MPI 5.0.11 carries wrongly in messages above its eager limit (csrc/shim/type/quirks.c)."""

from __future__ import annotations

import oracle

SHORT, INT, FLOAT, DOUBLE = (oracle.Named(n) for n in ("SHORT", "INT", "FLOAT", "DOUBLE"))

#: Elements that do not lie at multiples of their size from one another: right by MPI_Pack and in short messages, wrong
#: where a message is packed, or unpacked, piece by piece.
ASTRAY = {
    "three hvectors of floats, 10 bytes apart": (
        oracle.Hvector(4, 2, -1520, oracle.IndexedBlock(4, (1, 8, 14), oracle.HindexedBlock(4, (0, 26), FLOAT))),
        3,
        "any",
    ),
    "ints, 26 bytes apart, under a duplicate": (
        oracle.Hindexed(
            (0, 3, 0, 3),
            (8, 10, 3799, 3803),
            oracle.Dup(oracle.IndexedBlock(3, (-2, 4, 9, 12, 16), oracle.Hvector(2, 4, 42, INT))),
        ),
        2,
        "both",
    ),
    "blocks of ints out of order": (oracle.HindexedBlock(4, (40, 57, 0), INT), 592, "sent"),
    "blocks of ints out of order, in cells of 64 bytes": (
        oracle.Resized(0, 64, oracle.HindexedBlock(4, (40, 57, 0), INT)),
        592,
        "any",
    ),
    "packed structs of shorts": (oracle.HindexedBlock(4, (0, 67, 146), oracle.Resized(0, 15, SHORT)), 2000, "any"),
    "doubles 10 bytes apart": (oracle.Contiguous(2, oracle.Hvector(6, 2, 26, DOUBLE)), 276, "sent"),
    "doubles received backwards": (oracle.Hvector(6, 4, -36, DOUBLE), 249, "any"),
    "shorts received backwards": (oracle.Hvector(5, 1, -41, SHORT), 1812, "received"),
    "short, int, int, 4 bytes past a multiple": (
        oracle.Struct((1, 1, 1), (0, 18, 46), (oracle.Named("SHORT_INT"), INT, INT)),
        86,
        "sent",
    ),
}  # fmt: skip
