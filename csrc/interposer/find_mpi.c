/* find_mpi.c: the MPI library is the loaded object whose symbol table defines PMPI_Init.
 *
 * File names decide nothing (libmpi.so.12, .so.40, vendored copies), RTLD_NEXT does not see objects
 * loaded with RTLD_LOCAL, and RTLD_DEFAULT finds tempi itself. So every loaded object's table is
 * read:
 *  1. dl_iterate_phdr gives each object's dynamic section.
 *  2. Its hash table (GNU or System V) tells whether it defines PMPI_Init.
 *  3. Of several, the first in the program's own look-up order is taken.
 */
#include "interposer/find_mpi.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "tempi.h"

/* ---- one object's symbol table --------------------------------------------------------------- */

struct symbols {
    uintptr_t base;
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu;  /* DT_GNU_HASH */
    const uint32_t *sysv; /* DT_HASH */
};

/* glibc has relocated these addresses; other loaders leave them as offsets. */
static const void *dynamic_address(uintptr_t base, ElfW(Addr) value)
{
    return (const void *)(value < base ? base + value : value);
}

static int symbols_read(const struct dl_phdr_info *object, struct symbols *out)
{
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    *out = (struct symbols){.base = object->dlpi_addr};
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = dynamic_address(out->base, dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_SYMTAB)
            out->table = address;
        else if (dynamic->d_tag == DT_STRTAB)
            out->strings = address;
        else if (dynamic->d_tag == DT_GNU_HASH)
            out->gnu = address;
        else if (dynamic->d_tag == DT_HASH)
            out->sysv = address;
    }
    return out->table != NULL && out->strings != NULL;
}

static int defines(const struct symbols *in, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &in->table[index];
    return symbol->st_shndx != SHN_UNDEF && strcmp(in->strings + symbol->st_name, name) == 0;
}

static int gnu_has(const struct symbols *in, const char *name)
{
    const uint32_t buckets = in->gnu[0], first = in->gnu[1], words = in->gnu[2];
    const uint32_t *bucket = in->gnu + 4 + words * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = 5381;
    for (const char *c = name; *c != '\0'; c++)
        hash = hash * 33 + (unsigned char)*c;
    uint32_t i = buckets != 0 ? bucket[hash % buckets] : 0;
    if (i < first)
        return 0;
    for (;; i++) {
        const uint32_t entry = chain[i - first];
        if ((entry | 1) == (hash | 1) && defines(in, i, name))
            return 1;
        if (entry & 1)
            return 0;
    }
}

static int sysv_has(const struct symbols *in, const char *name)
{
    for (uint32_t i = 1; i < in->sysv[1]; i++)
        if (defines(in, i, name))
            return 1;
    return 0;
}

static int symbols_have(const struct symbols *in, const char *name)
{
    if (in->gnu != NULL)
        return gnu_has(in, name);
    return in->sysv != NULL && sysv_has(in, name);
}

/* ---- all objects ----------------------------------------------------------------------------- */

struct search {
    uintptr_t self;
    uintptr_t preferred; /* 0: none */
    struct tempi_found *out;
    int found;
};

static int32_t abi_of(const struct symbols *in)
{
    if (symbols_have(in, "ompi_mpi_comm_world"))
        return TEMPI_ABI_OPENMPI;
    return symbols_have(in, "MPI_UNWEIGHTED") ? TEMPI_ABI_MPICH : TEMPI_ABI_STANDARD;
}

static int visit(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    struct search *search = context;
    struct symbols symbols;
    if (object->dlpi_addr == search->self || !symbols_read(object, &symbols) ||
        !symbols_have(&symbols, "PMPI_Init"))
        return 0;
    const int preferred = object->dlpi_addr == search->preferred;
    if (search->found && !preferred)
        return 0;
    search->found = 1;
    search->out->base = object->dlpi_addr;
    search->out->abi = abi_of(&symbols);
    search->out->simulated = symbols_have(&symbols, "SMPI_app_instance_register");
    strncpy(search->out->path, object->dlpi_name, sizeof search->out->path - 1);
    return preferred;
}

/* Load address of libtempi.so, from the linker: dladdr reads a whole symbol table each time. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static void *unless_own(void *found)
{
    const char *address = found;
    return address >= __ehdr_start && address < _end ? NULL : found;
}

static uintptr_t base_of(const void *address)
{
    Dl_info info;
    return address != NULL && dladdr(address, &info) != 0 ? (uintptr_t)info.dli_fbase : 0;
}

/* RTLD_NEXT works only for an object in the program's global look-up order. */
static int is_global(void)
{
    void *program = dlopen(NULL, RTLD_LAZY);
    void *found = program != NULL ? dlsym(program, "tempi_version") : NULL;
    if (program != NULL)
        dlclose(program);
    return found != NULL && unless_own(found) == NULL;
}

static void *next_symbol(const char *name)
{
    static int global = -1;
    if (global < 0)
        global = is_global();
    return global ? unless_own(dlsym(RTLD_NEXT, name)) : NULL;
}

int tempi_find_mpi(struct tempi_found *out)
{
    memset(out, 0, sizeof *out);
    struct search search = {.self = (uintptr_t)__ehdr_start, .out = out};
    search.preferred = base_of(next_symbol("PMPI_Init"));
    dl_iterate_phdr(visit, &search);
    if (!search.found)
        return 0;
    /* Call dlopen outside dl_iterate_phdr's lock. An MPI library is never unloaded in between. */
    out->handle = dlopen(out->path[0] != '\0' ? out->path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    return out->handle != NULL;
}

void *tempi_find_symbol(const struct tempi_found *mpi, const char *name)
{
    return unless_own(dlsym(mpi->handle, name));
}

void *tempi_find_next(const struct tempi_found *mpi, const char *name)
{
    void *found = next_symbol(name);
    return found != NULL ? found : tempi_find_symbol(mpi, name);
}

void *tempi_find_datum(const struct tempi_found *mpi, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found != NULL ? found : dlsym(mpi->handle, name);
}

/* ---- ourselves ------------------------------------------------------------------------------- */

int tempi_find_self(char path[PATH_MAX])
{
    Dl_info info;
    if (dladdr(__ehdr_start, &info) == 0 || info.dli_fname == NULL ||
        strlen(info.dli_fname) >= PATH_MAX)
        return 0;
    strcpy(path, info.dli_fname);
    return 1;
}

void *tempi_find_own(const char *name)
{
    char path[PATH_MAX];
    void *handle = tempi_find_self(path) ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (handle == NULL)
        return NULL;
    void *found = dlsym(handle, name);
    dlclose(handle);
    return unless_own(found) == NULL ? found : NULL;
}
