/* call_counts.c: the functions by name, their call counts, and the objects still alive. */
#include "emulator/core/emulator.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

_Atomic uint64_t tempi_emu_calls[TEMPI_EMU_FUNCTIONS];
_Atomic uint64_t tempi_emu_launches;

static const char *const symbols[] = {
#define TEMPI_EMU_SYMBOL(name) #name,
    TEMPI_EMU_TABLE(TEMPI_EMU_SYMBOL)
#undef TEMPI_EMU_SYMBOL
};

/* The length of a symbol's name without a version suffix such as _v2. */
static size_t plain_length(const char *symbol)
{
    const char *const suffix = strstr(symbol, "_v");
    return suffix != NULL ? (size_t)(suffix - symbol) : strlen(symbol);
}

static bool same(const char *symbol, const char *name)
{
    const size_t length = plain_length(symbol);
    return strlen(name) == length && strncmp(symbol, name, length) == 0;
}

const char *tempi_emu_function_name(tempi_emu_function function)
{
    static _Thread_local char name[64];
    const size_t length = plain_length(symbols[function]);
    memcpy(name, symbols[function], length);
    name[length] = '\0';
    return name;
}

/* The newest version of a function, as cuGetProcAddress returns it. */
void *tempi_emu_function_find(const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < TEMPI_EMU_FUNCTIONS; i++)
        if (same(symbols[i], name) || strcmp(symbols[i], name) == 0)
            found = symbols[i]; /* later rows are later versions */
    if (strcmp(name, "cuGetProcAddress_v1") == 0)
        found = "cuGetProcAddress";
    Dl_info self;
    if (found == NULL || dladdr((void *)(uintptr_t)&tempi_emu_function_find, &self) == 0)
        return NULL;
    void *const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        return NULL;
    void *const address = dlsym(library, found);
    dlclose(library);
    return address;
}

TEMPI_EMU_API uint64_t tempi_emulator_count(const char *name);
/* Number of calls of a function in all its versions, failed calls included; "": of all
 * functions. */
TEMPI_EMU_API uint64_t tempi_emulator_count(const char *name)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < TEMPI_EMU_FUNCTIONS; i++)
        if (*name == '\0' || same(symbols[i], name))
            calls += atomic_load(&tempi_emu_calls[i]);
    return calls;
}

TEMPI_EMU_API void tempi_emulator_counts_reset(void);
TEMPI_EMU_API void tempi_emulator_counts_reset(void)
{
    for (size_t i = 0; i < TEMPI_EMU_FUNCTIONS; i++)
        atomic_store(&tempi_emu_calls[i], 0);
}

static size_t ranges_of(unsigned kinds)
{
    size_t n = 0;
    for (size_t i = 0; i < tempi_emu_range_count(); i++)
        n += kinds >> tempi_emu_range_at(i)->kind & 1;
    return n;
}

/* The kinds of objects that a program creates and has to free. */
static const struct {
    const char *name;
    unsigned kinds;
    size_t (*count)(void);
} things[] = {
    {"device", 1u << EMU_DEVICE, NULL},    {"pool", 1u << EMU_POOL, NULL},
    {"mapped", 1u << EMU_MAPPED, NULL},    {"managed", 1u << EMU_MANAGED, NULL},
    {"host", 1u << EMU_HOST, NULL},        {"registered", 1u << EMU_REGISTERED, NULL},
    {"stream", 0, tempi_emu_stream_count}, {"event", 0, tempi_emu_event_count},
    {"module", 0, tempi_emu_module_count},
};

enum { THINGS = sizeof things / sizeof *things };

TEMPI_EMU_API int64_t tempi_emulator_live(const char *name);
/* Number of live objects of a kind; -1: unknown kind. */
TEMPI_EMU_API int64_t tempi_emulator_live(const char *name)
{
    int64_t n = -1;
    tempi_emu_lock();
    for (size_t i = 0; i < THINGS; i++)
        if (strcmp(things[i].name, name) == 0)
            n = (int64_t)(things[i].count != NULL ? things[i].count() : ranges_of(things[i].kinds));
    tempi_emu_unlock();
    return n;
}

/* Appends one line of JSON in one write, so that processes can share the file. */
void tempi_emu_report(void)
{
    static char text[16384];
    const char *const path = tempi_emu_option.report;
    if (path == NULL || *path == '\0')
        return;
    size_t used = (size_t)snprintf(text, sizeof text, "{\"pid\": %d, \"calls\": {", (int)getpid());
    const char *comma = "";
    for (size_t i = 0; i < TEMPI_EMU_FUNCTIONS; i++) {
        const uint64_t calls = atomic_load(&tempi_emu_calls[i]);
        if (calls == 0)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": %llu", comma,
                                 symbols[i], (unsigned long long)calls);
        comma = ", ";
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "}, \"live\": {");
    for (size_t i = 0; i < THINGS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": %lld", i ? ", " : "",
                                 things[i].name, (long long)tempi_emulator_live(things[i].name));
    used += (size_t)snprintf(text + used, sizeof text - used, "}}\n");
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, used) != (ssize_t)used)
        tempi_emu_say("cannot write %s", path);
    if (fd >= 0)
        close(fd);
}
