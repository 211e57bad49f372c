/* What a calibration depends on, as far as a process can tell without asking anybody else. */
#include "base/text.h"
#include "model/table.h"
#include "tempi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first line, with single spaces. */
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

/* Only the first processor's lines are read: the file is long where there are many. */
static void processor(char *out, size_t size)
{
    char text[4096];
    struct utsname name;
    snprintf(out, size, "%s", uname(&name) == 0 ? name.machine : "unknown");
    if (!tempi_text_read("/proc/cpuinfo", text, sizeof text))
        return;
    const char *line = strstr(text, "model name");
    const char *value = line ? strchr(line, ':') : NULL;
    if (value)
        first_line(value + 1, out, size);
}

int tempi_machine_describe(const char *version, tempi_machine *out)
{
    if (!out)
        return TEMPI_ERR_ARG;
    memset(out, 0, sizeof *out);
    processor(out->cpu, sizeof out->cpu);
    first_line(version ? version : "", out->mpi, sizeof out->mpi);
    snprintf(out->tempi, sizeof out->tempi, "%s", tempi_version());
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    out->cores = cores > 0 ? (int32_t)cores : 1;
    return TEMPI_OK;
}

static uint64_t key_of(const tempi_machine *machine)
{
    char text[sizeof machine->cpu + sizeof machine->mpi + 32];
    const int n = snprintf(text, sizeof text, "%s\n%d\n%s", machine->cpu, (int)machine->cores, machine->mpi);
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
    if (machine->gpu[0]) /* what is emulated says so in its name, too */
        snprintf(card, sizeof card, "-%s%016llx", machine->emulated ? "EMULATED-" : "",
                 (unsigned long long)tempi_table_checksum(machine->gpu, strlen(machine->gpu)));
    const int n = snprintf(out, size, "%s%s/model-%016llx%s.table", folder, below,
                           (unsigned long long)key_of(machine), card);
    return n > 0 && (size_t)n < size ? TEMPI_OK : TEMPI_ERR_OVERFLOW;
}
