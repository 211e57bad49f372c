/* predict_device.c: predicted time of each method for a message of device memory.
 *
 *   T_library   = the library's message with the datatype, if it is CUDA-aware
 *   T_device    = kernels into a device buffer + message of device bytes + kernels out of one
 *   T_one-shot  = kernels into mapped memory + message of pinned bytes + the peer's part
 *   T_staged    = kernels, copy out + message of pinned bytes + the peer's part
 *   T_pipelined = the same in pieces + message of pinned bytes + the peer's part
 *
 * (of a sender; a receiver's likewise). Pinned bytes look the same on the wire whichever method
 * made them, so each side uses its best method, and the peer's part is its best by the same tables.
 *
 * Without gaps there is no kernel: T_library = message of device bytes, T_staged = copy out +
 * message of pinned bytes + copy in. MPI_Pack and MPI_Unpack are one side's part alone, and so is a
 * device's part of a message in several memories. */
#include "choose/device_choice.h"
#include "choose/fast_math.h"
#include "choose/shape.h"
#include "choose/table_file.h"
#include "pack/pack.h"

_Static_assert(TEMPI_PACK == 0 && TEMPI_UNPACK == 1, "indices of the parts");

static const double NONE = -1;

/* The arguments of a message's table look-ups. */
typedef struct query {
    const tempi_model *model;
    int memory; /* index into model->device */
    tempi_family family;
    int peer;
    tempi_place place;
    double pieces;   /* number of pieces, if pipelined */
    double segments; /* of the packed bytes, each of them a copy */
} query;

/* Between two measured sizes a launch or a copy takes so much more a byte. The tables' own way,
 * between the logarithms, makes 17 of 12 us at 64 KiB and 33 us at 1 MiB, for the 13 that 128 KiB
 * take. */
static double by_the_byte(const tempi_model *model, const tempi_table_head *table,
                          tempi_place place)
{
    const double *sizes = (const double *)(const void *)model->header + table->first;
    int i = 0;
    while (i + 1 < table->nsizes && sizes[i + 1] <= place.size)
        ++i;
    if (place.size <= sizes[i] || i + 1 == table->nsizes)
        return tempi_table_at(model, table, place);
    const double n = tempi_fast_exp(place.size - sizes[i]),
                 all = tempi_fast_exp(sizes[i + 1] - sizes[i]);
    place.size = sizes[i];
    const double from = tempi_table_at(model, table, place);
    place.size = sizes[i + 1];
    return from + (tempi_table_at(model, table, place) - from) * (n - 1) / (all - 1);
}

static double at(const query *q, int memory, tempi_quantity quantity, tempi_family family, int peer,
                 tempi_place place)
{
    const tempi_table_head *table = q->model->device[memory][quantity][family][peer];
    return table ? by_the_byte(q->model, table, place) : NONE;
}

/* Time of kernels; for managed memory without tables of its own, the device's tables. */
static double kernels(const query *q, tempi_quantity quantity, tempi_place place)
{
    const double own = at(q, q->memory, quantity, q->family, 0, place);
    return own >= 0 || q->memory == 0 ? own : at(q, 0, quantity, q->family, 0, place);
}

/* Time of packed bytes, which have no shape. */
static double bytes(const query *q, tempi_quantity quantity, int peer, tempi_place place)
{
    return at(q, 0, quantity, TEMPI_FAMILY_REGULAR, peer, place);
}

/* Time of a launch, whatever is launched. */
static double launch(const query *q)
{
    return bytes(q, TEMPI_QUANTITY_LAUNCH, 0, (tempi_place){0, 0, 0});
}

static tempi_quantity copy_of(int direction)
{
    return direction == TEMPI_PACK ? TEMPI_QUANTITY_COPY_OUT : TEMPI_QUANTITY_COPY_IN;
}

/* For two operations with a single wait: both times include a start and a wait; removes one. */
static double less_start(double seconds, double start)
{
    const double rest = seconds - start, least = seconds / 8;
    return rest > least ? rest : least;
}

/* Of a kernel. */
static double less_launch(const query *q, double seconds)
{
    return less_start(seconds, launch(q));
}

