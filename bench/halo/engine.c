/* engine.c: access to tempi, if it was preloaded. The program neither needs nor links it. */
#include "halo.h"
#include "tempi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int searched;
    int active;
    char reason[256];
    void (*disable)(void);
    void (*enable)(void);
    int (*count)(void);
    const char *(*name)(int);
    uint64_t (*value)(int);
    int (*query)(tempi_engine_info *);
    void *(*symbol)(const char *);
} engine;

/* ISO C has no cast from a data to a function pointer; POSIX promises that the bytes are the
 * same. */
static int bind_symbol(const char *name, void *slot)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

int engine_found(void)
{
    if (engine.searched)
        return engine.active;
    engine.searched = 1;
    if (!(bind_symbol("tempi_disable", &engine.disable) &&
          bind_symbol("tempi_enable", &engine.enable) &&
          bind_symbol("tempi_stats_count", &engine.count) &&
          bind_symbol("tempi_stats_name", &engine.name) &&
          bind_symbol("tempi_stats_value", &engine.value) &&
          bind_symbol("tempi_engine_query", &engine.query) &&
          bind_symbol("tempi_engine_symbol", &engine.symbol))) {
        snprintf(engine.reason, sizeof engine.reason, "tempi is not preloaded");
        return 0;
    }
    tempi_engine_info info = {0};
    const int status = engine.query(&info);
    engine.active = status == TEMPI_OK && info.active;
    if (!engine.active)
        snprintf(engine.reason, sizeof engine.reason, "%s",
                 info.reason ? info.reason : "tempi is preloaded but does not act");
    return engine.active;
}

const char *engine_reason(void)
{
    return engine.reason;
}

void engine_disable(void)
{
    if (engine.active)
        engine.disable();
}

void engine_enable(void)
{
    if (engine.active)
        engine.enable();
}

void *engine_library_function(const char *name)
{
    return engine_found() ? engine.symbol(name) : NULL;
}

/* tempi interposes this query to report itself, so ask the library's own function. */
int engine_library_aware(void)
{
    static const char name[] = "MPIX_Query_cuda_support";
    const char *said = getenv("TEMPI_CUDA_AWARE");
    int (*query)(void) = NULL;
    if (said)
        return strcmp(said, "0") != 0;
    (void)engine_found(); /* binds engine.symbol */
    if (engine.symbol) {
        void *symbol = engine.symbol(name);
        memcpy(&query, &symbol, sizeof symbol);
    } else {
        (void)bind_symbol(name, &query);
    }
    return query && query() == 1;
}

int engine_counters(void)
{
    return engine.active ? engine.count() : 0;
}

const char *engine_counter_name(int i)
{
    return engine.name(i);
}

uint64_t engine_counter(int i)
{
    return engine.value(i);
}
