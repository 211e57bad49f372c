/* Joining:
 *  1. Open the file, or create it. Its creator also removes files left by crashes, but only when it
 *     leaves: that takes longer the fuller the folder is.
 *  2. Refuse a file that is not ours alone: it must be a regular file of this user that no other
 *     user may open.
 *  3. Allocate its memory, so that no later store can fail, and map it.
 *  4. Put the rank into the first free slot, then count it: readers read only counted slots.
 *
 * Agreement: the view of a member is the count that it sees when it leaves MPI_Init. A member knows
 * another one if that one's index is below its view. Indices and views do not change any more, so
 * all members come to the same answer; a member whose view is not yet there is in MPI_Init.
 */
#include "topology/node_registry.h"
#include "topology/locality.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 4095,
    STALE = 3600, /* seconds; a job's ranks start within minutes of each other */
    LAYOUT = 8    /* of what members share: ranks with another version of tempi use another file */
};

enum {
    NO_VIEW = 0,
    OUTSIDE = -1 /* views of members in MPI_Init, and of those that do not join */
};

typedef struct shared {
    uint32_t count;
    uint32_t slots[SLOTS]; /* rank + 1, 0: free */
    struct {
        int32_t process; /* 0: not yet set */
        int32_t view;
    } members[SLOTS];
    uint64_t said; /* bit mask */
    char messages[TEMPI_NODE_REGISTRY_MESSAGES];
} shared;

_Static_assert(sizeof(shared) % 4096 == 0, "the lines of topology/locality.h begin on a page");

struct tempi_node_registry {
    shared *memory;
    size_t bytes;
    int own; /* slot */
    int lines;
    ino_t inode;
    bool made; /* by this process */
    char path[256];
};

static uint64_t digest(const char *text)
{
    uint64_t sum = 0xCBF29CE484222325u ^ LAYOUT; /* FNV-1a */
    for (; *text; ++text)
        sum = (sum ^ (unsigned char)*text) * 0x100000001B3u;
    return sum;
}

static void prefix_of(char *out, size_t size)
{
    snprintf(out, size, "tempi-%lu-", (unsigned long)geteuid());
}

static void clear_stale(const char *folder)
{
    char prefix[32];
    struct stat about;
    DIR *listing = opendir(folder);
    if (!listing)
        return;
    prefix_of(prefix, sizeof prefix);
    const time_t now = time(NULL);
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
            fstatat(dirfd(listing), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISREG(about.st_mode) && about.st_uid == geteuid() && now - about.st_mtime > STALE)
            unlinkat(dirfd(listing), entry->d_name, 0);
    }
    closedir(listing);
}

static int open_file(const char *path, bool *made)
{
    const int how = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    for (int tries = 0; tries < 3; ++tries) { /* it may be removed between the two calls */
        int file = open(path, how | O_CREAT | O_EXCL, 0600);
        *made = file >= 0;
        if (file >= 0)
            return file;
        if (errno != EEXIST)
            return -1;
        file = open(path, how);
        if (file >= 0 || errno != ENOENT)
            return file;
    }
    return -1;
}

static size_t bytes_with(int lines)
{
    return sizeof(shared) + (size_t)lines * TEMPI_LOCALITY_LINE;
}

static shared *map(int file, size_t bytes, ino_t *inode)
{
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid() ||
        (about.st_mode & 077) != 0 || about.st_size > (off_t)bytes_with(SLOTS))
        return NULL;
    if (posix_fallocate(file, 0, (off_t)bytes) != 0)
        return NULL;
    *inode = about.st_ino;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Returns the number of ranks registered by then. A rank that comes again (consecutive sessions)
 * keeps its entry; its children, which inherit its environment, get none. */
