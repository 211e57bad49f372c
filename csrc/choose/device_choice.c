/* device_choice.c: each device's tables, loaded at its first message, and the choices cached with
 * the types. */
#include "choose/device_choice.h"
#include "base/config.h"
#include "base/log.h"
#include "base/stats.h"
#include "choose/model.h"
#include "choose/shape.h"
#include "choose/table_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 32, STEPS = 64, KINDS = TEMPI_PEERS + 4, BY_RULE = 0xFF };

/* ---- tables ---------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    tempi_machine host;
    const tempi_model *named; /* the tables named by TEMPI_MODEL */
    bool started, log_refused;
    _Atomic(const tempi_model *) models[DEVICES];
    _Atomic bool known[DEVICES];
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tempi_model_devices_start(const tempi_machine *host, const tempi_model *named,
                               bool log_refused)
{
    if (devices.started)
        return;
    devices.host = *host;
    devices.named = tempi_config.model ? named : NULL;
    devices.log_refused = log_refused;
    devices.started = true;
}

static void refuse(const char *path, const char *why)
{
    if (devices.log_refused)
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "the calibration %s is not used for device memory: %s; the built-in rule chooses "
                  "(run `tempi calibrate` again)",
                  path, why);
}

/* Finds tables that another device of the same card has open already. */
static const tempi_model *same_card(const tempi_machine *machine)
{
    for (int i = 0; i < DEVICES; ++i)
        if (devices.models[i] && !tempi_model_mismatch(devices.models[i], machine))
            return devices.models[i];
    return NULL;
}

static const tempi_model *open_own(const tempi_machine *machine)
{
    char path[4096];
    const char *fault;
    if (tempi_machine_file(machine, path, sizeof path) != TEMPI_OK || access(path, F_OK) != 0)
        return NULL;
    tempi_model *model = tempi_model_open(path, &fault);
    if (model && (fault = tempi_model_mismatch(model, machine))) {
        tempi_model_close(model);
        model = NULL;
    }
    if (!model)
        refuse(path, fault);
    else
        TEMPI_LOG(TEMPI_LOG_INFO, "method tables for device memory: %s%s", path,
                  machine->emulated ? ", measured on the EMULATED device (CUDA on the CPU)" : "");
    return model;
}

static const tempi_model *find(int ordinal)
{
    tempi_machine machine = devices.host;
    const char *why;
    if (!devices.started || (tempi_config.model && !devices.named) ||
        tempi_machine_add_gpu(&machine, ordinal) != TEMPI_OK)
        return NULL;
    const tempi_model *model = same_card(&machine);
    if (model || !devices.named)
        return model ? model : open_own(&machine);
    if (!(why = tempi_model_mismatch(devices.named, &machine)))
        return devices.named;
    if (devices.named->header->gpu[0]) /* tables without a GPU are valid */
        refuse(tempi_config.model, why);
    return NULL;
}

static const tempi_model *model_of(int ordinal)
{
    if (ordinal < 0 || ordinal >= DEVICES)
        return NULL;
    if (!atomic_load_explicit(&devices.known[ordinal], memory_order_acquire)) {
        pthread_mutex_lock(&devices.lock);
        if (!devices.known[ordinal]) {
            devices.models[ordinal] = find(ordinal);
            atomic_store_explicit(&devices.known[ordinal], true, memory_order_release);
        }
        pthread_mutex_unlock(&devices.lock);
    }
    return devices.models[ordinal];
}

/* ---- choices --------------------------------------------------------------------------------- */

/* Choices by one card's tables; a type used on several cards has one of these for each. */
struct tempi_device_choices {
    tempi_device_choices *next;
    const tempi_model *model;
    int word; /* tempi_shape_word */
    /* [memory][misaligned][direction][the library may][kind][step]: 0 unknown, BY_RULE, or 1 + the
     * method. No index for contiguous messages: no other message of the type has the step of one
     * that is one run. */
    _Atomic uint8_t method[2][2][2][2][KINDS][STEPS];
};

/* The kind: the peer class of a message, the packed side's memory in MPI_Pack and MPI_Unpack, or a
 * part of a message. */
