#include "shim/coll/device_blocks.h"

/* ---- moves ----------------------------------------------------------------------------------- */

static bool read_all(void *state)
{
    tempi_device_blocks *device = state;
    const bool good = tempi_device_moves_run(&device->moves, false);
    if (!good && device->result == MPI_SUCCESS)
        device->result = tempi_message_failed(device->out->comm);
    return good;
}

static bool accept(void *state, const tempi_flow *flow, const void *offer, int64_t n)
{
    tempi_device_blocks *device = state;
    return tempi_device_offer_accept(&device->moves, flow->blocks, flow->n, flow->bytes, offer, n);
}

/* ---- offering and staging -------------------------------------------------------------------- */

/* False: there are none. */
static bool make_offers(tempi_device_blocks *device)
{
    const int size = device->node->size;
    bool any = false;
    if (size == 1 || device->out->nresident == 0 ||
        !tempi_device_offers_open(&device->offers, size))
        return false;
    for (int i = 0; i < size; ++i) {
        tempi_ring_end *end = i != device->node->rank ? &device->node->to[i] : NULL;
        if (end && !tempi_offer_is_paused(&end->pause))
            any |= tempi_device_offers_add(&device->offers, i, device->out,
                                           (int64_t)end->bytes.capacity / 4);
        else
            tempi_device_offers_skip(&device->offers, i);
    }
    return any;
}

static int stage_own(tempi_device_blocks *device)
{
    const tempi_edges *in = device->in->edges;
    const int own = device->node->rank;
    return tempi_blocks_stage(device->in, in->first[own], tempi_edges_count(in, own));
}

/* Its blocks are those of one process on one side. */
static bool is_sent(const tempi_device_blocks *device, const tempi_flow *flow)
{
    return flow->blocks >= device->out->ops && flow->blocks < device->out->ops + device->out->n;
}

static bool stage_flow(void *state, tempi_flow *flow)
{
    tempi_device_blocks *device = state;
    tempi_blocks *side = is_sent(device, flow) ? device->out : device->in;
    const int rc = tempi_blocks_stage(side, (int)(flow->blocks - side->ops), (int)flow->n);
    if (rc != MPI_SUCCESS && device->result == MPI_SUCCESS)
        device->result = rc;
    return rc == MPI_SUCCESS;
}

/* ---- one exchange ---------------------------------------------------------------------------- */

void tempi_device_blocks_begin(tempi_device_blocks *device, tempi_node_comm *node,
                               tempi_blocks *out, tempi_blocks *in)
{
    *device = (tempi_device_blocks){.hooks = {device, accept, stage_flow, read_all},
                                    .node = node,
                                    .out = out,
                                    .in = in,
                                    .result = MPI_SUCCESS};
    if (out->nresident + in->nresident == 0)
        return;
    tempi_device_moves_add_own(&device->moves, node->rank, out, in);
    const bool offers = make_offers(device);
    int rc = tempi_device_offers_stage_rest(&device->offers, node->size, out);
    if (rc == MPI_SUCCESS)
        rc = stage_own(device);
    if (rc == MPI_SUCCESS && offers)
        rc = tempi_device_await_program(out, NULL);
    device->result = rc;
}

void tempi_device_blocks_join(const tempi_device_blocks *device, int process, tempi_flow *flow)
{
    if (device->result != MPI_SUCCESS) { /* the others do not wait for it */
        flow->n = 0;
        flow->failed = flow->streams = true;
        return;
    }
    if (device->out->nresident + device->in->nresident == 0)
        return;
    flow->device = &device->hooks;
    for (int64_t k = 0; k < flow->n; ++k)
        flow->resident |= tempi_block_is_resident(&flow->blocks[k]);
    if (is_sent(device, flow))
        flow->offer = tempi_device_offers_of(&device->offers, process, &flow->offer_bytes);
}

int tempi_device_blocks_end(tempi_device_blocks *device)
{
    if (device->result == MPI_SUCCESS)
        (void)read_all(device);
    tempi_device_moves_close(&device->moves);
    tempi_device_offers_close(&device->offers);
    return device->result;
}
