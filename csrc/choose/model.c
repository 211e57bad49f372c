#include "choose/model.h"
#include "base/config.h"
#include "base/log.h"
#include "base/stats.h"
#include "choose/device_choice.h"
#include "choose/online_tuning.h"
#include "choose/table_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a file ---------------------------------------------------------------------------------- */

static void *map(const char *path, size_t *bytes, const char **fault)
{
    struct stat about;
    void *data = MAP_FAILED;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        *fault = strerror(errno);
        return NULL;
    }
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size <= 0 ||
        about.st_size > TEMPI_TABLE_MOST) {
        *fault = "it is not a file of tempi tables";
    } else {
        *bytes = (size_t)about.st_size;
        data = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, file, 0);
        if (data == MAP_FAILED)
            *fault = strerror(errno);
    }
    close(file);
    return data == MAP_FAILED ? NULL : data;
}

tempi_model *tempi_model_open(const char *path, const char **fault)
{
    size_t bytes = 0;
    const char *own;
    fault = fault ? fault : &own;
    *fault = NULL;
    void *data = map(path, &bytes, fault);
    if (!data)
        return NULL;
    *fault = tempi_table_fault(data, bytes);
    tempi_model *model = *fault ? NULL : calloc(1, sizeof *model);
    if (!model) {
        if (!*fault)
            *fault = "out of memory";
        munmap(data, bytes);
        return NULL;
    }
    model->header = data;
    tempi_table_index(model);
    return model;
}

void tempi_model_close(tempi_model *model)
{
    if (!model)
        return;
    munmap((void *)(uintptr_t)model->header, (size_t)model->header->bytes);
    free(model);
}

const char *tempi_model_mismatch(const tempi_model *model, const tempi_machine *machine)
{
    const tempi_table_header *h = model->header;
    if (strcmp(h->tempi, machine->tempi) != 0)
        return "it was measured by another version of tempi";
    if (strcmp(h->cpu, machine->cpu) != 0 || h->cores != machine->cores)
        return "it was measured on another machine";
    if (strcmp(h->mpi, machine->mpi) != 0)
        return "it was measured with another MPI library";
    return machine->gpu[0] ? tempi_table_gpu_mismatch(h, machine) : NULL;
}

/* ---- in this process ------------------------------------------------------------------------- */

static tempi_model *in_use; /* set before any type is decoded; constant from then on */
static char in_force_path[4096];

static tempi_model *admit(const char *path, const tempi_machine *machine, bool log_refused)
{
    const char *fault;
    tempi_model *model = tempi_model_open(path, &fault);
    if (model && (fault = tempi_model_mismatch(model, machine))) {
        tempi_model_close(model);
        model = NULL;
    }
    if (!model && log_refused)
        TEMPI_LOG(TEMPI_LOG_WARN,
                  "the calibration %s is not used: %s; the built-in rule chooses "
                  "(run `tempi calibrate` again)",
                  path, fault);
    return model;
}

/* Uses a shipped calibration if this machine has none. Its name states the machine it comes
 * from. */
static tempi_model *admit_shipped(const char *version, char *room, size_t size)
{
    const char *fault;
    if (tempi_config.model || tempi_shipped_find(version, room, size) != TEMPI_OK)
        return NULL;
    tempi_model *model = tempi_model_open(room, &fault);
    if (!model)
        TEMPI_LOG(TEMPI_LOG_INFO, "the shipped calibration %s is not used: %s", room, fault);
    else
        tempi_table_only_measured(model);
    return model;
}

/* A missing file is an error only if it was named explicitly. */
static const char *wanted(const tempi_machine *machine, char *room, size_t size)
{
    if (tempi_config.model)
        return strcmp(tempi_config.model, "0") == 0 ? NULL : tempi_config.model;
    if (tempi_machine_file(machine, room, size) != TEMPI_OK || access(room, F_OK) != 0)
        return NULL;
    return room;
}

void tempi_model_start(const char *version, bool log_refused)
{
    tempi_machine machine;
    char room[sizeof in_force_path];
    if (in_use || tempi_machine_describe(version, &machine) != TEMPI_OK)
        return;
    const char *path = wanted(&machine, room, sizeof room);
    tempi_model *model = path ? admit(path, &machine, log_refused) : NULL;
    tempi_model_devices_start(&machine, model, log_refused);
    if (!model) {
        if (!(model = admit_shipped(version, room, sizeof room)))
            return;
        path = room;
    }
    snprintf(in_force_path, sizeof in_force_path, "%s", path);
    in_use = model;
    if (!model->shipped)
        tempi_tuning_start(model);
}

const char *tempi_model_in_use(void)
{
    return in_use ? in_force_path : NULL;
}

bool tempi_model_is_shipped(void)
{
    return in_use && in_use->shipped;
}

unsigned tempi_model_covers(const tempi_layout *layout)
{
    unsigned bits = 0;
    if (!in_use || layout->dense || layout->size == 0)
        return 0;
    for (int operation = in_use->shipped ? TEMPI_OP_SEND : 0; operation < TEMPI_OPERATIONS;
         ++operation)
        for (int peer = 0; peer < TEMPI_PEERS; ++peer)
            if (tempi_table_covers(in_use, layout, operation, peer))
                bits |= TEMPI_MODEL_BIT(operation, peer);
    return bits;
}

static bool chooses_ours(const tempi_layout *layout, int64_t bytes, tempi_operation operation,
                         int peer, bool rule)
{
    tempi_prediction p;
    if (!in_use || tempi_model_predict(in_use, layout, bytes, (int)operation, peer, &p) != TEMPI_OK)
        return in_use && in_use->shipped && rule;
    if (!in_use->shipped && !tempi_table_stands_in(in_use, layout, (int)operation, peer))
        return p.ours;
    return rule ? p.library > (1 - TEMPI_FOREIGN_MARGIN) * p.host
                : p.host < (1 - TEMPI_FOREIGN_MARGIN) * p.library;
}

bool tempi_model_choose(const tempi_layout *layout, tempi_operation operation, int peer,
                        int64_t bytes, bool rule, tempi_choices *cache)
{
    const bool ours = chooses_ours(layout, bytes, operation, peer, rule);
    const uint64_t bit = (uint64_t)1 << tempi_choice_step(bytes);
    tempi_stat_add(TEMPI_STAT_model_choices, 1);
    if (ours)
        __atomic_fetch_or(&cache->ours, bit, __ATOMIC_RELAXED);
    __atomic_fetch_or(&cache->known, bit, __ATOMIC_RELEASE);
    return ours;
}
