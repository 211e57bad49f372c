/* resolve.c: finds the target of each exported MPI name, at the first MPI call of the process.
 *
 *  1. No MPI is loaded: Initialized and Finalized return 0 as flag, all others an error; resolve
 *     again at the next call.
 *  2. Otherwise the shim for its ABI is loaded from beside libtempi.so, and every slot gets the
 *     shim's entry.
 *  3. If no shim fits, or TEMPI_DISABLE is set, every slot gets the function that would have been
 *     called without tempi. Names that the library lacks but tempi exports (mpi4py calls every name
 *     that it finds) still go to the shim, if it can be loaded.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/hooks.h"
#include "base/log.h"
#include "interposer/find_mpi.h"
#include "interposer/interposer.h"
#include "slots.h"
#include "tempi.h"

extern _Atomic(void *) tempi_slots[TEMPI_SLOT_COUNT] __attribute__((visibility("hidden")));
void *tempi_interposer_resolve(unsigned slot) __attribute__((visibility("hidden")));

static const char slot_names[] = TEMPI_SLOT_NAMES;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int resolved;
static struct tempi_found mpi;
static struct tempi_interposer interposer;
static tempi_engine_info info = {.reason = "no MPI library is loaded"};
static char reason[PATH_MAX + 256];

/* ---- slot values that are not MPI functions -------------------------------------------------- */

static int answer_zero(int *flag)
{
    if (flag != NULL)
        *flag = 0;
    return 0;
}

static int answer_no(void)
{
    return 0;
}

static int answer_error(void)
{
    return TEMPI_UNAVAILABLE;
}

static const char *slot_name(unsigned slot)
{
    const char *name = slot_names;
    for (unsigned i = 0; i < slot; i++)
        name += strlen(name) + 1;
    return name;
}

static void *without_mpi(unsigned slot)
{
    const char *name = slot_name(slot);
    name += name[0] == 'P';
    if (strcmp(name, "MPI_Initialized") == 0 || strcmp(name, "MPI_Finalized") == 0)
        return (void *)answer_zero;
    if (strcmp(name, "MPIX_Query_cuda_support") == 0)
        return (void *)answer_no;
    TEMPI_LOG(TEMPI_LOG_ERROR, "%s was called, but no MPI library is loaded in this process", name);
    return (void *)answer_error;
}

/* ---- look-up --------------------------------------------------------------------------------- */

static void *lib(const char *name)
{
    char profiling[128];
    if (snprintf(profiling, sizeof profiling, "P%s", name) >= (int)sizeof profiling)
        return NULL;
    void *found = tempi_find_symbol(&mpi, profiling);
    return found != NULL ? found : tempi_find_symbol(&mpi, name);
}

static void *next(const char *name)
{
    return tempi_find_next(&mpi, name);
}

static void *datum(const char *name)
{
    return tempi_find_datum(&mpi, name);
}

/* ---- the shim -------------------------------------------------------------------------------- */

static const char *abi_name(int32_t abi)
{
    static const char *const names[] = {"none", "mpich", "openmpi", "standard"};
    return names[abi];
}

/* The entries of the shim for this ABI, or NULL with `reason` set. */
static void *const *shim_load(int off)
{
    char path[PATH_MAX + 32];
    const char *why = "it has no tempi_shim_load";
    if (!tempi_find_self(path)) {
        snprintf(reason, sizeof reason, "the path of libtempi.so is not known");
        return NULL;
    }
    char *slash = strrchr(path, '/');
    char *file = slash != NULL ? slash + 1 : path;
    snprintf(file, sizeof path - (size_t)(file - path), "libtempi-%s.so", abi_name(mpi.abi));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(reason, sizeof reason, "no engine for the %s ABI: %s", abi_name(mpi.abi),
                 dlerror());
        return NULL;
    }
    union {
        void *address;
        tempi_shim_load_fn function;
    } load = {.address = dlsym(handle, "tempi_shim_load")};
    interposer = (struct tempi_interposer){.digest = TEMPI_SLOT_DIGEST,
                                           .abi = mpi.abi,
                                           .off = off,
                                           .library = mpi.path,
                                           .next = next,
                                           .lib = lib,
                                           .datum = datum};
    void *const *entries = load.function != NULL ? load.function(&interposer, &why) : NULL;
    if (entries == NULL)
        snprintf(reason, sizeof reason, "%s: %s", path, why);
    return entries; /* a refused shim stays loaded: unloading code is not safe */
}

