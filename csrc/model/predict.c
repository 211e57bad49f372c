#include "base/log.h"
#include "base/stats.h"
#include "model/model.h"
#include "model/number.h"
#include "model/shape.h"
#include "model/table.h"

static double logarithm(int64_t bytes)
{
    return tempi_number_log(bytes > 1 ? (double)bytes : 1.0);
}

static double at(const tempi_model *model, tempi_quantity quantity, tempi_family family, int peer,
                 tempi_place place)
{
    return tempi_table_at(model, model->tables[quantity][family][peer], place);
}

static bool messages(int operation)
{
    return operation == TEMPI_OP_SEND || operation == TEMPI_OP_RECV;
}

bool tempi_table_covers(const tempi_model *model, const tempi_layout *layout, int operation, int peer)
{
    const tempi_family f = tempi_shape_family(tempi_shape_of(layout));
    if (messages(operation))
        return model->tables[TEMPI_LIBRARY_MESSAGE][f][peer] && model->tables[TEMPI_STAGE_PACK][f][0] &&
               model->tables[TEMPI_STAGE_UNPACK][f][0] && model->tables[TEMPI_CONTIGUOUS][f][peer];
    return operation == TEMPI_OP_PACK
               ? model->tables[TEMPI_LIBRARY_PACK][f][0] && model->tables[TEMPI_OWN_PACK][f][0]
               : model->tables[TEMPI_LIBRARY_UNPACK][f][0] && model->tables[TEMPI_OWN_UNPACK][f][0];
}

/* One warning for all sizes past the tables: what is predicted there is the last throughput measured. */
static void note_outside(const tempi_model *model, tempi_family family, int peer, tempi_place place)
{
    const tempi_table_head *table = model->tables[TEMPI_LIBRARY_MESSAGE][family][peer];
    const double *sizes = (const double *)(const void *)model->header + table->first;
    if (place.size <= sizes[table->nsizes - 1])
        return;
    tempi_stat_add(TEMPI_STAT_model_outside, 1);
    TEMPI_WARN_ONCE("a message of %.0f bytes is larger than any that was calibrated (%.0f): its time is extrapolated",
                    tempi_number_exp(place.size), tempi_number_exp(sizes[table->nsizes - 1]));
}

static tempi_prediction message(const tempi_model *model, tempi_family family, int peer, tempi_place place)
{
    tempi_prediction p = {.library = at(model, TEMPI_LIBRARY_MESSAGE, family, peer, place),
                          .pack = at(model, TEMPI_STAGE_PACK, family, 0, place),
                          .message = at(model, TEMPI_CONTIGUOUS, family, peer, place),
                          .unpack = at(model, TEMPI_STAGE_UNPACK, family, 0, place)};
    p.pack += model->header->call;
    p.unpack += model->header->call;
    p.host = p.pack + p.message + p.unpack;
    return p;
}

static tempi_prediction local(const tempi_model *model, tempi_operation operation, tempi_family family,
                              tempi_place place)
{
    const bool packs = operation == TEMPI_OP_PACK;
    tempi_prediction p = {
        .library = at(model, packs ? TEMPI_LIBRARY_PACK : TEMPI_LIBRARY_UNPACK, family, 0, place),
        .host = at(model, packs ? TEMPI_OWN_PACK : TEMPI_OWN_UNPACK, family, 0, place)};
    *(packs ? &p.pack : &p.unpack) = p.host;
    return p;
}

int tempi_model_predict(const tempi_model *model, const tempi_layout *layout, int64_t bytes, int operation,
                        int peer, tempi_prediction *out)
{
    if (!model || !layout || bytes <= 0 || operation < 0 || operation >= TEMPI_OPERATIONS || peer < 0 ||
        peer >= TEMPI_PEERS || layout->size == 0)
        return TEMPI_ERR_ARG;
    if (layout->dense || !tempi_table_covers(model, layout, operation, peer))
        return TEMPI_ERR_UNSUPPORTED;
    const tempi_shape shape = tempi_shape_of(layout);
    const tempi_family family = tempi_shape_family(shape);
    const tempi_place place = {logarithm(bytes), logarithm(shape.run), logarithm(shape.stride)};
    tempi_prediction p = messages(operation) ? message(model, family, peer, place)
                                             : local(model, (tempi_operation)operation, family, place);
    if (messages(operation))
        note_outside(model, family, peer, place);
    p.ours = p.host < (1 - TEMPI_MODEL_MARGIN) * p.library;
    *out = p;
    return TEMPI_OK;
}

int64_t tempi_choice_middle(int step)
{
    const double middle = step & 1 ? 1.7320508 : 1.2247449; /* of [1.5, 2) and of [1, 1.5) */
    return (int64_t)(middle * (double)((int64_t)1 << step / 2));
}

int tempi_model_choice(const tempi_model *model, const tempi_layout *layout, int64_t bytes, int operation, int peer)
{
    tempi_prediction prediction;
    const int64_t middle = tempi_choice_middle(tempi_choice_step(bytes));
    const int status = tempi_model_predict(model, layout, middle, operation, peer, &prediction);
    return status == TEMPI_OK ? prediction.ours : -1;
}
