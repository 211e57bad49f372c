/* Messages between the processes of one node that wait in shared memory until they are read, for
 * nonblocking exchanges: the sender never waits for the receiver, nor the receiver for later calls
 * of the sender, which may even have ended.
 *
 * One file for a group of processes. Each has a region of it, of which it allocates what it needs:
 *
 *   region   | heads, one for each receiver | messages and their bytes, in slabs ... |
 *
 * The messages to one receiver are a list: the sender appends, the receiver reads one after the
 * other and says how far it has come. What was taken is used again, by sizes. */
#ifndef TEMPI_EXCHANGE_POST_BOX_H
#define TEMPI_EXCHANGE_POST_BOX_H

#include "exchange/segment.h"

/* In shared memory. Zero while it is set aside. */
typedef struct tempi_post {
    uint64_t next;    /* place of the next one to this receiver; 0: none yet */
    uint64_t channel; /* what it belongs to, and the number of the exchange there */
    uint64_t call;
    int64_t bytes; /* packed; -1: the sender has failed */
    uint64_t data; /* their place */
    uint64_t room; /* bytes set aside there */
    uint32_t taken;
    bool nontemporal; /* to be packed with non-temporal stores */
    bool timed;       /* a long one: the two times are taken */
    double packing;   /* seconds, by the sender */
    double unpacking; /* by the receiver, before it is taken */
} tempi_post;

typedef struct tempi_post_box tempi_post_box;

/* Makes the file for so many processes: one of them does, and removes it by tempi_segment_unlink
 * when all have opened it, or one could not. False: it could not. */
bool tempi_post_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME]);
/* Opens it, as process number `own`, whose first messages then have memory. NULL: it could not. */
tempi_post_box *tempi_post_open(const char *folder, int members, int own, const char *name);
/* Messages that others have not read stay readable for them. */
void tempi_post_close(tempi_post_box *box);

/* ---- sending --------------------------------------------------------------------------------- */

/* A message to that process: sets aside memory for its bytes, which begin at *data. NULL: there is
 * none; the message that says so needs none (bytes < 0). */
tempi_post *tempi_post_new(tempi_post_box *box, int to, int64_t bytes, void **data);
/* Sends the one that was just made. */
void tempi_post_send(tempi_post_box *box, int to);

/* ---- receiving ------------------------------------------------------------------------------- */

/* Whether there is a next message from that process. */
bool tempi_post_waits(tempi_post_box *box, int from);
/* The next message from that process, each once and in their order; NULL: there is none yet. */
tempi_post *tempi_post_next(tempi_post_box *box, int from);
/* Its packed bytes; NULL: they could not be mapped. */
const void *tempi_post_data(tempi_post_box *box, int from, const tempi_post *post);
/* They were read: the sender may use the memory again. */
void tempi_post_take(tempi_post *post);

#endif
