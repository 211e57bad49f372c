#include "shim/type/types.h"
#include "base/allocate.h"
#include "base/config.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/thread.h"
#include "choose/online_tuning.h"
#include "datatype/layout.h"
#include "memory/kind.h"
#include "shim/type/decode.h"
#include "shim/type/quirks.h"
#include "shim/type/typemap_check.h"

#include <stdlib.h>
#include <string.h>

tempi_type_slot tempi_type_slots[1 << TEMPI_TYPE_CACHE_BITS];
MPI_Datatype tempi_types_named[1 << TEMPI_TYPES_NAMED_BITS];
static int named; /* number of entries in it */

static struct {
    tempi_lock lock;
    bool started;
    int keyval;
    tempi_library library;
    tempi_type *all;  /* in use, doubly linked */
    tempi_type *free; /* recycled, linked by next */
} types = {.keyval = MPI_KEYVAL_INVALID};

/* ---- memory ---------------------------------------------------------------------------------- */

static tempi_type *take_memory(MPI_Datatype handle)
{
    tempi_type *type = types.free;
    if (type)
        types.free = type->next;
    else if (!(type = tempi_allocate(sizeof *type)))
        return NULL;
    *type = (tempi_type){.handle = handle, .next = types.all};
    if (types.all)
        types.all->previous = type;
    types.all = type;
    return type;
}

/* Caller holds the lock. */
static void give_back(tempi_type *type)
{
    tempi_type **slot = &tempi_type_slots[tempi_type_home(type->handle)].cached;
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) == type)
        __atomic_store_n(slot, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&type->handle, MPI_DATATYPE_NULL, __ATOMIC_RELEASE);
    if (type->previous)
        type->previous->next = type->next;
    else
        types.all = type->next;
    if (type->next)
        type->next->previous = type->previous;
    if (type->layout)
        tempi_layout_release(type->layout);
    tempi_typemap_free(type->typemap);
    tempi_chooser_clear(&type->chooser);
    type->layout = NULL;
    type->typemap = NULL;
    type->next = types.free;
    types.free = type;
}

/* Their packs are neither checked nor delayed. */
static uint32_t unplanned_of(const tempi_type *type)
{
    if (!type->layout || type->layout->dense || type->size == 0 || type->typemap ||
        type->chooser.quirks != 0 || tempi_config.test_delay > 0)
        return 0;
    return (uint32_t)(TEMPI_INLINE_BYTES / type->size);
}

/* Copies the known facts of one type to its duplicate. Caller holds the lock. */
static void copy_known(tempi_type *to, const tempi_type *from)
{
    if (from->state < TEMPI_TYPE_READY || from->typemap) {
        to->state = from->state == TEMPI_TYPE_UNUSED ? TEMPI_TYPE_UNUSED : TEMPI_TYPE_MET;
        to->met = __atomic_load_n(&from->met, __ATOMIC_RELAXED);
        return;
    }
    to->layout = tempi_layout_retain(from->layout);
    to->size = from->size;
    tempi_chooser_copy(&to->chooser, &from->chooser);
    to->unplanned_most = unplanned_of(to);
    to->left_counts = from->left_counts;
    to->state = from->state;
}

/* A duplicate of a committed type is committed. Its handle is not known here: the first look-up
 * of its attribute sets it. If out of memory, it counts as not committed. */
static int on_type_duplicated(MPI_Datatype original, int keyval, void *state, void *in, void *out,
                              int *flag)
{
    (void)original;
    (void)keyval;
    (void)state;
    tempi_lock_acquire(&types.lock);
    tempi_type *twin = take_memory(MPI_DATATYPE_NULL);
    if (twin)
        copy_known(twin, in);
    tempi_lock_release(&types.lock);
    *flag = twin != NULL;
    if (twin)
        memcpy(out, &twin, sizeof twin);
    return MPI_SUCCESS;
}

static int on_type_deleted(MPI_Datatype handle, int keyval, void *value, void *state)
{
    (void)handle;
    (void)keyval;
    (void)state;
    tempi_lock_acquire(&types.lock);
    give_back(value);
    tempi_lock_release(&types.lock);
    return MPI_SUCCESS;
}

/* ---- first use ------------------------------------------------------------------------------- */

