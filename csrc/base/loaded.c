#include "base/loaded.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>
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

/* The loader relocates addresses in the dynamic section, except in read-only ones (the vDSO's). */
static const char *string_at(const struct dl_phdr_info *info, ElfW(Addr) table, ElfW(Xword) offset)
{
    const ElfW(Addr) base = table < info->dlpi_addr ? info->dlpi_addr : 0;
    return (const char *)(uintptr_t)(base + table + offset);
}

/* The object's DT_SONAME, or "". */
static const char *soname_of(const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const void *)(uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    ElfW(Addr) strings = 0;
    ElfW(Xword) name = 0;
    bool named = false;
    for (; entry && entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_STRTAB)
            strings = entry->d_un.d_ptr;
        if (entry->d_tag == DT_SONAME) {
            name = entry->d_un.d_val;
            named = true;
        }
    }
    return named && strings ? string_at(info, strings, name) : "";
}

static bool is_called(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strncmp(slash ? slash + 1 : path, name, strlen(name)) == 0;
}

static int match(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    const search *s = context;
    if (!is_called(info->dlpi_name, s->name) && !is_called(soname_of(info), s->name))
        return 0;
    if (s->size > 0)
        snprintf(s->path, (size_t)s->size, "%s", info->dlpi_name);
    return 1;
}

bool tempi_watch_probe(tempi_watch *watch, char *path, int size)
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
