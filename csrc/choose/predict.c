#include "base/log.h"
#include "base/stats.h"
#include "choose/fast_math.h"
#include "choose/model.h"
#include "choose/shape.h"
#include "choose/table_file.h"

static double logarithm(int64_t bytes)
{
    return tempi_fast_log(bytes > 1 ? (double)bytes : 1.0);
}

/* The coordinates of a message in the tables. */
typedef struct spot {
    tempi_family family;
    tempi_place place;
    tempi_family factor; /* the family itself: no factor */
    /* For runs that share cache sets: the size is the number of lines, the stride its power of
     * two. */
    tempi_place factor_place;
    double rows;            /* number of row changes */
    double steps;           /* share of the steps between runs that lead to another row */
    tempi_place step_place; /* like `place`, with the row step as the stride */
} spot;

enum { PAGE = 4096, LINE = 64 };

static tempi_family factor_of(tempi_shape shape, tempi_family family)
{
    if (family == TEMPI_FAMILY_ELEMENTS && shape.offset)
        return TEMPI_FAMILY_FIELDS;
    return family == TEMPI_FAMILY_IRREGULAR && shape.variable ? TEMPI_FAMILY_VARIED : family;
}

static spot spot_of(tempi_shape shape, int64_t bytes)
{
    const tempi_family family = tempi_shape_family(shape);
    const int64_t power = shape.stride & -shape.stride;
    spot s = {.family = family == TEMPI_FAMILY_ALIASED ? TEMPI_FAMILY_REGULAR : family,
              .place = {logarithm(bytes), logarithm(shape.run), logarithm(shape.stride)},
              .factor = factor_of(shape, family)};
    s.factor_place = s.place;
    if (family == TEMPI_FAMILY_ALIASED) {
        s.factor_place.size = logarithm(bytes / (shape.run < LINE ? shape.run : LINE));
        s.factor_place.stride = logarithm(power < PAGE ? power : PAGE);
    }
    if (s.family == TEMPI_FAMILY_REGULAR && shape.row > 0 && bytes > shape.row) {
        s.rows = (double)bytes / (double)shape.row - 1;
        s.steps = (double)shape.run / (double)shape.row;
        s.step_place = s.place;
        s.step_place.stride = logarithm(shape.step);
    }
    return s;
}

/* Looks up a table of corrections; they end with their last size. */
static double correction(const tempi_model *model, const tempi_table_head *table, tempi_place place)
{
    const double last =
        ((const double *)(const void *)model->header)[table->first + (uint32_t)table->nsizes - 1];
    place.size = place.size < last ? place.size : last;
    return tempi_table_at(model, table, place);
}

static double at(const tempi_model *model, tempi_quantity quantity, int peer, const spot *s)
{
    const tempi_table_head *factor = model->tables[quantity][s->factor][peer];
    const tempi_table_head *starts = model->tables[quantity][TEMPI_FAMILY_NESTED][peer];
    const tempi_table_head *own = model->tables[quantity][s->family][peer];
    double seconds = tempi_table_at(model, own, s->place);
    if (s->steps > 0)
        seconds += s->steps * (tempi_table_at(model, own, s->step_place) - seconds);
    if (s->factor != s->family && factor)
        seconds *= correction(model, factor, s->factor_place);
    if (s->rows > 0 && starts)
        seconds += s->rows * correction(model, starts, s->place);
    return seconds;
}

static bool messages(int operation)
{
    return operation == TEMPI_OP_SEND || operation == TEMPI_OP_RECV;
}

static tempi_family base_family(const tempi_layout *layout)
{
    const tempi_family family = tempi_shape_family(tempi_shape_of(layout));
    return family == TEMPI_FAMILY_ALIASED ? TEMPI_FAMILY_REGULAR : family;
}

bool tempi_table_stands_in(const tempi_model *model, const tempi_layout *layout, int operation,
                           int peer)
{
    if (!messages(operation))
        return false;
    const tempi_table_head *table =
        model->tables[TEMPI_QUANTITY_LIBRARY_MESSAGE][base_family(layout)][peer];
    return table && table->peer != peer;
}

