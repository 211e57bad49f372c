#include "shim/lifecycle.h"
#include "api/streams.h"
#include "base/config.h"
#include "base/hooks.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/trace.h"
#include "cuda/backend.h"
#include "exchange/mapped.h"
#include "exchange/mapping.h"
#include "interposer/interposer.h"
#include "memory/kind.h"
#include "shim/bounce/bounce.h"
#include "shim/coll/collective.h"
#include "shim/comm/comm_attribute.h"
#include "shim/comm/comm_stream.h"
#include "shim/comm/cuda_aware.h"
#include "shim/comm/peer_class.h"
#include "shim/comm/peer_world.h"
#include "shim/impl.h"
#include "shim/large_count.h"
#include "shim/p2p/loopback.h"
#include "shim/p2p/wire.h"
#include "shim/report/job_report.h"
#include "shim/request/request.h"
#include "shim/type/types.h"
#include "transfer/staging.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pid_t owner; /* process that started tempi; in a forked child tempi is off */
    bool world;
    bool ending; /* inside MPI_Finalize, which a tool below may enter again by its PMPI name */
    bool told;   /* by the library, of the world's end: tell_of_end() */
    int sessions;
} life;

/* ---- identifying the library ----------------------------------------------------------------- */

static tempi_library identify(char version[MPI_MAX_LIBRARY_VERSION_STRING])
{
    int length;
    version[0] = '\0';
    if (!tempi_lib.Get_library_version ||
        tempi_lib.Get_library_version(version, &length) != MPI_SUCCESS)
        return TEMPI_LIBRARY_UNKNOWN;
    return tempi_library_of(version);
}

/* tempi sends packed bytes as MPI_PACKED. They equal the library's own packing only if it adds
 * no header and converts no data. The test packs a struct with a hole and compares all bytes. */
static bool packs_type_map_bytes(void)
{
    struct {
        char tag;
        double value;
    } one = {'t', 3.25};
    const int lengths[] = {1, 1};
    const MPI_Aint where[] = {0, (MPI_Aint)((char *)&one.value - (char *)&one)};
    MPI_Datatype members[2];
    members[0] = MPI_CHAR;
    members[1] = MPI_DOUBLE;
    MPI_Datatype type;
    char packed[64];
    int position = 0;
    if (tempi_lib.Type_create_struct(2, lengths, where, members, &type) != MPI_SUCCESS)
        return false;
    bool plain = tempi_lib.Type_commit(&type) == MPI_SUCCESS &&
                 tempi_lib.Pack(&one, 1, type, packed, sizeof packed, &position, MPI_COMM_SELF) ==
                     MPI_SUCCESS;
    tempi_lib.Type_free(&type);
    return plain && position == 9 && packed[0] == one.tag && memcmp(packed + 1, &one.value, 8) == 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* A forked child shares no MPI with its parent: it passes every call on to the library. */
static void after_fork(void)
{
    tempi_disable();
    tempi_cuda_after_fork();
}

/* False: tempi is off. */
static bool start(bool seen)
{
    static bool registered;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    const tempi_library library = identify(version);
    tempi_complete_learn(version);
    int rank = 0;
    if (life.world && !packs_type_map_bytes()) {
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "MPI_Pack of this library adds headers or converts data: tempi is off");
        return false;
    }
    if (life.world && tempi_lib.Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS)
        rank = 0;
    tempi_model_start(version, rank == 0);
    if (tempi_types_start(library) != MPI_SUCCESS) {
        TEMPI_LOG(TEMPI_LOG_WARN, "this MPI library has no type attributes: tempi is off");
        return false;
    }
    tempi_loopback_start(seen && life.world);
    tempi_stream_start();
    life.owner = getpid();
    if (!registered)
        registered = pthread_atfork(NULL, NULL, after_fork) == 0;
    if (life.world && tempi_config.trace)
        tempi_trace_open(tempi_config.trace, rank);
    return true;
}

