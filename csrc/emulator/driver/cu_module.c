/* cu_module.c: loads PTX images by their translation.
 *
 * A PTX text was translated to C and compiled at build time (`python -m tempi.emulator`). The
 * translation is found by the text's hash: tempi-ptx-<hash>.so beside this library, or in a
 * directory of TEMPI_EMULATOR_MODULES. Machine code for real devices is refused, as by a device of
 * another kind. */
#include "emulator/driver/cu_module.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { PATH = 4096 };

static struct tempi_emu_module *modules;

size_t tempi_emu_module_count(void)
{
    size_t n = 0;
    for (const struct tempi_emu_module *m = modules; m != NULL; m = m->next)
        n++;
    return n;
}

static bool known(const struct tempi_emu_module *module)
{
    for (const struct tempi_emu_module *m = modules; m != NULL; m = m->next)
        if (m == module)
            return true;
    return false;
}

bool tempi_emu_entry_known(const struct tempi_emu_entry *entry)
{
    for (const struct tempi_emu_module *m = modules; m != NULL; m = m->next)
        if (entry >= m->functions && entry < m->functions + m->ptx->kernels)
            return true;
    return false;
}

static uint64_t fnv1a(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return hash;
}

/* ---- finding the translation ----------------------------------------------------------------- */

static void *open_in(const char *directory, size_t length, uint64_t hash)
{
    char path[PATH];
    const int used = snprintf(path, sizeof path, "%.*s/tempi-ptx-%016llx.so", (int)length,
                              directory, (unsigned long long)hash);
    return used > 0 && used < PATH ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_translation(uint64_t hash)
{
    Dl_info self;
    void *found = NULL;
    for (const char *at = tempi_emu_option.modules; found == NULL && at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, ":");
        found = open_in(at, length, hash);
        at += length + (at[length] == ':');
    }
    if (found == NULL && dladdr((void *)(uintptr_t)&open_translation, &self) != 0) {
        const char *const slash = strrchr(self.dli_fname, '/');
        if (slash != NULL)
            found = open_in(self.dli_fname, (size_t)(slash - self.dli_fname), hash);
    }
    return found;
}

static bool is_machine_code(const unsigned char *image)
{
    static const unsigned char kinds[3][4] = {
        {0x7f, 'E', 'L', 'F'}, {0x50, 0xed, 0x55, 0xba}, {0xb1, 0x43, 0x62, 0x46}};
    for (int i = 0; i < 3; i++)
        if (memcmp(image, kinds[i], 4) == 0)
            return true;
    return false;
}

/* The newest PTX ISA of a driver: 8.0 came with CUDA 12.0, 9.0 with 13.0, and so on. */
static uint32_t newest_isa(void)
{
    const int major = tempi_emu_option.driver / 1000;
    const int minor = tempi_emu_option.driver % 1000 / 10;
    return (uint32_t)((major - 4) * 10 + minor);
}

