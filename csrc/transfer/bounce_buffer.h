/* transfer/bounce_buffer.h: host memory that replaces a buffer in device memory in a call of a
 * library that is not CUDA-aware.
 *
 * The bounce buffer has the span and the offsets of the original, so that the call differs only in
 * the buffer's address. Only the bytes of the type maps are copied between the two: the gaps in the
 * program's memory may be in use by others. */
#ifndef TEMPI_TRANSFER_BOUNCE_BUFFER_H
#define TEMPI_TRANSFER_BOUNCE_BUFFER_H

#include "tempi.h"
#include "transfer/sparse_mapping.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `count` elements at `displacement` bytes from the buffer's address. */
typedef struct tempi_bounce_buffer_piece {
    const tempi_layout *layout; /* a reference */
    int64_t count;
    int64_t displacement;
    int32_t device; /* device that holds the memory; -1: host, beside pieces on a device */
    /* Several memories, `device` one of them: one part for each; else NULL. */
    struct tempi_parts *parts;
} tempi_bounce_buffer_piece;

typedef struct tempi_bounce_buffer {
    char *mem;     /* the buffer's address, as the program gave it */
    char *given;   /* its substitute, passed to the library */
    int64_t bytes; /* in all pieces */
    int npieces, room;
    tempi_bounce_buffer_piece *pieces;
    tempi_bounce_buffer_piece one; /* inline buffer for a single piece */
    void *block;
    size_t mapped; /* bytes of a mapping; 0: the block is a staging buffer */
    /* Used instead of `block` if the pieces are too far apart for one block. */
    tempi_sparse sparse;
    int64_t budgeted; /* bytes counted against the bound on staging memory */
} tempi_bounce_buffer;

/* Opens an empty buffer; pieces are added, then memory is taken. */
void tempi_bounce_buffer_open(tempi_bounce_buffer *bounce, const void *mem);
/* Adds a piece of one byte or more and takes over its parts, also on failure. TEMPI_OK,
 * TEMPI_ERR_MEMORY or TEMPI_ERR_OVERFLOW. */
int tempi_bounce_buffer_add(tempi_bounce_buffer *bounce, const tempi_bounce_buffer_piece *piece);
/* Allocates the memory and sets `given`. */
int tempi_bounce_buffer_take(tempi_bounce_buffer *bounce);
/* Releases everything; the buffer is empty then. */
void tempi_bounce_buffer_close(tempi_bounce_buffer *bounce);

/* Copies the program's memory into the bounce buffer, in the order of the program's stream
 * (cuda/device.h). */
int tempi_bounce_buffer_fill(const tempi_bounce_buffer *bounce);
/* Copies the bounce buffer into the program's memory; returns when done. */
int tempi_bounce_buffer_drain(const tempi_bounce_buffer *bounce);

/* The same for n packed bytes from `first` on of a buffer of one piece; direction: TEMPI_PACK
 * fills. */
int tempi_bounce_buffer_move(const tempi_bounce_buffer *bounce, int direction, int64_t first,
                             int64_t n);

#endif
