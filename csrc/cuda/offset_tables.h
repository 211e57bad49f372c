/* cuda/offset_tables.h: offset tables of irregular layouts, cached on each device that uses
 * them. */
#ifndef TEMPI_CUDA_OFFSET_TABLES_H
#define TEMPI_CUDA_OFFSET_TABLES_H

#include "cuda/device.h"
#include "cuda/plan.h"

/* The device's copy of a layout's table (made by tempi_layout_canonical: shared and counted). Valid
 * while a reference other than the cache's exists; ready for launches in any stream. */
int tempi_cuda_table_get(tempi_cuda_device *device, const tempi_table *table, bool variable,
                         tempi_device_table *out);
/* Frees the tables that only the cache references. */
void tempi_cuda_tables_trim(void);
/* Forgets the tables of a device whose context is gone; its pool must have forgotten it before. */
void tempi_cuda_tables_forget(int slot);
/* Frees all tables: before the pools go. */
void tempi_cuda_tables_clear(void);

#endif
