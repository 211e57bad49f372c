#include "choose/choose.h"
#include "base/hash.h"
#include "base/llc_samples.h"
#include "choose/device_rule.h"
#include "choose/shape.h"

#include <stdlib.h>

/* ---- a type's chooser ------------------------------------------------------------------------ */

/* Not of the offset in the element, or of the way to the next row: the two sides of a halo have
 * others. */
static uint32_t hash_of_shape(tempi_shape s, int64_t element)
{
    const uint64_t flags = (uint64_t)element << 8 | (uint64_t)s.variable |
                           (uint64_t)s.single_run << 1 | (uint64_t)s.transposed << 2;
    const uint64_t sum = tempi_hash_mix(tempi_hash_mix(flags, (uint64_t)s.run), (uint64_t)s.stride);
    return (uint32_t)(tempi_hash(sum) >> 32);
}

void tempi_chooser_init(tempi_chooser *chooser, const tempi_layout *layout, int64_t element,
                        tempi_library library, unsigned quirks)
{
    chooser->layout = layout;
    chooser->quirks = quirks;
    chooser->shape = hash_of_shape(tempi_shape_of(layout), element);
    chooser->modelled = tempi_config.force ? 0 : tempi_model_covers(layout);
    if (tempi_rule_is_beyond_tables(layout, element, library))
        chooser->modelled &= TEMPI_MODEL_BIT(TEMPI_OP_SEND, 0) - 1; /* of packing only */
    for (int op = 0; op < TEMPI_OPERATIONS; ++op) {
        const bool ours = quirks >> op & 1;
        for (int peer = 0; ours && peer < TEMPI_PEERS; ++peer)
            chooser->modelled &= ~TEMPI_MODEL_BIT(op, peer);
        chooser->windows[op] = ours || tempi_config.force
                                   ? (tempi_window){.first = 1, .last = INT64_MAX}
                                   : tempi_rule_window(layout, element, library,
                                                       (tempi_operation)op);
    }
}

void tempi_chooser_copy(tempi_chooser *to, const tempi_chooser *from)
{
    to->layout = from->layout;
    to->quirks = from->quirks;
    to->shape = from->shape;
    to->modelled = from->modelled;
    for (int op = 0; op < TEMPI_OPERATIONS; ++op)
        to->windows[op] = from->windows[op];
}

void tempi_chooser_clear(tempi_chooser *chooser)
{
    tempi_device_choices_free(chooser->on_devices);
    chooser->on_devices = NULL;
    for (int op = 0; op <= TEMPI_OP_UNPACK; ++op) {
        free(chooser->trials[op]);
        chooser->trials[op] = NULL;
    }
    chooser->layout = NULL;
}

/* ---- MPI_Pack and MPI_Unpack of host memory -------------------------------------------------- */

