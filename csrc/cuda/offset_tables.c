#include "cuda/offset_tables.h"
#include "cuda/pool.h"
#include "datatype/layout.h"

#include <stdlib.h>

typedef struct kept {
    struct kept *next;
    const tempi_table *table; /* held, so its address names it */
    bool variable;
    int device;
    tempi_device_table there;
} kept;

static struct {
    pthread_mutex_t lock;
    kept *list;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const kept *find(int device, const tempi_table *table, bool variable)
{
    for (const kept *k = cache.list; k; k = k->next)
        if (k->table == table && k->device == device && k->variable == variable)
            return k;
    return NULL;
}

static bool held_by_others(const tempi_table *table)
{
    int64_t ours = 0;
    for (const kept *k = cache.list; k; k = k->next)
        ours += k->table == table;
    return atomic_load(&tempi_table_shared(table)->refs) > ours;
}

/* No operation uses a table whose layout is gone, but its own copy may still be on the way: a
 * message that was refused after its table was asked for never waited for it. */
static void await_upload(int place)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cuda_device_peek(place);
    if (!device || !tempi_cuda_up() || tempi_cuda_enter(device, &entry) != TEMPI_OK)
        return;
    (void)TEMPI_CU(StreamSynchronize, device->copy_streams[TEMPI_UNPACK]);
    tempi_cuda_leave(&entry);
}

enum { OF_NONE = -1, OF_ALL = -2 };

/* All of that device, and what nobody else holds. */
static void sweep(int place)
{
    for (kept **k = &cache.list; *k;) {
        kept *gone = *k;
        if (place != OF_ALL && place != gone->device && held_by_others(gone->table)) {
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

/* The streams of the kernels wait for what is in the copy stream so far. */
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

/* The bytes may go as soon as the call returns: from pageable memory the driver takes them at once
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
        status = TEMPI_CU(StreamSynchronize, stream); /* then the table is there for certain */
    tempi_cuda_leave(&entry);
    return status;
}

static int encode_and_upload(tempi_cuda_device *device, kept *k)
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

static int make(tempi_cuda_device *device, kept *k)
{
    int status = tempi_table_form_of(k->table, k->variable, &k->there.form);
    if (status != TEMPI_OK)
        return status;
    void *buffer = tempi_cuda_buffer_get(device->place, k->there.form.bytes);
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
    kept *k = malloc(sizeof *k);
    if (!k)
        return TEMPI_ERR_MEMORY;
    *k = (kept){.table = table, .variable = variable, .device = device->place};
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
    const kept *known = find(device->place, table, variable);
    if (known)
        *out = known->there;
    else
        status = add(device, table, variable, out);
    pthread_mutex_unlock(&cache.lock);
    return status;
}

static void sweep_locked(int place)
{
    pthread_mutex_lock(&cache.lock);
    sweep(place);
    pthread_mutex_unlock(&cache.lock);
}

void tempi_cuda_tables_trim(void)
{
    sweep_locked(OF_NONE);
}

void tempi_cuda_tables_forget(int place)
{
    sweep_locked(place);
}

void tempi_cuda_tables_clear(void)
{
    sweep_locked(OF_ALL);
}