static void note_thread_level(void)
{
    int provided;
    if (tempi_lib.Query_thread(&provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE)
        tempi_threads_share();
}

static int library_cuda_aware(void)
{
    return tempi_library_cuda_aware();
}

/* ---- end ------------------------------------------------------------------------------------- */

/* While the library can still be called. */
static void stop(void)
{
    tempi_streams_stop();
    tempi_cuda_stop();
    tempi_trace_close();
    tempi_loopback_stop();
    tempi_stream_stop();
    tempi_collective_stop();
    tempi_peer_class_stop();
    tempi_peer_stop();
    tempi_wire_stop();
    tempi_types_stop();
}

/* After the library's finalize. */
static void clear(void)
{
    tempi_types_clear();
    tempi_collective_clear();
    tempi_mapping_clear();
    tempi_mapped_clear();
    tempi_peer_class_clear();
    tempi_bounce_clear();
    tempi_large_count_clear();
    tempi_stage_trim();
}

/* Whether the end of this epoch ends MPI in this process. */
static bool last_epoch(void)
{
    return life.owner == getpid() && (life.world ? 1 : 0) + life.sessions == 1;
}

/* When the program has made its last call but MPI_Finalize. */
static void leave_world(void)
{
    if (life.owner == getpid())
        tempi_deferred_drain();
    if (last_epoch())
        stop();
    else
        tempi_peer_world_ends();
}

/* MPI_Finalize begins with the attributes of MPI_COMM_SELF, the latest first (MPI-4.1, 11.2.4), and
 * the program may communicate in their delete callbacks. So tempi ends in the callback of one that
 * is set in MPI_Init. */
static int on_delete(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    leave_world();
    return MPI_SUCCESS;
}

static void tell_of_end(void)
{
    int key;
    if (tempi_lib.Comm_create_keyval(tempi_comm_attribute_not_copied, on_delete, &key, NULL) !=
        MPI_SUCCESS)
        return;
    life.told = tempi_lib.Comm_set_attr(MPI_COMM_SELF, key, NULL) == MPI_SUCCESS;
    tempi_lib.Comm_free_keyval(&key); /* the attribute keeps it */
}

/* ---- the world and sessions ------------------------------------------------------------------ */

/* `seen`: MPI was initialized just now, and not before tempi was loaded. */
static void world_began(bool seen)
{
    if (life.world)
        return;
    note_thread_level(); /* a launcher's setting can raise the requested level */
    life.world = true;
    tempi_deferred_learn_tags();
    tempi_cuda_aware_determine();
    tempi_shim_hooks.library_cuda_aware = library_cuda_aware;
    const bool acting = start(seen);
    tell_of_end();
    tempi_peer_world_began(acting);
    tempi_peer_class_start();
    if (acting) {
        tempi_collective_start();
        tempi_cuda_backend_prepare();
    }
}

void tempi_lifecycle_loaded(void)
{
    int initialized = 0, finalized = 0;
    tempi_memory_start();
    tempi_deferred_start();
    tempi_cuda_backend_start();
    tempi_pack_set_delay(tempi_config.test_delay);
    tempi_lib.Initialized(&initialized);
    tempi_lib.Finalized(&finalized);
    if (!initialized || finalized)
        return;
    world_began(false);
}

int tempi_impl_Init(const struct tempi_mpi *next, int *argc, char ***argv)
{
    tempi_peer_register();
    const int rc = next->Init(argc, argv);
    if (rc == MPI_SUCCESS)
        world_began(true);
    return rc;
}

int tempi_impl_Init_thread(const struct tempi_mpi *next, int *argc, char ***argv, int required,
                           int *provided)
{
    tempi_peer_register();
    const int rc = next->Init_thread(argc, argv, required, provided);
    if (rc == MPI_SUCCESS)
        world_began(true);
    return rc;
}

int tempi_impl_Finalize(const struct tempi_mpi *next)
{
    if (life.ending)
        return next->Finalize();
    life.ending = true;
    const bool last = life.world && last_epoch();
    if (life.world && life.owner == getpid()) {
        tempi_deferred_drain();
        if (tempi_config.stats || tempi_config.stats_file)
            tempi_report();
    }
    if (!life.told)
        leave_world();
    const int rc = next->Finalize();
    life.ending = false;
    if (rc == MPI_SUCCESS) {
        life.world = false;
        if (last)
            clear();
    }
    return rc;
}

#ifdef TEMPI_ACTS_IN_Session_init /* absent if mpi.h has no MPI_Session */
/* Without the world there is no communicator for packing, so the check of the library's packing
 * is skipped: the libraries that have sessions are known. */
int tempi_impl_Session_init(const struct tempi_mpi *next, MPI_Info hints, MPI_Errhandler errhandler,
                            MPI_Session *session)
{
    if (!next->Session_init)
        return TEMPI_UNAVAILABLE;
    const int rc = next->Session_init(hints, errhandler, session);
    if (rc == MPI_SUCCESS && life.sessions++ == 0 && !life.world) {
        /* The level is in the session's info, or the library's default. */
        tempi_threads_share();
        (void)start(false);
    }
    if (rc == MPI_SUCCESS) {
        tempi_peer_session_began(*session);
        tempi_peer_class_start();
    }
    return rc;
}

int tempi_impl_Session_finalize(const struct tempi_mpi *next, MPI_Session *session)
{
    if (!next->Session_finalize)
        return TEMPI_UNAVAILABLE;
    const bool last = life.sessions > 0 && last_epoch();
    if (last) {
        tempi_deferred_drain();
        stop();
    }
    tempi_peer_session_ends(*session);
    const int rc = next->Session_finalize(session);
    if (rc == MPI_SUCCESS && life.sessions > 0) {
        --life.sessions;
        if (last)
            clear();
    }
    return rc;
}
#endif

/* ---- datatypes ------------------------------------------------------------------------------- */

int tempi_impl_Type_commit(const struct tempi_mpi *next, MPI_Datatype *datatype)
{
    const int rc = next->Type_commit(datatype);
    if (rc == MPI_SUCCESS)
        tempi_type_committed(*datatype);
    return rc;
}

/* The attribute's delete callback does the work, when the library really deletes the type. */
int tempi_impl_Type_free(const struct tempi_mpi *next, MPI_Datatype *datatype)
{
    return next->Type_free(datatype);
}