/* NULL: out of memory. */
static tempi_trials *trials_of(tempi_chooser *chooser, tempi_operation operation)
{
    tempi_trials *trials = __atomic_load_n(&chooser->trials[operation], __ATOMIC_ACQUIRE);
    if (trials || !(trials = calloc(1, sizeof *trials)))
        return trials;
    tempi_trials *others = NULL;
    if (__atomic_compare_exchange_n(&chooser->trials[operation], &others, trials, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return trials;
    free(trials);
    return others;
}

/* By tables, or else by the built-in rule. */
static bool guess(const tempi_chooser *chooser, tempi_operation operation, int64_t bytes,
                  tempi_choices *cache)
{
    const bool rule = tempi_window_has(chooser->windows[operation], bytes);
    if (!(chooser->modelled & TEMPI_MODEL_BIT(operation, 0)))
        return rule;
    return tempi_model_acts(chooser->layout, operation, 0, bytes, rule, cache);
}

bool tempi_choose_local(tempi_chooser *chooser, tempi_operation operation, int64_t bytes,
                        tempi_sample *sample)
{
    tempi_choices *choices = &chooser->choices[operation][0];
    if (tempi_online_tuning && chooser->modelled & TEMPI_MODEL_BIT(operation, 0))
        return tempi_tuning_acts(chooser->layout, operation, 0, bytes, choices);
    const bool tries = tempi_config.autotune && !tempi_config.force &&
                       !tempi_chooser_has_quirk(chooser, operation);
    tempi_trials *trials = tries ? trials_of(chooser, operation) : NULL;
    if (!trials)
        return guess(chooser, operation, bytes, choices);
    return tempi_autotune_acts(trials, choices, bytes,
                               guess(chooser, operation, bytes, &trials->guesses), sample);
}

/* ---- messages of host memory ----------------------------------------------------------------- */

/* Shorter ones the libraries copy through memory of their own; the peer does not read ours. */
enum { STREAMED_FIRST = 16 << 10 };
/* Nanoseconds that a call, a byte and a run take at most where memory is not much slower than
 * usual. */
enum { MOST_A_CALL = 1000, MOST_A_BYTE = 1, MOST_A_RUN = 100 };

static int64_t most_time(const tempi_layout *layout, int64_t bytes)
{
    const int64_t runs = layout->runs * (bytes / layout->size);
    return MOST_A_CALL + MOST_A_BYTE * bytes + MOST_A_RUN * runs;
}

bool tempi_choose_by_trial(tempi_chooser *chooser, const tempi_query *q)
{
    tempi_message_trial_look();
    if (!tempi_choose_is_tried(chooser, q->operation, q->bytes))
        return tempi_choose_untried(chooser, q);
    const int class = q->peer->class(q->whom, q->bytes);
    if (class == TEMPI_PEER_SELF) /* such a message has no other side */
        return tempi_choose_untried(chooser, q);
    const bool one = class == TEMPI_PEER_OTHER_LLC && q->bytes >= TEMPI_LLC_EVICTING;
    const uint64_t key = tempi_message_trial_key(chooser->shape, tempi_choice_step(q->bytes),
                                                 one ? TEMPI_PEER_NODE : class);
    uint64_t *word = tempi_message_word(key);
    int method = q->posted ? tempi_message_method(word) : tempi_message_settled(word);
    if (method == TEMPI_MESSAGE_USUAL)
        method = tempi_choose_untried(chooser, q) ? TEMPI_MESSAGE_OWN : TEMPI_MESSAGE_LIBRARY;
    if (q->posted)
        method = tempi_message_trial_post(&(tempi_message_post){
            .key = key,
            .word = word,
            .receives = q->operation == TEMPI_OP_RECV,
            .streams = class != TEMPI_PEER_OTHER && q->bytes >= STREAMED_FIRST,
            .repeats = q->repeats,
            .messages = q->passed + 1,
            .most = most_time(chooser->layout, q->bytes),
            .usual = (uint8_t)method,
        });
    *q->streamed = method == TEMPI_MESSAGE_STREAMED;
    if (word || (word = tempi_message_word(key)))
        *q->word = (unsigned)(word - tempi_passing.trials->ways);
    return method != TEMPI_MESSAGE_LIBRARY;
}

static int method_of(bool ours, const tempi_query *q)
{
    if (!ours)
        return TEMPI_MESSAGE_LIBRARY;
    return *q->streamed ? TEMPI_MESSAGE_STREAMED : TEMPI_MESSAGE_OWN;
}

bool tempi_choose_noted(tempi_chooser *chooser, tempi_query *q, uint64_t key)
{
    tempi_repeated *repeated = &chooser->repeated[q->operation];
    unsigned word = TEMPI_MESSAGE_NO_WORD;
    q->word = &word;
    q->passed = tempi_repeated_passed(repeated, key, q->bytes);
    q->repeats = tempi_repeated_passes_by(repeated, key);
    const bool ours = tempi_choose(chooser, q) == TEMPI_METHOD_HOST;
    tempi_repeated_note(repeated, key, q->bytes, word, method_of(ours, q));
    return ours;
}

/* ---- device memory --------------------------------------------------------------------------- */

/* The method without tables, or as a setting demands. */
static tempi_method by_rule(const tempi_query *q)
{
    const tempi_device_query *d = q->device;
    if (q->operation >= TEMPI_OP_SEND)
        return tempi_device_rule(q->bytes, d->dense, d->few_rows, d->about.cuda_aware != 0);
    if (d->part)
        return d->about.contiguous ? TEMPI_METHOD_STAGED
                                   : tempi_device_rule_of_packing(d->about.whole, false);
    switch (d->about.packed) {
    case TEMPI_PACKED_DEVICE: return TEMPI_METHOD_DEVICE;
    case TEMPI_PACKED_PINNED: return tempi_device_rule_of_packing(q->bytes, d->few_rows);
    default: return TEMPI_METHOD_STAGED;
    }
}

/* Whether there is only one way. A single run needs no kernel, but a copy. */
static bool has_one_way(const tempi_query *q)
{
    const tempi_device_query *d = q->device;
    const bool run = d->about.contiguous;
    if (q->operation >= TEMPI_OP_SEND)
        return tempi_device_rule_is_forced(d->dense, d->about.cuda_aware != 0) ||
               (run && !d->about.cuda_aware);
    return run || tempi_device_rule_is_forced(false, false) ||
           (!d->part && !d->may_leave && d->about.packed != TEMPI_PACKED_PINNED);
}

/* Whether the library may take the message: TEMPI_FORCE forbids it where kernels have work to
 * do. */
static bool may_leave(const tempi_chooser *chooser, const tempi_query *q)
{
    const tempi_device_query *d = q->device;
    return d->may_leave && d->about.cuda_aware && !tempi_chooser_has_quirk(chooser, q->operation) &&
           (!tempi_config.force || d->dense);
}

tempi_method tempi_choose_on_device(tempi_chooser *chooser, const tempi_query *query)
{
    tempi_device_query device = *query->device;
    device.about.bytes = query->bytes;
    device.about.operation = (int32_t)query->operation;
    device.may_leave = chooser && may_leave(chooser, query);
    tempi_query q = *query;
    q.device = &device;
    const bool plain = q.operation >= TEMPI_OP_SEND ? device.dense : device.about.contiguous;
    if (!plain && !device.part && device.may_leave && tempi_device_rule_leaves())
        return TEMPI_METHOD_LIBRARY;
    if (has_one_way(&q))
        return by_rule(&q);
    if (q.operation >= TEMPI_OP_SEND)
        device.about.peer = q.peer->class(q.whom, q.bytes);
    const int method = tempi_device_choose(chooser ? &chooser->on_devices : NULL, device.layout,
                                           &device);
    return method >= 0 ? (tempi_method)method : by_rule(&q);
}
