/* pool.c: buffers in size classes.
 *
 * The bookkeeping is separate from the buffers, since the host cannot write device memory and a
 * kernel's stray write must not reach the lists. The mutex guards lists and counts only: allocating
 * and freeing may wait for the device, so the driver is called without it. */
#include "cuda/pool.h"
#include "base/budget.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/stats.h"
#include "cuda/device.h"
#include "cuda/pinned.h"
#include "cuda/resident.h"

#include <stdlib.h>

/* Four classes per power of two, from 4 KiB to 2^44 bytes: at most a quarter is wasted. */
enum {
    SMALLEST_SHIFT = 12,
    STEPS = 4,
    CLASSES = (44 - SMALLEST_SHIFT) * STEPS,
    BUCKETS = 256,
    GONE = -1
};

typedef struct block {
    struct block *next;         /* in a list or a bucket */
    struct block *left, *right; /* in a heap of free blocks */
    int rank;
    void *address;
    int64_t capacity;
    int class;
    /* Slot of the device through whose context it was allocated; GONE: freed with that context. */
    int home;
    bool pinned;
    bool registered; /* pinned.h */
    bool budgeted;   /* in use, and counted against the bound on staging memory */
} block;

/* There is one for pinned memory and one for each device. */
typedef struct shelf {
    block *free[CLASSES]; /* heaps, the lowest address first: a program that repeats its messages
                             gets the same buffers, in whatever order it freed them */
    int64_t used;
    int64_t cached;
} shelf;

static struct {
    pthread_mutex_t lock;
    shelf pinned;
    shelf device[TEMPI_CUDA_DEVICES];
    block *in_use[BUCKETS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t class_capacity(int class)
{
    const int64_t base = (int64_t)1 << (SMALLEST_SHIFT + class / STEPS);
    return base + base / STEPS * (class % STEPS);
}

static int class_of(int64_t bytes)
{
    if (bytes <= (int64_t)1 << SMALLEST_SHIFT)
        return 0;
    const int log = 63 - __builtin_clzll((unsigned long long)(bytes - 1));
    const int64_t base = (int64_t)1 << log;
    return (log - SMALLEST_SHIFT) * STEPS + (int)((bytes - 1 - base) / (base / STEPS)) + 1;
}

static shelf *shelf_of(bool pinned, int device)
{
    return pinned ? &pool.pinned : &pool.device[device];
}

static block **bucket_of(const void *address)
{
    return &pool.in_use[tempi_hash_home((uintptr_t)address, 8)];
}

/* ---- the driver's part ----------------------------------------------------------------------- */

static int take_from_driver(tempi_cuda_device *device, block *b)
{
    tempi_cuda_entry entry;
    tempi_cuda_address address = 0;
    if (b->pinned)
        return tempi_cuda_pinned_new(device, b->capacity, &b->address, &b->registered);
    int status = tempi_cuda_enter_relaxed(device, &entry);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(MemAlloc, &address, (size_t)b->capacity);
    b->address = (void *)(uintptr_t)address;
    tempi_cuda_leave(&entry);
    return status;
}

static void return_to_driver(const block *gone)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cuda_device_peek(gone->home);
    if (gone->pinned) {
        tempi_cuda_pinned_free(device, gone->address, gone->capacity, gone->registered);
        return;
    }
    if (!device || !tempi_cuda_up() || tempi_cuda_enter_relaxed(device, &entry) != TEMPI_OK)
        return;
    (void)TEMPI_CU(MemFree, (uintptr_t)gone->address);
    tempi_cuda_leave(&entry);
}

static void return_list(block *list)
{
    while (list) {
        block *gone = list;
        list = gone->next;
        return_to_driver(gone);
        free(gone);
    }
}

/* ---- lists; the caller holds the lock -------------------------------------------------------- */

/* A leftist heap: the right spine has logarithmic length. */
static block *merge(block *a, block *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->address < a->address) {
        block *higher = a;
        a = b;
        b = higher;
    }
    a->right = merge(a->right, b);
    if (!a->left || a->left->rank < a->right->rank) {
        block *shorter = a->left;
        a->left = a->right;
        a->right = shorter;
    }
    a->rank = a->right ? a->right->rank + 1 : 1;
    return a;
}

static void push(block **heap, block *b)
{
    b->left = b->right = NULL;
    b->rank = 1;
    *heap = merge(*heap, b);
}

static block *pop(block **heap)
{
    block *lowest = *heap;
    if (lowest)
        *heap = merge(lowest->left, lowest->right);
    return lowest;
}

/* Takes all cached blocks of a shelf and puts them before `list`. */
static block *take_cached(shelf *from, block *list)
{
    for (int c = 0; c < CLASSES; ++c) {
        for (block *b; (b = pop(&from->free[c])) != NULL;) {
            b->next = list;
            list = b;
        }
    }
    from->cached = 0;
    return list;
}

