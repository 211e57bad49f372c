#include "cuda/offset_tables.h"
#include "cuda/pool.h"
#include "datatype/layout.h"

#include <stdlib.h>

typedef struct cached {
    struct cached *next;
    const tempi_table *table; /* referenced, so its address identifies it */
    bool variable;
    int device;
    tempi_device_table there;
} cached;

static struct {
    pthread_mutex_t lock;
    cached *list;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const cached *find(int device, const tempi_table *table, bool variable)
{
    for (const cached *k = cache.list; k; k = k->next)
        if (k->table == table && k->device == device && k->variable == variable)
            return k;
    return NULL;
}

static bool held_by_others(const tempi_table *table)
{
    int64_t ours = 0;
    for (const cached *k = cache.list; k; k = k->next)
        ours += k->table == table;
    return atomic_load(&tempi_table_shared(table)->refs) > ours;
}

/* A table whose layout was freed has no users, but its upload may still be pending: a message that
 * was refused after it requested the table never waited for the upload. */
static void await_upload(int slot)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cuda_device_peek(slot);
    if (!device || !tempi_cuda_up() || tempi_cuda_enter(device, &entry) != TEMPI_OK)
        return;
    (void)TEMPI_CU(StreamSynchronize, device->copy_streams[TEMPI_UNPACK]);
    tempi_cuda_leave(&entry);
}

enum { OF_NONE = -1, OF_ALL = -2 };

/* Frees all tables of that device, and all tables that only the cache references. */
static void sweep(int slot)
{
    for (cached **k = &cache.list; *k;) {
        cached *gone = *k;
        if (slot != OF_ALL && slot != gone->device && held_by_others(gone->table)) {
            k = &gone->next;
            continue;
        }
        *k = gone->next;
        await_upload(gone->device);
        (void)tempi_cuda_pool_put((void *)(uintptr_t)gone->there.address);
        tempi_table_release(gone->table);
        free(gone);
    }
}

/* ---- bringing one over ----------------------------------------------------------------------- */

/* Makes the kernels' streams wait for the work so far in the copy stream. */
static int let_kernels_wait(tempi_cuda_device *device)
{
    tempi_cuda_event event;
    int status = tempi_cuda_event_get(device, &event);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(EventRecord, event, device->copy_streams[TEMPI_UNPACK]);
    for (int d = 0; d < 2 && status == TEMPI_OK; ++d)
        status = TEMPI_CU(StreamWaitEvent, device->streams[d], event, 0);
    tempi_cuda_event_put(device, event);
    return status;
}

/* The caller may free the bytes once the call returns: the driver stages pageable memory at once
 * (CUDA driver API, "API synchronization behavior"). */
static int upload(tempi_cuda_device *device, void *to, const void *bytes, int64_t n)
{
    const tempi_cuda_stream stream = device->copy_streams[TEMPI_UNPACK];
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter(device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(MemcpyAsync, (uintptr_t)to, (uintptr_t)bytes, (size_t)n, stream);
    if (status == TEMPI_OK && let_kernels_wait(device) != TEMPI_OK)
        status = TEMPI_CU(StreamSynchronize, stream); /* then wait until the table has arrived */
    tempi_cuda_leave(&entry);
    return status;
}

static int encode_and_upload(tempi_cuda_device *device, cached *k)
{
    void *bytes = malloc((size_t)k->there.form.bytes);
    if (!bytes)
        return TEMPI_ERR_MEMORY;
    tempi_table_encode(k->table, k->variable, &k->there.form, bytes);
    const int status = upload(device, (void *)(uintptr_t)k->there.address, bytes,
                              k->there.form.bytes);
    free(bytes);
    return status;
}

static int make(tempi_cuda_device *device, cached *k)
{
    int status = tempi_table_form_of(k->table, k->variable, &k->there.form);
    if (status != TEMPI_OK)
        return status;
    void *buffer = tempi_cuda_buffer_get(device->slot, k->there.form.bytes);
    if (!buffer)
        return TEMPI_ERR_MEMORY;
    k->there.address = (uintptr_t)buffer;
    status = encode_and_upload(device, k);
    if (status != TEMPI_OK)
        (void)tempi_cuda_pool_put(buffer);
    return status;
}

/* Caller holds the lock. */
static int add(tempi_cuda_device *device, const tempi_table *table, bool variable,
               tempi_device_table *out)
{
    cached *k = malloc(sizeof *k);
    if (!k)
        return TEMPI_ERR_MEMORY;
    *k = (cached){.table = table, .variable = variable, .device = device->slot};
    sweep(OF_NONE);
    const int status = make(device, k);
    if (status != TEMPI_OK) {
        free(k);
        return status;
    }
    tempi_table_retain(table);
    k->next = cache.list;
    cache.list = k;
    *out = k->there;
    return TEMPI_OK;
}

int tempi_cuda_table_get(tempi_cuda_device *device, const tempi_table *table, bool variable,
                         tempi_device_table *out)
{
    int status = TEMPI_OK;
    pthread_mutex_lock(&cache.lock);
    const cached *known = find(device->slot, table, variable);
    if (known)
        *out = known->there;
    else
        status = add(device, table, variable, out);
    pthread_mutex_unlock(&cache.lock);
    return status;
}

static void sweep_locked(int slot)
{
    pthread_mutex_lock(&cache.lock);
    sweep(slot);
    pthread_mutex_unlock(&cache.lock);
}

void tempi_cuda_tables_trim(void)
{
    sweep_locked(OF_NONE);
}

void tempi_cuda_tables_forget(int slot)
{
    sweep_locked(slot);
}

void tempi_cuda_tables_clear(void)
{
    sweep_locked(OF_ALL);
}