static int kind_of(const tempi_device_query *ask)
{
    if (ask->part)
        return KINDS - 1;
    const bool message = ask->about.operation == TEMPI_OP_SEND ||
                         ask->about.operation == TEMPI_OP_RECV;
    return message ? ask->about.peer : TEMPI_PEERS + ask->about.packed;
}

void tempi_device_choices_free(tempi_device_choices *choices)
{
    while (choices) {
        tempi_device_choices *next = choices->next;
        free(choices);
        choices = next;
    }
}

static tempi_device_choices *choices_of(tempi_device_choices **cache, const tempi_model *model,
                                        const tempi_layout *layout)
{
    tempi_device_choices *first = __atomic_load_n(cache, __ATOMIC_ACQUIRE);
    for (tempi_device_choices *c = first; c; c = c->next)
        if (c->model == model)
            return c;
    tempi_device_choices *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->model = model;
    made->word = tempi_shape_word(layout);
    do /* a concurrent insertion may duplicate it: harmless, the first one found is used */
        made->next = first;
    while (!__atomic_compare_exchange_n(cache, &first, made, false, __ATOMIC_RELEASE,
                                        __ATOMIC_ACQUIRE));
    return made;
}

static uint8_t decide(const tempi_model *model, const tempi_layout *layout,
                      const tempi_device_message *about, bool may_leave)
{
    tempi_device_prediction predicted;
    tempi_stat_add(TEMPI_STAT_model_choices, 1);
    if (about->bytes > tempi_device_largest(model)) {
        tempi_stat_add(TEMPI_STAT_model_outside, 1);
        TEMPI_WARN_ONCE(
            "a message of about %lld bytes of device memory is larger than any that was calibrated: its time is "
            "extrapolated",
            (long long)about->bytes);
    }
    if (tempi_model_predict_device(model, layout, about, &predicted) != TEMPI_OK)
        return BY_RULE;
    const int method = tempi_device_least(&predicted, may_leave);
    return method < 0 ? BY_RULE : (uint8_t)(1 + method);
}

static int method_of(uint8_t decided)
{
    return decided == BY_RULE ? -1 : decided - 1;
}

/* A part's offsets are addresses: its shape already says which words they allow. */
static bool is_misaligned(const tempi_device_query *ask, int word)
{
    return !ask->part && ((uintptr_t)ask->address & (uintptr_t)(word - 1)) != 0;
}

/* A step's choice is made for its middle; a part's for the first one that came. */
static uint8_t decide_step(const tempi_model *model, const tempi_layout *layout,
                           const tempi_device_message *about, const tempi_device_query *ask,
                           int step)
{
    tempi_device_message middle = *about;
    if (!ask->part)
        middle.bytes = tempi_choice_middle(step);
    return decide(model, ask->part ? ask->part : layout, &middle, ask->may_leave);
}

int tempi_device_choose(tempi_device_choices **cache, const tempi_layout *layout,
                        const tempi_device_query *ask)
{
    const tempi_model *model = model_of(ask->device);
    if (!model)
        return -1;
    tempi_device_message about = ask->about;
    const int step = tempi_choice_step(about.bytes);
    tempi_device_choices *choices = cache ? choices_of(cache, model, layout) : NULL;
    if (!choices) {
        about.misaligned = is_misaligned(ask, tempi_shape_word(layout));
        return method_of(decide_step(model, layout, &about, ask, step));
    }
    about.misaligned = is_misaligned(ask, choices->word);
    const bool unpacks = about.operation == TEMPI_OP_RECV || about.operation == TEMPI_OP_UNPACK;
    _Atomic uint8_t *cached =
        &choices->method[about.memory - TEMPI_TABLES_OF_DEVICE][about.misaligned][unpacks]
                        [ask->may_leave][kind_of(ask)][step];
    uint8_t method = atomic_load_explicit(cached, memory_order_relaxed);
    if (method == 0) {
        method = decide_step(model, layout, &about, ask, step);
        atomic_store_explicit(cached, method, memory_order_relaxed);
    }
    return method_of(method);
}