static void hand_out(block *b)
{
    block **bucket = bucket_of(b->address);
    b->next = *bucket;
    *bucket = b;
}

static block *call_in(const void *address)
{
    for (block **b = bucket_of(address); *b; b = &(*b)->next) {
        if ((*b)->address == address) {
            block *found = *b;
            *b = found->next;
            return found;
        }
    }
    return NULL;
}

/* A cached block of the class, or else of up to twice its size, since allocating takes far longer
 * than the memory is worth. Pinned ones count in the budget, which has that of the class already.
 */
static block *take_fitting(shelf *from, int class, bool budgeted)
{
    for (int c = class; c < CLASSES && c <= class + STEPS; ++c) {
        const int64_t more = class_capacity(c) - class_capacity(class);
        if (from->free[c] && (!budgeted || more == 0 || tempi_budget_take(more, more)))
            return pop(&from->free[c]);
    }
    return NULL;
}

/* A cached block; or NULL and, in *surplus, the blocks to free before a new one fits. */
static block *reserve(shelf *from, int class, bool budgeted, int64_t bound, block **surplus)
{
    block *b = take_fitting(from, class, budgeted);
    from->used += b ? b->capacity : class_capacity(class);
    if (b) {
        b->budgeted = budgeted;
        from->cached -= b->capacity;
        hand_out(b);
    } else if (from->used + from->cached > bound) {
        *surplus = take_cached(from, NULL);
    }
    return b;
}

/* ---- getting --------------------------------------------------------------------------------- */

static int64_t device_bound(const tempi_cuda_device *device)
{
    const int64_t most = (int64_t)1 << 30, share = device->memory / 20;
    if (tempi_config.device_max >= 0)
        return tempi_config.device_max;
    return device->memory && share < most ? share : most;
}

static block *fresh(tempi_cuda_device *device, bool pinned, int class)
{
    block *b = malloc(sizeof *b);
    if (!b)
        return NULL;
    *b = (block){
        .capacity = class_capacity(class), .class = class, .home = device->slot, .pinned = pinned};
    int status = take_from_driver(device, b);
    if (status == TEMPI_ERR_MEMORY) {
        tempi_cuda_pool_trim();
        status = take_from_driver(device, b);
    }
    if (status == TEMPI_OK)
        return b;
    free(b);
    return NULL;
}

static void *get(tempi_cuda_device *device, bool pinned, bool budgeted, int class, int64_t bound)
{
    shelf *from = shelf_of(pinned, device->slot);
    block *surplus = NULL;
    pthread_mutex_lock(&pool.lock);
    block *b = reserve(from, class, budgeted, bound, &surplus);
    pthread_mutex_unlock(&pool.lock);
    return_list(surplus);
    if (b)
        return b->address;
    b = fresh(device, pinned, class);
    pthread_mutex_lock(&pool.lock);
    if (b) {
        b->budgeted = budgeted;
        hand_out(b);
    } else {
        from->used -= class_capacity(class);
    }
    pthread_mutex_unlock(&pool.lock);
    return b ? b->address : NULL;
}

static void *refuse(int reason)
{
    tempi_stat_add(reason, 1);
    return NULL;
}

/* The device with the primary context. */
static tempi_cuda_device *primary_of(int slot)
{
    tempi_cuda_device *user = tempi_cuda_device_get(slot);
    return user ? tempi_cuda_device_get(user->ordinal) : NULL;
}

static void *pinned_get(int slot, int64_t bytes, bool must)
{
    tempi_cuda_device *device = primary_of(slot);
    const int class = bytes < 0 ? CLASSES : class_of(bytes);
    if (!device || class >= CLASSES)
        return NULL;
    const bool budgeted = tempi_budget_take(bytes, class_capacity(class));
    if (!budgeted && !must)
        return NULL;
    void *found = get(device, true, budgeted, class, tempi_config.stage_max);
    if (!found && budgeted)
        tempi_budget_give(class_capacity(class));
    return found;
}

void *tempi_cuda_pinned_get(int slot, int64_t bytes)
{
    void *found = pinned_get(slot, bytes, false);
    return found ? found : refuse(TEMPI_STAT_refused_pinned_memory);
}

void *tempi_cuda_pinned_some(int slot, int64_t bytes)
{
    void *found = pinned_get(slot, bytes, true);
    return found ? found : refuse(TEMPI_STAT_refused_pinned_memory);
}

/* Compares the bytes asked for with the bound, as for staging memory: a bound of exactly one
 * message admits that message. */
static bool within(const tempi_cuda_device *device, int64_t bytes)
{
    pthread_mutex_lock(&pool.lock);
    const bool fits = bytes <= device_bound(device) - pool.device[device->slot].used;
    pthread_mutex_unlock(&pool.lock);
    return fits;
}

