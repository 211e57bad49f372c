/* The shared memory of a group of processes of one node: a ring from each of them to each other.
 *
 * One process creates it under a name that it tells to the others; when all have opened it, it is
 * removed from the file system, and lives as long as it is mapped. */
#ifndef TEMPI_EXCHANGE_SEGMENT_H
#define TEMPI_EXCHANGE_SEGMENT_H

#include "exchange/ring.h"
#include "exchange/single_copy.h"

#include <stdbool.h>
#include <stddef.h>

#define TEMPI_SEGMENT_FOLDER "/dev/shm"

enum {
    TEMPI_SEGMENT_NAME = 64,
    /* Rings through which a process sends have tempi_rest_bytes() together, or each so much, which
     * the short ones beside them have, too; then all of them take this share of the memory that is
     * free, at most, and shorter ones need not. */
    TEMPI_SEGMENT_RING_ENOUGH = 256 << 10,
    TEMPI_SEGMENT_SHARE = 16,
    TEMPI_SEGMENT_RING_LEAST = 4 << 10,
    TEMPI_SEGMENT_BYTES = 16 << 20, /* all rings together, unless the shortest take more */
    TEMPI_SEGMENT_MEMBERS = 128     /* the most: they take 77 MiB */
};

typedef struct tempi_segment {
    char *memory;
    int64_t bytes;
    int64_t capacity; /* of a ring, bytes */
    int members;
} tempi_segment;

/* A file of that length without memory, with a name that no other one in that folder has; -1: it
 * could not, and there is none. `folder`: NULL for a file that is in none (memfd), so that it may
 * have all memory that there is; containers often have 64 MiB in /dev/shm. Then another process
 * opens it through /proc, if it sees this one there, until tempi_segment_unlink. */
int tempi_segment_make_file(const char *folder, int64_t bytes, char name[TEMPI_SEGMENT_NAME]);
/* Opens it in another process, if it has that length and is of the same user; or -1. */
int tempi_segment_open_file(const char *folder, int64_t bytes, const char *name);
/* So that no store to that part of the file fails. False: a part of it may have memory. */
bool tempi_segment_allocate(int file, int64_t at, int64_t bytes);

/* Creates the memory for so many processes; all of it is allocated, so that no later store fails.
 * Rings are shorter if there is not enough. On failure `memory` is NULL. */
tempi_segment tempi_segment_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME]);
/* Maps it in another process; the creator's `members` must be the same. */
tempi_segment tempi_segment_open(const char *folder, int members, const char *name);
/* By the process that made it, once: it may close a descriptor. */
void tempi_segment_unlink(const char *folder, const char *name);
void tempi_segment_close(tempi_segment *segment);

/* Where each member leaves what the others need to read its memory. */
tempi_probe *tempi_segment_probe(const tempi_segment *segment, int member);
/* Begins *end, the sender's or the receiver's, of the ring from one member to another; to itself
 * there is none. */
void tempi_segment_end(const tempi_segment *segment, int from, int to, tempi_ring_end *end);

#endif
