#include "shim/coll/request_pool.h"
#include "base/lock.h"
#include "shim/request/deferred_sends.h"

#include <stdlib.h>

enum {
    MOST = 32,         /* in the pool */
    ROOM_MOST = 16384, /* bytes of memory of one in the pool */
};

static struct {
    tempi_lock lock;
    tempi_coll_request *first;
    int n;
} pool;

static tempi_coll_request *take(void)
{
    tempi_lock_acquire(&pool.lock);
    tempi_coll_request *r = pool.first;
    if (r) {
        pool.first = r->next;
        --pool.n;
    }
    tempi_lock_release(&pool.lock);
    return r;
}

tempi_coll_request *tempi_coll_request_new(void)
{
    tempi_coll_request *r = take();
    if (!r) {
        if ((r = malloc(sizeof *r)))
            *r = (tempi_coll_request){.inner = MPI_REQUEST_NULL};
        return r;
    }
    *r = (tempi_coll_request){.inner = r->inner,
                              .memory = r->memory,
                              .room = r->room,
                              .offers = {.open = r->offers.open, .room = r->offers.room}};
    return r;
}

static void destroy(tempi_coll_request *r)
{
    if (r->inner != MPI_REQUEST_NULL)
        tempi_proxy_end(&r->inner);
    free(r->offers.open);
    free(r->memory);
    free(r);
}

static bool keep(tempi_coll_request *r)
{
    tempi_lock_acquire(&pool.lock);
    const bool room = pool.n < MOST && r->room <= ROOM_MOST;
    if (room) {
        r->next = pool.first;
        pool.first = r;
        ++pool.n;
    }
    tempi_lock_release(&pool.lock);
    return room;
}

static void free_remote(tempi_coll_request *r)
{
    if (!r->remote)
        return;
    if (r->initialized)
        tempi_lib.Request_free(&r->passed);
    tempi_remote_close(r->remote);
    free(r->remote);
}

void tempi_coll_request_free(tempi_coll_request *r)
{
    if (r->persistent)
        tempi_persistent_call_free(r->persistent);
    free_remote(r);
    if (r->offers.tails.of)
        free(r->offers.tails.of);
    if (!keep(r))
        destroy(r);
}

int tempi_coll_request_get_handle(tempi_coll_request *r)
{
    return r->inner != MPI_REQUEST_NULL ? MPI_SUCCESS : tempi_proxy_start(&r->inner);
}

void tempi_coll_requests_stop(void)
{
    for (tempi_coll_request *r; (r = take()) != NULL;)
        destroy(r);
}
