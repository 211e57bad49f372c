/* A buffer through which bytes go in pieces that stay in the caches. */
#ifndef TEMPI_EXCHANGE_PIECE_BUFFER_H
#define TEMPI_EXCHANGE_PIECE_BUFFER_H

#include <stdint.h>

enum {
    /* A receiver starts when the first piece is there, and it stays in the caches next to the core.
     */
    TEMPI_PIECE_MOST = 64 << 10
};

/* A thread of the program may have a small stack. */
typedef struct tempi_piece_buffer {
    char *bytes;
    int64_t size;
    _Alignas(64) char small[4 << 10];
} tempi_piece_buffer;

/* Packed bytes of such a piece: as many as the level 2 cache has, within bounds. To begin a piece
 * misses the caches, tables and both layouts above all, but longer ones leave that cache. */
int64_t tempi_piece_bytes(void);
/* For pieces of n bytes; without memory for them piece->size is less. */
void tempi_piece_open(tempi_piece_buffer *piece, int64_t n);
void tempi_piece_close(tempi_piece_buffer *piece);

/* Where buffers of an exchange come from: malloc and free, if these are not set. `get_read`: those
 * that another process reads. */
void tempi_exchange_use(void *(*get)(int64_t bytes), void *(*get_read)(int64_t bytes),
                        void (*put)(void *buffer));
/* NULL: there is no memory. */
void *tempi_exchange_get(int64_t bytes);
void *tempi_exchange_get_read(int64_t bytes);
void tempi_exchange_put(void *buffer);

#endif
