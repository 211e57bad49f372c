#include "shim/p2p/device_method.h"
#include "base/stats.h"
#include "cuda/row_copies.h"
#include "shim/comm/cuda_aware.h"

/* One element that is a single run, or a dense type. */
static bool is_run(const tempi_op *op)
{
    const tempi_box *box = op->layout->boxes;
    return op->layout->dense ||
           (op->count == 1 && op->layout->nboxes == 1 && box->ndims == 0 && !box->table);
}

/* The part of a query that describes a message's buffer. */
static tempi_device_query side_of(const tempi_message *message)
{
    const tempi_op *op = &message->op;
    return (tempi_device_query){.about = {.memory = message->tables,
                                          .contiguous = is_run(op),
                                          .cuda_aware = tempi_library_cuda_aware()},
                                .layout = op->layout,
                                .address = op->mem,
                                .device = op->device,
                                .dense = op->layout->dense,
                                .few_rows = tempi_cuda_has_few_rows(op)};
}

tempi_method tempi_method_of_message(const tempi_message *message, const tempi_peer *peer)
{
    tempi_device_query device = side_of(message);
    device.may_leave = true;
    return tempi_choose(tempi_type_chooser(message->type),
                        &(tempi_query){.operation = message->operation,
                                       .bytes = message->op.n,
                                       .peer = &tempi_message_peer,
                                       .whom = peer,
                                       .device = &device});
}

tempi_method tempi_method_of_packing(const tempi_message *message, int packed, bool may)
{
    tempi_device_query device = side_of(message);
    device.about.packed = packed;
    device.may_leave = may;
    return tempi_choose(
        tempi_type_chooser(message->type),
        &(tempi_query){.operation = message->operation, .bytes = message->op.n, .device = &device});
}

static tempi_method method_of_part(const tempi_message *message, const tempi_part *part)
{
    const tempi_op *op = &message->op;
    int64_t segments;
    tempi_layout alone = part->layout;
    alone.size = tempi_part_bytes(part, &segments);
    const tempi_device_query device = {.about = {.whole = op->n,
                                                 .segments = segments,
                                                 .packed = TEMPI_PACKED_PINNED,
                                                 .contiguous = tempi_part_is_run(part),
                                                 .memory = TEMPI_TABLES_OF_DEVICE},
                                       .layout = op->layout,
                                       .part = &alone,
                                       .device = part->device};
    return tempi_choose(tempi_type_chooser(message->type),
                        &(tempi_query){.operation = op->direction == TEMPI_PACK ? TEMPI_OP_PACK
                                                                                : TEMPI_OP_UNPACK,
                                       .bytes = alone.size,
                                       .device = &device});
}

void tempi_method_of_parts(const tempi_message *message, tempi_parts *parts)
{
    for (int p = 0; p < parts->n; ++p)
        if (parts->part[p].method != TEMPI_METHOD_HOST)
            parts->part[p].method = (int32_t)method_of_part(message, &parts->part[p]);
}

static void note(int method)
{
#define COUNTER(none, number, name, how) [TEMPI_METHOD_##number] = TEMPI_STAT_method_##name,
    static const int counters[] = {TEMPI_DEVICE_METHODS(COUNTER, )};
#undef COUNTER
    if (tempi_method_is_device(method))
        tempi_stat_add(counters[method], 1);
}

void tempi_method_note(const tempi_op *op)
{
    if (op->method != TEMPI_METHOD_MIXED) {
        note(op->method);
        return;
    }
    for (int p = 0; p < op->parts->n; ++p)
        note(op->parts->part[p].method);
}