static unsigned enter(shared *memory, int rank, int *slot)
{
    const uint32_t own = (uint32_t)rank + 1;
    const int32_t process = (int32_t)getpid();
    for (int i = 0; i < SLOTS; ++i) {
        uint32_t there = 0;
        *slot = i;
        if (__atomic_compare_exchange_n(&memory->slots[i], &there, own, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&memory->members[i].process, process, __ATOMIC_RELEASE);
            return __atomic_add_fetch(&memory->count, 1, __ATOMIC_ACQ_REL);
        }
        if (there != own)
            continue;
        if (__atomic_load_n(&memory->members[i].process, __ATOMIC_ACQUIRE) != process)
            break;
        return __atomic_load_n(&memory->count, __ATOMIC_ACQUIRE);
    }
    *slot = -1;
    return 0;
}

tempi_node_registry *tempi_node_registry_join(const char *folder, const char *job, int rank,
                                              int local)
{
    char prefix[32];
    tempi_node_registry *registry = calloc(1, sizeof *registry);
    if (!registry)
        return NULL;
    prefix_of(prefix, sizeof prefix);
    registry->lines = local > 0 && local <= SLOTS ? local : 0;
    registry->bytes = bytes_with(registry->lines);
    const int n = snprintf(registry->path, sizeof registry->path, "%s/%s%016llx", folder, prefix,
                           (unsigned long long)digest(job));
    const int file = n < (int)sizeof registry->path ? open_file(registry->path, &registry->made)
                                                    : -1;
    if (file >= 0) {
        registry->memory = map(file, registry->bytes, &registry->inode);
        close(file);
    }
    if (!registry->memory) {
        free(registry);
        return NULL;
    }
    if (enter(registry->memory, rank, &registry->own) == (unsigned)local && local > 0)
        unlink(registry->path);
    return registry;
}

void tempi_node_registry_settle(tempi_node_registry *registry, bool joins)
{
    if (registry->own < 0)
        return;
    int32_t none = NO_VIEW;
    const int32_t view = joins ? (int32_t)tempi_node_registry_count(registry) : OUTSIDE;
    (void)__atomic_compare_exchange_n(&registry->memory->members[registry->own].view, &none, view,
                                      false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

int tempi_node_registry_find(const tempi_node_registry *registry, int rank)
{
    const unsigned n = tempi_node_registry_count(registry);
    for (unsigned i = 0; i < n; ++i)
        if (tempi_node_registry_rank(registry, i) == rank)
            return (int)i;
    return -1;
}

bool tempi_node_registry_knows(const tempi_node_registry *registry, int index, int last)
{
    for (;;) {
        const int32_t view = __atomic_load_n(&registry->memory->members[index].view,
                                             __ATOMIC_ACQUIRE);
        if (view != NO_VIEW)
            return view > last;
        sched_yield();
    }
}

void tempi_node_registry_leave(tempi_node_registry *registry)
{
    struct stat about;
    if (!registry)
        return;
    if (lstat(registry->path, &about) == 0 && about.st_ino == registry->inode)
        unlink(registry->path);
    if (registry->made) {
        *strrchr(registry->path, '/') = '\0';
        clear_stale(registry->path);
    }
    munmap(registry->memory, registry->bytes);
    free(registry);
}

/* A rank that died between its two steps has an uncounted slot: the last counted slot is then not
 * seen, and its rank counts as unknown. */
unsigned tempi_node_registry_count(const tempi_node_registry *registry)
{
    const uint32_t count = __atomic_load_n(&registry->memory->count, __ATOMIC_ACQUIRE);
    return count < SLOTS ? count : SLOTS;
}

int tempi_node_registry_rank(const tempi_node_registry *registry, unsigned i)
{
    return (int)__atomic_load_n(&registry->memory->slots[i], __ATOMIC_ACQUIRE) - 1;
}

int tempi_node_registry_own(const tempi_node_registry *registry)
{
    return registry->own;
}

bool tempi_node_registry_says(tempi_node_registry *registry, unsigned line)
{
    const uint64_t bit = (uint64_t)1 << line;
    return (__atomic_fetch_or(&registry->memory->said, bit, __ATOMIC_RELAXED) & bit) == 0;
}

void *tempi_node_registry_messages(const tempi_node_registry *registry)
{
    return registry->memory->messages;
}

/* All before them takes whole pages. */
void *tempi_node_registry_lines(const tempi_node_registry *registry)
{
    return registry->lines > 0 ? registry->memory + 1 : NULL;
}
