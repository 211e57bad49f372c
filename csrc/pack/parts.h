/* pack/parts.h: an operation on several memories, as one operation for each of them.
 *
 * A datatype of absolute addresses may mix host and device memory. Its boxes are distributed to
 * parts. Each part is a separate layout over the same packed stream, of which it covers only some
 * bytes. */
#ifndef TEMPI_PACK_PARTS_H
#define TEMPI_PACK_PARTS_H
#include "pack/pack.h"

typedef struct tempi_part {
    /* One element: the boxes include the message's count. The part owns the boxes. */
    tempi_layout layout;
    int most;       /* capacity of boxes */
    int32_t method; /* TEMPI_METHOD_HOST or a device's */
    int32_t device;
} tempi_part;

typedef struct tempi_parts {
    int n;
    tempi_part part[];
} tempi_parts;

/* Allocates up to `most` parts without boxes; NULL: out of memory. */
tempi_parts *tempi_parts_new(int most);
void tempi_parts_delete(tempi_parts *parts);
/* NULL is allowed, and the most common case. */
static inline void tempi_parts_free(tempi_parts *parts)
{
    if (parts)
        tempi_parts_delete(parts);
}
/* Adds a box and a reference to its table; false: out of memory. */
bool tempi_part_add(tempi_part *part, const tempi_box *box);
/* Sets the method of all parts that are not the host's. */
void tempi_parts_set_method(tempi_parts *parts, int32_t method);
/* Packed bytes of the part; *segments: upper bound of their segments in the packed stream. */
int64_t tempi_part_bytes(const tempi_part *part, int64_t *segments);
/* Whether the part is one run, which a copy can move. */
bool tempi_part_is_run(const tempi_part *part);

/* Number of operations when each part of a mixed one counts as one. */
int tempi_parts_count(const tempi_op *ops, int n);
/* Writes the expanded list. */
void tempi_parts_expand(const tempi_op *ops, int n, tempi_op *out);

/* Called for one segment of packed bytes: [first, first + n). A status but TEMPI_OK stops. */
typedef int (*tempi_segment)(void *context, int64_t first, int64_t n);
/* Visits the segments that the layout of one element covers within [first, first + n). Adjacent
 * segments are joined if the boxes list them one after the other. */
int tempi_segments_visit(const tempi_layout *layout, int64_t first, int64_t n, tempi_segment visit,
                         void *context);

#endif
