/* Long messages of nonblocking and persistent collectives go in parts (exchange/post_box.h): at the
 * start so many as may wait in shared memory for one receiver, the tail as the receiver reads. So
 * they need no memory of their size, as long as the program waits for them or tests them. If it is
 * about to wait for anything else in the library, or its receivers read nothing for long while it
 * does wait, or tests, the whole tail is packed: a process may depend on no later call of another
 * one. */
#ifndef TEMPI_SHIM_COLL_POST_TAILS_H
#define TEMPI_SHIM_COLL_POST_TAILS_H

#include "exchange/post.h"
#include "shim/coll/blocks.h"
#include "shim/coll/node_comm.h"

/* By what the receiver finds its request. */
typedef struct tempi_post_name {
    uint64_t channel, call;
} tempi_post_name;

typedef struct tempi_post_tail {
    int to, first, n;    /* operations */
    int64_t sent, bytes; /* of all of them */
    int64_t part;        /* bytes of each, but for the last one */
    bool nontemporal;    /* the stores with which they are packed */
    tempi_post_course course;
    double packing; /* seconds, of what was sent, if that is timed */
} tempi_post_tail;

typedef struct tempi_post_tails {
    tempi_post_tail *of; /* owned; for as many as there are processes */
    int n;
    int error;             /* MPI_ERR_NO_MEM: not all could be sent */
    double looked, waited; /* when there was no room for more, and for how long; seconds */
    uint64_t read;         /* messages that those receivers had read then */
} tempi_post_tails;

/* Memory for one to each process. False: there is none. */
bool tempi_post_tails_open(tempi_post_tails *tails, int processes);
void tempi_post_tails_add(tempi_post_tails *tails, tempi_post_tail tail);
/* Packs so many bytes of the operations from that offset on. */
void tempi_post_pack(const tempi_op *ops, int n, int64_t offset, int64_t bytes, bool nontemporal,
                     char *packed);
/* Sends what there is room for, or `all`. Caller holds the lock under which messages are sent. */
void tempi_post_tails_send(tempi_post_tails *tails, tempi_node_comm *node, tempi_post_name name,
                           const tempi_blocks *out, bool all);
/* In each call of the program that tests or waits: likewise. */
void tempi_post_tails_look(tempi_post_tails *tails, tempi_node_comm *node, tempi_node_comm *owner,
                           tempi_post_name name, const tempi_blocks *out);
/* After an error: the receivers are told of it. */
void tempi_post_tails_fail(tempi_post_tails *tails, tempi_node_comm *node, tempi_post_name name);

#endif
