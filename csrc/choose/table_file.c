#include "choose/table_file.h"
#include "choose/fast_math.h"

#include <string.h>

uint64_t tempi_table_checksum(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t sum = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; ++i)
        sum = (sum ^ at[i]) * 0x100000001B3u;
    return sum;
}

/* ---- validation ------------------------------------------------------------------------------ */

static int64_t numbers_of(const tempi_table_head *t)
{
    return t->nsizes + t->nruns + (int64_t)t->nruns * t->nstrides * (1 + t->nsizes);
}

static bool ascending(const double *at, int n, bool strictly)
{
    for (int i = 0; i < n; ++i)
        if (!__builtin_isfinite(at[i]) ||
            (i > 0 && (strictly ? at[i] <= at[i - 1] : at[i] < at[i - 1])))
            return false;
    return true;
}

static bool axes_good(const tempi_table_head *t, const double *at)
{
    const double *strides = at + t->nsizes + t->nruns;
    bool good = ascending(at, t->nsizes, true) && ascending(at + t->nsizes, t->nruns, true);
    for (int r = 0; good && r < t->nruns; ++r)
        good = ascending(strides + (ptrdiff_t)r * t->nstrides, t->nstrides, false);
    return good;
}

static bool head_good(const tempi_table_head *t, const char *data, size_t bytes)
{
    enum { MOST = 256 };
    if (t->quantity < 0 || t->family < 0 || t->peer < 0 || t->memory < 0 || t->nsizes < 1 ||
        t->nruns < 1 || t->nstrides < 1 || t->nsizes > MOST || t->nruns > MOST ||
        t->nstrides > MOST)
        return false;
    const int64_t n = numbers_of(t);
    if ((int64_t)t->first + n > (int64_t)(bytes / sizeof(double)))
        return false;
    const double *at = (const double *)(const void *)data + t->first;
    for (int64_t i = 0; i < n; ++i)
        if (!__builtin_isfinite(at[i]) || __builtin_fabs(at[i]) > 700)
            return false;
    return axes_good(t, at);
}

