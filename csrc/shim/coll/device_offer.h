/* The blocks that one process sends to another, all in device memory, described for the receiver's
 * device: allocations with their handles (cuda/ipc.h), and nests of runs in them. */
#ifndef TEMPI_SHIM_DEVICE_OFFER_H
#define TEMPI_SHIM_DEVICE_OFFER_H

#include "shim/coll/device_moves.h"

/* Of one process for the others. Zero at first. */
typedef struct tempi_device_offers {
    char *bytes;  /* one description after another, in the order of the processes; owned */
    int64_t *end; /* of each process; owned */
} tempi_device_offers;

/* Before the first one. False: no memory. */
bool tempi_device_offers_open(tempi_device_offers *offers, int processes);
/* Describes what goes to that process, the next one: at most so many bytes. False: it is to be
 * staged; then, too, the process counts. */
bool tempi_device_offers_add(tempi_device_offers *offers, int process, tempi_blocks *out,
                             int64_t most);
/* Leaves that process without one. */
void tempi_device_offers_skip(tempi_device_offers *offers, int process);
/* Its description, NULL: there is none. */
const void *tempi_device_offers_of(const tempi_device_offers *offers, int process, int64_t *n);
/* Stages the blocks of all other processes, in one launch as far as they follow each other. Returns
 * MPI_SUCCESS or an error that was raised. */
int tempi_device_offers_stage_rest(const tempi_device_offers *offers, int processes,
                                   tempi_blocks *out);
void tempi_device_offers_close(tempi_device_offers *offers);

/* Waits for the program's work on the blocks of that side, before others read them or, at another
 * time, they are replaced. `before`: a side for which this has just been done, or NULL. Returns
 * MPI_SUCCESS or an error that was raised. */
int tempi_device_await_program(const tempi_blocks *side, const tempi_blocks *before);

/* Adds the moves of what another process has described by those n bytes, into these blocks of
 * together `total` bytes. False: this process cannot read it, and nothing was added. */
bool tempi_device_offer_accept(tempi_device_moves *moves, const tempi_op *blocks, int64_t nblocks,
                               int64_t total, const void *offer, int64_t n);

#endif