static int decode(tempi_type *type, int64_t most)
{
    tempi_layout *raw;
    tempi_traits traits;
    int status = tempi_type_decode(type->handle, most, &raw, &traits);
    if (status != TEMPI_OK)
        return status;
    status = tempi_layout_canonical(raw, NULL, NULL, &type->layout);
    tempi_layout_free(raw);
    if (status != TEMPI_OK)
        return status;
    type->size = type->layout->size;
    tempi_chooser_init(&type->chooser, type->layout, traits.element, types.library,
                       tempi_quirk_operations(&traits, type->layout->extent, type->layout,
                                              types.library));
    if (!tempi_config.check)
        return TEMPI_OK;
    status = tempi_typemap_make(type->handle, &type->typemap);
    if (status == TEMPI_OK && type->typemap) /* NULL: cannot be checked */
        type->typemap->unit = traits.unit;
    return status;
}

static bool predefined(MPI_Datatype handle)
{
    int combiner;
    return tempi_combiner_of(handle, &combiner) == TEMPI_OK && tempi_combiner_predefined(combiner);
}

/* Decoding calls the library, so it runs without the lock; a second thread may repeat the work
 * and discards its result. False: a constructor lists more than `most` numbers, and nothing was
 * done. */
static bool make_ready(tempi_type *type, int64_t most)
{
    tempi_type fresh = {.handle = type->handle};
    const int status = decode(&fresh, most);
    if (status == TEMPI_TOO_MANY)
        return false;
    if (status != TEMPI_OK)
        TEMPI_LOG(TEMPI_LOG_INFO, "a datatype is left to the library: %s",
                  tempi_status_string(status));
    const bool a_programs = !predefined(type->handle);
    tempi_lock_acquire(&types.lock);
    if (type->state < TEMPI_TYPE_READY) {
        type->layout = fresh.layout;
        type->typemap = fresh.typemap;
        type->size = fresh.size;
        type->left_counts = fresh.layout && !fresh.layout->dense;
        tempi_chooser_copy(&type->chooser, &fresh.chooser);
        type->unplanned_most = unplanned_of(type);
        if (a_programs)
            tempi_stat_add(TEMPI_STAT_types, 1);
        __atomic_store_n(&type->state, status == TEMPI_OK ? TEMPI_TYPE_READY : TEMPI_TYPE_OPAQUE,
                         __ATOMIC_RELEASE);
    } else {
        if (fresh.layout)
            tempi_layout_release(fresh.layout);
        tempi_typemap_free(fresh.typemap);
    }
    tempi_lock_release(&types.lock);
    return true;
}

/* ---- look-up --------------------------------------------------------------------------------- */

