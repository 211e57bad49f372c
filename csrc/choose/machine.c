/* The machine properties that a calibration depends on, as far as a single process can determine
 * them. */
#include "base/text.h"
#include "choose/processor.h"
#include "choose/table_file.h"
#include "tempi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Copies the first line, with runs of spaces reduced to one. */
static void first_line(const char *text, char *out, size_t size)
{
    size_t n = 0;
    text += strspn(text, " \t\r\n");
    for (; *text && *text != '\n' && n + 1 < size; ++text) {
        const bool space = *text == ' ' || *text == '\t' || *text == '\r';
        if (!space)
            out[n++] = *text;
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    out[n > 0 && out[n - 1] == ' ' ? n - 1 : n] = '\0';
}

/* The processor's name and its numbers: virtual machines hide the model behind a generic name. */
static void processor(char *out, size_t size)
{
    char text[4096], name[96] = "";
    struct utsname system;
    tempi_processor own;
    snprintf(name, sizeof name, "%.90s", uname(&system) == 0 ? system.machine : "unknown");
    if (tempi_text_read("/proc/cpuinfo", text, sizeof text)) {
        const char *line = strstr(text, "model name");
        const char *value = line ? strchr(line, ':') : NULL;
        if (value)
            first_line(value + 1, name, sizeof name);
    }
    tempi_processor_read(&own);
    if (own.vendor[0])
        snprintf(out, size, "%s (family %d, model %d)", name, own.family, own.model);
    else
        snprintf(out, size, "%s", name);
}

/* A library with other direct copies between processes is calibrated as a different library. */
static void library(const char *version, char *out, size_t size)
{
    static const char *const by[] = {[TEMPI_SINGLE_COPY_NONE] = ", without CMA",
                                     [TEMPI_SINGLE_COPY_CMA] = "",
                                     [TEMPI_SINGLE_COPY_XPMEM] = ", with XPMEM"};
    first_line(version, out, size);
    const size_t length = strlen(out);
    snprintf(out + length, size - length, "%s", by[tempi_processor_single_copy(version)]);
}

int tempi_machine_describe(const char *version, tempi_machine *out)
{
    if (!out)
        return TEMPI_ERR_ARG;
    memset(out, 0, sizeof *out);
    processor(out->cpu, sizeof out->cpu);
    library(version ? version : "", out->mpi, sizeof out->mpi);
    snprintf(out->tempi, sizeof out->tempi, "%s", tempi_version());
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    out->cores = cores > 0 ? (int32_t)cores : 1;
    return TEMPI_OK;
}

static uint64_t key_of(const tempi_machine *machine)
{
    char text[sizeof machine->cpu + sizeof machine->mpi + 32];
    const int n = snprintf(text, sizeof text, "%s\n%d\n%s", machine->cpu, (int)machine->cores,
                           machine->mpi);
    return tempi_table_checksum(text, (size_t)n);
}

int tempi_machine_file(const tempi_machine *machine, char *out, size_t size)
{
    const char *folder = getenv("TEMPI_CACHE_DIR"), *below = "";
    if (!folder || !*folder) {
        folder = getenv("XDG_CACHE_HOME");
        below = "/tempi";
    }
    if (!folder || !*folder) {
        folder = getenv("HOME");
        below = "/.cache/tempi";
    }
    if (!machine || !out || !folder || !*folder)
        return TEMPI_ERR_ARG;
    char card[32] = "";
    if (machine->gpu[0]) /* the emulator says so in the device's name, too */
        snprintf(card, sizeof card, "-%s%016llx", machine->emulated ? "EMULATED-" : "",
                 (unsigned long long)tempi_table_checksum(machine->gpu, strlen(machine->gpu)));
    const int n = snprintf(out, size, "%s%s/model-%016llx%s.table", folder, below,
                           (unsigned long long)key_of(machine), card);
    return n > 0 && (size_t)n < size ? TEMPI_OK : TEMPI_ERR_OVERFLOW;
}
