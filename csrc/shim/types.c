#include "shim/types.h"
#include "base/config.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/stats.h"
#include "datatype/layout.h"
#include "shim/check.h"
#include "shim/decode.h"
#include "shim/wrong.h"

#include <stdlib.h>
#include <string.h>

tempi_type *tempi_type_cache[1 << TEMPI_TYPE_CACHE_BITS];
MPI_Datatype tempi_types_plain[1 << TEMPI_TYPE_CACHE_BITS];
MPI_Datatype tempi_types_named[1 << TEMPI_TYPES_NAMED_BITS];
static int named; /* entries of it */

static struct {
    tempi_lock lock;
    bool started;
    int keyval;
    tempi_library library;
    tempi_type *all;  /* in use, doubly linked */
    tempi_type *free; /* recycled, linked by next */
} types = {.keyval = MPI_KEYVAL_INVALID};

/* ---- memory ------------------------------------------------------------------------------------- */

static tempi_type *take_memory(MPI_Datatype handle)
{
    tempi_type *type = types.free;
    if (type)
        types.free = type->next;
    else if (!(type = malloc(sizeof *type)))
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
    tempi_type **slot = &tempi_type_cache[tempi_type_home(type->handle)];
    if (*slot == type)
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
    tempi_device_choices_free(type->device_choices);
    type->device_choices = NULL;
    type->layout = NULL;
    type->typemap = NULL;
    type->next = types.free;
    types.free = type;
}

/* MPI_TYPE_NULL_COPY_FN is a symbol of the library on some, and we must have none undefined. */
static int copy_nothing(MPI_Datatype type, int keyval, void *state, void *in, void *out, int *flag)
{
    (void)type;
    (void)keyval;
    (void)state;
    (void)in;
    (void)out;
    *flag = 0;
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

/* ---- first use ------------------------------------------------------------------------------------- */

static int decode(tempi_type *type)
{
    tempi_layout *raw;
    tempi_traits traits = {.element = 0};
    int status = tempi_type_decode(type->handle, &raw, &traits);
    if (status != TEMPI_OK)
        return status;
    status = tempi_layout_canonical(raw, NULL, NULL, &type->layout);
    tempi_layout_free(raw);
    if (status != TEMPI_OK)
        return status;
    type->size = type->layout->size;
    type->known_wrong = tempi_wrong_class(&traits, type->layout, types.library);
    type->modelled = type->known_wrong || tempi_config.force ? 0 : tempi_model_covers(type->layout);
    for (int op = 0; op < TEMPI_OPERATIONS; ++op)
        type->windows[op] = type->known_wrong || tempi_config.force
                                ? (tempi_window){.first = 1, .last = INT64_MAX}
                                : tempi_rule_window(type->layout, traits.element, types.library, (tempi_operation)op);
    if (!tempi_config.check)
        return TEMPI_OK;
    status = tempi_typemap_make(type->handle, &type->typemap);
    if (status == TEMPI_OK)
        type->typemap->unit = traits.unit;
    return status;
}

/* Decoding calls the library, so it runs outside the lock; a second thread may do the same work and
 * then finds it done. */
static const tempi_type *make_ready(tempi_type *type)
{
    tempi_type fresh = {.handle = type->handle};
    const int status = decode(&fresh);
    if (status != TEMPI_OK)
        TEMPI_LOG(TEMPI_LOG_INFO, "a datatype is left to the library: %s", tempi_status_string(status));
    tempi_lock_acquire(&types.lock);
    if (type->state == TEMPI_TYPE_UNUSED) {
        type->layout = fresh.layout;
        type->typemap = fresh.typemap;
        type->size = fresh.size;
        type->known_wrong = fresh.known_wrong;
        type->modelled = fresh.modelled;
        for (int op = 0; op < TEMPI_OPERATIONS; ++op)
            type->windows[op] = fresh.windows[op];
        tempi_stat_add(TEMPI_STAT_types, 1);
        __atomic_store_n(&type->state, status == TEMPI_OK ? TEMPI_TYPE_READY : TEMPI_TYPE_OPAQUE,
                         __ATOMIC_RELEASE);
    } else {
        if (fresh.layout)
            tempi_layout_release(fresh.layout);
        tempi_typemap_free(fresh.typemap);
    }
    tempi_lock_release(&types.lock);
    return type;
}

/* ---- look-up ------------------------------------------------------------------------------------------ */

static tempi_type *attribute_of(MPI_Datatype handle)
{
    void *value = NULL;
    int found = 0;
    if (tempi_lib.Type_get_attr(handle, types.keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    return found ? value : NULL;
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

/* Types that are committed without a call: predefined ones, and duplicates of a committed type. */
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

static bool predefined(MPI_Datatype handle)
{
    int combiner;
    return tempi_combiner_of(handle, &combiner) == TEMPI_OK && tempi_combiner_predefined(combiner);
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
    if (!types.started || handle == MPI_DATATYPE_NULL || tempi_combiner_of(handle, &combiner) != TEMPI_OK)
        return false;
    if (tempi_combiner_predefined(combiner)) {
        remember_named(handle);
        return false;
    }
    *size = tempi_size_of(handle);
    return *size >= 0;
}

const tempi_type *tempi_type_lookup(MPI_Datatype handle)
{
    if (!types.started || handle == MPI_DATATYPE_NULL)
        return NULL;
    tempi_type *type = attribute_of(handle);
    if (!type && born_committed(handle))
        type = attach(handle);
    if (!type) {
        tempi_stat_add(TEMPI_STAT_left_type, 1);
        return NULL;
    }
    if (__atomic_load_n(&type->state, __ATOMIC_ACQUIRE) == TEMPI_TYPE_UNUSED)
        make_ready(type);
    __atomic_store_n(&tempi_type_cache[tempi_type_home(handle)], type, __ATOMIC_RELEASE);
    if (type->state == TEMPI_TYPE_READY && type->layout->dense && predefined(handle))
        __atomic_store_n(&tempi_types_plain[tempi_type_home(handle)], handle, __ATOMIC_RELAXED);
    return type->state == TEMPI_TYPE_READY ? type : NULL;
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
    if (__atomic_load_n(&type->state, __ATOMIC_ACQUIRE) == TEMPI_TYPE_UNUSED)
        make_ready(type);
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

/* ---- one epoch of MPI --------------------------------------------------------------------------------- */

/* Where handles do not tell, the most used ones are looked up before a message needs it. */
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
    const int rc =
        tempi_lib.Type_create_keyval(copy_nothing, on_type_deleted, &types.keyval, NULL);
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
