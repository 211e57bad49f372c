/* A message between two processes of a node that waits in shared memory (post_box.h), and its
 * states. */
#ifndef TEMPI_EXCHANGE_POST_H
#define TEMPI_EXCHANGE_POST_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TEMPI_POST_SENT,
    TEMPI_POST_CLAIMED, /* the receiver reads what is offered */
    TEMPI_POST_TAKEN,
    TEMPI_POST_WITHDRAWN, /* the sender packs what was offered; SENT again, when it has */
    TEMPI_POST_REFUSED,   /* the receiver cannot read it: likewise */
    TEMPI_POST_INVITED,   /* the receiver has told where the sender may store the block */
    TEMPI_POST_STORING,   /* the sender does */
    TEMPI_POST_STORED     /* it has */
};

/* Of a long message, and of each of its parts. */
typedef struct tempi_post_course {
    int8_t class;      /* copy_choice.h; -1: it is not long */
    uint8_t way, next; /* tempi_copy_way: of the sender, and of its next such message */
    bool timed;        /* the two times are taken */
    bool streamed;     /* its parts are unpacked while the next are packed */
} tempi_post_course;

/* In shared memory. Zero while it is set aside. The receiver of packed bytes reads the first line
 * alone. */
typedef struct tempi_post {
    uint64_t next;    /* the next one to this receiver (post_box.c); 0: none yet */
    uint64_t channel; /* what it belongs to, and the number of the exchange there */
    uint64_t call;
    int64_t bytes; /* packed, in this part; -1: the sender has failed */
    int64_t whole; /* bytes of all parts */
    uint64_t data; /* the place of the packed ones, or of the offer */
    uint64_t room; /* bytes set aside for them; 0: they lie behind it */
    bool offers;   /* it did at first */
    bool watched;  /* a request of the sender still looks at it: its memory is not reused */
    tempi_post_course course;

    _Alignas(64) uint64_t block; /* the place of what was set aside */
    uint32_t state;              /* TEMPI_POST_SENT, and so on */
    uint32_t size;               /* bytes of the message, and of what lies behind it */
    int64_t offset;              /* of the bytes in the whole */
    int32_t nshapes;             /* of the offer; 0: the bytes are packed, or a device's */
    int32_t described;           /* bytes of the description for a device; 0: they are packed */
    bool reused;                 /* what was set aside does not rest (post_memory.h) */
    double patience;             /* seconds after which an offer may be withdrawn */
    double packing;              /* seconds, by the sender: of an offer, with the wait before, if it
                                    was withdrawn, or with which it stored it; 0: it was read */
    double unpacking;            /* by the receiver, before it is taken; both with earlier parts,
                                    of a streamed one with all that it has done meanwhile */
} tempi_post;

/* ---- by the sender --------------------------------------------------------------------------- */

/* Whether the sender's memory is not needed any more. */
bool tempi_post_is_over(const tempi_post *post);
/* Whether the receiver cannot read what was offered, so that it must be withdrawn. */
bool tempi_post_is_refused(const tempi_post *post);
/* If the receiver has told where the block is to be stored: true, and the sender stores it, and
 * tells whether it could. If it could not, it is offered again. */
bool tempi_post_begin_store(tempi_post *post);
void tempi_post_end_store(tempi_post *post, bool stored);
/* Takes it back from the receiver; *before: what it was, sent, invited or refused. False: the
 * receiver reads it, or has read it. */
bool tempi_post_take_back(tempi_post *post, uint32_t *before);
/* Its bytes are packed, or it has become a failure: the receiver looks at it again. */
void tempi_post_withdrawn(tempi_post *post);
/* In its place: the bytes could not be packed. */
void tempi_post_failed(tempi_post *post);
/* Whether the receiver has claimed what is offered, and not taken it yet. */
bool tempi_post_is_claimed(const tempi_post *post);
/* Makes an offer a failure. False: the receiver reads it, or has read it. */
bool tempi_post_give_up(tempi_post *post);
/* It is not watched any more. */
void tempi_post_unwatch(tempi_post *post);

/* ---- by the receiver ------------------------------------------------------------------------- */

/* Before its bytes are used, until it is not TEMPI_POST_LATER. What is offered must then be read,
 * and the message taken or refused. `device`: also what is offered to one; else that is left as it
 * is. */
typedef enum tempi_post_kind {
    TEMPI_POST_PACKED,
    TEMPI_POST_OFFERED,
    TEMPI_POST_IN_PLACE, /* the sender has stored it */
    TEMPI_POST_LATER     /* the sender is about to pack it, or to store it */
} tempi_post_kind;
tempi_post_kind tempi_post_claim(tempi_post *post, bool device);
/* Before: whether a description for a device stands there. It may be withdrawn at any time. */
bool tempi_post_is_described(const tempi_post *post);
/* What was claimed is to be stored by the sender, which was told where: it is to be claimed again.
 */
void tempi_post_invite(tempi_post *post);
/* Whether the sender has not begun to store it. */
bool tempi_post_is_invited(const tempi_post *post);
/* The sender is not to store it any more. False: it does, or has, or was about to pack it. */
bool tempi_post_uninvite(tempi_post *post);
/* What was claimed is to be packed. */
void tempi_post_refuse(tempi_post *post);

#endif