/* ---- the decision ---------------------------------------------------------------------------- */

static void slots_fill_active(void *const *entries)
{
    for (unsigned i = 0; i < TEMPI_SLOT_COUNT; i++)
        atomic_store_explicit(&tempi_slots[i], entries[i], memory_order_release);
}

/* Fills the slots as without tempi. Loads the shim only if the library lacks an exported name. */
static void slots_fill_passive(int may_load)
{
    void *const *entries = NULL;
    const char *name = slot_names;
    for (unsigned i = 0; i < TEMPI_SLOT_COUNT; i++, name += strlen(name) + 1) {
        void *target = name[0] == 'P' ? lib(name + 1) : next(name);
        if (target == NULL && may_load && entries == NULL) {
            entries = shim_load(1);
            may_load = entries != NULL;
        }
        if (target == NULL && entries != NULL)
            target = entries[i];
        if (target != NULL) /* else the slot stays lazy, and each call logs the name */
            atomic_store_explicit(&tempi_slots[i], target, memory_order_release);
    }
}

static void decide(void)
{
    info.abi = mpi.abi;
    info.library = mpi.path;
    if (tempi_config.disable) {
        info.reason = "TEMPI_DISABLE is set";
        slots_fill_passive(1);
        return;
    }
    if (mpi.simulated)
        snprintf(
            reason, sizeof reason,
            "under SimGrid the ranks are threads of one process, which tempi does not support");
    void *const *entries = mpi.simulated ? NULL : shim_load(0);
    if (entries == NULL) {
        info.reason = reason;
        TEMPI_LOG(TEMPI_LOG_WARN, "%s; MPI runs without tempi", reason);
        slots_fill_passive(0);
        return;
    }
    info.reason = NULL;
    info.active = 1;
    slots_fill_active(entries);
}

/* The child must not inherit the lock held by a thread that it does not have. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* Whether an MPI library was found, now or before. */
static int resolve(void)
{
    static int forks_watched;
    if (atomic_load_explicit(&resolved, memory_order_acquire))
        return 1;
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&resolved, memory_order_relaxed) && tempi_find_mpi(&mpi)) {
        if (!forks_watched)
            forks_watched = pthread_atfork(before_fork, after_fork, after_fork) == 0;
        tempi_config_load();
        decide();
        atomic_store_explicit(&resolved, 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return atomic_load_explicit(&resolved, memory_order_relaxed);
}

static void *slot_target(unsigned slot)
{
    extern char tempi_lazy_begin[] __attribute__((visibility("hidden")));
    extern char tempi_lazy_end[] __attribute__((visibility("hidden")));
    char *target = atomic_load_explicit(&tempi_slots[slot], memory_order_acquire);
    return target >= tempi_lazy_begin && target < tempi_lazy_end ? NULL : target;
}

/* Called by the lazy stubs; never returns NULL. */
void *tempi_interposer_resolve(unsigned slot)
{
    if (!resolve())
        return without_mpi(slot);
    void *target = slot_target(slot);
    if (target != NULL)
        return target;
    TEMPI_LOG(TEMPI_LOG_ERROR, "%s: this MPI library (%s) has no such function", slot_name(slot),
              mpi.path);
    return (void *)answer_error;
}

/* ---- tempi.h --------------------------------------------------------------------------------- */

int tempi_engine_query(tempi_engine_info *out)
{
    if (out == NULL)
        return TEMPI_ERR_ARG;
    resolve();
    *out = info;
    out->cuda_aware = tempi_shim_hooks.library_cuda_aware ? tempi_shim_hooks.library_cuda_aware()
                                                          : -1;
    return TEMPI_OK;
}

void *tempi_engine_symbol(const char *name)
{
    return name != NULL && resolve() ? tempi_find_symbol(&mpi, name) : NULL;
}

void *tempi_engine_entry(const char *name)
{
    for (const char *own = slot_names; name != NULL && *own != '\0'; own += strlen(own) + 1)
        if (strcmp(own, name) == 0)
            return tempi_find_own(name);
    return NULL;
}
