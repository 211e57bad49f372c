#include "shim/request/waiting.h"
#include "shim/comm/peer_world.h"
#include "shim/request/deferred_sends.h"

#include <sched.h>

static bool crowded; /* more ranks than cores */

void tempi_waiting_start(void)
{
    crowded = tempi_peer_crowded();
}

/* `state`: a request that never completes, made when it is needed first: to test it makes the
 * library progress all messages. A probe does not on MPICH, where MPI_COMM_SELF has a queue of its
 * own, and elsewhere only if it finds nothing. */
void tempi_waiting_idle(void *state, int64_t waited)
{
    enum { SPINS = 64, YIELDS = 16 };
    MPI_Request *request = state;
    if (waited % (crowded ? 1 : SPINS) != 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        return;
    }
    int flag;
    if (tempi_pending_any())
        tempi_progress();
    if (*request == MPI_REQUEST_NULL)
        (void)tempi_proxy_start(request);
    else
        (void)tempi_lib.Test(request, &flag, MPI_STATUS_IGNORE);
    if (crowded || waited > SPINS * YIELDS)
        sched_yield();
}

void tempi_waiting_end(MPI_Request *request)
{
    if (*request != MPI_REQUEST_NULL)
        tempi_proxy_end(request);
}
