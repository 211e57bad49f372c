/* Maps a datatype handle to tempi's knowledge of it. Each type whose commit tempi has seen has a
 * type attribute whose value is its tempi_type; the attribute's delete callback, which every
 * library calls before the handle can be reused, recycles it. A small cache answers the common
 * look-up. The memory of a tempi_type is recycled but never freed, so a stale cache entry can be
 * read safely: its handle no longer matches. */
#ifndef TEMPI_SHIM_TYPES_H
#define TEMPI_SHIM_TYPES_H

#include "base/published.h"
#include "choose/choose.h"
#include "shim/abi.h"
#include "tempi.h"

#include <stddef.h>

typedef enum tempi_type_state {
    TEMPI_TYPE_UNUSED, /* committed, not used yet: not decoded */
    TEMPI_TYPE_MET,    /* the library carries its first messages: still not decoded */
    TEMPI_TYPE_READY,  /* layout and windows are valid */
    TEMPI_TYPE_OPAQUE  /* could not be decoded: the library handles it */
} tempi_type_state;

enum { TEMPI_INLINE_BYTES = 4 << 10 }; /* packed, of messages that are packed on the stack */

typedef struct tempi_type {
    /* What calls that pass to the library read is in one cache line, with the first member of the
     * chooser. */
    _Alignas(64) MPI_Datatype handle; /* MPI_DATATYPE_NULL while in the free list */
    uint8_t state;                    /* TEMPI_TYPE_* */
    /* MPI_Pack and MPI_Unpack: the last count for which the final choice was the library; 0: none.
     * `left_counts`: 1, or 0 for a type without gaps, whose calls the statistics leave out. */
    uint8_t left_counts;
    uint32_t unplanned_most; /* elements of a message that need not be planned (p2p/unplanned.h) */
    MPI_Count left[2];
    tempi_chooser chooser;
    int met;      /* messages that the library carried before it was decoded */
    int64_t size; /* packed bytes of one element */
    const tempi_layout *layout;
    struct tempi_typemap *typemap; /* under TEMPI_CHECK */
    struct tempi_type *next, *previous;
} tempi_type;
_Static_assert(offsetof(tempi_type, chooser) + sizeof(tempi_repeated[TEMPI_OPERATIONS]) <= 64,
               "what messages that pass read is in one cache line");

/* The chooser is a cache in a type that is otherwise read-only. */
static inline tempi_chooser *tempi_type_chooser(const tempi_type *type)
{
    return &((tempi_type *)(uintptr_t)type)->chooser;
}

enum { TEMPI_TYPE_CACHE_BITS = 9 };
/* Side by side, as a call with a derived datatype asks for both. */
typedef struct tempi_type_slot {
    tempi_type *cached;
    /* A known predefined type without holes. It is never freed, so it never goes stale. */
    MPI_Datatype plain;
} tempi_type_slot;
extern tempi_type_slot tempi_type_slots[1 << TEMPI_TYPE_CACHE_BITS];

static inline unsigned tempi_type_home(MPI_Datatype type)
{
    return tempi_handle_home(type, TEMPI_TYPE_CACHE_BITS);
}

/* The type if it is in the cache, decoded or not. A stale entry has another handle. */
static inline tempi_type *tempi_type_at_home(MPI_Datatype type)
{
    tempi_type *cached = TEMPI_PUBLISHED(tempi_type_slots[tempi_type_home(type)].cached);
    return cached && __atomic_load_n(&cached->handle, __ATOMIC_RELAXED) == type ? cached : NULL;
}

static inline const tempi_type *tempi_type_if_ready(const tempi_type *type)
{
    return type->state == TEMPI_TYPE_READY ? type : NULL;
}

/* Whether it is a predefined type of one run: the library carries its messages in host memory.
 * False also if the type was not seen yet. */
static inline bool tempi_type_plain(MPI_Datatype type)
{
    return tempi_abi_builtin(type) ||
           __atomic_load_n(&tempi_type_slots[tempi_type_home(type)].plain, __ATOMIC_RELAXED) ==
               type;
}

/* Known predefined types of every kind, including pair types and Fortran's kinds; open
 * addressing, at most half full (an eighth with the 64 that MPI names). */
enum { TEMPI_TYPES_NAMED_BITS = 9 };
extern MPI_Datatype tempi_types_named[1 << TEMPI_TYPES_NAMED_BITS];

/* Whether it is a predefined type, or no type at all. False also if it was not seen yet: then
 * ask tempi_type_derived. Any value may be passed, even that of an argument without a meaning. */
