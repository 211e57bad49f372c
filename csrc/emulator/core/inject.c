/* inject.c: failures on demand.
 *
 * TEMPI_EMULATOR_FAIL=<function>:<k>[:<error>],... the k-th call of that function fails, once, by
 * the error's number or name; by the word `lost` the device is lost: that call fails and all that
 * follow. <function> is a name without its version suffix, or `any`, which counts all functions
 * together.
 */
#include "emulator/core/emulator.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { RULES = 32, NAME = 64, LOST = -1 };

typedef struct {
    char name[NAME];
    uint64_t call;
    int error;
} rule;

static rule rules[RULES];
static _Atomic int rule_count;
static _Atomic uint64_t all_calls;

static const struct {
    const char *name;
    int value;
} errors[] = {
#define TEMPI_EMU_ROW(name, value, text) {#name, value},
    TEMPI_EMU_RESULTS(TEMPI_EMU_ROW)
#undef TEMPI_EMU_ROW
};

/* The most likely error of a function. */
static int usual_error(const char *name)
{
    if (strstr(name, "Alloc") != NULL || strstr(name, "Create") != NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (strstr(name, "Launch") != NULL)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return CUDA_ERROR_UNKNOWN;
}

static int error_of(const char *text, const char *function)
{
    if (*text == '\0')
        return usual_error(function);
    if (strcmp(text, "lost") == 0)
        return LOST;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, text) == 0)
            return errors[i].value;
    return atoi(text);
}

static bool add_rule(const char *text)
{
    char error[NAME] = "";
    unsigned long long call = 0;
    rule made;
    const int count = atomic_load(&rule_count);
    if (sscanf(text, "%63[A-Za-z0-9]:%llu:%63s", made.name, &call, error) < 2 || call == 0)
        return false;
    if (count == RULES)
        return false;
    made.call = call;
    made.error = error_of(error, made.name);
    if (made.error == 0)
        return false;
    rules[count] = made;
    atomic_store(&rule_count, count + 1);
    return true;
}

TEMPI_EMU_API int tempi_emulator_fail(const char *text);
/* Like the variable, counting calls from the driver's start; "" removes all rules. 0:
 * understood. */
TEMPI_EMU_API int tempi_emulator_fail(const char *text)
{
    char each[3 * NAME];
    if (*text == '\0')
        atomic_store(&rule_count, 0);
    while (*text != '\0') {
        const size_t length = strcspn(text, ",");
        if (length >= sizeof each)
            return 1;
        memcpy(each, text, length);
        each[length] = '\0';
        if (!add_rule(each))
            return 1;
        text += length + (text[length] == ',');
    }
    return 0;
}

void tempi_emu_inject_read(void)
{
    const char *const text = getenv("TEMPI_EMULATOR_FAIL");
    if (text != NULL && tempi_emulator_fail(text) != 0)
        tempi_emu_say("TEMPI_EMULATOR_FAIL=%s is not <function>:<k>[:<error>]", text);
}

CUresult tempi_emu_inject(tempi_emu_function function, uint64_t call, bool *lost)
{
    const uint64_t all = atomic_fetch_add(&all_calls, 1) + 1;
    const int count = atomic_load(&rule_count);
    for (int i = 0; i < count; i++) {
        const bool any = strcmp(rules[i].name, "any") == 0;
        if (rules[i].call != (any ? all : call))
            continue;
        if (!any && strcmp(rules[i].name, tempi_emu_function_name(function)) != 0)
            continue;
        *lost = rules[i].error == LOST;
        return *lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : rules[i].error;
    }
    return CUDA_SUCCESS;
}
