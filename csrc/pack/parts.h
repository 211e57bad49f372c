/* pack/parts.h: an operation on several memories, as one operation for each of them.
 *
 * A datatype of absolute addresses may mix host memory with that of devices. Its boxes are dealt
 * out to parts, each a layout of its own over the same packed stream, of which it covers only some
 * bytes.
 */
#ifndef TEMPI_PACK_PARTS_H
#define TEMPI_PACK_PARTS_H
#include "pack/pack.h"

typedef struct tempi_part {
    tempi_layout
        layout;     /* one element: the message's count is in the boxes; the boxes are its own */
    int most;       /* boxes that there is room for */
    int32_t method; /* TEMPI_METHOD_HOST or a device's */
    int32_t device;
} tempi_part;

typedef struct tempi_parts {
    int n;
    tempi_part part[];
} tempi_parts;

/* Room for so many parts, none of which has a box; NULL: out of memory. */
tempi_parts *tempi_parts_new(int most);
void tempi_parts_delete(tempi_parts *parts);
/* NULL is allowed, and most common. */
static inline void tempi_parts_free(tempi_parts *parts)
{
    if (parts)
        tempi_parts_delete(parts);
}
/* Adds a box, whose table gets another holder; false: out of memory. */
bool tempi_part_add(tempi_part *part, const tempi_box *box);
/* The method of all parts that are not the host's. */
void tempi_parts_set_method(tempi_parts *parts, int32_t method);
/* Packed bytes of the part; *stretches: in how many pieces of the packed stream they lie, at most.
 */
int64_t tempi_part_bytes(const tempi_part *part, int64_t *stretches);
/* Whether they are one run, which a copy moves. */
bool tempi_part_is_run(const tempi_part *part);

/* How many operations the list is with each part of a mixed one counted. */
int tempi_parts_count(const tempi_op *ops, int n);
/* Writes them. */
void tempi_parts_expand(const tempi_op *ops, int n, tempi_op *out);

/* One stretch of packed bytes: [first, first + n). A status other than TEMPI_OK ends the visit. */
typedef int (*tempi_segment)(void *context, int64_t first, int64_t n);
/* The stretches that the layout of one element covers within [first, first + n), those that adjoin
 * each other as one where the boxes list them one after the other. */
int tempi_stretches_visit(const tempi_layout *layout, int64_t first, int64_t n, tempi_segment visit,
                          void *context);

#endif
