/* MPI_Alloc_mem: memory that the other ranks of the node can map, so that collectives copy its
 * blocks once (exchange/mapped.h). */
#include "base/config.h"
#include "base/thread.h"
#include "exchange/mapped.h"
#include "shim/comm/peer_agree.h"
#include "shim/impl.h"

#include <stdio.h>
#include <string.h>

/* ---- large pages ----------------------------------------------------------------------------- */

/* The selected word of a setting of the kernel, as in "always [madvise] never". */
static void read_choice(const char *name, char out[32])
{
    char path[96], text[128];
    out[0] = '\0';
    snprintf(path, sizeof path, "/sys/kernel/mm/transparent_hugepage/%s", name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(text, sizeof text, file)) {
        const char *begin = strchr(text, '['), *end = begin ? strchr(begin, ']') : NULL;
        if (end && end - begin <= 31) {
            memcpy(out, begin + 1, (size_t)(end - begin - 1));
            out[end - begin - 1] = '\0';
        }
    }
    fclose(file);
}

/* Ordinary memory has large pages by itself under "always" alone; shared memory needs a setting of
 * its own, which most systems leave at "never". */
static bool costs_large_pages(void)
{
    char ordinary[32], shared[32];
    read_choice("enabled", ordinary);
    read_choice("shmem_enabled", shared);
    return strcmp(ordinary, "always") == 0 &&
           (shared[0] == '\0' || strcmp(shared, "never") == 0 || strcmp(shared, "deny") == 0);
}

static bool by_default(void)
{
    static int known; /* 0: not yet; 1: no; 2: yes */
    int is = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (is == 0) {
        is = costs_large_pages() ? 1 : 2;
        __atomic_store_n(&known, is, __ATOMIC_RELAXED);
    }
    return is == 2;
}

/* ---- the functions --------------------------------------------------------------------------- */

/* An info may ask for an alignment, or for what else the library knows. */
static bool wants_mapped(MPI_Aint size, MPI_Info info)
{
    return size >= TEMPI_MAPPED_LEAST && info == MPI_INFO_NULL && tempi_this_thread.disabled == 0 &&
           tempi_config.alloc_mem != TEMPI_ALLOC_MEM_LIBRARY && tempi_peer_may_agree() &&
           (tempi_config.alloc_mem == TEMPI_ALLOC_MEM_MAPPED || by_default());
}

int tempi_impl_Alloc_mem(const struct tempi_mpi *next, MPI_Aint size, MPI_Info info, void *baseptr)
{
    void *memory = baseptr && wants_mapped(size, info) ? tempi_mapped_allocate(size) : NULL;
    if (!memory)
        return next->Alloc_mem(size, info, baseptr);
    memcpy(baseptr, &memory, sizeof memory); /* the address of a pointer of any type */
    return MPI_SUCCESS;
}

int tempi_impl_Free_mem(const struct tempi_mpi *next, void *base)
{
    return tempi_mapped_put(base) ? MPI_SUCCESS : next->Free_mem(base);
}
