#include "shim/coll/collective.h"
#include "base/config.h"
#include "base/stats.h"
#include "base/trace.h"
#include "choose/rule.h"
#include "exchange/exchange.h"
#include "exchange/piece_buffer.h"
#include "shim/coll/block_exchange.h"
#include "shim/coll/comm_agree.h"
#include "shim/coll/neighbor_order.h"
#include "shim/coll/request_pool.h"
#include "shim/coll/shape_layout.h"
#include "shim/coll/sides.h"
#include "shim/coll/split_call.h"
#include "shim/request/waiting.h"
#include "transfer/staging.h"

#include <string.h>

bool tempi_collectives;

bool tempi_alltoall_is_sized;

bool tempi_alltoallw_copies;

bool tempi_null_sends_mislead;

static void learn_library(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    (void)tempi_lib.Get_library_version(version, &length);
    tempi_alltoall_is_sized = strstr(version, "MPICH Version:") != NULL;
    tempi_alltoallw_copies = strncmp(version, "Open MPI", strlen("Open MPI")) == 0;
    tempi_null_sends_mislead = tempi_library_of(version) == TEMPI_LIBRARY_INTEL;
}

void tempi_collective_start(void)
{
    learn_library();
    tempi_collectives = tempi_config.collectives == TEMPI_COLLECTIVES_AUTO;
    tempi_quiet_use(tempi_node_passing);
    tempi_waiting_start();
    tempi_exchange_use(tempi_stage_get, tempi_stage_get_read, tempi_stage_put);
}

void tempi_collective_stop(void)
{
    tempi_collectives = false;
    tempi_quiet_use(NULL);
    tempi_coll_requests_stop();
    tempi_node_comm_stop();
}

void tempi_collective_clear(void)
{
    tempi_node_comm_clear();
    tempi_shape_layout_clear();
}

/* ---- who carries it -------------------------------------------------------------------------- */

bool tempi_collective_needs(const tempi_blocks *out, const tempi_blocks *in)
{
    return tempi_bounces() || tempi_blocks_derived(out) || tempi_blocks_derived(in);
}

static bool any_needs(MPI_Comm comm, const tempi_node_comm *node, bool mine)
{
    return node->size == 1 ? mine : tempi_comm_any(comm, node, mine);
}

bool tempi_collective_wanted(const tempi_collective *call, const tempi_blocks *out,
                             const tempi_blocks *in)
{
    return tempi_collective_has_types_of_blocks(call->function) ||
           any_needs(call->comm, call->node, tempi_collective_needs(out, in));
}

static bool decide(const tempi_collective *call, tempi_node_comm *node, const tempi_blocks *out,
                   const tempi_blocks *in)
{
    bool *carried = &node->carried[call->function];
    if (!*carried)
        *carried = (node->misordered[call->function] || tempi_collective_wanted(call, out, in)) &&
                   tempi_node_comm_connect(call->comm, node, TEMPI_CONNECT_RINGS);
    return *carried;
}

/* ---- entry ----------------------------------------------------------------------------------- */

bool tempi_collective_carry(const tempi_collective *call, const tempi_bounce_argument *buffers,
                            int *result)
{
    tempi_blocks out, in;
    if (!tempi_sides_of(call, buffers, &out, &in))
        return false;
    if (call->node->split)
        return tempi_split_carry(call, &out, &in, result);
    if (!decide(call, call->node, &out, &in))
        return false;
    const double start = tempi_trace_begin();
    tempi_memory_begin_call();
    *result = tempi_block_exchange(call->node, &out, &in, NULL);
    tempi_memory_end_call();
    tempi_stat_add(TEMPI_STAT_collectives, 1);
    tempi_stat_add(TEMPI_STAT_collective_bytes, out.bytes);
    tempi_trace_end(start, "exchange", call->name, out.bytes);
    return true;
}

static bool has_topology(MPI_Comm comm)
{
    int kind = MPI_UNDEFINED, inter = 1;
    return tempi_lib.Comm_test_inter(comm, &inter) == MPI_SUCCESS && !inter &&
           tempi_lib.Topo_test(comm, &kind) == MPI_SUCCESS && kind != MPI_UNDEFINED;
}

void tempi_collective_connect(MPI_Comm comm)
{
    const bool needed = tempi_collectives && comm != MPI_COMM_NULL && has_topology(comm);
    tempi_node_comm *node = needed ? tempi_node_comm_of(comm) : NULL;
    if (node && (node->together || node->split))
        (void)tempi_node_comm_connect(comm, node, TEMPI_CONNECT_POSTS);
}

static bool decide_whole(MPI_Comm comm, tempi_node_comm *node, bool mine)
{
    return any_needs(comm, node, mine) && tempi_node_comm_connect(comm, node, TEMPI_CONNECT_RINGS);
}

/* By the processes of this node. */
static bool decide_part(MPI_Comm comm, tempi_node_comm *node, bool mine)
{
    const tempi_node_part *part = tempi_node_part_of(comm, node);
    return part && any_needs(part->comm, part->node, mine);
}

/* What nonblocking calls have asked. */
static void answer(MPI_Comm comm, tempi_node_comm *node)
{
    for (int f = 0; f < TEMPI_COLLECTIVE_COUNT; ++f) {
        if (!node->asked[f] || node->carried[f])
            continue;
        node->carried[f] = (node->split ? decide_part : decide_whole)(comm, node, node->needed[f]);
        if (!node->carried[f])
            continue;
        tempi_node_comm_look(node, f);
        tempi_node_comm_want_posts(node);
    }
    tempi_node_comm_answered(node);
}

void tempi_collective_agree(MPI_Comm comm)
{
    tempi_node_comm *node = comm != MPI_COMM_NULL ? tempi_node_comm_of(comm) : NULL;
    if (node && node->wants_answers)
        answer(comm, node);
    if (node && node->wants_posts)
        (void)tempi_node_comm_connect(comm, node, TEMPI_CONNECT_POSTS);
}
