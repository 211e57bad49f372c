/* transfer/sparse_mapping.h: host memory for stretches of addresses that may lie terabytes apart (a
 * process's heap and a device's memory do), all shifted by the same distance. Only the stretches
 * are mapped: the address space has no room for several times what is between them.
 */
#ifndef TEMPI_TRANSFER_APART_H
#define TEMPI_TRANSFER_APART_H

#include <stdint.h>

typedef struct tempi_reach {
    int64_t low, high;
} tempi_reach;

typedef struct tempi_sparse {
    int n, room;
    tempi_reach *of; /* once joined: in order, of whole pages */
    int64_t shift;   /* to add to an address; 0: nothing is mapped */
} tempi_sparse;

/* One more stretch, [low, high). A tempi_status. */
int tempi_sparse_add(tempi_sparse *apart, int64_t low, int64_t high);
/* Makes one of those that are near each other; returns how many are left. */
int tempi_sparse_join(tempi_sparse *apart);
/* Maps those. TEMPI_OK or TEMPI_ERR_MEMORY. */
int tempi_sparse_map(tempi_sparse *apart);
/* Everything back. */
void tempi_sparse_close(tempi_sparse *apart);

#endif
