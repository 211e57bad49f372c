/* Memory of other processes of the node by XPMEM, a module of the kernel that some systems have: a
 * process shares its whole address space, and others attach what they read, ordinary memory too.
 * Only with TEMPI_XPMEM=1.
 *
 * The interface is that of github.com/hpc/xpmem, include/xpmem.h. An attachment follows its owner's
 * mappings: where the owner has given pages back and got others, it shows those. */
#ifndef TEMPI_EXCHANGE_XPMEM_H
#define TEMPI_EXCHANGE_XPMEM_H

#include "exchange/mapped.h"

/* This process's address space, made known at the first call; 0: there is no XPMEM. */
int64_t tempi_xpmem_segment(void);
/* Bytes [from, to) of this process, if it has a segment. */
bool tempi_xpmem_find(uint64_t from, uint64_t to, tempi_mapped *out);

/* In whole pages; NULL: it cannot be attached. A read where the owner has no memory ends this
 * process by SIGBUS. */
char *tempi_xpmem_attach(const tempi_mapped *memory);
void tempi_xpmem_detach(char *memory);
/* Copies n bytes from that address of a process. False: they cannot be read. */
bool tempi_xpmem_peek(int64_t segment, uint64_t address, void *out, int64_t n);

#endif
