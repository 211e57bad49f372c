#include "exchange/xpmem.h"
#include "base/config.h"
#include "base/copy_bytes.h"
#include "base/lock.h"
#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- the library ----------------------------------------------------------------------------- */

/* Of xpmem.h. Access is asked for as UCX and the MPI libraries ask, for writing too. */
enum { PERMIT_MODE = 1, READ_WRITE = 2 };
static const size_t WHOLE = (size_t)-1;

typedef int64_t segment_id; /* of an address space */
typedef int64_t access_id;  /* of this process's access to one */

typedef struct place {
    access_id access;
    off_t offset;
} place;

static struct {
    segment_id (*make)(void *first, size_t bytes, int permit_type, void *permit);
    access_id (*get)(segment_id segment, int flags, int permit_type, void *permit);
    void *(*attach)(place from, size_t bytes, void *at);
    int (*detach)(void *memory);
    segment_id own; /* 0: none */
} xpmem;

static void *open_library(void)
{
    void *library = dlopen("libxpmem.so.0", RTLD_NOW | RTLD_LOCAL);
    return library ? library : dlopen("libxpmem.so", RTLD_NOW | RTLD_LOCAL);
}

static bool resolve(void)
{
    void *library = open_library();
    if (!library)
        return false;
    /* The standard's dlsym gives no pointers to functions; POSIX allows this conversion. */
    *(void **)&xpmem.make = dlsym(library, "xpmem_make");
    *(void **)&xpmem.get = dlsym(library, "xpmem_get");
    *(void **)&xpmem.attach = dlsym(library, "xpmem_attach");
    *(void **)&xpmem.detach = dlsym(library, "xpmem_detach");
    return xpmem.make && xpmem.get && xpmem.attach && xpmem.detach;
}

/* Only this user's processes get access; owners are those that may trace each other anyway. */
static void start(void)
{
    if (!tempi_config.xpmem)
        return;
    const segment_id made = resolve()
                                ? xpmem.make(NULL, WHOLE, PERMIT_MODE, (void *)(uintptr_t)0600)
                                : -1;
    if (made > 0)
        xpmem.own = made;
    else
        TEMPI_LOG(TEMPI_LOG_WARN, "TEMPI_XPMEM=1: %s; collectives go without it",
                  xpmem.make ? "this system does not let a process share its memory by XPMEM"
                             : "there is no libxpmem.so.0");
}

int64_t tempi_xpmem_segment(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, start);
    return xpmem.own;
}

/* ---- memory of this process ------------------------------------------------------------------ */

/* Bytes [from, to) of the process with that segment, and what else is on their pages. */
static tempi_mapped pages_of(int64_t segment, uint64_t from, uint64_t to)
{
    const uint64_t page = (uint64_t)tempi_mapped_page(), first = from / page * page;
    return (tempi_mapped){.first = first,
                          .bytes = (int64_t)((to + page - 1) / page * page - first),
                          .mark = (uint64_t)segment,
                          .file = TEMPI_MAPPED_ATTACHED};
}

bool tempi_xpmem_find(uint64_t from, uint64_t to, tempi_mapped *out)
{
    const int64_t segment = tempi_xpmem_segment();
    if (segment == 0)
        return false;
    *out = pages_of(segment, from, to);
    out->process = getpid();
    return true;
}

/* ---- memory of other processes --------------------------------------------------------------- */

/* Kept until this process ends: one for each process of the node. */
typedef struct peer {
    struct peer *next;
    segment_id segment;
    access_id access;
} peer;

static struct {
    tempi_lock lock;
    peer *first;
} peers;

/* -1: it cannot be had. The caller holds the lock. */
static access_id access_to(segment_id segment)
{
    for (const peer *at = peers.first; at; at = at->next)
        if (at->segment == segment)
            return at->access;
    peer *made = calloc(1, sizeof *made);
    const access_id got = made ? xpmem.get(segment, READ_WRITE, PERMIT_MODE, NULL) : -1;
    if (got < 0) {
        free(made);
        return -1;
    }
    *made = (peer){.next = peers.first, .segment = segment, .access = got};
    peers.first = made;
    return got;
}

char *tempi_xpmem_attach(const tempi_mapped *memory)
{
    void *const failed = (void *)(intptr_t)-1;
    if (tempi_xpmem_segment() == 0)
        return NULL;
    tempi_lock_acquire(&peers.lock);
    const place from = {.access = access_to((segment_id)memory->mark),
                        .offset = (off_t)memory->first};
    void *attached = from.access >= 0 ? xpmem.attach(from, (size_t)memory->bytes, NULL) : failed;
    tempi_lock_release(&peers.lock);
    return attached == failed ? NULL : attached;
}

void tempi_xpmem_detach(char *memory)
{
    (void)xpmem.detach(memory);
}

bool tempi_xpmem_peek(int64_t segment, uint64_t address, void *out, int64_t n)
{
    const tempi_mapped pages = pages_of(segment, address, address + (uint64_t)n);
    char *memory = segment != 0 ? tempi_xpmem_attach(&pages) : NULL;
    if (!memory)
        return false;
    tempi_copy_bytes(out, memory + (address - pages.first), (size_t)n);
    tempi_xpmem_detach(memory);
    return true;
}
