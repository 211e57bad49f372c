#include "shim/coll/collective.h"
#include "base/config.h"
#include "base/stats.h"
#include "base/trace.h"
#include "exchange/exchange.h"
#include "exchange/piece_buffer.h"
#include "shim/coll/block_exchange.h"
#include "shim/coll/comm_agree.h"
#include "shim/coll/neighbor_order.h"
#include "shim/coll/shape_layout.h"
#include "shim/coll/sides.h"
#include "shim/coll/split_call.h"
#include "shim/request/waiting.h"
#include "transfer/staging.h"

#include <string.h>

bool tempi_collectives;

bool tempi_alltoall_is_sized;

/* Whether the library's MPI_Alltoallw on one process takes less time than tempi's. */
static bool copies_alone;

static void learn_library(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    (void)tempi_lib.Get_library_version(version, &length);
    tempi_alltoall_is_sized = strstr(version, "MPICH Version:") != NULL;
    copies_alone = strncmp(version, "Open MPI", strlen("Open MPI")) == 0;
}

void tempi_collective_start(void)
{
    learn_library();
    tempi_collectives = tempi_config.collectives == TEMPI_COLLECTIVES_AUTO;
    tempi_waiting_start();
    tempi_exchange_use(tempi_stage_get, tempi_stage_put);
}

void tempi_collective_stop(void)
{
    tempi_collectives = false;
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
        *carried = tempi_collective_wanted(call, out, in) &&
                   tempi_node_comm_connect(call->comm, node, TEMPI_CONNECT_RINGS);
    return *carried;
}

/* ---- entry ----------------------------------------------------------------------------------- */

static bool is_at_zero(tempi_numbers displacements)
{
    return displacements.of && tempi_number_at(displacements, 0) == 0;
}

/* MPI_Alltoallw of a process alone over Open MPI, one predefined type on both sides: a copy, which
 * the library has made before tempi has described it. Nobody else has to decide alike. Its copies
 * of unlike types are wrong, and it multiplies displacements by extents (coll/self, 5.0.11). */
static bool is_plain_copy(const tempi_collective *call, const tempi_bounce_argument *buffers)
{
    const tempi_bounce_argument *out = &buffers[0], *in = &buffers[1];
    return copies_alone && call->function == TEMPI_FUNCTION_Alltoallw && call->node->size == 1 &&
           out->does && out->types && in->types && out->types[0] == in->types[0] &&
           tempi_type_plain(in->types[0]) && out->counts.of && in->counts.of &&
           tempi_number_at(out->counts, 0) == tempi_number_at(in->counts, 0) &&
           is_at_zero(out->displacements) && is_at_zero(in->displacements) && !tempi_bounces();
}

bool tempi_collective_carry(const tempi_collective *call, const tempi_bounce_argument *buffers,
                            int *result)
{
    tempi_blocks out, in;
    if (is_plain_copy(call, buffers) || !tempi_sides_of(call, buffers, &out, &in))
        return false;
    if (call->node->split)
        return tempi_split_carry(call, &out, &in, result);
    if (!decide(call, call->node, &out, &in))
        return false;
    const double start = tempi_trace_begin();
    *result = tempi_block_exchange(call->node, &out, &in, NULL);
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
    if (!node || !(node->together || node->split) ||
        !tempi_node_comm_connect(comm, node, TEMPI_CONNECT_POSTS))
        return;
    for (int i = 0; node->together && i < 2; ++i) {
        const int f = i ? TEMPI_FUNCTION_Neighbor_alltoallv : TEMPI_FUNCTION_Neighbor_alltoall;
        node->corrected[f] = tempi_neighbor_order_is_wrong_on(comm, f);
    }
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
    for (int f = 0; f < TEMPI_FUNCTION_COUNT; ++f) {
        if (!node->asked[f] || node->carried[f])
            continue;
        node->carried[f] = (node->split ? decide_part : decide_whole)(comm, node, node->needed[f]);
        if (node->carried[f])
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
