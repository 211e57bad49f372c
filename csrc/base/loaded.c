#include "base/loaded.h"

#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int note_count(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    *(unsigned long long *)out = info->dlpi_adds;
    return 1;
}

typedef struct search {
    const char *name;
    char *path;
    int size;
} search;

static int match(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    const search *s = context;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash ? slash + 1 : info->dlpi_name;
    if (strncmp(base, s->name, strlen(s->name)) != 0)
        return 0;
    if (s->size > 0)
        snprintf(s->path, (size_t)s->size, "%s", info->dlpi_name);
    return 1;
}

bool tempi_watch_look(tempi_watch *watch, char *path, int size)
{
    unsigned long long count = 0;
    dl_iterate_phdr(note_count, &count);
    if (count == __atomic_load_n(&watch->seen, __ATOMIC_RELAXED))
        return false;
    search s = {watch->name, path, size};
    if (dl_iterate_phdr(match, &s))
        return true;
    /* Store the count from before the search: the next probe finds objects loaded meanwhile. */
    __atomic_store_n(&watch->seen, count, __ATOMIC_RELAXED);
    return false;
}
