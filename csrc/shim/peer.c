#include "shim/peer.h"
#include "shim/act.h"
#include "tempi.h"

#include <stdlib.h>

static struct {
    int farthest;
} peers = {.farthest = TEMPI_PEER_OTHER};

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

/* Each launcher's name for how many ranks of the world are on this node; 0: none is set. Open MPI's and
 * PRRTE's, hydra's, MVAPICH's. */
static long local_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (number(names[i]) > 0)
            return number(names[i]);
    return 0;
}

void tempi_peer_learn(void)
{
    int size = 0;
    const MPI_Comm world = MPI_COMM_WORLD;
    if (tempi_lib.Comm_size(world, &size) != MPI_SUCCESS)
        return;
    if (size == 1 || local_ranks() >= size || number("SLURM_STEP_NUM_NODES") == 1)
        peers.farthest = TEMPI_PEER_NODE;
}

int tempi_peer_of(MPI_Comm comm, int peer)
{
    int rank = 0, inter = 0;
    if (peer < 0 || comm == MPI_COMM_NULL)
        return peers.farthest;
    if (tempi_lib.Comm_rank(comm, &rank) != MPI_SUCCESS || rank != peer)
        return peers.farthest;
    if (tempi_lib.Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter)
        return peers.farthest;
    return TEMPI_PEER_SELF;
}