static bool terminated(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

const char *tempi_table_fault(const void *data, size_t bytes)
{
    const tempi_table_header *h = data;
    const size_t unsummed = offsetof(tempi_table_header, call);
    if (bytes < sizeof *h || h->magic != TEMPI_TABLE_MAGIC)
        return "it is not a file of tempi tables";
    if (h->format != TEMPI_TABLE_FORMAT)
        return "it is of another version";
    if (h->bytes != bytes ||
        h->checksum != tempi_table_checksum((const char *)data + unsummed, bytes - unsummed))
        return "it is damaged";
    if (!terminated(h->tempi, sizeof h->tempi) || !terminated(h->cpu, sizeof h->cpu) ||
        !terminated(h->mpi, sizeof h->mpi) || !terminated(h->gpu, sizeof h->gpu) ||
        !terminated(h->driver, sizeof h->driver) || !__builtin_isfinite(h->call) || h->call < 0 ||
        h->heads > (bytes - sizeof *h) / sizeof(tempi_table_head))
        return "it is damaged";
    const tempi_table_head *heads = (const void *)(h + 1);
    for (uint32_t i = 0; i < h->heads; ++i)
        if (!head_good(&heads[i], data, bytes))
            return "it is damaged";
    return NULL;
}

/* If only one locality class (same LLC or other LLC) was measured, its tables serve the other one
 * too, by TEMPI_FOREIGN_MARGIN. */
static void stand_in(const tempi_table_head **peers)
{
    if (!peers[TEMPI_PEER_OTHER_LLC])
        peers[TEMPI_PEER_OTHER_LLC] = peers[TEMPI_PEER_NODE];
    else if (!peers[TEMPI_PEER_NODE])
        peers[TEMPI_PEER_NODE] = peers[TEMPI_PEER_OTHER_LLC];
}

void tempi_table_index(struct tempi_model *model)
{
    const tempi_table_head *heads = (const void *)(model->header + 1);
    for (uint32_t i = 0; i < model->header->heads; ++i) {
        const tempi_table_head *t = &heads[i];
        if (t->quantity >= TEMPI_QUANTITIES || t->family >= TEMPI_FAMILIES ||
            t->peer >= TEMPI_PEERS || t->memory >= TEMPI_TABLE_MEMORIES)
            continue;
        if (t->memory == TEMPI_TABLES_OF_HOST)
            model->tables[t->quantity][t->family][t->peer] = t;
        else
            model->device[t->memory - 1][t->quantity][t->family][t->peer] = t;
    }
    for (int q = 0; q < TEMPI_QUANTITIES; ++q)
        for (int f = 0; f < TEMPI_FAMILIES; ++f) {
            stand_in(model->tables[q][f]);
            stand_in(model->device[0][q][f]);
            stand_in(model->device[1][q][f]);
        }
}

void tempi_table_only_measured(struct tempi_model *model)
{
    model->shipped = true;
    for (int q = 0; q < TEMPI_QUANTITIES; ++q)
        for (int f = 0; f < TEMPI_FAMILIES; ++f) {
            const tempi_table_head **peers = model->tables[q][f];
            for (int peer = 0; peer < TEMPI_PEERS; ++peer)
                if (peers[peer] && peers[peer]->peer != peer)
                    peers[peer] = NULL;
        }
}

const char *tempi_table_gpu_mismatch(const tempi_table_header *h, const tempi_machine *machine)
{
    if (!h->gpu[0])
        return "it has no tables of device memory";
    if (h->emulated && !machine->emulated)
        return "it was measured on the EMULATED device (CUDA on the CPU), which says nothing about a GPU";
    if (!h->emulated && machine->emulated)
        return "it was measured on a GPU, and this is the EMULATED device (CUDA on the CPU)";
    if (strcmp(h->gpu, machine->gpu) != 0)
        return "it was measured on another GPU";
    return strcmp(h->driver, machine->driver) != 0 || h->cuda != machine->cuda
               ? "it was measured with another CUDA driver"
               : NULL;
}

/* ---- interpolation --------------------------------------------------------------------------- */

/* The interval from at[i] to at[i + 1] and the fraction `part` in it; clamped. Equal neighbours are
 * one node. */
typedef struct span {
    int i;
    double part;
} span;

static span find(const double *at, int n, double x)
{
    if (x <= at[0])
        return (span){0, 0};
    int i = 0;
    while (i + 1 < n && at[i + 1] <= x)
        ++i;
    return i + 1 == n ? (span){i, 0} : (span){i, (x - at[i]) / (at[i + 1] - at[i])};
}

static double along(const double *at, span s)
{
    return s.part > 0 ? at[s.i] + s.part * (at[s.i + 1] - at[s.i]) : at[s.i];
}

double tempi_table_at(const struct tempi_model *model, const tempi_table_head *t, tempi_place place)
{
    const double *sizes = (const double *)(const void *)model->header + t->first;
    const double *runs = sizes + t->nsizes;
    const double *strides = runs + t->nruns;
    const double *values = strides + (ptrdiff_t)t->nruns * t->nstrides;
    const span size = find(sizes, t->nsizes, place.size), run = find(runs, t->nruns, place.run);
    double by_run[2] = {0, 0};
    for (int r = 0; r < (run.part > 0 ? 2 : 1); ++r) {
        const ptrdiff_t row = (ptrdiff_t)(run.i + r) * t->nstrides;
        const span stride = find(strides + row, t->nstrides, place.stride);
        double by_stride[2] = {0, 0};
        for (int s = 0; s < (stride.part > 0 ? 2 : 1); ++s)
            by_stride[s] = along(values + (row + stride.i + s) * t->nsizes, size);
        by_run[r] = along(by_stride, (span){0, stride.part});
    }
    const double beyond = place.size - sizes[t->nsizes - 1];
    return tempi_fast_exp(along(by_run, (span){0, run.part}) + (beyond > 0 ? beyond : 0));
}