static CUresult check(const tempi_ptx_module *ptx, uint64_t hash, size_t length)
{
    if (ptx == NULL || ptx->abi != TEMPI_PTX_ABI || ptx->hash != hash || ptx->length != length) {
        tempi_emu_say(
            "the translation of this PTX was made for another version; translate it again");
        return CUDA_ERROR_INVALID_PTX;
    }
    if (ptx->isa > newest_isa()) {
        tempi_emu_say("PTX of ISA %u.%u; this driver knows up to %u.%u (TEMPI_EMULATOR_DRIVER)",
                      ptx->isa / 10, ptx->isa % 10, newest_isa() / 10, newest_isa() % 10);
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    if (ptx->target > (uint32_t)tempi_emu_option.capability) {
        tempi_emu_say("PTX for sm_%u; this device is sm_%d", ptx->target,
                      tempi_emu_option.capability);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return CUDA_SUCCESS;
}

/* ---- loading --------------------------------------------------------------------------------- */

static CUresult place_variables(struct tempi_emu_module *module)
{
    const tempi_ptx_module *const ptx = module->ptx;
    tempi_emu_range *range;
    if (ptx->variables_size == 0)
        return CUDA_SUCCESS;
    const CUresult result = tempi_emu_allocate(module->context, module->context->device,
                                               ptx->variables_size, EMU_VARIABLES, &range);
    if (result != CUDA_SUCCESS)
        return result;
    module->variables = range->base;
    memset(range->bytes, 0, range->size);
    for (uint32_t i = 0; i < ptx->variables; i++)
        memcpy(range->bytes + ptx->variable[i].offset, ptx->variable[i].values,
               ptx->variable[i].given);
    return CUDA_SUCCESS;
}

static CUresult make(tempi_emu_context *context, void *library, const tempi_ptx_module *ptx,
                     CUmodule *module)
{
    struct tempi_emu_module *const made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = context;
    made->library = library;
    made->ptx = ptx;
    made->functions = calloc(ptx->kernels ? ptx->kernels : 1, sizeof *made->functions);
    CUresult result = made->functions == NULL ? CUDA_ERROR_OUT_OF_MEMORY : place_variables(made);
    if (result != CUDA_SUCCESS) {
        free(made->functions);
        free(made);
        return result;
    }
    for (uint32_t i = 0; i < ptx->kernels; i++) {
        made->functions[i].kernel = &ptx->kernel[i];
        made->functions[i].module = made;
        made->functions[i].dynamic_shared = 49152 - (int)ptx->kernel[i].shared_size;
    }
    made->next = modules;
    modules = made;
    *module = made;
    return CUDA_SUCCESS;
}

static CUresult load(tempi_emu_context *context, CUmodule *module, const void *image)
{
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_machine_code(image))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const size_t length = strlen(image);
    const uint64_t hash = fnv1a(image, length);
    void *const library = open_translation(hash);
    if (library == NULL) {
        tempi_emu_say("this PTX (%zu bytes, hash %016llx) has no translation; make one with "
                      "`python -m tempi.emulator translate FILE.ptx --out DIR` and set "
                      "TEMPI_EMULATOR_MODULES=DIR",
                      length, (unsigned long long)hash);
        return CUDA_ERROR_INVALID_PTX;
    }
    const tempi_ptx_module *const ptx = dlsym(library, "tempi_ptx");
    CUresult result = check(ptx, hash, length);
    if (result == CUDA_SUCCESS)
        result = make(context, library, ptx, module);
    if (result != CUDA_SUCCESS)
        dlclose(library);
    return result;
}

CUresult TEMPI_EMU_API cuModuleLoadData(CUmodule *module, const void *image);
CUresult TEMPI_EMU_API cuModuleLoadData(CUmodule *module, const void *image)
{
    tempi_emu_context *context;
    const CUresult result = tempi_emu_enter(EMU_cuModuleLoadData, EMU_CONTEXT, &context);
    return result != CUDA_SUCCESS ? result : tempi_emu_leave(load(context, module, image));
}

/* Unloads a module whose work is done. */
static void unload(struct tempi_emu_module *module)
{
    struct tempi_emu_module **place = &modules;
    while (*place != module)
        place = &(*place)->next;
    *place = module->next;
    tempi_emu_range *const range = tempi_emu_range_find(module->variables);
    if (module->variables != 0 && range != NULL)
        tempi_emu_release(range);
    dlclose(module->library);
    free(module->functions);
    free(module);
}

void tempi_emu_modules_end(const tempi_emu_context *context)
{
    for (struct tempi_emu_module *m = modules, *next; m != NULL; m = next) {
        next = m->next;
        if (m->context == context)
            unload(m);
    }
}

CUresult TEMPI_EMU_API cuModuleUnload(CUmodule module);
CUresult TEMPI_EMU_API cuModuleUnload(CUmodule module)
{
    CUresult result = tempi_emu_enter(EMU_cuModuleUnload, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!known(module))
        return tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
    result = tempi_emu_drive_context(module->context);
    unload(module);
    return tempi_emu_leave(result);
}

CUresult TEMPI_EMU_API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult TEMPI_EMU_API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    const CUresult result = tempi_emu_enter(EMU_cuModuleGetFunction, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (function == NULL || name == NULL)
        return tempi_emu_leave(CUDA_ERROR_INVALID_VALUE);
    if (!known(module))
        return tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
    for (uint32_t i = 0; i < module->ptx->kernels; i++) {
        if (strcmp(module->ptx->kernel[i].name, name) == 0) {
            *function = &module->functions[i];
            return tempi_emu_leave(CUDA_SUCCESS);
        }
    }
    return tempi_emu_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult TEMPI_EMU_API cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *size, CUmodule module,
                                            const char *name);
CUresult TEMPI_EMU_API cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *size, CUmodule module,
                                            const char *name)
{
    const CUresult result = tempi_emu_enter(EMU_cuModuleGetGlobal_v2, EMU_CONTEXT, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    if (!known(module))
        return tempi_emu_leave(CUDA_ERROR_INVALID_HANDLE);
    for (uint32_t i = 0; i < module->ptx->variables; i++) {
        const tempi_ptx_variable *const variable = &module->ptx->variable[i];
        if (strcmp(variable->name, name) != 0)
            continue;
        if (pointer != NULL)
            *pointer = module->variables + variable->offset;
        if (size != NULL)
            *size = variable->size;
        return tempi_emu_leave(CUDA_SUCCESS);
    }
    return tempi_emu_leave(CUDA_ERROR_NOT_FOUND);
}
