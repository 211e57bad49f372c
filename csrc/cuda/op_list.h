/* cuda/op_list.h: operations by value: all that their plan depends on. Programs repeat their
 * bursts; to compare two lists takes a tenth of the time to plan one. */
#ifndef TEMPI_CUDA_OP_LIST_H
#define TEMPI_CUDA_OP_LIST_H

#include "pack/pack.h"

typedef struct tempi_op_list tempi_op_list;

/* Whether a plan of it stays valid while the layout is held: it is canonical, and it has no table,
 * whose memory on the device may be given back meanwhile. */
bool tempi_layout_is_lasting(const tempi_layout *layout);

/* Holds the layouts. NULL: no memory, or one of them is not lasting. */
tempi_op_list *tempi_op_list_new(const tempi_op *ops, int n);
/* Whether these have the same plan; false for NULL. */
bool tempi_op_list_is(const tempi_op_list *list, const tempi_op *ops, int n);
void tempi_op_list_free(tempi_op_list *list);

#endif
