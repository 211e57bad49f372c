/* transfer/bounce_buffer.h: host memory that stands in for a buffer of device memory in a call of a
 * library that takes no device addresses.
 *
 * The shadow spans what the buffer spans, at equal distances, so that the call is made with its
 * address in the buffer's place and else unchanged arguments. Between the two only the bytes of the
 * type maps move: what lies between them in the program's memory may be in use by others.
 */
#ifndef TEMPI_TRANSFER_SHADOW_H
#define TEMPI_TRANSFER_SHADOW_H

#include "tempi.h"
#include "transfer/sparse_mapping.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `count` elements at `displacement` bytes from the buffer's address. */
typedef struct tempi_bounce_buffer_piece {
    const tempi_layout *layout; /* held */
    int64_t count;
    int64_t displacement;
    int32_t device; /* whose memory it is; -1: the host's, beside pieces of a device's */
    struct tempi_parts
        *parts; /* several memories, `device` one of them: one part for each; else NULL */
} tempi_bounce_buffer_piece;

typedef struct tempi_bounce_buffer {
    char *mem;     /* the buffer's address, as the program gave it */
    char *given;   /* what stands for it */
    int64_t bytes; /* in all pieces */
    int npieces, room;
    tempi_bounce_buffer_piece *pieces;
    tempi_bounce_buffer_piece one; /* where there is no more than one */
    void *block;
    size_t mapped; /* bytes of a mapping; 0: the block is a staging buffer */
    tempi_sparse
        apart; /* mapped instead, where the pieces are too far from each other for one block */
    int64_t budgeted; /* of these, counted against the bound on staging memory */
} tempi_bounce_buffer;

/* An empty one; pieces are added, then memory is taken. */
void tempi_bounce_buffer_open(tempi_bounce_buffer *shadow, const void *mem);
/* A piece of one byte or more, whose parts are the shadow's from then on, also where it fails.
 * TEMPI_OK, TEMPI_ERR_MEMORY or TEMPI_ERR_OVERFLOW. */
int tempi_bounce_buffer_add(tempi_bounce_buffer *shadow, const tempi_bounce_buffer_piece *piece);
/* Sets `given`. */
int tempi_bounce_buffer_take(tempi_bounce_buffer *shadow);
/* Everything back; the shadow is empty then. */
void tempi_bounce_buffer_close(tempi_bounce_buffer *shadow);

/* The program's memory into the shadow, in the order of the program's stream (cuda/device.h). */
int tempi_bounce_buffer_fill(const tempi_bounce_buffer *shadow);
/* The shadow into the program's memory; returns when it is there. */
int tempi_bounce_buffer_drain(const tempi_bounce_buffer *shadow);

/* The same for n packed bytes from `first` on of a shadow of one piece; direction: TEMPI_PACK
 * fills. */
int tempi_bounce_buffer_move(const tempi_bounce_buffer *shadow, int direction, int64_t first,
                             int64_t n);

#endif