/* Of a copy: the shortest one may take less than a launch, as no kernel starts (H200: 7 instead of
 * 10 us). */
static double less_call(const query *q, int direction, double seconds)
{
    const double least = bytes(q, copy_of(direction), 0, (tempi_place){0, 0, 0}), most = launch(q);
    return less_start(seconds, least >= 0 && least < most ? least : most);
}

typedef struct pieces {
    double kernels, copies;
} pieces;

/* Time to copy all bytes at that point, segment by segment. */
static double copies(const query *q, int direction, tempi_place place, double segments)
{
    if (segments > 1)
        place.size -= tempi_fast_log(segments);
    const double one = bytes(q, copy_of(direction), 0, place);
    return one < 0 || segments <= 1 ? one : one + (segments - 1) * less_call(q, direction, one);
}

static pieces pieces_of(const query *q, int direction, tempi_place place, double segments)
{
    return (pieces){kernels(q,
                            direction == TEMPI_PACK ? TEMPI_QUANTITY_DEVICE_PACK
                                                    : TEMPI_QUANTITY_DEVICE_UNPACK,
                            place),
                    copies(q, direction, place, segments)};
}

static double staged(const query *q, int direction)
{
    const pieces whole = pieces_of(q, direction, q->place, q->segments);
    if (whole.kernels < 0 || whole.copies < 0 || launch(q) < 0)
        return NONE;
    return whole.kernels + less_call(q, direction, whole.copies);
}

/* n pieces go through two stages: the first one fills the pipeline, then the slower stage sets the
 * pace. That the streams hand over to each other takes about as long as a launch (H200: 6 to 10
 * us). */
static double pipelined(const query *q, int direction)
{
    const double n = q->pieces;
    if (n <= 1)
        return staged(q, direction);
    const tempi_place piece = {q->place.size - tempi_fast_log(n), q->place.run, q->place.stride};
    const pieces one = pieces_of(q, direction, piece, q->segments / n);
    if (one.kernels < 0 || one.copies < 0 || launch(q) < 0)
        return NONE;
    const double kernels = less_launch(q, one.kernels),
                 copies = less_call(q, direction, one.copies);
    return one.kernels + copies + (n - 1) * (kernels > copies ? kernels : copies) + launch(q);
}

/* Time of this side's part of a message. */
static double part(const query *q, int direction, int method)
{
    const bool packs = direction == TEMPI_PACK;
    switch (method) {
    case TEMPI_METHOD_DEVICE:
        return kernels(q, packs ? TEMPI_QUANTITY_DEVICE_PACK : TEMPI_QUANTITY_DEVICE_UNPACK,
                       q->place);
    case TEMPI_METHOD_ONE_SHOT:
        return kernels(q, packs ? TEMPI_QUANTITY_MAPPED_PACK : TEMPI_QUANTITY_MAPPED_UNPACK,
                       q->place);
    case TEMPI_METHOD_STAGED: return staged(q, direction);
    case TEMPI_METHOD_PIPELINED: return pipelined(q, direction);
    default: return NONE;
    }
}

/* The fastest method that puts pinned bytes on the wire; NONE: there is none. */
static double best_part(const query *q, int direction)
{
    double best = NONE;
    for (int m = TEMPI_METHOD_ONE_SHOT; m < TEMPI_METHOD_LIBRARY; ++m) {
        const double seconds = part(q, direction, m);
        if (seconds >= 0 && (best < 0 || seconds < best))
            best = seconds;
    }
    return best;
}

static void add(tempi_device_prediction *p, int method, double pack, double message, double unpack)
{
    if (pack < 0 || message < 0 || unpack < 0)
        return;
    p->pack[method] = pack;
    p->message[method] = message;
    p->unpack[method] = unpack;
    p->seconds[method] = pack + message + unpack;
}

/* A message without gaps: every method of tempi is the same copy. tempi needs a reason to overrule
 * a library that takes the buffer directly. */
