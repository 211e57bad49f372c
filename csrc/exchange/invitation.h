/* Blocks that the sender stores: the receiver tells in shared memory where they are to lie, and the
 * sender writes its own there through the kernel. So the bytes pass through no memory that both
 * processes share, and the sender's layout may be any one (far_copy.h), as only the receiver's runs
 * cost the kernel a look-up of their pages. And the root of a gather, which would have to unpack
 * all blocks, does nothing for them, and many senders work at the same time. */
#ifndef TEMPI_EXCHANGE_INVITATION_H
#define TEMPI_EXCHANGE_INVITATION_H

#include "exchange/nest_walk.h"
#include "exchange/single_copy.h"

enum {
    TEMPI_INVITED_LEAST = 128 << 10 /* bytes; a shorter block does not wait for the receiver */
};

/* Zero at first. Only the receiver writes it. */
typedef struct tempi_invitation {
    uint64_t call;          /* the last one that the receiver has come to */
    tempi_probe process;    /* who it is: a sender makes sure of it before it stores anything */
    tempi_nest_shape shape; /* no runs: the block goes the other ways */
} tempi_invitation;

/* Where others may store these blocks: false, unless that is one long block with long runs. */
bool tempi_invitation_place(const tempi_op *blocks, int64_t n, tempi_nest_shape *place);
/* Tells where these blocks of that call are to be stored, if they may be. Always by the same
 * process. */
void tempi_invite(tempi_invitation *own, uint64_t call, const tempi_op *blocks, int64_t n);
/* The receiver has come to that call. */
bool tempi_invitation_is_there(const tempi_invitation *of, uint64_t call);
/* Whether a receiver may be asked to let this block be stored: it is long. */
bool tempi_invitation_suits(const tempi_op *block);
/* Whether such a block may be stored as invited in that call, to which the receiver has come. */
bool tempi_invitation_fits(const tempi_invitation *of, uint64_t call, const tempi_op *block);
/* Stores it. False: not all of it could be stored; some bytes may have been, of the receiver's
 * blocks only. */
bool tempi_invitation_follow(const tempi_invitation *of, const tempi_op *block);

#endif
