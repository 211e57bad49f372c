/* A collective exchange between processes of one node: each pair moves its bytes through a ring.
 *
 *   1. A flow is the blocks that go to one process, or come from it, one after another: a header
 *      with their size, then their packed bytes.
 *   2. The sender packs a piece into the ring and passes it on; the receiver unpacks it from there.
 *      So the bytes are copied twice, by the layouts of both sides, and stay in the caches.
 *   3. Neither waits for the other as long as the ring has room, or bytes.
 *   4. Blocks with long runs the sender may offer instead (copy_choice.h): the header is followed
 * by their structure, the receiver reads them in one copy from the sender's memory (offer.h)
 * and answers. If it cannot, it refuses, and they come after the others.
 *
 * 5. A long block the sender may store itself in the receiver's memory (invitation.h).
 *
 * 6. Blocks in device memory are offered by a description that only the callers understand. The
 * receiver's device reads all that it is offered at once, when all its flows have their headers.
 *
 * A flow of no bytes has no header: the types of both sides have the same size. */
#ifndef TEMPI_EXCHANGE_EXCHANGE_H
#define TEMPI_EXCHANGE_EXCHANGE_H

#include "exchange/ring.h"
#include "pack/pack.h"

#include <stdbool.h>

struct tempi_flow;

/* What the callers do for flows with blocks in device memory. */
typedef struct tempi_flow_device {
    void *state;
    /* Incoming: whether the device can read what the sender describes by these n bytes; it will,
     * in `read`. */
    bool (*accept)(void *state, const struct tempi_flow *flow, const void *offer, int64_t n);
    /* Makes operations of the host of the flow's blocks: packs those that are sent, and takes
     * memory for those that come. False: it could not. */
    bool (*stage)(void *state, struct tempi_flow *flow);
    /* Reads all that was accepted, if something was. False: the device has failed. */
    bool (*read)(void *state);
} tempi_flow_device;

/* Blocks are whole operations of the host (`first` is 0; `packed` is not used); without a layout,
 * contiguous bytes at `mem`. Zero the other members. */
typedef struct tempi_flow {
    tempi_ring_end *end; /* sender's or receiver's */
    const tempi_op *blocks;
    int64_t n;     /* blocks */
    int64_t bytes; /* in all of them */
    uint64_t call; /* number of this exchange in the group, to notice one that was left out */
    /* Incoming: bytes of it may be stored only after as many were packed of this one, which has
     * the same blocks in the same memory. */
    const struct tempi_flow *source;
    bool streams; /* outgoing: through the ring in any case */
    bool gathers; /* to a root that only receives, and so has most to do */
    bool one_way; /* outgoing: the receiver sends less than half as much in return */
    double *busy; /* seconds that this process has spent with the call; NULL: with this flow */
    /* NULL: all blocks are the host's. */
    const tempi_flow_device *device;
    bool resident;     /* some are a device's, until they are staged */
    const void *offer; /* outgoing: describes them; NULL: they are staged */
    int64_t offer_bytes;

    int64_t block;    /* in progress */
    int64_t done;     /* bytes of that block */
    int64_t moved;    /* bytes that came, or went, through the ring */
    int64_t through;  /* bytes that take this way */
    uint64_t offered; /* bit mask of blocks */
    double seconds;   /* spent with it */
    bool opened;      /* the header was written, or read */
    bool refused;     /* the offered blocks go through the ring, after the others */
    bool nontemporal; /* outgoing: packed with non-temporal stores */
    bool reused;      /* its bytes go through the short ring */
    bool waits;       /* outgoing: for the receiver's answer */
    bool stores;      /* outgoing: to be stored, when the receiver has come to this call */
    bool asked;       /* outgoing: it is known whether it might be stored */
    void *packed;     /* outgoing: the packed bytes that are offered */
    bool chosen;      /* outgoing: a long one, of which the ring's end has a record */
    bool timed;       /* `seconds` are taken */
    int32_t latency;  /* of a timed one: nanoseconds that the sender's beat took; -1: unknown */
    bool reads;       /* incoming: the device is to read it */
    bool ended;
    /* The sender has more bytes than fit, or is in another call; or this process cannot access its
     * own blocks: set before, then there are none, and others receive zeros. */
    bool failed;
} tempi_flow;

/* Called while nothing can be moved: `idle` counts up from 1 until something moves again. */
typedef void tempi_exchange_idle(void *state, int64_t idle);

/* Sends what goes into the rings at once. */
void tempi_exchange_begin(tempi_flow *out, int nout, tempi_flow *in, int nin);
/* Returns when all flows have ended: false if one of them has failed. */
bool tempi_exchange_run(tempi_flow *out, int nout, tempi_flow *in, int nin,
                        tempi_exchange_idle *idle, void *state);

#endif