static void predict_contiguous(const query *q, bool cuda_aware, tempi_device_prediction *p)
{
    const double library = cuda_aware ? bytes(q, TEMPI_QUANTITY_DEVICE_MESSAGE, q->peer, q->place)
                                      : NONE;
    if (cuda_aware && library < 0)
        return;
    add(p, TEMPI_METHOD_LIBRARY, 0, library, 0);
    add(p, TEMPI_METHOD_STAGED, bytes(q, TEMPI_QUANTITY_COPY_OUT, 0, q->place),
        bytes(q, TEMPI_QUANTITY_PINNED_MESSAGE, q->peer, q->place),
        bytes(q, TEMPI_QUANTITY_COPY_IN, 0, q->place));
}

/* MPI_Pack and MPI_Unpack are this part alone; the library's time was measured as a whole. */
static void add_part(tempi_device_prediction *p, int direction, int method, double seconds)
{
    add(p, method, direction == TEMPI_PACK ? seconds : 0, 0, direction == TEMPI_PACK ? 0 : seconds);
}

/* With pageable memory: kernels and library were measured with pinned memory, and a copy to or from
 * pageable memory takes longer; added once for each method. */
static void predict_packing(const query *q, int direction, int packed, bool cuda_aware,
                            tempi_device_prediction *p)
{
    const bool packs = direction == TEMPI_PACK, in_device = packed == TEMPI_PACKED_DEVICE;
    const tempi_quantity library =
        in_device
            ? (packs ? TEMPI_QUANTITY_DEVICE_LIBRARY_PACK : TEMPI_QUANTITY_DEVICE_LIBRARY_UNPACK)
            : (packs ? TEMPI_QUANTITY_MAPPED_LIBRARY_PACK : TEMPI_QUANTITY_MAPPED_LIBRARY_UNPACK);
    const int first = in_device                       ? TEMPI_METHOD_DEVICE
                      : packed == TEMPI_PACKED_PINNED ? TEMPI_METHOD_ONE_SHOT
                                                      : TEMPI_METHOD_STAGED;
    const int last = in_device                       ? first
                     : packed == TEMPI_PACKED_PINNED ? TEMPI_METHOD_LIBRARY - 1
                                                     : first;
    if (cuda_aware)
        add_part(p, direction, TEMPI_METHOD_LIBRARY, at(q, 0, library, q->family, 0, q->place));
    for (int m = first; m <= last; ++m)
        add_part(p, direction, m, part(q, direction, m));
}

static void predict_message(const query *q, int direction, bool cuda_aware,
                            tempi_device_prediction *p)
{
    if (cuda_aware) {
        add(p, TEMPI_METHOD_LIBRARY, 0,
            at(q, 0, TEMPI_QUANTITY_DEVICE_LIBRARY, q->family, q->peer, q->place), 0);
        add(p, TEMPI_METHOD_DEVICE, part(q, TEMPI_PACK, TEMPI_METHOD_DEVICE),
            bytes(q, TEMPI_QUANTITY_DEVICE_MESSAGE, q->peer, q->place),
            part(q, TEMPI_UNPACK, TEMPI_METHOD_DEVICE));
    }
    const double other = best_part(q, 1 - direction),
                 message = bytes(q, TEMPI_QUANTITY_PINNED_MESSAGE, q->peer, q->place);
    for (int m = TEMPI_METHOD_ONE_SHOT; m < TEMPI_METHOD_LIBRARY; ++m) {
        const double own = part(q, direction, m);
        add(p, m, direction == TEMPI_PACK ? own : other, message,
            direction == TEMPI_PACK ? other : own);
    }
}

int tempi_device_least(const tempi_device_prediction *p, bool may_leave)
{
    int best = -1;
    for (int m = TEMPI_METHOD_DEVICE; m < TEMPI_METHOD_LIBRARY; ++m) {
        /* Of near equals the one with fewer steps and buffers. */
        const double favour = m > TEMPI_METHOD_ONE_SHOT ? 1 - TEMPI_MODEL_MARGIN : 1;
        if (p->seconds[m] >= 0 && (best < 0 || p->seconds[m] < favour * p->seconds[best]))
            best = m;
    }
    const double library = p->seconds[TEMPI_METHOD_LIBRARY];
    if (may_leave && library >= 0 &&
        (best < 0 || p->seconds[best] >= (1 - TEMPI_MODEL_MARGIN) * library))
        return TEMPI_METHOD_LIBRARY;
    return best;
}

