/* transfer/apart.h: host memory for stretches of addresses that may lie terabytes apart (a process's heap and a
 * device's memory do), all shifted by the same distance. Only the stretches are mapped: the address space has no
 * room for several times what is between them.
 */
#ifndef TEMPI_TRANSFER_APART_H
#define TEMPI_TRANSFER_APART_H

#include <stdint.h>

typedef struct tempi_reach {
    int64_t low, high;
} tempi_reach;

typedef struct tempi_apart {
    int n, room;
    tempi_reach *of; /* once joined: in order, of whole pages */
    int64_t shift;   /* to add to an address; 0: nothing is mapped */
} tempi_apart;

/* One more stretch, [low, high). A tempi_status. */
int tempi_apart_add(tempi_apart *apart, int64_t low, int64_t high);
/* Makes one of those that are near each other; returns how many are left. */
int tempi_apart_join(tempi_apart *apart);
/* Maps those. TEMPI_OK or TEMPI_ERR_MEMORY. */
int tempi_apart_map(tempi_apart *apart);
/* Everything back. */
void tempi_apart_close(tempi_apart *apart);

#endif
