#include "shim/p2p/device_method.h"
#include "base/config.h"
#include "base/stats.h"
#include "choose/device_rule.h"
#include "shim/comm/cuda_aware.h"
#include "shim/comm/peer_class.h"

static tempi_device_choices **cache_of(const tempi_message *message)
{
    return &((tempi_type *)(uintptr_t)message->type)->device_choices; /* a cache in it */
}

/* One element that is one run, whatever follows it. */
static bool is_run(const tempi_op *op)
{
    const tempi_box *box = op->layout->boxes;
    return op->layout->dense ||
           (op->count == 1 && op->layout->nboxes == 1 && box->ndims == 0 && !box->table);
}

/* A library that packs wrongly has no say; TEMPI_FORCE leaves tempi's ways alone where kernels have
 * something to do. */
static bool may_leave(const tempi_message *message)
{
    return tempi_library_cuda_aware() && !(message->type->known_wrong >> message->operation & 1) &&
           (!tempi_config.force || message->op.layout->dense);
}

int tempi_method_of_message(const tempi_message *message, tempi_peer other)
{
    const tempi_op *op = &message->op;
    const bool aware = tempi_library_cuda_aware(), dense = op->layout->dense, run = is_run(op);
    if (!dense && tempi_method_left() && may_leave(message))
        return TEMPI_ON_HOST;
    if (tempi_method_is_forced(dense, aware) || (run && !aware)) /* there is one way for a run */
        return tempi_method_choose(op->n, dense, aware);
    const tempi_device_ask ask = {.about = {.bytes = op->n,
                                            .operation = (int32_t)message->operation,
                                            .peer = tempi_peer_class(other.comm, other.rank, op->n),
                                            .memory = message->tables,
                                            .contiguous = run,
                                            .aware = aware},
                                  .address = op->mem,
                                  .device = op->device,
                                  .may_leave = may_leave(message)};
    const int method = tempi_device_choose(cache_of(message), op->layout, &ask);
    return method >= 0 ? method : tempi_method_choose(op->n, dense, aware);
}

/* Without tables, and where a setting says it. */
static int packing_by_rule(const tempi_op *op, int packed)
{
    switch (packed) {
    case TEMPI_PACKED_DEVICE: return TEMPI_ON_DEVICE;
    case TEMPI_PACKED_PINNED: return tempi_method_choose_part(op->n);
    default: return TEMPI_STAGED;
    }
}

int tempi_method_of_packing(const tempi_message *message, int packed, bool may)
{
    const tempi_op *op = &message->op;
    if (tempi_method_is_forced(false, false) || is_run(op))
        return packing_by_rule(op, packed);
    const bool leave = may && may_leave(message);
    if (leave && tempi_method_left())
        return TEMPI_ON_HOST;
    if (!leave && packed != TEMPI_PACKED_PINNED) /* there is one way */
        return packing_by_rule(op, packed);
    const tempi_device_ask ask = {.about = {.bytes = op->n,
                                            .operation = (int32_t)message->operation,
                                            .packed = packed,
                                            .memory = message->tables,
                                            .aware = tempi_library_cuda_aware()},
                                  .address = op->mem,
                                  .device = op->device,
                                  .may_leave = leave};
    const int method = tempi_device_choose(cache_of(message), op->layout, &ask);
    return method >= 0 ? method : packing_by_rule(op, packed);
}

static int method_of_part(const tempi_message *message, const tempi_part *part)
{
    const tempi_op *op = &message->op;
    if (tempi_part_is_run(part))
        return TEMPI_STAGED;
    if (tempi_method_is_forced(false, false))
        return tempi_method_choose_part(op->n);
    int64_t stretches;
    tempi_layout alone = part->layout;
    alone.size = tempi_part_bytes(part, &stretches);
    const tempi_device_ask ask = {
        .about = {.bytes = alone.size,
                  .whole = op->n,
                  .stretches = stretches,
                  .operation = op->direction == TEMPI_PACK ? TEMPI_MODEL_PACK : TEMPI_MODEL_UNPACK,
                  .packed = TEMPI_PACKED_PINNED,
                  .memory = TEMPI_TABLES_OF_DEVICE},
        .part = &alone,
        .device = part->device};
    const int method = tempi_device_choose(cache_of(message), op->layout, &ask);
    return method >= 0 ? method : tempi_method_choose_part(op->n);
}

void tempi_method_of_parts(const tempi_message *message, tempi_parts *parts)
{
    for (int p = 0; p < parts->n; ++p)
        if (parts->part[p].method != TEMPI_ON_HOST)
            parts->part[p].method = method_of_part(message, &parts->part[p]);
}

static void note(int method)
{
    static const int counters[] = {[TEMPI_ON_DEVICE] = TEMPI_STAT_method_device,
                                   [TEMPI_ONE_SHOT] = TEMPI_STAT_method_oneshot,
                                   [TEMPI_STAGED] = TEMPI_STAT_method_staged,
                                   [TEMPI_PIPELINED] = TEMPI_STAT_method_pipelined};
    if (method != TEMPI_ON_HOST)
        tempi_stat_add(counters[method], 1);
}

void tempi_method_note(const tempi_op *op)
{
    if (op->method != TEMPI_MIXED) {
        note(op->method);
        return;
    }
    for (int p = 0; p < op->parts->n; ++p)
        note(op->parts->part[p].method);
}
