/* options.c: environment, messages to the user, and random numbers. */
#include "emulator/core/emulator.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

tempi_emu_options tempi_emu_option;
uint64_t tempi_emulator_delay_ns;
static uint64_t chance;

void tempi_emu_say(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int used = snprintf(text, sizeof text, "tempi emulator [%d]: ", (int)getpid());
    va_start(arguments, format);
    const int more = vsnprintf(text + used, sizeof text - (size_t)used - 1, format, arguments);
    va_end(arguments);
    used += more > 0 ? more : 0;
    if (used > (int)sizeof text - 2)
        used = (int)sizeof text - 2;
    text[used++] = '\n';
    const ssize_t written = write(2, text, (size_t)used);
    (void)written;
}

/* A number with an optional K, M or G; `otherwise` if the variable is unset or not a number. */
static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *const text = getenv(name);
    if (text == NULL || *text == '\0')
        return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    switch (*end) {
    case 'G':
    case 'g': value <<= 10; /* fall through */
    case 'M':
    case 'm': value <<= 10; /* fall through */
    case 'K':
    case 'k':
        value <<= 10;
        end++;
        break;
    default: break;
    }
    if (*end != '\0' || *text == '-') {
        tempi_emu_say("%s=%s is no number; taken as %llu", name, text,
                      (unsigned long long)otherwise);
        return otherwise;
    }
    return value;
}

/* A version such as 12.4 as a number, by the given units: 12040 or 124. */
static int version(const char *name, int otherwise, int major_unit, int minor_unit)
{
    const char *const text = getenv(name);
    int major = 0;
    int minor = 0;
    if (text == NULL || *text == '\0')
        return otherwise;
    if (sscanf(text, "%d.%d", &major, &minor) != 2) {
        tempi_emu_say("%s=%s is not of the form 12.4", name, text);
        return otherwise;
    }
    return major * major_unit + minor * minor_unit;
}

TEMPI_EMU_API int tempi_emulator_streams(const char *mode);
/* Sets when stream work runs: immediate, deferred or random. 0: understood. */
TEMPI_EMU_API int tempi_emulator_streams(const char *mode)
{
    static const char *const names[] = {"immediate", "deferred", "random"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(mode, names[i]) == 0) {
            tempi_emu_option.mode = (tempi_emu_mode)i;
            return 0;
        }
    }
    return 1;
}

static void stream_mode(void)
{
    const char *const text = getenv("TEMPI_EMULATOR_STREAMS");
    tempi_emu_option.mode = EMU_DEFERRED;
    if (text != NULL && *text != '\0' && tempi_emulator_streams(text) != 0)
        tempi_emu_say("TEMPI_EMULATOR_STREAMS=%s: choose immediate, deferred or random", text);
}

TEMPI_EMU_API int tempi_emulator_pageable(const char *mode);
/* Sets when asynchronous copies access pageable memory: staged or late. 0: understood. */
TEMPI_EMU_API int tempi_emulator_pageable(const char *mode)
{
    const bool late = strcmp(mode, "late") == 0;
    if (!late && strcmp(mode, "staged") != 0)
        return 1;
    tempi_emu_option.late_pageable = late;
    return 0;
}

static void pageable_copies(void)
{
    const char *const text = getenv("TEMPI_EMULATOR_PAGEABLE");
    if (text != NULL && *text != '\0' && tempi_emulator_pageable(text) != 0)
        tempi_emu_say("TEMPI_EMULATOR_PAGEABLE=%s: choose staged or late", text);
}

void tempi_emu_options_read(void)
{
    tempi_emu_options *const o = &tempi_emu_option;
    const uint64_t devices = number("TEMPI_EMULATOR_DEVICES", 1);
    o->devices = devices > EMU_DEVICES ? EMU_DEVICES : (int)devices;
    o->memory = number("TEMPI_EMULATOR_MEMORY", 4ull << 30);
    /* The variable is in microseconds. */
    tempi_emulator_delay_ns = number("TEMPI_EMULATOR_DELAY", 2000) * 1000;
    o->seed = number("TEMPI_EMULATOR_SEED", 1);
    o->capability = version("TEMPI_EMULATOR_CAPABILITY", 90, 10, 1);
    /* Not named TEMPI_*: those variables are the user's, and are removed by what starts tests on a
     * GPU. */
    o->rehearsal = getenv("_TEMPI_REHEARSAL") != NULL;
    o->driver = version("TEMPI_EMULATOR_DRIVER", o->rehearsal ? 13000 : 12040, 1000, 10);
    o->pageable_access = number("TEMPI_EMULATOR_PAGEABLE_ACCESS", 0) != 0;
    stream_mode();
    pageable_copies();
    o->modules = getenv("TEMPI_EMULATOR_MODULES");
    o->report = getenv("TEMPI_EMULATOR_REPORT");
    chance = o->seed;
}

/* splitmix64 */
uint64_t tempi_emu_random(void)
{
    uint64_t x = chance += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}
