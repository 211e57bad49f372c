/* Blocks that the device of the receiver moves from layout to layout, all in one launch: within its
 * memory, or from memory of other processes that is opened there (cuda/ipc.h). They are done in the
 * order of their senders, whichever offer came first: the same blocks are the same operations in
 * the next call, whose descriptor the device still has (cuda/resident.h). */
#ifndef TEMPI_SHIM_DEVICE_MOVES_H
#define TEMPI_SHIM_DEVICE_MOVES_H

#include "shim/coll/blocks.h"

typedef struct tempi_device_move {
    tempi_op from, to;      /* they hold their layouts */
    const tempi_op *sender; /* the first of the receiver's blocks from that process */
    int pin;                /* of another process's memory; -1: it is the own process's */
    int next; /* of the first move of a sender, in a run: that of the next sender; -1: none */
} tempi_device_move;

/* Zero at first. */
typedef struct tempi_device_moves {
    tempi_device_move *move; /* owned */
    int n, room;
} tempi_device_moves;

/* Takes over the pin. The moves of one sender follow each other, by edge. False: the device cannot
 * do it, or there is no memory. */
bool tempi_device_moves_add(tempi_device_moves *moves, const tempi_device_move *move);
/* The blocks that a process sends itself, if both are in memory of one device: their operations
 * become empty. */
void tempi_device_moves_add_own(tempi_device_moves *moves, int own, const tempi_blocks *out,
                                const tempi_blocks *in);
/* Drops those from that one on. */
void tempi_device_moves_drop(tempi_device_moves *moves, int first);
/* Does all of them, counts them, and drops them. `ordered`: after no work of the program's, which
 * was waited for before; else after its streams, those included that this thread named. False: no
 * memory, or the device has failed. */
bool tempi_device_moves_run(tempi_device_moves *moves, bool ordered);
void tempi_device_moves_close(tempi_device_moves *moves);

#endif
