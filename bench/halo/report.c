/* report.c: a text table, and JSON lines (one record per phase and subject), from rank 0. */
#include "cuda.h"
#include "halo.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double report_median(const double *values, int n)
{
    if (n == 0)
        return 0;
    double *sorted = checked_alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    const double median = n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    free(sorted);
    return median;
}

/* The first line of the text, as a JSON string. */
static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text && *text != '\n'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if ((unsigned char)*text >= ' ')
            fputc(*text, out);
    }
    fputc('"', out);
}

static size_t sent_bytes(const struct halo *h)
{
    size_t bytes = 0;
    for (int i = 0; i < h->messages; i++)
        bytes += h->message[i].bytes;
    return bytes;
}

static void put_case(FILE *out, const struct halo *h)
{
    const struct options *o = &h->options;
    const char *kind = o->exchange->name;
    fprintf(out, "%dx%dx%d points, %d fields, radius %d, grid %dx%dx%d, %s%s", o->points[0],
            o->points[1], o->points[2], o->fields, o->radius, h->grid[0], h->grid[1], h->grid[2],
            o->periodic ? "periodic" : "open", o->combine ? ", combined" : "");
    if (strcmp(kind, "isend") != 0) /* the name of a case in earlier records */
        fprintf(out, ", %s", kind);
}

static void put_counters(FILE *out, const uint64_t *counters)
{
    const char *comma = "";
    fputs(",\"counters\":{", out);
    for (int i = 0; counters && i < engine_counters(); i++)
        if (counters[i] > 0) {
            fprintf(out, "%s\"%s\":%llu", comma, engine_counter_name(i),
                    (unsigned long long)counters[i]);
            comma = ",";
        }
    fputc('}', out);
}

static void put_meta(FILE *out, const struct halo *h, const struct timing *t)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    fprintf(
        out,
        "{\"ranks\":%d,\"messages\":%d,\"memory\":\"%s\",\"interposed\":%s,\"wrong\":%lld,\"mpi\":",
        h->ranks, h->messages, h->options.memory->name, engine_found() ? "true" : "false",
        t->wrong);
    put_string(out, version);
    if (h->options.memory->copy) {
        fputs(",\"device\":", out);
        put_string(out, cuda_device_name());
        fprintf(out, ",\"emulated\":%s,\"library_cuda_aware\":%s",
                cuda_emulated() ? "true" : "false", engine_library_aware() ? "true" : "false");
    }
    fprintf(out, ",\"cells\":%lld", (long long)h->cells * h->options.fields * h->ranks);
    if (t->counters)
        put_counters(out, t->counters);
    if (t->wrong > 0)
        fputs(",\"refused\":\"wrong halo cells\"", out);
    fputc('}', out);
}

static void put_record(FILE *out, const struct halo *h, const struct timing *t, const char *op,
                       const double *seconds, int samples)
{
    fputs("{\"bench\":\"halo\",\"case\":\"", out);
    put_case(out, h);
    fprintf(out, "\",\"op\":\"%s\",\"subject\":", op);
    put_string(out, t->name);
    fprintf(out, ",\"bytes\":%zu,\"seconds\":[", sent_bytes(h));
    for (int i = 0; i < samples; i++)
        fprintf(out, "%s%.9g", i ? "," : "", seconds[i]);
    fputs("],\"meta\":", out);
    put_meta(out, h, t);
    fputs("}\n", out);
}

static void put_records(FILE *out, const struct halo *h, const struct timing *timings, int n)
{
    for (int i = 0; i < n; i++) {
        put_record(out, h, &timings[i], "check", NULL, 0);
        for (int p = 0; p < PHASES && timings[i].samples > 0; p++)
            put_record(out, h, &timings[i], phase_names[p], timings[i].seconds[p],
                       timings[i].samples);
    }
}

static void put_table(FILE *out, const struct halo *h, const struct timing *timings, int n)
{
    put_case(out, h);
    fprintf(out, "; %d ranks, %d messages, %.3f MB sent by rank 0\n", h->ranks, h->messages,
            1e-6 * (double)sent_bytes(h));
    fprintf(out, "%-10s %10s %10s %10s %10s\n", "us", "post", "send", "wait", "exchange");
    for (int i = 0; i < n; i++) {
        fprintf(out, "%-10s", timings[i].name);
        if (timings[i].wrong > 0)
            fprintf(out, " %lld cells wrong: not timed", timings[i].wrong);
        else if (timings[i].samples == 0)
            fprintf(out, " every cell right");
        for (int p = 0; p < PHASES && timings[i].samples > 0; p++)
            fprintf(out, " %10.2f", 1e6 * report_median(timings[i].seconds[p], timings[i].samples));
        fputc('\n', out);
    }
}

int report_write(const struct halo *h, const struct timing *timings, int n)
{
    const char *path = h->options.json;
    const int to_stdout = path && strcmp(path, "-") == 0;
    if (!to_stdout)
        put_table(stdout, h, timings, n);
    if (!path)
        return 0;
    FILE *out = to_stdout ? stdout : fopen(path, "w");
    if (!out) {
        fprintf(stderr, "halo: cannot write %s\n", path);
        return 1;
    }
    put_records(out, h, timings, n);
    const int failed = ferror(out) != 0;
    return (out == stdout ? fflush(out) : fclose(out)) != 0 || failed;
}
