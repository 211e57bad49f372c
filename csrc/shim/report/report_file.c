#include "base/log.h"
#include "base/stats.h"
#include "shim/abi.h"
#include "shim/report/job_report.h"
#include "tempi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A path or an MPI library's version may contain any bytes, including line breaks. */
static void put_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "  \"%s\": ", name);
    if (!text) {
        fputs("null,\n", file);
        return;
    }
    fputc('"', file);
    for (const char *c = text; *c; ++c) {
        if ((unsigned char)*c < ' ')
            fprintf(file, "\\u%04x", (unsigned)*c);
        else
            fprintf(file, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    fputs("\",\n", file);
}

static void put_counters(FILE *file, const char *name, const uint64_t *values)
{
    const char *between = "\n";
    fprintf(file, "  \"%s\": {", name);
    for (int i = 0; i < TEMPI_STATS_COUNT; ++i) {
        if (values[i] == 0)
            continue;
        fprintf(file, "%s    \"%s\": %" PRIu64, between, tempi_stats_name(i), values[i]);
        between = ",\n";
    }
    fputs("\n  }", file);
}

static void put_fallbacks(FILE *file, const tempi_fallback *sum)
{
    const char *between = "\n";
    fputs("  \"fallback_functions\": {", file);
    for (int i = 0; i < TEMPI_FUNCTION_COUNT; ++i) {
        if (sum[i].calls == 0)
            continue;
        fprintf(file, "%s    \"%s\": {\"calls\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", between,
                tempi_fallback_name(i), sum[i].calls, sum[i].bytes);
        between = ",\n";
    }
    fputs("\n  }", file);
}

static void put_all(FILE *file, int ranks, const uint64_t *sum, const uint64_t *most,
                    const tempi_fallback *fallbacks)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    const bool known = tempi_lib.Get_library_version &&
                       tempi_lib.Get_library_version(version, &length) == MPI_SUCCESS;
    fprintf(file, "{\n  \"tempi_statistics\": 1,\n  \"ranks\": %d,\n", ranks);
    put_text(file, "mpi", known ? version : NULL);
    put_text(file, "tables", tempi_model_in_use());
    put_counters(file, "sum", sum);
    fputs(",\n", file);
    put_counters(file, "most", most);
    fputs(",\n", file);
    put_fallbacks(file, fallbacks);
    fputs("\n}\n", file);
}

/* Writes a temporary file and renames it, so that no reader sees half a file. */
void tempi_report_write(const char *path, int ranks, const uint64_t *sum, const uint64_t *most,
                        const tempi_fallback *fallbacks)
{
    char beside[4096];
    if (snprintf(beside, sizeof beside, "%s.part", path) >= (int)sizeof beside) {
        TEMPI_LOG(TEMPI_LOG_WARN, "TEMPI_STATS_FILE: the path is too long");
        return;
    }
    FILE *file = fopen(beside, "w");
    if (file)
        put_all(file, ranks, sum, most, fallbacks);
    bool good = file && !ferror(file);
    if (file && fclose(file) != 0)
        good = false;
    if (!good || rename(beside, path) != 0) {
        TEMPI_LOG(TEMPI_LOG_WARN, "TEMPI_STATS_FILE: cannot write %s: %s", path, strerror(errno));
        if (file)
            remove(beside);
    }
}