void *tempi_cuda_buffer_get(int slot, int64_t bytes)
{
    tempi_cuda_device *device = tempi_cuda_device_peek(slot);
    /* A device that is gone is not set up anew here: callers hold locks. */
    device = device && atomic_load(&device->gone) ? NULL : tempi_cuda_device_get(slot);
    const int class = bytes < 0 ? CLASSES : class_of(bytes);
    if (device && !within(device, bytes))
        tempi_cuda_residents_trim();
    if (!device || class >= CLASSES || !within(device, bytes))
        return refuse(TEMPI_STAT_refused_device_memory);
    void *found = get(device, false, false, class, device_bound(device));
    return found ? found : refuse(TEMPI_STAT_refused_device_memory);
}

/* Frees a block whose context is gone. */
static void drop(block *gone)
{
    if (gone->pinned)
        tempi_cuda_pinned_drop(gone->address, gone->capacity, gone->registered);
    free(gone);
}

static void drop_list(block *list)
{
    while (list) {
        block *gone = list;
        list = gone->next;
        drop(gone);
    }
}

/* ---- putting --------------------------------------------------------------------------------- */

bool tempi_cuda_pool_put(void *buffer)
{
    if (!buffer)
        return false;
    pthread_mutex_lock(&pool.lock);
    block *b = call_in(buffer);
    const bool found = b != NULL;
    if (found && b->budgeted)
        tempi_budget_give(b->capacity);
    if (found && b->home == GONE) {
        drop(b);
    } else if (found) {
        shelf *to = shelf_of(b->pinned, b->home);
        push(&to->free[b->class], b);
        to->used -= b->capacity;
        to->cached += b->capacity;
    }
    pthread_mutex_unlock(&pool.lock);
    return found;
}

bool tempi_cuda_pool_pinned(const void *buffer)
{
    bool pinned = false;
    pthread_mutex_lock(&pool.lock);
    for (const block *b = *bucket_of(buffer); b && !pinned; b = b->next)
        pinned = b->address == buffer && b->pinned;
    pthread_mutex_unlock(&pool.lock);
    return pinned;
}

void tempi_cuda_pool_trim(void)
{
    pthread_mutex_lock(&pool.lock);
    block *list = take_cached(&pool.pinned, NULL);
    for (int d = 0; d < TEMPI_CUDA_DEVICES; ++d)
        list = take_cached(&pool.device[d], list);
    pthread_mutex_unlock(&pool.lock);
    return_list(list);
}

/* Pinned memory was allocated in a primary context, which can be reset. Only of one device: cached
 * blocks of others are returned to the driver. */
static void forget_pinned(int slot, block **others)
{
    block *list = take_cached(&pool.pinned, NULL);
    while (list) {
        block *b = list;
        list = b->next;
        if (b->home == slot) {
            drop(b);
        } else {
            b->next = *others;
            *others = b;
        }
    }
}

void tempi_cuda_pool_forget(int slot)
{
    block *others = NULL;
    pthread_mutex_lock(&pool.lock);
    drop_list(take_cached(&pool.device[slot], NULL));
    if (slot < TEMPI_CUDA_ORDINALS)
        forget_pinned(slot, &others);
    for (int i = 0; i < BUCKETS; ++i)
        for (block *b = pool.in_use[i]; b; b = b->next)
            if (b->home == slot) {
                if (b->pinned)
                    pool.pinned.used -= b->capacity;
                b->home = GONE;
            }
    pool.device[slot] = (shelf){.used = 0};
    pthread_mutex_unlock(&pool.lock);
    return_list(others);
}

/* Caller holds the lock. */
static void take_out(block *b)
{
    if (b->home != GONE)
        shelf_of(b->pinned, b->home)->used -= b->capacity;
    if (b->budgeted)
        tempi_budget_give(b->capacity);
}

void tempi_cuda_pool_clear(void)
{
    tempi_cuda_pool_trim();
    block *list = NULL;
    pthread_mutex_lock(&pool.lock);
    for (int i = 0; i < BUCKETS; ++i) {
        while (pool.in_use[i]) {
            block *b = call_in(pool.in_use[i]->address);
            take_out(b);
            b->next = list;
            list = b;
        }
    }
    pthread_mutex_unlock(&pool.lock);
    return_list(list);
}

/* ---- for tests ------------------------------------------------------------------------------- */

static int64_t total(size_t member)
{
    int64_t sum = 0;
    pthread_mutex_lock(&pool.lock);
    sum += *(const int64_t *)(const void *)((const char *)&pool.pinned + member);
    for (int d = 0; d < TEMPI_CUDA_DEVICES; ++d)
        sum += *(const int64_t *)(const void *)((const char *)&pool.device[d] + member);
    pthread_mutex_unlock(&pool.lock);
    return sum;
}

int64_t tempi_cuda_pool_used(void)
{
    return total(offsetof(shelf, used));
}

int64_t tempi_cuda_pool_cached(void)
{
    return total(offsetof(shelf, cached));
}