/* Kernels do not depend on pages; a misaligned address means smaller words, which are slower. */
static tempi_family family_of(const tempi_model *model, tempi_shape shape, bool misaligned)
{
    const tempi_family family = tempi_shape_family(shape);
    if (family != TEMPI_FAMILY_ALIASED && family != TEMPI_FAMILY_REGULAR)
        return family;
    return misaligned && model->device[0][TEMPI_QUANTITY_DEVICE_PACK][TEMPI_FAMILY_SHIFTED][0]
               ? TEMPI_FAMILY_SHIFTED
               : TEMPI_FAMILY_REGULAR;
}

static double logarithm(int64_t n)
{
    return tempi_fast_log(n > 1 ? (double)n : 1.0);
}

int64_t tempi_device_largest(const tempi_model *model)
{
    const tempi_table_head *table =
        model->device[0][TEMPI_QUANTITY_DEVICE_PACK][TEMPI_FAMILY_REGULAR][0];
    const double *sizes = table ? (const double *)(const void *)model->header + table->first : NULL;
    return sizes ? (int64_t)tempi_fast_exp(sizes[table->nsizes - 1]) : INT64_MAX;
}

static bool is_message(int32_t operation)
{
    return operation == TEMPI_OP_SEND || operation == TEMPI_OP_RECV;
}

static bool is_sound(const tempi_device_message *m)
{
    return m->bytes > 0 && m->whole >= 0 && m->segments >= 0 && m->operation >= TEMPI_OP_PACK &&
           m->operation <= TEMPI_OP_RECV && m->peer >= 0 && m->peer < TEMPI_PEERS &&
           m->packed >= TEMPI_PACKED_PINNED && m->packed <= TEMPI_PACKED_PAGEABLE &&
           (m->memory == TEMPI_TABLES_OF_DEVICE || m->memory == TEMPI_TABLES_OF_MANAGED);
}

static query query_of(const tempi_model *model, const tempi_layout *layout,
                      const tempi_device_message *message)
{
    const tempi_shape shape = tempi_shape_of(layout);
    return (
        query){.model = model,
               .memory = message->memory - TEMPI_TABLES_OF_DEVICE,
               .family = family_of(model, shape, message->misaligned != 0),
               .peer = message->peer,
               .place = {logarithm(message->bytes), logarithm(shape.run), logarithm(shape.stride)},
               .pieces = (double)(message->whole ? message->whole : message->bytes) / TEMPI_PIECE,
               .segments = message->segments ? (double)message->segments : 1};
}

int tempi_model_predict_device(const tempi_model *model, const tempi_layout *layout,
                               const tempi_device_message *message, tempi_device_prediction *out)
{
    if (!model || !layout || !message || !is_sound(message) || layout->size == 0)
        return TEMPI_ERR_ARG;
    const bool contiguous = layout->dense || message->contiguous,
               cuda_aware = message->cuda_aware != 0;
    const query q = query_of(model, layout, message);
    const int direction = message->operation == TEMPI_OP_SEND || message->operation == TEMPI_OP_PACK
                              ? TEMPI_PACK
                              : TEMPI_UNPACK;
    tempi_device_prediction p;
    for (int m = 0; m < TEMPI_METHODS; ++m)
        p.seconds[m] = p.pack[m] = p.message[m] = p.unpack[m] = NONE;
    if (contiguous && is_message(message->operation))
        predict_contiguous(&q, cuda_aware, &p);
    else if (is_message(message->operation))
        predict_message(&q, direction, cuda_aware, &p);
    else if (!contiguous)
        predict_packing(&q, direction, message->packed, cuda_aware, &p);
    p.method = tempi_device_least(&p, true);
    if (p.method < 0)
        return TEMPI_ERR_UNSUPPORTED;
    *out = p;
    return TEMPI_OK;
}
