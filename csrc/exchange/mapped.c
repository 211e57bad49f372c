#include "exchange/mapped.h"
#include "base/lock.h"
#include "tempi.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FILES_SHARE = 4, /* of the process's descriptors may be for such memory */
    FILES_MOST = 1024,
    KEPT = 8, /* own memory that the program has freed */
    KEPT_MIB = 32
};

/* ---- memory of this process ------------------------------------------------------------------ */

typedef struct owned {
    struct owned *next;
    tempi_mapped memory;
    unsigned forks; /* until it was allocated */
    dev_t device;   /* of the file, with the next: the descriptor may be another's by then */
    ino_t inode;
} owned;

/* Threads of programs without MPI allocate, too: so the lock is a real one. */
static struct {
    pthread_mutex_t lock;
    owned *first, *kept;
    int n;          /* of both */
    unsigned forks; /* of this process, and of those it comes from */
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    pthread_mutex_lock(&own.lock);
    ++own.forks;
}

static void after_fork(void)
{
    pthread_mutex_unlock(&own.lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static uint64_t new_mark(void)
{
    uint64_t mark;
    struct timespec now;
    if (getrandom(&mark, sizeof mark, GRND_NONBLOCK) != (ssize_t)sizeof mark) {
        clock_gettime(CLOCK_REALTIME, &now);
        mark = (uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 40;
    }
    return mark | 1;
}

/* Whether the process can spare one more descriptor, and a file of that size: beyond that limit the
 * system ends the process, by SIGXFSZ. */
static bool spares_file(int64_t bytes)
{
    struct rlimit files, size;
    const int n = __atomic_load_n(&own.n, __ATOMIC_RELAXED);
    return n < FILES_MOST && getrlimit(RLIMIT_NOFILE, &files) == 0 &&
           (rlim_t)n < files.rlim_cur / FILES_SHARE && getrlimit(RLIMIT_FSIZE, &size) == 0 &&
           (size.rlim_cur == RLIM_INFINITY || size.rlim_cur >= (rlim_t)bytes);
}

/* A file has no memory until it is used: ask for as much ordinary memory. */
static bool spares_memory(int64_t bytes)
{
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    if (memory == MAP_FAILED)
        return false;
    munmap(memory, (size_t)bytes);
    return true;
}

/* -1: it could not. */
static int make_file(int64_t bytes)
{
    const int file = spares_file(bytes) && spares_memory(bytes) ? memfd_create("tempi", MFD_CLOEXEC)
                                                                : -1;
    if (file < 0 || ftruncate(file, (off_t)bytes) == 0)
        return file;
    close(file);
    return -1;
}

static char *map(int file, int64_t bytes)
{
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE); /* if the system allows it */
    return memory;
}

/* The program may have closed the descriptor, and opened another file there. */
static void close_file(const owned *gone)
{
    struct stat about;
    if (fstat(gone->memory.file, &about) == 0 && about.st_dev == gone->device &&
        about.st_ino == gone->inode)
        close(gone->memory.file);
}

/* `shared`: a fork has come since; then both processes use it. */
static void release(owned *gone, bool shared)
{
    char *memory = (char *)(uintptr_t)gone->memory.first;
    const int64_t bytes = gone->memory.bytes;
    if (gone->memory.process == getpid())
        __atomic_store_n(&tempi_mapped_trailer_of(memory, bytes)->freed, 1, __ATOMIC_RELEASE);
    if (!shared)
        (void)madvise(memory, (size_t)bytes, MADV_REMOVE);
    munmap(memory, (size_t)(bytes + tempi_mapped_page()));
    close_file(gone);
    free(gone);
}

/* ---- kept memory ----------------------------------------------------------------------------- */

/* True: it is kept. The caller holds the lock. */
static bool keep(owned *gone)
{
    int n = 0;
    int64_t bytes = gone->memory.bytes;
    for (const owned *at = own.kept; at; at = at->next) {
        ++n;
        bytes += at->memory.bytes;
    }
    if (n >= KEPT || bytes > (int64_t)KEPT_MIB << 20)
        return false;
    gone->next = own.kept;
    own.kept = gone;
    return true;
}

/* One that has about that size, and was kept by this process since the last fork; NULL: none. */
static void *reuse(int64_t bytes)
{
    owned *found = NULL;
    pthread_mutex_lock(&own.lock);
    for (owned **at = &own.kept; *at && !found; at = &(*at)->next)
        if ((*at)->memory.bytes >= bytes && (*at)->memory.bytes / 5 * 4 <= bytes &&
            (*at)->forks == own.forks) {
            found = *at;
            *at = found->next;
            found->next = own.first;
            own.first = found;
            break;
        }
    pthread_mutex_unlock(&own.lock);
    return found ? (void *)(uintptr_t)found->memory.first : NULL;
}

/* False: there was none. */
static bool release_kept(void)
{
    pthread_mutex_lock(&own.lock);
    owned *first = own.kept;
    const unsigned forks = own.forks;
    own.kept = NULL;
    for (const owned *at = first; at; at = at->next)
        __atomic_fetch_sub(&own.n, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&own.lock);
    const bool any = first != NULL;
    while (first) {
        owned *gone = first;
        first = gone->next;
        release(gone, gone->forks != forks);
    }
    return any;
}

/* ---- allocating ------------------------------------------------------------------------------ */

static bool set_up(owned *made, int64_t bytes)
{
    struct stat about;
    const int file = make_file(bytes + tempi_mapped_page());
    char *memory = file >= 0 && fstat(file, &about) == 0 ? map(file, bytes + tempi_mapped_page())
                                                         : NULL;
    if (!memory) {
        if (file >= 0)
            close(file);
        return false;
    }
    made->memory = (tempi_mapped){.first = (uint64_t)(uintptr_t)memory,
                                  .bytes = bytes,
                                  .mark = new_mark(),
                                  .process = getpid(),
                                  .file = file};
    made->device = about.st_dev;
    made->inode = about.st_ino;
    tempi_mapped_trailer_of(memory, bytes)->mark = made->memory.mark;
    return true;
}

static void *allocate(int64_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int64_t whole;
    owned *made = calloc(1, sizeof *made);
    if (!made || bytes < 1 || __builtin_add_overflow(bytes, 2 * tempi_mapped_page(), &whole) ||
        !set_up(made,
                (bytes + tempi_mapped_page() - 1) / tempi_mapped_page() * tempi_mapped_page())) {
        free(made);
        return NULL;
    }
    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&own.lock);
    made->forks = own.forks;
    made->next = own.first;
    own.first = made;
    __atomic_fetch_add(&own.n, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&own.lock);
    return (void *)(uintptr_t)made->memory.first;
}

void *tempi_mapped_allocate(int64_t bytes)
{
    void *memory = reuse(bytes);
    if (!memory)
        memory = allocate(bytes);
    if (!memory && release_kept())
        memory = allocate(bytes);
    return memory;
}

static bool give_back(void *memory, bool keeps)
{
    owned *found = NULL;
    if (__atomic_load_n(&own.n, __ATOMIC_RELAXED) == 0)
        return false;
    pthread_mutex_lock(&own.lock);
    for (owned **at = &own.first; *at && !found; at = &(*at)->next)
        if ((*at)->memory.first == (uint64_t)(uintptr_t)memory) {
            found = *at;
            *at = found->next;
            break;
        }
    const bool shared = found && found->forks != own.forks,
               kept = found && keeps && !shared && keep(found);
    if (found && !kept)
        __atomic_fetch_sub(&own.n, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&own.lock);
    if (found && !kept)
        release(found, shared);
    return found != NULL;
}

bool tempi_mapped_free(void *memory)
{
    return give_back(memory, false);
}

bool tempi_mapped_put(void *memory)
{
    return give_back(memory, true);
}

bool tempi_mapped_find(uint64_t from, uint64_t to, tempi_mapped *out)
{
    bool found = false;
    if (__atomic_load_n(&own.n, __ATOMIC_RELAXED) == 0)
        return false;
    pthread_mutex_lock(&own.lock);
    for (const owned *at = own.first; at && !found; at = at->next) {
        const tempi_mapped *m = &at->memory;
        found = from >= m->first && to <= m->first + (uint64_t)m->bytes;
        if (found)
            *out = *m;
    }
    pthread_mutex_unlock(&own.lock);
    return found;
}

int tempi_mapped_memory_allocate(int64_t bytes, void **out)
{
    if (bytes < 1)
        return TEMPI_ERR_ARG;
    void *memory = tempi_mapped_allocate(bytes);
    if (!memory)
        return TEMPI_ERR_MEMORY;
    *out = memory;
    return TEMPI_OK;
}

int tempi_mapped_memory_free(void *memory)
{
    return tempi_mapped_free(memory) ? TEMPI_OK : TEMPI_ERR_ARG;
}

void tempi_mapped_clear(void)
{
    (void)release_kept();
}
