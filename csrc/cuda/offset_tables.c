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
        (void)tempi_cuda_pool_put((void *)(uintptr_t)gone->there.address);
        tempi_table_release(gone->table);
        free(gone);
    }
}

/* ---- bringing one over ----------------------------------------------------------------------- */

/* Waits until the table has arrived: it is used in any stream, and only its first use pays. */
static int upload(tempi_cuda_device *device, uint64_t to, const void *bytes, int64_t n)
{
    const tempi_cuda_stream stream = device->copy_streams[TEMPI_UNPACK];
    tempi_cuda_entry entry;
    int status = tempi_cuda_enter_relaxed(device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(MemcpyAsync, to, (uintptr_t)bytes, (size_t)n, stream);
    if (status != TEMPI_OK &&
        tempi_cuda_up()) /* no message of the layout can do without: once more */
        status = TEMPI_CU(MemcpyAsync, to, (uintptr_t)bytes, (size_t)n, stream);
    const int arrived = TEMPI_CU(StreamSynchronize, stream);
    tempi_cuda_leave(&entry);
    return status != TEMPI_OK ? status : arrived;
}

static int encode_and_upload(tempi_cuda_device *device, cached *k)
{
    void *bytes = malloc((size_t)k->there.form.bytes);
    if (!bytes)
        return TEMPI_ERR_MEMORY;
    tempi_table_encode(k->table, k->variable, &k->there.form, bytes);
    const int status = upload(device, k->there.address, bytes, k->there.form.bytes);
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
