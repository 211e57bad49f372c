#include "choose/processor.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value after "name : " in the first processor's lines. */
static const char *line_of(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += length) {
        const char *end = at + length + strspn(at + length, " \t");
        if ((at == text || at[-1] == '\n') && *end == ':')
            return end + 1 + strspn(end + 1, " \t");
    }
    return NULL;
}

static int number_of(const char *text, const char *name)
{
    const char *value = line_of(text, name);
    return value ? atoi(value) : 0;
}

static int cache_kib(int index)
{
    char path[80], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    return tempi_text_read(path, text, sizeof text) ? atoi(text) : 0;
}

/* Classified as the host kernels do (pack/isa.c). */
static const char *isa_of(const char *text)
{
    const char *flags = line_of(text, "flags");
    if (!flags)
        return "scalar";
    return strstr(flags, " avx512_vbmi ") || strstr(flags, " avx512vbmi ") ? "avx512"
           : strstr(flags, " avx2 ")                                       ? "avx2"
                                                                           : "sse2";
}

void tempi_processor_read(tempi_processor *out)
{
    /* The first processor's lines suffice; with many processors the file is long. */
    char text[4096];
    memset(out, 0, sizeof *out);
    if (!tempi_text_read("/proc/cpuinfo", text, sizeof text))
        return;
    const char *vendor = line_of(text, "vendor_id");
    if (vendor)
        (void)sscanf(vendor, "%15[A-Za-z]", out->vendor);
    out->family = number_of(text, "cpu family");
    out->model = number_of(text, "model");
    snprintf(out->isa, sizeof out->isa, "%s", isa_of(text));
    out->l2 = cache_kib(2);
    out->l3 = cache_kib(3);
}

static bool is_off(const char *name)
{
    const char *value = getenv(name);
    return value && (strcmp(value, "0") == 0 || strcmp(value, "no") == 0 ||
                     strcmp(value, "false") == 0 || strcmp(value, "none") == 0);
}

/* A list of Open MPI's components without that one, or after "^" one of those that it must not
 * use. */
static bool excludes(const char *name, const char *component)
{
    const char *value = getenv(name);
    return value && *value && (strstr(value, component) == NULL) == (*value != '^');
}

static bool permits_cma(bool mpich)
{
    char text[16];
    const int scope = tempi_text_read("/proc/sys/kernel/yama/ptrace_scope", text, sizeof text)
                          ? atoi(text)
                          : 0;
    if (mpich)
        return scope == 0 && !is_off("MPIR_CVAR_CH4_CMA_ENABLE");
    /* Open MPI permits its ranks to read one another if the scope is 1. */
    return scope < 2 && !excludes("OMPI_MCA_smsc", "cma") &&
           !excludes("OMPI_MCA_btl_vader_single_copy_mechanism", "cma");
}

static bool permits_xpmem(bool mpich)
{
    if (access("/dev/xpmem", R_OK | W_OK) != 0)
        return false;
    return mpich ? !is_off("MPIR_CVAR_CH4_XPMEM_ENABLE")
                 : !excludes("OMPI_MCA_smsc", "xpmem") &&
                       !excludes("OMPI_MCA_btl_vader_single_copy_mechanism", "xpmem");
}

tempi_single_copy tempi_processor_single_copy(const char *version)
{
    const bool mpich = strstr(version, "MPICH") != NULL;
    if (strstr(version, "Intel(R) MPI")) /* 2021.18: through shared memory alone */
        return TEMPI_SINGLE_COPY_NONE;
    if (permits_xpmem(mpich))
        return TEMPI_SINGLE_COPY_XPMEM;
    return permits_cma(mpich) ? TEMPI_SINGLE_COPY_CMA : TEMPI_SINGLE_COPY_NONE;
}