static tempi_type *attribute_of(MPI_Datatype handle)
{
    void *value = NULL;
    int found = 0;
    if (tempi_lib.Type_get_attr(handle, types.keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    tempi_type *type = found ? value : NULL;
    if (type && __atomic_load_n(&type->handle, __ATOMIC_RELAXED) == MPI_DATATYPE_NULL)
        __atomic_store_n(&type->handle, handle, __ATOMIC_RELEASE); /* new duplicate */
    return type;
}

static tempi_type *attach(MPI_Datatype handle)
{
    tempi_lock_acquire(&types.lock);
    tempi_type *type = take_memory(handle);
    tempi_lock_release(&types.lock);
    if (!type)
        return NULL;
    if (tempi_lib.Type_set_attr(handle, types.keyval, type) != MPI_SUCCESS) {
        tempi_lock_acquire(&types.lock);
        give_back(type);
        tempi_lock_release(&types.lock);
        return NULL;
    }
    return type;
}

/* Types that are committed without a call: predefined ones and duplicates of committed types. */
static bool born_committed(MPI_Datatype handle)
{
    tempi_contents c;
    if (tempi_contents_read(handle, &c) != TEMPI_OK)
        return false;
    bool born = tempi_combiner_predefined(c.combiner);
    if (c.combiner == MPI_COMBINER_DUP)
        born = attribute_of(c.types[0]) != NULL || born_committed(c.types[0]);
    tempi_contents_release(&c);
    return born;
}

static void remember_named(MPI_Datatype handle)
{
    unsigned i = tempi_handle_home(handle, TEMPI_TYPES_NAMED_BITS);
    tempi_lock_acquire(&types.lock);
    while (tempi_handle(tempi_types_named[i]) != 0 && tempi_types_named[i] != handle)
        i = (i + 1) % (1 << TEMPI_TYPES_NAMED_BITS);
    if (tempi_handle(tempi_types_named[i]) == 0 && named < 1 << (TEMPI_TYPES_NAMED_BITS - 1)) {
        ++named;
        __atomic_store_n(&tempi_types_named[i], handle, __ATOMIC_RELAXED);
    }
    tempi_lock_release(&types.lock);
}

bool tempi_type_derived(MPI_Datatype handle, int64_t *size)
{
    int combiner;
    if (!types.started || handle == MPI_DATATYPE_NULL ||
        tempi_combiner_of(handle, &combiner) != TEMPI_OK)
        return false;
    if (tempi_combiner_predefined(combiner)) {
        remember_named(handle);
        return false;
    }
    *size = tempi_type_size(handle);
    return *size >= 0;
}

/* The type if it is committed. */
static tempi_type *committed(MPI_Datatype handle)
{
    if (!types.started || handle == MPI_DATATYPE_NULL)
        return NULL;
    tempi_type *type = attribute_of(handle);
    if (!type && born_committed(handle))
        type = attach(handle);
    if (!type)
        tempi_stat_add(TEMPI_STAT_fallback_type, 1);
    return type;
}

/* It is decoded, or cannot be: from now on the cache answers. */
static const tempi_type *remember(tempi_type *type)
{
    const MPI_Datatype handle = type->handle;
    tempi_type_slot *slot = &tempi_type_slots[tempi_type_home(handle)];
    __atomic_store_n(&slot->cached, type, __ATOMIC_RELEASE);
    if (type->state == TEMPI_TYPE_READY && type->layout->dense && predefined(handle))
        __atomic_store_n(&slot->plain, handle, __ATOMIC_RELAXED);
    return type->state == TEMPI_TYPE_READY ? type : NULL;
}

const tempi_type *tempi_type_lookup(MPI_Datatype handle)
{
    tempi_type *type = committed(handle);
    if (!type)
        return NULL;
    if (__atomic_load_n(&type->state, __ATOMIC_ACQUIRE) < TEMPI_TYPE_READY)
        make_ready(type, INT64_MAX);
    return remember(type);
}

const tempi_type *tempi_type_decoded_by_attribute(MPI_Datatype handle)
{
    const tempi_type *type = types.started && handle != MPI_DATATYPE_NULL ? attribute_of(handle)
                                                                          : NULL;
    return type && __atomic_load_n(&type->state, __ATOMIC_ACQUIRE) == TEMPI_TYPE_READY ? type
                                                                                       : NULL;
}

/* ---- the first messages ---------------------------------------------------------------------- */

/* Decoding takes some 0.1 microseconds for each of a few hundred irregular blocks, and 15 ns for
 * each of many. A message much longer than that justifies it at once. Shorter ones gain about an
 * eighth of it each, so that decoding at this one at most doubles what a type costs, however often
 * it is used. */
enum { BYTES_A_NUMBER = 2048, MESSAGES_BEFORE = 8 };

static int64_t most_numbers(MPI_Datatype handle, MPI_Count count)
{
    int64_t bytes;
    const int64_t size = tempi_type_size(handle);
    if (tempi_config.force || tempi_config.check || tempi_online_tuning || tempi_memory_mixed ||
        tempi_this_thread.disabled || size <= 0 || __builtin_mul_overflow(size, count, &bytes))
        return INT64_MAX;
    return bytes / BYTES_A_NUMBER;
}

/* Whether the library may be wrong with it. */
static bool doubtful(MPI_Datatype handle)
{
    tempi_traits traits;
    int64_t lb, extent;
    return tempi_traits_read(handle, &traits) != TEMPI_OK ||
           tempi_type_extent(handle, &lb, &extent) != TEMPI_OK ||
           tempi_quirk_operations(&traits, extent, NULL, types.library) != 0;
}

/* Whether the library carries this message of a type that is not decoded yet. */
static bool left_at_first(tempi_type *type, MPI_Count count, int state)
{
    uint8_t unused = TEMPI_TYPE_UNUSED; /* another thread may have decoded it */
    if (make_ready(type, most_numbers(type->handle, count)) ||
        (state == TEMPI_TYPE_UNUSED && doubtful(type->handle)))
        return false;
    __atomic_compare_exchange_n(&type->state, &unused, TEMPI_TYPE_MET, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return __atomic_fetch_add(&type->met, 1, __ATOMIC_RELAXED) < MESSAGES_BEFORE;
}

const tempi_type *tempi_type_meet(MPI_Datatype handle, MPI_Count count)
{
    tempi_type *type = committed(handle);
    if (!type)
        return NULL;
    const int state = __atomic_load_n(&type->state, __ATOMIC_ACQUIRE);
    if (state < TEMPI_TYPE_READY && left_at_first(type, count, state)) {
        tempi_stat_add(TEMPI_STAT_calls_seen, 1);
        tempi_stat_add(TEMPI_STAT_fallback_first, 1);
        return NULL;
    }
    if (__atomic_load_n(&type->state, __ATOMIC_ACQUIRE) < TEMPI_TYPE_READY)
        make_ready(type, INT64_MAX);
    return remember(type);
}

void tempi_type_committed(MPI_Datatype handle)
{
    if (types.started && !tempi_config.no_type_commit && !attribute_of(handle))
        attach(handle);
}

static int adopt(MPI_Datatype handle, const tempi_type **out)
{
    if (!types.started)
        return TEMPI_ERR_NO_MPI;
    if (handle == MPI_DATATYPE_NULL)
        return TEMPI_ERR_ARG;
    tempi_type *type = attribute_of(handle);
    if (!type && !(type = attach(handle)))
        return TEMPI_ERR_MEMORY;
    if (__atomic_load_n(&type->state, __ATOMIC_ACQUIRE) < TEMPI_TYPE_READY)
        make_ready(type, INT64_MAX);
    if (type->state != TEMPI_TYPE_READY)
        return TEMPI_ERR_UNSUPPORTED;
    *out = type;
    return TEMPI_OK;
}

const tempi_type *tempi_type_adopt(MPI_Datatype handle)
{
    const tempi_type *type = NULL;
    int combiner;
    if (handle == MPI_DATATYPE_NULL || tempi_combiner_of(handle, &combiner) != TEMPI_OK ||
        combiner != MPI_COMBINER_DUP)
        return NULL;
    return adopt(handle, &type) == TEMPI_OK ? type : NULL;
}

int tempi_datatype_layout_of(uintptr_t datatype, const tempi_layout **out)
{
    const tempi_type *type;
    const int status = adopt(tempi_datatype_of(datatype), &type);
    if (status == TEMPI_OK)
        *out = type->layout;
    return status;
}

/* ---- one epoch of MPI ------------------------------------------------------------------------ */

/* If handles alone do not identify predefined types, looks up the common ones before the first
 * message. */
static void learn_plain(void)
{
    const MPI_Datatype usual[] = {MPI_BYTE,  MPI_CHAR,   MPI_INT,     MPI_LONG,
                                  MPI_FLOAT, MPI_DOUBLE, MPI_INT32_T, MPI_INT64_T};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; ++i)
        if (!tempi_abi_builtin(usual[i]))
            tempi_type_lookup(usual[i]);
}

int tempi_types_start(tempi_library library)
{
    if (types.started)
        return MPI_SUCCESS;
    const int rc = tempi_lib.Type_create_keyval(on_type_duplicated, on_type_deleted, &types.keyval,
                                                NULL);
    types.library = library;
    types.started = rc == MPI_SUCCESS;
    if (types.started) {
        remember_named(MPI_DATATYPE_NULL);
        learn_plain();
    }
    return rc;
}

void tempi_types_stop(void)
{
    if (!types.started)
        return;
    types.started = false;
    tempi_lib.Type_free_keyval(&types.keyval);
}

void tempi_types_clear(void)
{
    tempi_lock_acquire(&types.lock);
    while (types.all)
        give_back(types.all);
    memset(tempi_types_named, 0, sizeof tempi_types_named); /* Fortran's kinds end with MPI */
    named = 0;
    tempi_lock_release(&types.lock);
}