static inline bool tempi_type_named(MPI_Datatype type)
{
    if (tempi_abi_builtin(type))
        return true;
    for (unsigned i = tempi_handle_home(type, TEMPI_TYPES_NAMED_BITS);;
         i = (i + 1) % (1 << TEMPI_TYPES_NAMED_BITS)) {
        const MPI_Datatype at = __atomic_load_n(&tempi_types_named[i], __ATOMIC_RELAXED);
        if (at == type || tempi_handle(at) == 0)
            return at == type;
    }
}

/* The same by one comparison: false also for a few of them, true also for values that are no type
 * of any kind (MPICH), of which the library tells. With a second one GCC 12 writes the
 * arguments that a wrapper has on its stack again before it goes on to the library with them, which
 * then waits for those stores: 4 to 5 ns of a call (Zen 3). */
static inline bool tempi_type_named_at_once(MPI_Datatype type)
{
    const unsigned home = tempi_handle_home(type, TEMPI_TYPES_NAMED_BITS);
    return TEMPI_ABI_TELLS_BUILTIN
               ? tempi_abi_none_derived(type, type)
               : __atomic_load_n(&tempi_types_named[home], __ATOMIC_RELAXED) == type;
}

/* The same of both types of a call. */
static inline bool tempi_types_named_at_once(MPI_Datatype a, MPI_Datatype b)
{
    return TEMPI_ABI_TELLS_BUILTIN ? tempi_abi_none_derived(a, b)
                                   : __builtin_expect(tempi_type_named_at_once(a), 1) &&
                                         __builtin_expect(tempi_type_named_at_once(b), 1);
}

/* Whether a type that was passed to MPI is derived; then *size is the bytes of an element. */
bool tempi_type_derived(MPI_Datatype type, int64_t *size);

/* After a cache miss: asks the attribute, decodes at first use. NULL: the library handles it. */
const tempi_type *tempi_type_lookup(MPI_Datatype type);

/* The decoded type if it is in the cache; calls nothing. */
static inline const tempi_type *tempi_type_cached(MPI_Datatype type)
{
    const tempi_type *cached = tempi_type_at_home(type);
    return cached ? tempi_type_if_ready(cached) : NULL;
}

/* The decoded type, or NULL if the library handles all its messages. */
static inline const tempi_type *tempi_type_find(MPI_Datatype type)
{
    if (tempi_abi_builtin(type))
        return NULL;
    const tempi_type *cached = tempi_type_at_home(type);
    return cached ? tempi_type_if_ready(cached) : tempi_type_lookup(type);
}

/* The same for a message of so many elements. Programs make types, use them once or a few times
 * and free them: if decoding takes longer than a message can gain, the library carries the first
 * eight. */
const tempi_type *tempi_type_meet(MPI_Datatype type, MPI_Count count);

static inline const tempi_type *tempi_type_use(MPI_Datatype type, MPI_Count count)
{
    if (tempi_abi_builtin(type))
        return NULL;
    const tempi_type *cached = tempi_type_at_home(type);
    return cached ? tempi_type_if_ready(cached) : tempi_type_meet(type, count);
}

/* The decoded type, if it is one already. */
const tempi_type *tempi_type_decoded_by_attribute(MPI_Datatype type);

static inline const tempi_type *tempi_type_decoded(MPI_Datatype type)
{
    if (tempi_abi_builtin(type))
        return NULL;
    const tempi_type *cached = tempi_type_at_home(type);
    return cached ? tempi_type_if_ready(cached) : tempi_type_decoded_by_attribute(type);
}

/* The same for every type, including those without holes: their memory may be on a device. */
static inline const tempi_type *tempi_type_any(MPI_Datatype type)
{
    const tempi_type *cached = tempi_type_at_home(type);
    return cached ? tempi_type_if_ready(cached) : tempi_type_lookup(type);
}

/* The same for a duplicate that tempi did not see: it may be committed, and is otherwise handled
 * by the library. NULL for other types. */
const tempi_type *tempi_type_adopt(MPI_Datatype type);

/* Between init and finalize. Types are decoded only in between. */
int tempi_types_start(tempi_library library);
void tempi_types_stop(void);  /* before the library's finalize: frees the keyval */
void tempi_types_clear(void); /* after it: recycles types whose callback never came */

void tempi_type_committed(MPI_Datatype type);
int tempi_datatype_layout_of(uintptr_t datatype, const tempi_layout **out);

#endif
