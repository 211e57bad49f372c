/* The memory of the messages between the processes of one node (post_box.h): one sparse file, of
 * which each process has a region.
 *
 * A place is an offset in a region. A block is memory of a size class, four to each power of two.
 * Short blocks are cut from slabs; longer ones are slabs of their own, with a page more. Slabs are
 * mapped when they are used first, on both sides, and stay mapped. A block rests (rest.h) before
 * it is used again, and another one is made instead, within bounds; or, kept apart from these, the
 * one that came back last is used first.
 *
 * Memory is allocated before it is used: where shared memory is exhausted that fails, and no store
 * does. A long block that is not in use gives back its pages, if many are not. */
#ifndef TEMPI_EXCHANGE_POST_MEMORY_H
#define TEMPI_EXCHANGE_POST_MEMORY_H

#include "exchange/segment.h"

#include <stdbool.h>
#include <stdint.h>

/* TEMPI_POST_KEPT: bytes of long blocks that keep their pages for the next messages. */
enum { TEMPI_POST_CLASSES = 120, TEMPI_POST_KEPT = 64 << 20 };
#define TEMPI_POST_SLAB ((uint64_t)256 << 10) /* bytes */

/* What is mapped of a region, by the number of the first slab. */
typedef struct tempi_post_view {
    struct tempi_post_slab {
        char *address; /* NULL: it is not mapped */
        uint64_t bytes;
    } *slabs;
    uint64_t n;
} tempi_post_view;

typedef struct tempi_post_memory {
    int file, members, own;
    tempi_post_view *views; /* of each region, in this process */
    uint64_t top;           /* where the next slab begins */
    uint64_t at, end;       /* of the slab that short blocks are cut from */
    uint64_t idle;          /* bytes of long blocks that are not in use and have pages */
    uint64_t given, used;   /* bytes of blocks that rest: given out so far, and in use */
    uint64_t rest;          /* bytes that are given out before a block is used again (rest.h) */
    uint64_t spare;         /* bytes of short blocks that were made as others had not rested */
    bool refused;           /* there was no memory for a block that was to be made so */
    /* The blocks of each class that are not in use; the longest at rest first, but for those that
     * need not rest. `reused`: the last that came back first. `without`: those that gave back their
     * pages, but for the first. */
    struct tempi_post_list {
        uint64_t first, last; /* places; first is 0 if there is none */
    } free[TEMPI_POST_CLASSES], reused[TEMPI_POST_CLASSES], without[TEMPI_POST_CLASSES];
} tempi_post_memory;

/* Makes the file. False: it could not. */
bool tempi_post_memory_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME]);
/* Opens it as process number `own`, whose region begins with so many bytes that are no block's.
 * False: it could not; then, too, tempi_post_memory_close is to be called. */
bool tempi_post_memory_open(tempi_post_memory *memory, const char *folder, int members, int own,
                            const char *name, uint64_t reserved);
void tempi_post_memory_close(tempi_post_memory *memory);

/* Maps the slab of that place, or the whole long block that begins there; returns as
 * tempi_post_place does. */
void *tempi_post_map(tempi_post_memory *memory, int member, uint64_t place, uint64_t room);

/* The address of a place in that process's region. `room`: of the block, or 0 if it is a short one.
 * NULL: it could not be mapped. */
static inline void *tempi_post_place(tempi_post_memory *memory, int member, uint64_t place,
                                     uint64_t room)
{
    const tempi_post_view *view = &memory->views[member];
    const uint64_t slab = place / TEMPI_POST_SLAB;
    return slab < view->n && view->slabs[slab].address
               ? view->slabs[slab].address + place % TEMPI_POST_SLAB
               : tempi_post_map(memory, member, place, room);
}
/* The same in the own region. */
static inline void *tempi_post_own_place(tempi_post_memory *memory, uint64_t place, uint64_t room)
{
    return tempi_post_place(memory, memory->own, place, room);
}

/* The place of a block for so many bytes that begin so much behind it, less than a page; or 0. Sets
 * *room to its size. `reused`: one of those that do not rest. */
uint64_t tempi_post_block_get(tempi_post_memory *memory, uint64_t bytes, uint64_t shift,
                              bool reused, uint64_t *room);
/* `room`: its size, or the bytes that it was made for without a shift. */
void tempi_post_block_put(tempi_post_memory *memory, uint64_t place, bool reused, uint64_t room);
/* Gives back the pages of all blocks that are not in use. */
void tempi_post_memory_give_back(tempi_post_memory *memory);

#endif
