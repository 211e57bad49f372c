/* A round of a nonblocking or persistent collective: from its start until all has come, on the
 * communicator's lists. */
#ifndef TEMPI_SHIM_COLL_ROUND_H
#define TEMPI_SHIM_COLL_ROUND_H

#include "shim/coll/blocks.h"
#include "shim/coll/coll_posts.h"
#include "shim/coll/device_posts.h"
#include "shim/coll/persistent_call.h"
#include "shim/coll/remote_blocks.h"
#include "transfer/records.h"

/* What comes from one process. */
typedef struct tempi_arrival {
    int source, first, n; /* operations */
    int64_t bytes, came;  /* in all, and of the message those that were unpacked */
    tempi_post *post;     /* that has come, but is not read yet; or NULL */
    bool claimed;         /* for the device, which reads it */
    bool ended;
    double unpacking; /* seconds, of what was timed */
    double looked;    /* last, at whether the sender stores it; 0: it was not told where */
    double worked;    /* seconds of this process with the request, until then */
    double waited;    /* seconds for that, without them */
    double meanwhile; /* those of them since it was told */
} tempi_arrival;

typedef struct tempi_coll_request {
    tempi_node_comm *owner; /* the program's communicator */
    tempi_node_comm *node;  /* the same, or its part on this node: they exchange blocks */
    tempi_post_name name;
    uintptr_t request;    /* the program's */
    tempi_record *record; /* of that */
    MPI_Request inner;    /* the generalized one, which is not complete; or none */
    void *memory;         /* for the operations and arrivals of a start: used by all of them */
    size_t room;          /* bytes */
    bool active;          /* it was started */
    bool completed;       /* by this thread or another one */
    bool handed_over;     /* the library was asked about `inner`, so that it ends it */
    bool kept;            /* the operations of both sides serve the next start, too */
    tempi_blocks in;
    tempi_arrival *arrivals;
    int narrivals, left;
    double busy; /* seconds with long own blocks, and those that were streamed to this process */
    tempi_blocks
        out; /* while blocks of it are offered, sent later or kept; else without operations */
    tempi_coll_offers offers; /* that the receivers have not read */
    tempi_device_moves moves; /* of own blocks, until all has come */
    int error;
    tempi_remote *remote; /* blocks of other nodes; NULL: there are none */
    MPI_Request passed;   /* the library's request for them */
    bool initialized;     /* it is persistent */
    bool passing;         /* it is active */
    int passed_error;
    tempi_persistent_call *persistent; /* NULL: it is used once */
    struct tempi_coll_request *next;
} tempi_coll_request;

/* The communicator, or MPI_COMM_SELF: one that was freed has no handle. */
MPI_Comm tempi_coll_comm_of(const tempi_node_comm *node);
/* Once all is sent: receives what is there, and what comes in later calls. */
void tempi_coll_follow(tempi_coll_request *r);
/* From now on the library is asked about its handle: if it is complete the library is told, else
 * when it will be. */
void tempi_coll_hand_over(tempi_coll_request *r);
/* Whether it is complete and the library was not asked. */
bool tempi_coll_has_ended(const tempi_coll_request *r);
/* Frees what a start has made. */
void tempi_coll_end_round(tempi_coll_request *r);
/* Before the first one: later calls make progress. */
void tempi_coll_use_hooks(void);

#endif
