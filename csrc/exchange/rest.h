/* Memory that one process writes and another reads, over and over.
 *
 * After a read its lines are in the caches next to the reader's core. A store to such a line waits
 * until that core has let it go, many times longer than one to a line that has left those caches
 * meanwhile. So memory rests: other memory is written first. */
#ifndef TEMPI_EXCHANGE_REST_H
#define TEMPI_EXCHANGE_REST_H

enum {
    TEMPI_REST = 2 << 20,      /* bytes that are written in between */
    TEMPI_REST_LEAST = 4 << 10 /* bytes; shorter memory stays in the writer's own caches instead */
};

#endif
