#include "transfer/slab.h"
#include "base/allocate.h"

enum { ALIGNMENT = 64, SLAB_BYTES = 8 << 20 };

struct tempi_slab {
    int64_t pieces; /* in use */
    int64_t used;   /* bytes cut so far, from the slab's start */
};

/* The slab being cut. Space is never cut twice: the caller caches its pieces and reuses them. */
static tempi_slab *open_slab;

static tempi_slab *slab_new(void)
{
    tempi_slab *slab = tempi_allocate(SLAB_BYTES);
    if (slab)
        *slab = (tempi_slab){.used = ALIGNMENT};
    return slab;
}

void *tempi_slab_cut(int64_t bytes, tempi_slab **slab)
{
    const int64_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!open_slab || open_slab->used + whole > SLAB_BYTES)
        open_slab = slab_new();
    if (!open_slab)
        return NULL;
    void *piece = (char *)open_slab + open_slab->used;
    open_slab->used += whole;
    open_slab->pieces++;
    *slab = open_slab;
    return piece;
}

void tempi_slab_release(tempi_slab *slab)
{
    if (--slab->pieces > 0)
        return;
    if (slab == open_slab)
        open_slab = NULL;
    free(slab);
}
