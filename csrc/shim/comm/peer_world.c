#include "shim/comm/peer_world.h"
#include "base/config.h"
#include "base/log.h"
#include "choose/message_trials.h"

#include <string.h>
#include <unistd.h>

tempi_peer_world tempi_peers;

static void join_registry(const tempi_job *job, int rank)
{
    tempi_peers.registry = tempi_node_registry_join(TEMPI_NODE_REGISTRY_FOLDER, job->name, rank,
                                                    job->local);
    tempi_peers.refused = !tempi_peers.registry;
}

void tempi_peer_register(void)
{
    int rank, size;
    if (tempi_peers.started || tempi_peers.registry || !tempi_launcher_guess(&rank, &size))
        return;
    tempi_launcher_ask(rank, size, &tempi_peers.job);
    tempi_peers.registered = rank;
    if (tempi_peers.job.name[0] && tempi_peers.job.local != 1)
        join_registry(&tempi_peers.job, rank);
}

/* The launcher's variables may have been those of another job. */
static bool registered_as(const tempi_job *job, int rank)
{
    return tempi_peers.registry && tempi_peers.registered == rank &&
           strcmp(tempi_peers.job.name, job->name) == 0;
}

static void enter_registry(const tempi_job *job, int rank, bool wanted)
{
    const bool known = registered_as(job, rank),
               joins = known && tempi_peers.acting && !tempi_peers.by_session;
    if (tempi_peers.registry && !joins && !(known && wanted)) {
        tempi_node_registry_settle(tempi_peers.registry, false);
        tempi_node_registry_leave(tempi_peers.registry);
        tempi_peers.registry = NULL;
    }
    if (!tempi_peers.registry && job->name[0] && wanted)
        join_registry(job, rank);
    if (tempi_peers.registry)
        tempi_node_registry_settle(tempi_peers.registry, joins);
}

static void report_absence(int rank)
{
    if (tempi_peers.refused && tempi_peers.acting && rank == 0) /* one rank of the job says it */
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "cannot use " TEMPI_NODE_REGISTRY_FOLDER ": the ranks of a node do not find each "
                  "other, and their collectives are left to the library (docs/collectives.md)");
    else if (!tempi_peers.one_node && !tempi_peers.registry)
        TEMPI_LOG(TEMPI_LOG_INFO,
                  "cannot find the ranks of this node: every other rank is treated as remote");
}

_Static_assert(sizeof(tempi_message_words) <= TEMPI_NODE_REGISTRY_MESSAGES,
               "they have their place");

static void start(void)
{
    tempi_job job;
    int rank;
    if (tempi_lib.Group_size(tempi_peers.world, &tempi_peers.size) != MPI_SUCCESS ||
        tempi_lib.Group_rank(tempi_peers.world, &rank) != MPI_SUCCESS || rank < 0)
        return;
    tempi_launcher_ask(rank, tempi_peers.size, &job);
    tempi_peers.one_node = tempi_peers.size == 1 || job.local >= tempi_peers.size;
    const bool looks = tempi_config.locality == TEMPI_LOCALITY_AUTO && job.local > 1;
    enter_registry(&job, rank, !tempi_peers.one_node || looks);
    if (looks && tempi_peers.registry && tempi_node_registry_lines(tempi_peers.registry))
        tempi_peers.locality = tempi_locality_open(
            tempi_node_registry_lines(tempi_peers.registry),
            tempi_peers.one_node ? rank : tempi_node_registry_own(tempi_peers.registry), job.local);
    if (tempi_peers.registry && tempi_node_registry_own(tempi_peers.registry) >= 0 &&
        tempi_config.autotune && !tempi_config.force)
        tempi_message_trials_start(tempi_node_registry_messages(tempi_peers.registry),
                                   tempi_node_registry_own(tempi_peers.registry));
    report_absence(rank);
    tempi_peers.started = true;
}

static void forget_world(void)
{
    if (tempi_peers.has_world)
        tempi_lib.Group_free(&tempi_peers.world);
    tempi_peers.has_world = false;
}

void tempi_peer_world_began(bool acting)
{
    tempi_peers.acting = acting && tempi_config.collectives == TEMPI_COLLECTIVES_AUTO;
    if (tempi_peers.started) {
        tempi_peers.mixed = true;
        return;
    }
    const MPI_Comm world = MPI_COMM_WORLD;
    tempi_peers.has_world = tempi_lib.Comm_group(world, &tempi_peers.world) == MPI_SUCCESS;
    if (tempi_peers.has_world)
        start();
}

#ifdef TEMPI_ACTS_IN_Session_init
void tempi_peer_session_began(MPI_Session session)
{
    if (tempi_peers.started) {
        tempi_peers.mixed = true;
        return;
    }
    if (!tempi_lib.Group_from_session_pset ||
        tempi_lib.Group_from_session_pset(session, "mpi://WORLD", &tempi_peers.world) !=
            MPI_SUCCESS)
        return;
    tempi_peers.has_world = tempi_peers.by_session = true;
    tempi_peers.session = session;
    start();
}

void tempi_peer_session_ends(MPI_Session session)
{
    if (tempi_peers.by_session && tempi_peers.session == session)
        forget_world();
}
#endif

void tempi_peer_world_ends(void)
{
    if (!tempi_peers.by_session)
        forget_world();
}

void tempi_peer_stop(void)
{
    forget_world();
    if (!tempi_peers.started)
        return;
    tempi_peers.started = tempi_peers.mixed = tempi_peers.by_session = tempi_peers.one_node = false;
    tempi_message_trials_stop();
    tempi_locality_close(tempi_peers.locality);
    tempi_peers.locality = NULL;
    tempi_node_registry_leave(tempi_peers.registry);
    tempi_peers.registry = NULL;
}

bool tempi_peer_crowded(void)
{
    return tempi_peers.job.local > sysconf(_SC_NPROCESSORS_ONLN);
}

bool tempi_peer_says(tempi_line line)
{
    return !tempi_peers.registry || tempi_node_registry_says(tempi_peers.registry, line);
}
