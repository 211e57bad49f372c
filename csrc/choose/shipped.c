/* shipped.c: selects the shipped calibration whose processor is nearest to this one.
 *
 *   tables/LIBRARY-VENDOR-FAMILY-MODEL-ISA-L2-L3[-nocma].table
 *   caches in KiB: of one core, and the last level
 *
 * 1. Library and its major version, CMA, vendor, family and ISA must match: a table of another
 *    microarchitecture may be worse than none.
 * 2. Of those, the one nearest in cache sizes, then in model. */
#include "choose/processor.h"
#include "tempi.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table_name {
    char library[16];
    char vendor[16];
    int family, model;
    char isa[16];
    int l2, l3;
    bool single_copy;
} table_name;

static bool parse(const char *file, table_name *out)
{
    char end[16] = "";
    const int n = sscanf(file, "%15[a-z0-9]-%15[A-Za-z]-%d-%d-%15[a-z0-9]-%d-%d%15s", out->library,
                         out->vendor, &out->family, &out->model, out->isa, &out->l2, &out->l3, end);
    out->single_copy = strcmp(end, ".table") == 0;
    return n == 8 && out->l2 > 0 && out->l3 > 0 &&
           (out->single_copy || strcmp(end, "-nocma.table") == 0);
}

/* "mpich5", "openmpi4"; "" for other libraries. */
static void library_of(const char *version, char *out, size_t size)
{
    const char *number = strstr(version, "MPICH") ? strstr(version, "Version:")
                                                  : strstr(version, "Open MPI v");
    out[0] = '\0';
    if (number)
        snprintf(out, size, "%s%d", number[0] == 'O' ? "openmpi" : "mpich",
                 atoi(number + (number[0] == 'O' ? strlen("Open MPI v") : strlen("Version:"))));
}

static bool wanted(const char *version, table_name *out)
{
    tempi_processor own;
    tempi_processor_read(&own);
    library_of(version, out->library, sizeof out->library);
    memcpy(out->vendor, own.vendor, sizeof out->vendor);
    memcpy(out->isa, own.isa, sizeof out->isa);
    out->family = own.family;
    out->model = own.model;
    out->l2 = own.l2;
    out->l3 = own.l3;
    out->single_copy = tempi_processor_single_copy(version) != TEMPI_SINGLE_COPY_NONE;
    return out->library[0] && out->vendor[0] && out->l2 > 0 && out->l3 > 0;
}

static bool fits(const table_name *table, const table_name *own)
{
    return strcmp(table->library, own->library) == 0 && strcmp(table->vendor, own->vendor) == 0 &&
           strcmp(table->isa, own->isa) == 0 && table->family == own->family &&
           table->single_copy == own->single_copy;
}

static double ratio(int a, int b)
{
    return a > b ? (double)a / b : (double)b / a;
}

/* Caches weigh more: models of a family differ less. */
static double distance(const table_name *table, const table_name *own)
{
    return 1000 * (ratio(table->l2, own->l2) * ratio(table->l3, own->l3) - 1) +
           abs(table->model - own->model);
}

static bool folder_of(char *out, size_t size)
{
    Dl_info self;
    if (!dladdr((void *)(uintptr_t)tempi_shipped_find, &self) || !self.dli_fname)
        return false;
    const char *slash = strrchr(self.dli_fname, '/');
    const int length = slash ? (int)(slash - self.dli_fname) : 0;
    const int n = snprintf(out, size, "%.*s/../tables", slash ? length : 1,
                           slash ? self.dli_fname : ".");
    return n > 0 && (size_t)n < size;
}

int tempi_shipped_find(const char *version, char *out, size_t size)
{
    table_name own = {.family = 0}, table;
    char folder[PATH_MAX], best[256] = "";
    double least = 0;
    if (!version || !out || !wanted(version, &own) || !folder_of(folder, sizeof folder))
        return TEMPI_ERR_UNSUPPORTED;
    DIR *entries = opendir(folder);
    if (!entries)
        return TEMPI_ERR_UNSUPPORTED;
    for (const struct dirent *entry; (entry = readdir(entries));) {
        if (!parse(entry->d_name, &table) || !fits(&table, &own))
            continue;
        if (!best[0] || distance(&table, &own) < least) {
            least = distance(&table, &own);
            snprintf(best, sizeof best, "%s", entry->d_name);
        }
    }
    closedir(entries);
    if (!best[0])
        return TEMPI_ERR_UNSUPPORTED;
    const int n = snprintf(out, size, "%s/%s", folder, best);
    return n > 0 && (size_t)n < size ? TEMPI_OK : TEMPI_ERR_OVERFLOW;
}

int tempi_shipped_name(const char *version, char *out, size_t size)
{
    table_name own = {.family = 0};
    if (!version || !out || !wanted(version, &own))
        return TEMPI_ERR_UNSUPPORTED;
    const int n = snprintf(out, size, "%s-%s-%d-%d-%s-%d-%d%s.table", own.library, own.vendor,
                           own.family, own.model, own.isa, own.l2, own.l3,
                           own.single_copy ? "" : "-nocma");
    return n > 0 && (size_t)n < size ? TEMPI_OK : TEMPI_ERR_OVERFLOW;
}