bool tempi_table_covers(const tempi_model *model, const tempi_layout *layout, int operation,
                        int peer)
{
    const tempi_family f = base_family(layout);
    if (messages(operation))
        return model->tables[TEMPI_QUANTITY_LIBRARY_MESSAGE][f][peer] &&
               model->tables[TEMPI_QUANTITY_STAGE_PACK][f][0] &&
               model->tables[TEMPI_QUANTITY_STAGE_UNPACK][f][0] &&
               model->tables[TEMPI_QUANTITY_CONTIGUOUS][f][peer];
    return operation == TEMPI_OP_PACK ? model->tables[TEMPI_QUANTITY_LIBRARY_PACK][f][0] &&
                                            model->tables[TEMPI_QUANTITY_OWN_PACK][f][0]
                                      : model->tables[TEMPI_QUANTITY_LIBRARY_UNPACK][f][0] &&
                                            model->tables[TEMPI_QUANTITY_OWN_UNPACK][f][0];
}

/* Says once, for all sizes past the tables: predictions there use the last measured throughput. Of
 * shipped tables it is no warning: who uses them did not choose the sizes that were measured. */
static void note_outside(const tempi_model *model, int peer, const spot *s)
{
    const tempi_place place = s->place;
    const tempi_table_head *table = model->tables[TEMPI_QUANTITY_LIBRARY_MESSAGE][s->family][peer];
    const double *sizes = (const double *)(const void *)model->header + table->first;
    if (place.size <= sizes[table->nsizes - 1])
        return;
    tempi_stat_add(TEMPI_STAT_model_outside, 1);
    TEMPI_LOG_ONCE(
        model->shipped ? TEMPI_LOG_INFO : TEMPI_LOG_WARN,
        "a message of %.0f bytes is larger than any that was calibrated (%.0f): its time is extrapolated",
        tempi_fast_exp(place.size), tempi_fast_exp(sizes[table->nsizes - 1]));
}

static tempi_prediction message(const tempi_model *model, int peer, const spot *s)
{
    tempi_prediction p = {.library = at(model, TEMPI_QUANTITY_LIBRARY_MESSAGE, peer, s),
                          .pack = at(model, TEMPI_QUANTITY_STAGE_PACK, 0, s),
                          .message = at(model, TEMPI_QUANTITY_CONTIGUOUS, peer, s),
                          .unpack = at(model, TEMPI_QUANTITY_STAGE_UNPACK, 0, s)};
    p.pack += model->header->call;
    p.unpack += model->header->call;
    p.host = p.pack + p.message + p.unpack;
    return p;
}

static tempi_prediction local(const tempi_model *model, tempi_operation operation, const spot *s)
{
    const bool packs = operation == TEMPI_OP_PACK;
    tempi_prediction p = {
        .library = at(model, packs ? TEMPI_QUANTITY_LIBRARY_PACK : TEMPI_QUANTITY_LIBRARY_UNPACK, 0,
                      s),
        .host = at(model, packs ? TEMPI_QUANTITY_OWN_PACK : TEMPI_QUANTITY_OWN_UNPACK, 0, s)};
    *(packs ? &p.pack : &p.unpack) = p.host;
    return p;
}

int tempi_model_predict(const tempi_model *model, const tempi_layout *layout, int64_t bytes,
                        int operation, int peer, tempi_prediction *out)
{
    if (!model || !layout || bytes <= 0 || operation < 0 || operation >= TEMPI_OPERATIONS ||
        peer < 0 || peer >= TEMPI_PEERS || layout->size == 0)
        return TEMPI_ERR_ARG;
    if (layout->dense || !tempi_table_covers(model, layout, operation, peer))
        return TEMPI_ERR_UNSUPPORTED;
    const spot s = spot_of(tempi_shape_of(layout), bytes);
    tempi_prediction p = messages(operation) ? message(model, peer, &s)
                                             : local(model, (tempi_operation)operation, &s);
    if (messages(operation))
        note_outside(model, peer, &s);
    p.ours = p.host < (1 - TEMPI_MODEL_MARGIN) * p.library;
    *out = p;
    return TEMPI_OK;
}

double tempi_model_part(const tempi_model *model, tempi_quantity quantity,
                        const tempi_layout *layout, int64_t bytes)
{
    const spot s = spot_of(tempi_shape_of(layout), bytes);
    return model->tables[quantity][s.family][0] ? at(model, quantity, 0, &s) : 0;
}

int64_t tempi_choice_middle(int step)
{
    const double middle = step & 1 ? 1.7320508 : 1.2247449; /* middles of [1.5, 2) and [1, 1.5) */
    return (int64_t)(middle * (double)((int64_t)1 << step / 2));
}

int tempi_model_choice(const tempi_model *model, const tempi_layout *layout, int64_t bytes,
                       int operation, int peer)
{
    tempi_prediction prediction;
    const int status = tempi_model_predict(model, layout, bytes, operation, peer, &prediction);
    return status == TEMPI_OK ? prediction.ours : -1;
}
