/* Memory that one process writes and another reads, over and over.
 *
 * After a read its lines are in the caches next to the reader's core. A store to such a line waits
 * until that core has let it go, many times longer than one to a line that has left those caches
 * meanwhile. So memory rests: other memory is written first. */
#ifndef TEMPI_EXCHANGE_REST_H
#define TEMPI_EXCHANGE_REST_H

#include <stdint.h>

enum {
    TEMPI_REST_LEAST = 4 << 10, /* bytes; shorter memory stays in the writer's caches instead */
    TEMPI_REST_MOST = 4 << 20   /* the largest tempi_rest_bytes() */
};

/* Bytes that are written in between: more than a core's level 2 cache holds. A power of two, which
 * may be another one in another process. */
int64_t tempi_rest_bytes(void);

#endif
