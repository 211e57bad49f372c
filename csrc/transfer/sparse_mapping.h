/* transfer/sparse_mapping.h: host memory for address segments that may lie terabytes apart (as a
 * process's heap and a device's memory do), all shifted by the same distance. Only the segments are
 * mapped: the address space has no room for several copies of the gaps. */
#ifndef TEMPI_TRANSFER_SPARSE_MAPPING_H
#define TEMPI_TRANSFER_SPARSE_MAPPING_H

#include <stdint.h>

typedef struct tempi_reach {
    int64_t low, high;
} tempi_reach;

typedef struct tempi_sparse {
    int n, room;
    tempi_reach *of;   /* segments; after the join: sorted, of whole pages */
    int64_t shift;     /* added to an address; 0: nothing is mapped */
    int nfine;         /* 0, or segments that the join left less merged */
    tempi_reach *fine; /* for where the others fit nowhere */
} tempi_sparse;

/* Adds the segment [low, high). Returns a tempi_status. */
int tempi_sparse_add(tempi_sparse *sparse, int64_t low, int64_t high);
/* Merges segments that are close to each other; returns how many are left. */
int tempi_sparse_join(tempi_sparse *sparse);
/* Maps the segments. TEMPI_OK or TEMPI_ERR_MEMORY. */
int tempi_sparse_map(tempi_sparse *sparse);
/* Unmaps everything. */
void tempi_sparse_close(tempi_sparse *sparse);

#endif
