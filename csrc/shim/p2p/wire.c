#include "shim/p2p/wire.h"

#if defined(OMPI_MAJOR_VERSION)
#include "base/hash.h"
#include "base/lock.h"

#include <limits.h>

/* Types by size, never replaced: another thread may be about to post with one. Open addressing,
 * at most half full; if a program uses more sizes the rest are sent as MPI_PACKED. */
enum { BITS = 11, SLOTS = 1 << BITS };

static struct {
    tempi_lock lock;
    int used;
    struct {
        int64_t n;
        MPI_Datatype type;
    } slots[SLOTS];
} types;

static bool make(int64_t n, MPI_Datatype *out)
{
    const int lengths[] = {(int)(n - 1), 1}, places[] = {0, (int)n};
    if (tempi_lib.Type_indexed(2, lengths, places, MPI_PACKED, out) != MPI_SUCCESS)
        return false;
    if (tempi_lib.Type_commit(out) == MPI_SUCCESS)
        return true;
    tempi_lib.Type_free(out);
    return false;
}

/* Caller holds the lock. */
static MPI_Datatype find(int64_t n)
{
    unsigned i = (unsigned)tempi_hash_home((uint64_t)n, BITS);
    while (types.slots[i].n != 0 && types.slots[i].n != n)
        i = (i + 1) % SLOTS;
    if (types.slots[i].n == n)
        return types.slots[i].type;
    if (types.used == SLOTS / 2 || !make(n, &types.slots[i].type))
        return MPI_PACKED;
    ++types.used;
    types.slots[i].n = n;
    return types.slots[i].type;
}

MPI_Datatype tempi_wire_gapped(int64_t n)
{
    if (n < 2 || n >= INT_MAX)
        return MPI_PACKED;
    tempi_lock_acquire(&types.lock);
    const MPI_Datatype type = find(n);
    tempi_lock_release(&types.lock);
    return type;
}

void tempi_wire_stop(void)
{
    for (int i = 0; i < SLOTS; ++i)
        if (types.slots[i].n != 0) {
            types.slots[i].n = 0;
            tempi_lib.Type_free(&types.slots[i].type);
        }
    types.used = 0;
}
#else
typedef int tempi_wire_unused; /* a translation unit must not be empty */
#endif
