/* cuda/offset_tables.h: offset tables of irregular layouts, kept on the devices that have used
 * them. */
#ifndef TEMPI_CUDA_TABLES_H
#define TEMPI_CUDA_TABLES_H

#include "cuda/device.h"
#include "cuda/plan.h"

/* The device's copy of a layout's table (one that tempi_layout_canonical made: it is shared and
 * counted). Valid as long as somebody else than this cache holds the table; ready for all launches
 * that are put into the device's streams from now on. */
int tempi_cuda_table_get(tempi_cuda_device *device, const tempi_table *table, bool variable,
                         tempi_device_table *out);
/* Lets go of the tables that nobody else holds. */
void tempi_cuda_tables_trim(void);
/* Those of a device whose context is gone, after its pool was told. */
void tempi_cuda_tables_forget(int place);
/* All of them: before the pools go. */
void tempi_cuda_tables_clear(void);

#endif
