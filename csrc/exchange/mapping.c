#include "exchange/mapping.h"
#include "base/lock.h"
#include "exchange/xpmem.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPENED = 64 /* mappings that are kept */ };

typedef struct mapping {
    tempi_mapped of; /* mark 0: unused */
    char *memory;
    uint64_t used; /* when, counted in openings */
    int pins;
} mapping;

static struct {
    tempi_lock lock;
    mapping all[OPENED];
    uint64_t uses;
} opened;

static bool is_attached(const tempi_mapped *memory)
{
    return memory->file == TEMPI_MAPPED_ATTACHED;
}

static void drop(mapping *m)
{
    if (is_attached(&m->of))
        tempi_xpmem_detach(m->memory);
    else
        munmap(m->memory, (size_t)(m->of.bytes + tempi_mapped_page()));
    *m = (mapping){.of.mark = 0};
}

static bool was_freed(const mapping *m)
{
    return !is_attached(&m->of) &&
           __atomic_load_n(&tempi_mapped_trailer_of(m->memory, m->of.bytes)->freed,
                           __ATOMIC_ACQUIRE) != 0;
}

/* A free entry: an unused one, one of memory that was freed, or the one that was not used for
 * longest. NULL: all are in use. */
static mapping *free_entry(void)
{
    mapping *found = NULL;
    for (mapping *m = opened.all; m < opened.all + OPENED; ++m) {
        if (m->of.mark != 0 && m->pins == 0 && was_freed(m))
            drop(m);
        if (m->pins == 0 && (!found || m->used < found->used))
            found = m;
    }
    if (found && found->of.mark != 0)
        drop(found);
    return found;
}

/* The descriptor may be another file by now, or of another process with that number. */
static char *map_file(const tempi_mapped *memory)
{
    char path[64];
    struct stat about;
    void *mapped = MAP_FAILED;
    const int64_t bytes = memory->bytes + tempi_mapped_page();
    snprintf(path, sizeof path, "/proc/%ld/fd/%ld", (long)memory->process, (long)memory->file);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return NULL;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == (off_t)bytes)
        mapped = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return NULL;
    if (tempi_mapped_trailer_of(mapped, memory->bytes)->mark != memory->mark) {
        munmap(mapped, (size_t)bytes);
        return NULL;
    }
    (void)madvise(mapped, (size_t)bytes, MADV_HUGEPAGE); /* if the system allows it */
    return mapped;
}

static mapping *find(const tempi_mapped *memory)
{
    for (mapping *m = opened.all; m < opened.all + OPENED; ++m)
        if (m->of.mark == memory->mark && is_attached(&m->of) == is_attached(memory) &&
            memory->first >= m->of.first &&
            memory->first + (uint64_t)memory->bytes <= m->of.first + (uint64_t)m->of.bytes)
            return m;
    return NULL;
}

/* The blocks of one array get one attachment: ones that overlap or touch the new one become part of
 * it. */
static void widen(tempi_mapped *memory)
{
    for (mapping *m = opened.all; m < opened.all + OPENED; ++m) {
        const uint64_t end = memory->first + (uint64_t)memory->bytes,
                       its_end = m->of.first + (uint64_t)m->of.bytes;
        if (m->of.mark != memory->mark || !is_attached(&m->of) || m->pins > 0 ||
            m->of.first > end || its_end < memory->first)
            continue;
        memory->first = m->of.first < memory->first ? m->of.first : memory->first;
        memory->bytes = (int64_t)((its_end > end ? its_end : end) - memory->first);
        drop(m);
    }
}

static mapping *make(tempi_mapped memory)
{
    if (is_attached(&memory))
        widen(&memory);
    mapping *m = free_entry();
    if (!m)
        return NULL;
    char *mapped = is_attached(&memory) ? tempi_xpmem_attach(&memory) : map_file(&memory);
    if (!mapped)
        return NULL;
    *m = (mapping){.of = memory, .memory = mapped};
    return m;
}

const char *tempi_mapping_open(const tempi_mapped *memory, int *pin)
{
    const char *first = NULL;
    tempi_lock_acquire(&opened.lock);
    mapping *m = find(memory);
    if (!m)
        m = make(*memory);
    if (m) {
        m->used = ++opened.uses;
        ++m->pins;
        *pin = (int)(m - opened.all);
        first = m->memory + (memory->first - m->of.first);
    }
    tempi_lock_release(&opened.lock);
    return first;
}

void tempi_mapping_close(int pin)
{
    tempi_lock_acquire(&opened.lock);
    --opened.all[pin].pins;
    tempi_lock_release(&opened.lock);
}

void tempi_mapping_clear(void)
{
    for (mapping *m = opened.all; m < opened.all + OPENED; ++m)
        if (m->of.mark != 0)
            drop(m);
}
