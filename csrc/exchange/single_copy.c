#include "exchange/single_copy.h"
#include "exchange/xpmem.h"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* ---- permission ------------------------------------------------------------------------------ */

static uint64_t secret;

void tempi_single_copy_offer(tempi_probe *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t own =
        ((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 16) | 1;
    uint64_t value = 0; /* a later offer, or another thread's, must not change it */
    if (__atomic_compare_exchange_n(&secret, &value, own, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        value = own;
    *out = (tempi_probe){.process = getpid(),
                         .address = (uint64_t)(uintptr_t)&secret,
                         .value = value,
                         .segment = tempi_xpmem_segment()};
}

/* In a container the number may name another process, whose memory has another value there. */
bool tempi_single_copy_reaches(const tempi_probe *offer)
{
    uint64_t found = 0;
    const struct iovec here = {&found, sizeof found},
                       there = {(void *)(uintptr_t)offer->address, sizeof found};
    return offer->value != 0 &&
           process_vm_readv((pid_t)offer->process, &here, 1, &there, 1, 0) ==
               (ssize_t)sizeof found &&
           found == offer->value;
}

static bool attaches(const tempi_probe *offer)
{
    uint64_t found = 0;
    return offer->value != 0 &&
           tempi_xpmem_peek(offer->segment, offer->address, &found, sizeof found) &&
           found == offer->value;
}

unsigned tempi_single_copy_access(const tempi_probe *offer)
{
    return TEMPI_ACCESS_MAP | (tempi_single_copy_reaches(offer) ? TEMPI_ACCESS_READ : 0u) |
           (attaches(offer) ? TEMPI_ACCESS_ATTACH : 0u);
}

/* ---- copying --------------------------------------------------------------------------------- */

enum {
    VECTORS = 128,
    MOST = 1 << 30 /* bytes of a call: Linux moves at most 2 GiB, and a part of a longer list */
};

/* As many pieces of the nest as fit, of up to `most` bytes in all, which it returns. */
static int64_t gather(tempi_nest_walk *walk, int64_t most, struct iovec *out, unsigned long *n)
{
    int64_t bytes = 0;
    for (*n = 0; *n < VECTORS && walk->left > 0 && bytes < most; ++*n) {
        const int64_t part = walk->left < most - bytes ? walk->left : most - bytes;
        out[*n] = (struct iovec){(void *)(uintptr_t)walk->at, (size_t)part};
        bytes += part;
        tempi_nest_step(walk, part);
    }
    return bytes;
}

typedef ssize_t copy_fn(pid_t process, const struct iovec *here, unsigned long nhere,
                        const struct iovec *there, unsigned long nthere, unsigned long flags);

/* Between a nest of that process and one of this process. */
static bool move(copy_fn *copy, pid_t process, tempi_nest_walk *far, tempi_nest_walk *own,
                 int64_t bytes)
{
    while (bytes > 0) {
        struct iovec there[VECTORS], here[VECTORS];
        unsigned long nthere, nhere;
        const tempi_nest_walk before = *far;
        const int64_t offered = gather(far, bytes < MOST ? bytes : MOST, there, &nthere);
        const int64_t taken = gather(own, offered, here, &nhere);
        if (taken < offered) { /* the own runs are shorter */
            *far = before;
            (void)gather(far, taken, there, &nthere);
        }
        if (taken == 0 || copy(process, here, nhere, there, nthere, 0) != taken)
            return false;
        bytes -= taken;
    }
    return true;
}

bool tempi_single_copy_read(pid_t process, tempi_nest_walk *from, tempi_nest_walk *to,
                            int64_t bytes)
{
    return move(process_vm_readv, process, from, to, bytes);
}

bool tempi_single_copy_write(pid_t process, tempi_nest_walk *from, tempi_nest_walk *to,
                             int64_t bytes)
{
    return move(process_vm_writev, process, to, from, bytes);
}
