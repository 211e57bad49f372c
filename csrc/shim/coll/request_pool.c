#include "shim/coll/request_pool.h"
#include "base/free_list.h"
#include "shim/request/deferred_sends.h"

#include <stdlib.h>

enum {
    MOST = 32,         /* in the pool */
    ROOM_MOST = 16384, /* bytes of memory of one in the pool */
};

static tempi_free_list pool;

tempi_coll_request *tempi_coll_request_new(void)
{
    tempi_coll_request *r = tempi_free_list_take(&pool);
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
    if (r->room > ROOM_MOST || !tempi_free_list_give(&pool, r, MOST))
        destroy(r);
}

int tempi_coll_request_get_handle(tempi_coll_request *r)
{
    return r->inner != MPI_REQUEST_NULL ? MPI_SUCCESS : tempi_proxy_start(&r->inner);
}

void tempi_coll_requests_stop(void)
{
    for (tempi_coll_request *r; (r = tempi_free_list_take(&pool)) != NULL;)
        destroy(r);
}
