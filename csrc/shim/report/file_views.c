#include "shim/report/file_views.h"
#include "base/lock.h"
#include "base/log.h"
#include "shim/type/types.h"

#include <stdlib.h>

int tempi_file_views;

typedef struct file_view {
    MPI_File file;
    struct file_view *next;
} file_view;

static struct {
    tempi_lock lock;
    file_view *first;
} views;

/* Where the file is, or the end. Under the lock. */
static file_view **find(MPI_File file)
{
    file_view **at = &views.first;
    while (*at && (*at)->file != file)
        at = &(*at)->next;
    return at;
}

void tempi_file_view_add(MPI_File file)
{
    tempi_lock_acquire(&views.lock);
    file_view **end = find(file), *view = *end ? NULL : malloc(sizeof *view);
    const bool failed = !*end && !view;
    if (view) {
        *view = (file_view){file, NULL};
        *end = view;
        __atomic_fetch_add(&tempi_file_views, 1, __ATOMIC_RELAXED);
    }
    tempi_lock_release(&views.lock);
    if (failed)
        TEMPI_WARN_ONCE("out of memory: accesses through a derived file view are not counted");
}

bool tempi_file_view_drop(MPI_File file)
{
    if (!tempi_file_views_any())
        return false;
    tempi_lock_acquire(&views.lock);
    file_view **at = find(file), *found = *at;
    if (found) {
        *at = found->next;
        __atomic_fetch_sub(&tempi_file_views, 1, __ATOMIC_RELAXED);
    }
    tempi_lock_release(&views.lock);
    free(found);
    return found != NULL;
}

bool tempi_file_view_derived(MPI_File file)
{
    if (!tempi_file_views_any())
        return false;
    tempi_lock_acquire(&views.lock);
    const bool found = *find(file) != NULL;
    tempi_lock_release(&views.lock);
    return found;
}

static bool derived(MPI_Datatype type)
{
    int64_t size;
    return !tempi_type_named(type) && tempi_type_derived(type, &size);
}

void tempi_file_view_set(MPI_File file, MPI_Datatype etype, MPI_Datatype filetype)
{
    if (derived(etype) || derived(filetype))
        tempi_file_view_add(file);
    else
        tempi_file_view_drop(file);
}
