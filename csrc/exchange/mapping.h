/* Memory of other processes of the node that is mapped in this one, read-only in use: files of
 * mapped.h, and attachments of XPMEM. Mappings are kept for later exchanges. */
#ifndef TEMPI_EXCHANGE_MAPPING_H
#define TEMPI_EXCHANGE_MAPPING_H

#include "exchange/mapped.h"

/* Its first byte in this process, valid until the matching close of *pin. NULL: it cannot be
 * mapped. */
const char *tempi_mapping_open(const tempi_mapped *memory, int *pin);
void tempi_mapping_close(int pin);
/* Drops all of them. */
void tempi_mapping_clear(void);

#endif
